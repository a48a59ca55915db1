"""Values under keys in nested namespaces, found by their words: the store of LangGraph."""

# Generated from heardlog/_async by tools/generate.py; do not edit.

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _http
from ..errors import NotFoundError

if TYPE_CHECKING:
    from .client import Heardlog


class Row(NamedTuple):
    """A value and where it is kept."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None


class Store:
    """Keeps values in key-value namespaces, and their words in a collection of documents.

    Args:
        name: The first part of the names of the namespaces, and the name of the collection.
    """

    def __init__(self, log: Heardlog, name: str) -> None:
        self._log = log
        self._name = name

    def _space(self, namespace: Sequence[str]) -> str:
        return ".".join((self._name, *namespace))

    def get(self, namespace: tuple[str, ...], key: str, refresh: bool) -> Row | None:
        """Returns the value under a key, or None."""
        path = _http.join("kv", self._space(namespace), key)
        try:
            entry = self._log.request("GET", path)
        except NotFoundError:
            return None
        if refresh:
            self._refresh(namespace, [entry])
        return _row(namespace, key, entry["value"])

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        words: str | None,
        ttl: float | None,
    ) -> None:
        """Stores a value.

        Args:
            words: What a search finds it by; None if no search with a query should.
            ttl: How many minutes it is kept after its last use.
        """
        now = datetime.now(timezone.utc).isoformat()
        old = self.get(namespace, key, False)
        created = old.created_at.isoformat() if old else now
        record = {"value": dict(value), "created_at": created, "updated_at": now, "ttl": ttl}
        body = {"value": record, "ttl_seconds": _seconds(ttl)}
        path = _http.join("kv", self._space(namespace), key)
        self._log.request("PUT", path, json=body)
        document = _http.join("vectors", self._name, _document(namespace, key))
        if not words:
            self._log.request("DELETE", document)
            return
        places = {f"in.{i}": ".".join(namespace[:i]) for i in range(1, len(namespace) + 1)}
        metadata = {"namespace": list(namespace), "key": key, **places}
        words = words.encode()[:60_000].decode(errors="ignore")
        self._log.request("PUT", document, json={"content": words, "metadata": metadata})

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """Deletes a value."""
        document = _http.join("vectors", self._name, _document(namespace, key))
        self._log.request("DELETE", document)
        self._log.request("DELETE", _http.join("kv", self._space(namespace), key))

    def all(self, prefix: tuple[str, ...], refresh: bool) -> list[Row]:
        """Returns the values in a namespace and those below it, the first stored first."""
        rows: list[Row] = []
        for namespace in self.namespaces():
            if namespace[: len(prefix)] != prefix:
                continue
            path = _http.join("kv", self._space(namespace))
            keys = [k["key"] for k in self._log._pages(path, "keys", {}, None, 1000)]
            rows += self._read(namespace, keys, refresh)
        return sorted(rows, key=lambda row: row.created_at)

    def search(self, prefix: tuple[str, ...], query: str, refresh: bool) -> list[Row]:
        """Returns the values that have words of the query, the best first, then the others."""
        body: dict[str, Any] = {"query": query, "k": 1000}
        if prefix:
            body["filter"] = {f"in.{len(prefix)}": ".".join(prefix)}
        path = _http.join("vectors", self._name, "search")
        found = self._log.request("POST", path, json=body, repeatable=True)
        scores = {
            (tuple(hit["metadata"]["namespace"]), str(hit["metadata"]["key"])): hit["score"]
            for hit in found["results"]
        }
        rows = self.all(prefix, refresh)
        scored = [
            row._replace(score=scores[row.namespace, row.key])
            for row in rows
            if (row.namespace, row.key) in scores
        ]
        scored.sort(key=lambda row: row.score or 0.0, reverse=True)
        return scored + [row for row in rows if (row.namespace, row.key) not in scores]

    def namespaces(self) -> list[tuple[str, ...]]:
        """Returns the namespaces that hold values."""
        first = self._name + "."
        pages = self._log._pages("/kv", "namespaces", {}, None, 1000)
        names = [name for name in pages]
        return [tuple(n[len(first) :].split(".")) for n in names if n.startswith(first)]

    def recall(self, user_id: str, query: str, limit: int) -> list[Row]:
        """Returns what a caller said and heard in any call, and what is known of them."""
        found = self._log.recall(user_id, query, k=min(limit, 100))
        if found["strength"] == "none":  # nothing of it is about the query
            return []
        rows = []
        for hit in found["hits"]:
            value = {k: v for k, v in hit.items() if k not in ("score", "explain")}
            when = _time(hit["at"])
            rows.append(Row((), str(hit["id"]), value, when, when, float(hit["score"])))
        return rows

    def _read(self, namespace: tuple[str, ...], keys: Sequence[str], refresh: bool) -> list[Row]:
        """Returns the values under keys of one namespace, which are read 100 at a time."""
        rows: list[Row] = []
        path = _http.join("kv", self._space(namespace), "batch", "get")
        for first in range(0, len(keys), 100):
            body = {"keys": keys[first : first + 100]}
            answer = self._log.request("POST", path, json=body, repeatable=True)
            if refresh:
                self._refresh(namespace, answer["entries"])
            rows += [_row(namespace, e["key"], e["value"]) for e in answer["entries"]]
        return rows

    def _refresh(self, namespace: tuple[str, ...], entries: Sequence[Any]) -> None:
        """Lets values with an end live on from now."""
        for entry in entries:
            ttl = entry["value"].get("ttl")
            if ttl is None or "expires_at" not in entry:
                continue
            path = _http.join("kv", self._space(namespace), entry["key"], "expire")
            with contextlib.suppress(NotFoundError):  # it has just ended
                self._log.request("POST", path, json={"ttl_seconds": _seconds(ttl)})


def _row(namespace: tuple[str, ...], key: str, record: Any) -> Row:
    created, updated = _time(record["created_at"]), _time(record["updated_at"])
    return Row(namespace, key, record["value"], created, updated)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return datetime.fromtimestamp(0, timezone.utc)


def _seconds(ttl: float | None) -> int | None:
    return None if ttl is None else max(1, math.ceil(ttl * 60))


def _document(namespace: Sequence[str], key: str) -> str:
    """Returns the ID of the document of a value: IDs of documents are shorter than keys may be."""
    return hashlib.sha256("\0".join((*namespace, key)).encode()).hexdigest()
