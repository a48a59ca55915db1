"""The facts of one caller."""

# Generated from heardlog/_async by tools/generate.py; do not edit.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import _http, models

if TYPE_CHECKING:
    from .client import Heardlog


class Facts:
    """The facts of one caller: statements with their proof. ``Heardlog.facts`` returns it.

    Iterating yields the active facts, the last seen first.
    """

    def __init__(self, log: Heardlog, user_id: str) -> None:
        self._log = log
        self.user_id = user_id
        self._path = _http.join("users", user_id, "facts")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.user_id!r})"

    def __iter__(self) -> Iterator[models.Fact]:
        return self.find()

    def find(
        self,
        *,
        topic: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        as_of: str | None = None,
        limit: int | None = None,
    ) -> Iterator[models.Fact]:
        """Yields facts, the last seen first.

        Args:
            topic: A whole topic, in any case.
            state: States such as ``active,draft``, or ``all``. Default: ``active``.
            as_of: A time: what was held to be true then.
            limit: How many at most. Default: all.
        """
        params = _http.given(topic=topic, kind=kind, state=state, as_of=as_of)
        for fact in self._log._pages(self._path, "facts", params, limit, 1000):
            yield fact

    def add(
        self,
        content: str,
        *,
        topics: Iterable[str] | None = None,
        kind: str | None = None,
        confidence: float | None = None,
        source: models.FactSource | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> models.Fact:
        """Adds a fact.

        Args:
            content: What is true of the caller, in one sentence of at most 300 characters.
            source: The messages that prove it. A quote that was not heard there is refused.
            fields: Other fields of a fact, such as ``id`` or ``valid_to``.
        """
        body = _http.given(
            content=_http.text("content", content),
            topics=None if topics is None else list(topics),
            kind=kind,
            confidence=confidence,
            source=source,
            **fields,
        )
        fact: models.Fact = self._log._post(self._path, body, idempotency_key)
        return fact

    def get(self, fact_id: str) -> models.Fact:
        """Returns a fact, whatever its state. NotFoundError if there is none."""
        fact: models.Fact = self._log.request("GET", self._path + _http.join(fact_id))
        return fact

    def change(self, fact_id: str, **fields: Any) -> models.Fact:
        """Changes the fields that are given, such as ``content`` or ``confidence``."""
        fact: models.Fact = self._log.request(
            "PATCH", self._path + _http.join(fact_id), json=fields
        )
        return fact

    def delete(self, fact_id: str) -> None:
        """Deletes a fact."""
        self._log.request("DELETE", self._path + _http.join(fact_id))

    def clear(self) -> None:
        """Deletes all facts of the caller."""
        self._log.request("DELETE", self._path)

    def search(
        self, query: str, *, top_k: int | None = None, match: str = "words", **fields: Any
    ) -> list[models.Fact]:
        """Returns the facts with a query in their content or topics, the surest first.

        Args:
            match: ``words``, at least one word that carries meaning, or ``substring``, the whole.
        """
        body = _http.given(query=query, top_k=top_k, match=match, **fields)
        answer = self._log.request("POST", self._path + "/search", json=body, repeatable=True)
        found: list[models.Fact] = answer["facts"]
        return found

    def block(self, **params: Any) -> str:
        """Returns the facts as a text for a prompt, or an empty string."""
        answer: models.FactBlock = self._log.request("GET", self._path + "/context", params=params)
        return answer["block"]
