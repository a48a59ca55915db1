"""Items of a framework, such as its messages, kept as messages of the agents of one name."""

# Generated from heardlog/_async by tools/generate.py; do not edit.

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _http, models
from ..errors import EndedError, NotFoundError

if TYPE_CHECKING:
    from .agent import Agent
    from .client import Heardlog

# The metadata of a message that has the item. It may have 16 KiB; a larger item has a message of
# its own, a draft, which neither an LLM nor the history gets.
_FIELD = "heardlog_item"
_MOST = 12_000


class Record(NamedTuple):
    """An item to store.

    Attributes:
        item: The item, as JSON.
        view: The message that stands for it in history, context and recall, or several; None for
            an item that is not text, such as a thought.
        key: If given, an item with the same key is stored once by an agent.
    """

    item: Any
    view: dict[str, Any] | list[dict[str, Any]] | None
    key: str | None = None


class Stored(NamedTuple):
    """An item as it was stored.

    Attributes:
        item: The item; None for a message that something else stored.
        heard: What was heard of it, if it was interrupted.
        entry: The message.
        agent_id: The agent that has it.
    """

    item: Any
    heard: str | None
    entry: models.LedgerEntry
    agent_id: str

    @property
    def key(self) -> str:
        """The key that it was stored with, or one that was made."""
        return _task(self.entry)


class Items:
    """A list of items under a name that outlives single calls.

    The running agent of the name takes new items; one is started if there is none. The list is made
    of all agents that ever had the name. Items are found by the scope of the session, and each item
    has a task of its own in it, so that it can be removed.
    """

    def __init__(self, log: Heardlog, name: str, user_id: str | None = None, **start: Any) -> None:
        self._log = log
        self.name = _http.text("name", name)
        self._user = user_id
        self._start = {"idle_timeout": 0, **start}
        self._agent: Agent | None = None

    def agent(self) -> Agent:
        """Returns the running agent of the name, and starts one if there is none."""
        if self._agent is None:
            self._agent = self._log.start(
                self.name, user_id=self._user, session_id=self.name, reuse=True, **self._start
            )
        return self._agent

    def add(self, records: Sequence[Record]) -> None:
        """Appends items, in batches of at most 400. Each batch is stored whole or not at all."""
        for first in range(0, len(records), 400):
            messages: list[dict[str, Any]] = []
            for record in records[first : first + 400]:
                messages += self._messages(record)
            self._append(messages)

    def _append(self, messages: list[dict[str, Any]]) -> None:
        agent = self.agent()
        try:
            agent.append(messages)
        except (EndedError, NotFoundError):
            self._agent = None  # it has ended since
            (self.agent()).append(messages)

    def _messages(self, record: Record) -> list[dict[str, Any]]:
        key = record.key or uuid.uuid4().hex
        scope = _http.given(user_id=self._user, session_id=self.name, task_id=key)
        views = [record.view] if isinstance(record.view, dict) else record.view or []
        # Only the first of several messages has the item.
        messages = [{**view, "scope": scope, "metadata": {_FIELD: False}} for view in views]
        if messages and len(_http.encoded(record.item)) <= _MOST:
            messages[0]["metadata"] = {_FIELD: record.item}
        else:
            if messages:
                messages[0]["metadata"] = {}
            hidden: dict[str, Any] = {"role": "system", "status": "draft", "scope": scope}
            hidden["content"] = _http.encoded(record.item).decode()
            messages.append({**hidden, "metadata": {_FIELD: True}})
        if record.key is not None:
            for number, message in enumerate(messages):
                message["id"] = f"{record.key}.{number}"
        return messages

    def read(self, limit: int | None = None) -> list[Stored]:
        """Returns the items, oldest first; with a limit at least that many of the newest."""
        out: list[Stored] = []
        for agent in self._log.find(name=self.name):
            out = self._of(agent["agent_id"]) + out
            if limit is not None and len(out) >= limit:
                break
        return out

    def _of(self, agent_id: str) -> list[Stored]:
        """Returns the items of one agent."""
        try:
            entries = [entry for entry in self._log.agent(agent_id).messages()]
        except NotFoundError:  # erased in the meantime
            return []
        cleared = max((e["seq"] for e in entries if _cut(e)), default=0)
        hidden = {
            _task(e): e for e in entries if _FIELD in e["metadata"] and e.get("status") == "draft"
        }
        taken: set[str] = set()
        out: list[Stored] = []
        for entry in entries:
            task = _task(entry)
            draft = entry.get("status") is not None
            if entry["state"] not in ("final", "empty") or (draft and hidden.get(task) != entry):
                continue
            if entry["seq"] <= cleared or (task in taken and draft):
                continue
            raw = entry["metadata"].get(_FIELD)
            if raw is False:
                continue
            if (raw is None or draft) and task in hidden:
                raw = _http.decoded(hidden[task]["content"])
                taken.add(task)
            if raw is None and entry["state"] == "empty":
                continue
            heard = entry["content"] if entry["metadata"].get("interrupted") else None
            out.append(Stored(raw, heard, entry, agent_id))
        return out

    def remove(self, stored: Stored) -> bool:
        """Removes an item, and reports whether it was still there."""
        task = _task(stored.entry)
        if task:
            scope = stored.entry["scope"]
            answer = self._log.request(
                "POST", "/memories/clear", json={"scope": "task", **scope}, repeatable=False
            )
            return bool(answer["removed"])
        # A message that something else stored. Its memory has an ID that only a search returns.
        ask = {"scope": "session", "session_id": self.name, "agent_id": stored.agent_id}
        found = self._log.request(
            "POST", "/memories/search", json={**ask, "limit": 1000}, repeatable=True
        )
        for memory in found["memories"]:
            if (memory.get("ledger") or {}).get("seq") == stored.entry["seq"]:
                path = _http.join("memories", memory["id"], "status")
                self._log.request("POST", path, json={"status": "discard"})
                return True
        return False

    def clear(self) -> None:
        """Removes all items, with their texts. The agents stay."""
        ask = _http.given(scope="session", user_id=self._user, session_id=self.name)
        self._log.request("POST", "/memories/clear", json=ask, repeatable=True)
        for agent in self._log.find(name=self.name, status="running"):
            self._log.agent(agent["agent_id"]).clear()


def _task(entry: models.LedgerEntry) -> str:
    return str((entry.get("scope") or {}).get("task_id") or "")


def _cut(entry: models.LedgerEntry) -> bool:
    """Reports whether a clear of the memory took this message, and with it all before it."""
    out = entry.get("in_memory") is False and entry.get("status") is None
    return out and entry["state"] == "final"
