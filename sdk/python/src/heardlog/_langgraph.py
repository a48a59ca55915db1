"""LangGraph's store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from langgraph.store.base.embed import get_text_at_path, tokenize_path

from ._async.store import AsyncRow, AsyncStore
from ._client import AsyncHeardlog, Heardlog
from ._sync.store import Row
from ._sync.store import Store as SyncStore
from .langchain import clients

# The namespace of what callers said: ("recall", user_id).
RECALL = "recall"


class Store(BaseStore):
    """LangGraph's ``BaseStore``: values in nested namespaces.

    A search with a query finds values by their words, and by their meaning where the server has a
    model for embeddings. A search in the namespace ``("recall", user_id)`` finds what that caller
    said and heard in any call, and the facts about them; it cannot be written.

    Args:
        name: Stores of different names share nothing. Letters, digits, dashes, underscores.
        ttl: LangGraph's settings of when values expire.
        index: The paths whose texts a query searches. Default: all.
    """

    supports_ttl = True

    def __init__(
        self,
        name: str = "langgraph",
        *,
        client: Heardlog | None = None,
        async_client: AsyncHeardlog | None = None,
        ttl: TTLConfig | None = None,
        index: list[str] | None = None,
    ) -> None:
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise ValueError(f"name: must be of letters, digits, dashes, underscores, not {name!r}")
        client, async_client = clients(client, async_client)
        self._store = SyncStore(client, name)
        self._async = AsyncStore(async_client, name)
        self.ttl_config = ttl
        self._index = index or ["$"]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations: those that read see the values before those that write."""
        results: list[Result] = []
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in ops:
            result: Result = None
            if isinstance(op, GetOp):
                row = self._store.get(op.namespace, op.key, op.refresh_ttl)
                result = None if row is None else _item(row)
            elif isinstance(op, SearchOp):
                if (user := _caller(op)) is not None:
                    rows = self._store.recall(user, op.query or "", op.offset + op.limit)
                elif op.query and op.query.strip():
                    rows = self._store.search(op.namespace_prefix, op.query, op.refresh_ttl)
                else:
                    rows = self._store.all(op.namespace_prefix, op.refresh_ttl)
                result = _found(op, rows)
            elif isinstance(op, ListNamespacesOp):
                result = _listed(op, self._store.namespaces())
            elif isinstance(op, PutOp):
                _check(op)
                puts[op.namespace, op.key] = op
            else:
                raise ValueError(f"Unknown operation type: {type(op)}")
            results.append(result)
        for op in puts.values():
            if op.value is None:
                self._store.delete(op.namespace, op.key)
            else:
                self._store.put(op.namespace, op.key, op.value, self._words(op), op.ttl)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations: those that read see the values before those that write."""
        results: list[Result] = []
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in ops:
            result: Result = None
            if isinstance(op, GetOp):
                row = await self._async.get(op.namespace, op.key, op.refresh_ttl)
                result = None if row is None else _item(row)
            elif isinstance(op, SearchOp):
                if (user := _caller(op)) is not None:
                    rows = await self._async.recall(user, op.query or "", op.offset + op.limit)
                elif op.query and op.query.strip():
                    rows = await self._async.search(op.namespace_prefix, op.query, op.refresh_ttl)
                else:
                    rows = await self._async.all(op.namespace_prefix, op.refresh_ttl)
                result = _found(op, rows)
            elif isinstance(op, ListNamespacesOp):
                result = _listed(op, await self._async.namespaces())
            elif isinstance(op, PutOp):
                _check(op)
                puts[op.namespace, op.key] = op
            else:
                raise ValueError(f"Unknown operation type: {type(op)}")
            results.append(result)
        for op in puts.values():
            if op.value is None:
                await self._async.delete(op.namespace, op.key)
            else:
                await self._async.put(op.namespace, op.key, op.value, self._words(op), op.ttl)
        return results

    def _words(self, op: PutOp) -> str | None:
        """Returns what a query finds a value by."""
        if op.index is False or op.value is None:
            return None
        texts: list[str] = []
        for path in op.index or self._index:
            if path == "$":
                texts += _texts(op.value)
            else:
                texts += get_text_at_path(op.value, tokenize_path(path))
        return "\n".join(texts) or None


def _texts(value: Any) -> list[str]:
    """Returns all texts within a value."""
    if isinstance(value, Mapping):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, (list, tuple)):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


def _caller(op: SearchOp) -> str | None:
    """Returns the caller whose calls are searched, or None if values are."""
    place = op.namespace_prefix
    if place[:1] != (RECALL,):
        return None
    if len(place) != 2:
        raise ValueError(f"namespace: must be ({RECALL!r}, user_id), not {place!r}")
    if not op.query:
        raise ValueError(f"query: is needed in the namespace ({RECALL!r}, user_id)")
    return place[1]


def _check(op: PutOp) -> None:
    if op.namespace[:1] == (RECALL,):
        raise ValueError(f"namespace: {RECALL!r} holds what callers said and cannot be written")


def _item(row: Row | AsyncRow) -> Item:
    return Item(
        value=row.value,
        key=row.key,
        namespace=row.namespace,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _found(op: SearchOp, rows: list[Row] | list[AsyncRow]) -> list[SearchItem]:
    fits = [
        row
        for row in rows
        if all(_fits(row.value.get(key), want) for key, want in (op.filter or {}).items())
    ]
    return [
        SearchItem(
            namespace=row.namespace or op.namespace_prefix,
            key=row.key,
            value=row.value,
            created_at=row.created_at,
            updated_at=row.updated_at,
            score=row.score,
        )
        for row in fits[op.offset : op.offset + op.limit]
    ]


def _fits(value: Any, want: Any) -> bool:
    """Reports whether a member has the value of a filter, or passes its operators."""
    if isinstance(want, Mapping):
        if any(str(key).startswith("$") for key in want):
            return all(_compare(key, value, operand) for key, operand in want.items())
        return isinstance(value, Mapping) and all(_fits(value.get(k), v) for k, v in want.items())
    if isinstance(want, (list, tuple)):
        same = isinstance(value, (list, tuple)) and len(value) == len(want)
        return same and all(_fits(v, w) for v, w in zip(value, want, strict=False))
    return bool(value == want)


def _compare(operator: str, value: Any, operand: Any) -> bool:
    if operator == "$eq":
        return bool(value == operand)
    if operator == "$ne":
        return bool(value != operand)
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise ValueError(f"filter: the operator {operator!r} is not known")
    try:
        left, right = float(value), float(operand)
    except (TypeError, ValueError):
        return False
    more = left > right or (operator == "$gte" and left == right)
    less = left < right or (operator == "$lte" and left == right)
    return more if operator.startswith("$g") else less


def _listed(op: ListNamespacesOp, namespaces: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    fits = {n for n in namespaces if all(_matches(c, n) for c in op.match_conditions or ())}
    if op.max_depth is not None:
        fits = {n[: op.max_depth] for n in fits}
    return sorted(fits)[op.offset : op.offset + op.limit]


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)]
    if condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    return all(want in ("*", have) for want, have in zip(path, part, strict=True))
