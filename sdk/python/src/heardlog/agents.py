"""Sessions of the OpenAI Agents SDK, and a recorder for its realtime sessions.

session = Session("call-1", user_id="anna")
result = await Runner.run(agent, "When is my train?", session=session)
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._async.items import AsyncItems, AsyncRecord, AsyncStored
from ._client import AsyncAgent, AsyncHeardlog
from .errors import HeardlogError

if TYPE_CHECKING:
    from agents import TResponseInputItem
    from agents.memory import SessionSettings

logger = logging.getLogger("heardlog")


class Session:
    """The SDK's ``Session`` protocol. The items come back as they were added.

    What was interrupted comes back as it was heard: report it with ``agent.interrupt(heard=…)`` of
    ``await session.agent()``. Use it with models that are asked directly; a model that is asked
    through Heardlog has the same memory already.

    Args:
        session_id: The name of the agent. The session goes on when that agent has ended.
        client: The client. Default: one with the settings of the environment.
        user_id: The caller, across calls.
        session_settings: The SDK's settings, such as a limit.
    """

    def __init__(
        self,
        session_id: str,
        *,
        client: AsyncHeardlog | None = None,
        user_id: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self._own = client is None
        self._log = client or AsyncHeardlog()
        self._items = AsyncItems(self._log, session_id, user_id)

    async def agent(self) -> AsyncAgent:
        """Returns the running agent of this session, and starts one if there is none."""
        return await self._items.agent()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Returns the items, oldest first; with a limit the newest of them."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit <= 0:
            return []
        items: list[Any] = []
        for stored in await self._items.read(limit):
            items += _items_of(stored)
        return items if limit is None else items[-limit:]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Appends items."""
        await self._items.add([AsyncRecord(dict(item), _view(item)) for item in items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes the newest item and returns it, or None if there is none."""
        while True:
            stored = await self._items.read(1)
            if not stored:
                return None
            if await self._items.remove(stored[-1]):
                item: TResponseInputItem = _items_of(stored[-1])[-1]
                return item

    async def clear_session(self) -> None:
        """Removes all items."""
        await self._items.clear()

    async def aclose(self) -> None:
        """Closes the client, if it is the session's own."""
        if self._own:
            await self._log.aclose()


def _settings(settings: SessionSettings | dict[str, Any] | None) -> SessionSettings | None:
    try:
        from agents.memory import SessionSettings
    except ImportError:  # older versions have none
        return None
    if settings is not None and not isinstance(settings, dict):
        return settings
    fields = {field.name for field in dataclasses.fields(SessionSettings)}
    if unknown := sorted(set(settings or {}) - fields):
        raise TypeError(f"Unknown session settings: {', '.join(unknown)}")
    return SessionSettings(**(settings or {}))


def _view(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the message that stands for an item, or None if it has no words."""
    kind = item.get("type", "message")
    if kind == "message" and item.get("role") in ("user", "assistant", "system", "developer"):
        words = _words(item.get("content"))
        return {"role": item["role"], "content": words} if words else None
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        output = item.get("output")
        words = output if isinstance(output, str) else _words(output)
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": words}
    return None


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part for part in content or [] if isinstance(part, Mapping)]
    return "\n".join(p["text"] for p in parts if isinstance(p.get("text"), str))


def _items_of(stored: AsyncStored) -> list[Any]:
    """Returns the items of a stored message: the one that was added, or what stands for it."""
    if stored.item is not None:
        item = dict(stored.item)
        if stored.heard is not None and item.get("role") == "assistant":
            item["content"] = _heard(item.get("content"), stored.heard)
        return [item]
    entry = stored.entry
    if entry["role"] == "tool":
        call_id = entry.get("tool_call_id", "")
        return [{"type": "function_call_output", "call_id": call_id, "output": entry["content"]}]
    items: list[Any] = []
    if entry["content"]:
        items.append({"role": entry["role"], "content": entry["content"]})
    for call in entry.get("tool_calls") or []:
        function = call.get("function") or {}
        items.append(
            {
                "type": "function_call",
                "call_id": call.get("id"),
                "name": function.get("name"),
                "arguments": function.get("arguments"),
            }
        )
    return items or [{"role": entry["role"], "content": ""}]


def _heard(content: Any, heard: str) -> Any:
    """Returns the content of an answer of which only a part was heard."""
    if not isinstance(content, list):
        return heard
    texts = [part for part in content if isinstance(part, Mapping) and "text" in part]
    if not texts:
        return content
    kept = {**texts[0], "text": heard}
    if "annotations" in kept:
        kept["annotations"] = []  # they point into the whole text
    if kept.get("logprobs"):
        kept["logprobs"] = []
    return [kept, *(part for part in content if part not in texts)]


class Recorder:
    """Records a realtime session: what was said, and how much of each answer was played.

        async with await runner.run() as session:
            recorder = Recorder(agent)
            async for event in session:
                recorder.on(event)
        await recorder.aclose()

    Switch on the transcription of the input, or the caller's words are not known.

    Args:
        agent: The agent of the call, of ``AsyncHeardlog.start``.
        leave: Whether ``aclose`` ends the agent.
    """

    def __init__(self, agent: AsyncAgent, *, leave: bool = True) -> None:
        self._agent = agent
        self._leave = leave
        self._items: list[dict[str, Any]] = []
        self._queue: asyncio.Queue[tuple[str, Any]] = asyncio.Queue(10_000)
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def on(self, event: Any) -> None:
        """Takes an event of the session, or a server event of the Realtime API as a dictionary.

        It never blocks and never raises.
        """
        try:
            for _ in range(3):  # the SDK wraps the server's event twice
                if not isinstance(event, Mapping):
                    event = getattr(event, "data", None)
            if isinstance(event, Mapping):
                self._take(event)
        except Exception as error:
            self._drop(f"{type(error).__name__}: {error}")

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind in ("conversation.item.added", "conversation.item.created"):
            self._add(event.get("item") or {})
        elif kind == "conversation.item.input_audio_transcription.completed":
            self._said(event, "transcript")
        elif kind == "conversation.item.input_audio_transcription.failed":
            self._said({**event, "transcript": ""}, "transcript")
        elif kind in (
            "response.output_audio_transcript.done",
            "response.audio_transcript.done",
        ):
            self._said(event, "transcript")
        elif kind in ("response.output_text.done", "response.text.done"):
            self._said(event, "text")
        elif kind in ("conversation.item.truncated", "conversation.item.truncate"):
            for item in self._items:
                if item["id"] == event.get("item_id"):
                    item["truncated"] = dict(event)  # its transcript is still to come
                    return
            self._send("truncated", dict(event))

    def _add(self, item: Mapping[str, Any]) -> None:
        if item.get("role") not in ("user", "assistant"):
            return
        if any(known["id"] == item.get("id") for known in self._items):
            return
        words = _words(item.get("content")) or None
        self._items.append({"id": item.get("id"), "role": item["role"], "content": words})
        self._flush(False)

    def _said(self, event: Mapping[str, Any], field: str) -> None:
        for item in self._items:
            if item["id"] == event.get("item_id"):
                item["content"] = event.get(field) or ""
        self._flush(False)

    def _flush(self, over: bool) -> None:
        """Stores in the order of the conversation; transcripts come in any order."""
        while self._items and (over or self._items[0]["content"] is not None):
            item = self._items.pop(0)
            if not item["content"]:
                continue
            self._send("message", {k: item[k] for k in ("id", "role", "content")})
            if "truncated" in item:
                self._send("truncated", item["truncated"])

    def _send(self, what: str, body: Any) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            self._queue.put_nowait((what, body))
        except asyncio.QueueFull:
            self._drop("10000 wait already")

    async def _run(self) -> None:
        while True:
            what, body = await self._queue.get()
            try:
                if what == "message":
                    await self._agent.append(body)
                else:
                    await self._agent.evidence("openai-realtime", body)
            except HeardlogError as error:
                self._drop(str(error))
            finally:
                self._queue.task_done()

    def _drop(self, why: str) -> None:
        self.dropped += 1
        logger.warning("an event of the realtime session was dropped: %s", why)

    async def aclose(self, timeout: float = 5.0) -> None:
        """Stores what is left, for at most timeout seconds, and ends the agent."""
        self._flush(True)
        try:
            await asyncio.wait_for(self._queue.join(), timeout)
        except asyncio.TimeoutError:
            logger.warning("%d events of the realtime session were not stored", self._queue.qsize())
            self.dropped += self._queue.qsize()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._leave:
            await self._agent.leave()


__all__: Sequence[str] = ["Recorder", "Session"]
