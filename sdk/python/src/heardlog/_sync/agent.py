"""One agent: one call, from its start to its end."""

# Generated from heardlog/_async by tools/generate.py; do not edit.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _http, models

if TYPE_CHECKING:
    from .client import Heardlog


class Agent:
    """One call. ``Heardlog.start`` and ``Heardlog.agent`` return it.

    In a ``with`` block the agent leaves at the end.

    Attributes:
        id: The agent's ID.
        inherited: What it took over from an earlier agent, if it was started that way.
    """

    def __init__(
        self, log: Heardlog, agent_id: str, inherited: models.Inherited | None = None
    ) -> None:
        self._log = log
        self.id = agent_id
        self.inherited = inherited
        self._path = _http.join("agents", agent_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.leave()

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients that talk for this agent."""
        return self._log.url + self._path

    @property
    def headers(self) -> dict[str, str]:
        """The headers that name this agent in a request to the server's base URL."""
        return {"X-Agent-Id": self.id}

    def openai(self, **options: Any) -> Any:
        """Returns an ``openai.OpenAI`` that talks for this agent.

        Send only what is new: the memory is put in front of it.

        Args:
            options: Other arguments of ``OpenAI``.
        """
        return self._log._openai(self.url, options)

    def info(self) -> models.AgentShown:
        """Returns what is known of the agent: status, caller, labels, tally and settings."""
        agent: models.AgentShown = self._log.request("GET", self._path)
        return agent

    def update(
        self,
        *,
        labels: Mapping[str, str | None] | None = None,
        llm: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> models.AgentShown:
        """Changes the fields that are given. A label of None is removed."""
        body = _http.given(labels=labels, llm=llm, **fields)
        agent: models.AgentShown = self._log.request(
            "PATCH", self._path, json=body, repeatable=True
        )
        return agent

    def append(
        self,
        *messages: models.NewMessage | Mapping[str, Any] | Iterable[Mapping[str, Any]],
        idempotency_key: str | None = None,
    ) -> list[models.LedgerEntry]:
        """Appends messages, all or none: ``append({"role": "user", "content": "Hello"})``.

        They are on disk when the call returns. A message whose ``id`` is stored already changes
        nothing.

        Args:
            messages: One or more messages, or a list of them; at most 1,000.

        Returns:
            The messages as stored.
        """
        body = {"messages": _http.message_list(messages)}
        answer = self._log._post(self._path + "/messages", body, idempotency_key)
        stored: list[models.LedgerEntry] = answer["messages"]
        return stored

    def interrupt(
        self,
        heard: str | None = None,
        *,
        heard_ms: int | None = None,
        turn_id: int | None = None,
        at: int | None = None,
    ) -> models.Interrupted:
        """Cuts the answer in progress, or else the last one, and reports what was heard of it.

        Args:
            heard: The text that was heard; empty if nothing was.
            heard_ms: How much audio was played, if the text is not known.
            turn_id: The turn whose answer was interrupted.
            at: When, in Unix milliseconds.
        """
        body = _http.given(heard=heard, heard_ms=heard_ms, turn_id=turn_id, at=at)
        done: models.Interrupted = self._log.request(
            "POST", self._path + "/interrupt", json=body, repeatable=True
        )
        return done

    def evidence(self, platform: str, event: Mapping[str, Any]) -> models.EvidenceAnswer:
        """Reports what was heard with an event of a voice platform, as the platform sends it."""
        answer: models.EvidenceAnswer = self._log.request(
            "POST",
            self._path + _http.join("evidence", platform),
            json=dict(event),
            repeatable=True,
        )
        return answer

    def history(
        self, limit: int | None = None, *, confidence: bool = False
    ) -> list[models.HistoryMessage]:
        """Returns the conversation as it was heard, oldest first.

        Args:
            limit: How many of the newest messages. Default: all.
            confidence: Adds ``metadata.confidence`` to answers whose evidence has one.
        """
        params: dict[str, Any] = {"limit": "all" if limit is None else limit}
        if confidence:
            params["confidence"] = "true"
        out: list[models.HistoryMessage] = []
        while True:
            page = self._log.request("GET", self._path + "/history", params=params)
            out += page["contents"]
            if limit is not None or not page.get("next_cursor"):
                return out
            params["cursor"] = page["next_cursor"]

    def messages(
        self, *, after_seq: int | None = None, limit: int | None = None
    ) -> Iterator[models.LedgerEntry]:
        """Yields the whole ledger: what was generated, sent and heard, and the evidence for it."""
        params = _http.given(after_seq=after_seq)
        for entry in self._log._pages(self._path + "/messages", "messages", params, limit, 1000):
            yield entry

    def context(
        self,
        utterance: str | None = None,
        *,
        policy: models.Policy | Mapping[str, Any] | None = None,
        format: str | None = None,
        **fields: Any,
    ) -> models.Context:
        """Returns the messages that an LLM would get now. It changes and stores nothing.

        Args:
            utterance: What the user says now.
            policy: Overrides the agent's policy, field by field.
            format: ``standard``, or ``custom`` for turn, time and metadata of each message.
        """
        body = _http.given(utterance=utterance, policy=policy, format=format, **fields)
        context: models.Context = self._log.request(
            "POST", self._path + "/context", json=body, repeatable=True
        )
        return context

    def recall(
        self, query: str, *, k: int | None = None, kinds: Iterable[str] | None = None, **fields: Any
    ) -> models.Recalled:
        """Finds what was said in other calls of this agent's caller."""
        body = _http.given(
            query=_http.text("query", query),
            k=k,
            kinds=None if kinds is None else list(kinds),
            **fields,
        )
        found: models.Recalled = self._log.request(
            "POST", self._path + "/recall", json=body, repeatable=True
        )
        return found

    def summary(self) -> str | None:
        """Returns the summary that stands for older messages, or None."""
        answer = self._log.request("GET", self._path + "/summary")
        summary: str | None = answer["summary"]
        return summary

    def set_summary(self, summary: str, *, up_to_seq: int | None = None) -> None:
        """Sets the summary. With up_to_seq, the messages up to it leave the memory."""
        body = _http.given(summary=summary, up_to_seq=up_to_seq)
        self._log.request("PUT", self._path + "/summary", json=body)

    def snapshot(self) -> dict[str, Any]:
        """Returns the whole memory as one value."""
        memory: dict[str, Any] = self._log.request("GET", self._path + "/snapshot")
        return memory

    def restore(self, memory: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        """Replaces the memory by a snapshot, or by a list of messages. The ledger stays."""
        body = dict(memory) if isinstance(memory, Mapping) else list(memory)
        self._log.request("PUT", self._path + "/snapshot", json=body)

    def clear(self) -> None:
        """Empties the memory. The ledger and the summary stay."""
        self._log.request("POST", self._path + "/clear", repeatable=True)

    def leave(self) -> None:
        """Ends the call. Its memory stays. An agent that has ended already is left as it is."""
        self._log.request("POST", "/leave", headers=self.headers, repeatable=True)

    def erase(self) -> None:
        """Deletes the agent and everything that belongs to it."""
        self._log.request("DELETE", self._path)
