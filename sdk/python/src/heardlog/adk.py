"""Sessions and memory of Google's Agent Development Kit.

runner = Runner(
    agent=agent,
    app_name="desk",
    session_service=SessionService(),
    memory_service=MemoryService(),
)
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from google.genai import types

from . import _http
from ._async.items import AsyncItems, AsyncRecord, AsyncStored
from ._client import AsyncHeardlog
from .errors import NotFoundError

try:
    from google.adk.errors.already_exists_error import AlreadyExistsError
except ImportError:  # older versions
    AlreadyExistsError = ValueError
try:
    from google.adk.errors.session_not_found_error import SessionNotFoundError
except ImportError:
    SessionNotFoundError = ValueError

__all__ = ["MemoryService", "SessionService"]


class SessionService(BaseSessionService):  # type: ignore[misc]
    """ADK's ``BaseSessionService``. Events are messages of an agent, state is in keys and values.

    Events come back as they were appended; what was interrupted comes back as it was heard. The
    agent of a session is that of ``await service.agent(session)``.

    Args:
        client: The client. Default: one with the settings of the environment.
    """

    def __init__(self, client: AsyncHeardlog | None = None) -> None:
        self._log = client or AsyncHeardlog()

    async def agent(self, session: Session) -> Any:
        """Returns the running agent of a session, and starts one if there is none."""
        return await self._items(session.app_name, session.user_id, session.id).agent()

    def _items(self, app: str, user: str, session_id: str) -> AsyncItems:
        return AsyncItems(self._log, name_of(app, user, session_id), user)

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Creates a session. AlreadyExistsError if the user has one with this ID."""
        session_id = (session_id or "").strip() or str(uuid.uuid4())
        if await self._record(app_name, user_id, session_id) is not None:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.")
        now = time.time()
        await self._write(app_name, user_id, session_id, now, state or {})
        merged = await self._state(app_name, user_id, session_id)
        return Session(
            id=session_id, app_name=app_name, user_id=user_id, state=merged, last_update_time=now
        )

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Returns a session with its events, or None if there is none."""
        session_id = session_id.strip() if session_id else session_id
        record = await self._record(app_name, user_id, session_id)
        if record is None:
            return None
        count = config.num_recent_events if config else None
        events: list[Event] = []
        if count != 0:
            after = config.after_timestamp if config else None
            stored = await self._items(app_name, user_id, session_id).read(
                count if after is None else None
            )
            events = [_event(each) for each in stored]
            events = events[-count:] if count else events
            if after is not None:
                first = max((i for i, e in enumerate(events, 1) if e.timestamp < after), default=0)
                events = events[first:]
        return Session(
            id=session_id,
            app_name=app_name,
            user_id=user_id,
            state=await self._state(app_name, user_id, session_id),
            events=events,
            last_update_time=record["updated"],
        )

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Returns the sessions of a user, or of all, without events, the last used at the end."""
        if user_id is not None:
            spaces = [_space(app_name, user_id)]
        else:
            first = _space(app_name) + "/"
            names = self._log._pages("/kv", "namespaces", {}, None, 1000)
            spaces = [name async for name in names if name.startswith(first)]
        sessions: list[Session] = []
        for space in spaces:
            values = await self._values(space, "")
            for key, record in values.items():
                if not key.startswith("session/"):
                    continue
                user, session_id = record["user_id"], record["id"]
                state = await self._state(app_name, user, session_id, values)
                sessions.append(
                    Session(
                        id=session_id,
                        app_name=app_name,
                        user_id=user,
                        state=state,
                        last_update_time=record["updated"],
                    )
                )
        sessions.sort(key=lambda s: (s.last_update_time, s.user_id, s.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes a session with its events and its own state, if there is one."""
        session_id = session_id.strip() if session_id else session_id
        record = await self._record(app_name, user_id, session_id)
        if record is None:
            return
        space = _space(app_name, user_id)
        await self._items(app_name, user_id, session_id).clear()
        for key in await self._values(space, f"state/{_short(session_id)}/"):
            await self._log.request("DELETE", _http.join("kv", space, key))
        await self._log.request("DELETE", _http.join("kv", space, _session_key(session_id)))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Returns the state of a user, without the prefix."""
        values = await self._values(_space(app_name, user_id), "user/")
        return {_name(value): value["value"] for value in values.values()}

    async def append_event(self, session: Session, event: Event) -> Event:
        """Appends an event and applies its changes of state. The same event again changes nothing.

        SessionNotFoundError if there is no such session.
        """
        if event.partial:
            return event
        app, user, session_id = session.app_name, session.user_id, session.id
        if await self._record(app, user, session_id) is None:
            raise SessionNotFoundError(f"Session {session_id} not found.")
        if any(known.id == event.id and known == event for known in session.events):
            return event
        event = await super().append_event(session=session, event=event)
        session.last_update_time = event.timestamp
        await self._items(app, user, session_id).add([record_of(event)])
        delta = dict(event.actions.state_delta) if event.actions else {}
        await self._write(app, user, session_id, event.timestamp, delta)
        return event

    async def _record(self, app: str, user: str, session_id: str) -> dict[str, Any] | None:
        path = _http.join("kv", _space(app, user), _session_key(session_id))
        try:
            entry = await self._log.request("GET", path)
        except NotFoundError:
            return None
        record: dict[str, Any] = entry["value"]
        return record

    async def _write(
        self, app: str, user: str, session_id: str, updated: float, delta: Mapping[str, Any]
    ) -> None:
        """Stores when a session changed, and changes of state. Each name has a key of its own, so
        that changes at the same time do not undo each other.
        """
        record = {"id": session_id, "user_id": user, "updated": updated}
        own: list[dict[str, Any]] = []
        shared: list[dict[str, Any]] = []
        for name, value in delta.items():
            if name.startswith(State.APP_PREFIX):
                shared.append(_entry("app/", name[len(State.APP_PREFIX) :], value))
            elif name.startswith(State.USER_PREFIX):
                own.append(_entry("user/", name[len(State.USER_PREFIX) :], value))
            elif not name.startswith(State.TEMP_PREFIX):
                own.append(_entry(f"state/{_short(session_id)}/", name, value))
        own.append({"key": _session_key(session_id), "value": record})
        for space, entries in ((_space(app), shared), (_space(app, user), own)):
            for first in range(0, len(entries), 100):
                body = {"entries": entries[first : first + 100]}
                path = _http.join("kv", space, "batch", "set")
                await self._log.request("POST", path, json=body, repeatable=True)

    async def _state(
        self, app: str, user: str, session_id: str, values: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns the state that a session shows: its own, the user's and the app's."""
        if values is None:
            values = await self._values(_space(app, user), "")
        mine = f"state/{_short(session_id)}/"
        state = {_name(v): v["value"] for k, v in values.items() if k.startswith(mine)}
        for value in (await self._values(_space(app), "app/")).values():
            state[State.APP_PREFIX + _name(value)] = value["value"]
        for key, value in values.items():
            if key.startswith("user/"):
                state[State.USER_PREFIX + _name(value)] = value["value"]
        return state

    async def _values(self, space: str, first: str) -> dict[str, Any]:
        """Returns the values of a namespace whose keys begin with a text."""
        path = _http.join("kv", space)
        params = {"pattern": first + "*"} if first else {}
        keys = [k["key"] async for k in self._log._pages(path, "keys", params, None, 1000)]
        values: dict[str, Any] = {}
        for start in range(0, len(keys), 100):
            body = {"keys": keys[start : start + 100]}
            answer = await self._log.request(
                "POST", path + "/batch/get", json=body, repeatable=True
            )
            values |= {entry["key"]: entry["value"] for entry in answer["entries"]}
        return values


def _short(text: str) -> str:
    """Returns a text of fixed length that stands for an ID of any length and any characters."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _space(app: str, user: str | None = None) -> str:
    space = f"adk:{_short(app)}"
    return space if user is None else f"{space}/{_short(user)}"


def _session_key(session_id: str) -> str:
    return f"session/{_short(session_id)}"


def _entry(first: str, name: str, value: Any) -> dict[str, Any]:
    return {"key": first + _short(name), "value": {"name": name, "value": _safe(value)}}


def _name(value: Mapping[str, Any]) -> str:
    return str(value["name"])


def _safe(value: Any) -> Any:
    """Returns a value as JSON. What JSON cannot hold becomes a text, as in ADK's own services."""
    return json.loads(json.dumps(value, default=_text, allow_nan=True))


def _text(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    return sorted(value, key=str) if isinstance(value, (set, frozenset)) else str(value)


def name_of(app: str, user: str, session_id: str) -> str:
    """Returns the name of the agents of a session."""
    name = "adk:" + ":".join(quote(part, safe="") for part in (app, user, session_id))
    return name if len(name) <= 200 else f"adk:{quote(app, safe='')[:100]}:{_short(name)}"


def record_of(event: Event) -> AsyncRecord:
    """Returns an event to store. The same event has the same key."""
    item = json.loads(event.model_dump_json(exclude_none=True, by_alias=False))
    key = hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:40]
    return AsyncRecord(item, _views(event.content, event.author), f"adk-{key}")


def _views(content: types.Content | None, author: str | None) -> list[dict[str, Any]]:
    """Returns the messages that stand for a content."""
    parts = (content.parts or []) if content else []
    words = "".join(part.text for part in parts if part.text and not part.thought)
    views: list[dict[str, Any]] = []
    calls = [part.function_call for part in parts if part.function_call]
    if calls:
        view: dict[str, Any] = {"role": "assistant", "content": words or None}
        view["tool_calls"] = [
            {
                "id": call.id or f"call_{i}",
                "type": "function",
                "function": {"name": call.name or "", "arguments": _json(call.args or {})},
            }
            for i, call in enumerate(calls)
        ]
        views.append(view)
    elif words:
        views.append({"role": "user" if author == "user" else "assistant", "content": words})
    for i, part in enumerate(parts):
        if result := part.function_response:
            view = {"role": "tool", "tool_call_id": result.id or f"call_{i}"}
            views.append({**view, "content": _json(result.response or {})})
    return views


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _event(stored: AsyncStored) -> Event:
    """Returns the event that was appended, or one for a message that something else stored."""
    if stored.item is not None:
        event = Event.model_validate(stored.item)
        if stored.heard is not None and event.author != "user" and event.content:
            event.content.parts = _heard(event.content.parts or [], stored.heard)
        return event
    entry = stored.entry
    user = entry["role"] == "user"
    return Event(
        id=f"{stored.agent_id}:{entry['seq']}",
        author="user" if user else "agent",
        timestamp=entry["timestamp"] / 1000,
        content=_content(entry["content"], user),
    )


def _heard(parts: Iterable[types.Part], heard: str) -> list[types.Part]:
    """Returns the parts of an answer of which only a part was heard."""
    others = [part for part in parts if not part.text or part.thought]
    return [types.Part(text=heard), *others]


def _content(text: str, user: bool) -> types.Content:
    return types.Content(role="user" if user else "model", parts=[types.Part(text=text)])


class MemoryService(BaseMemoryService):  # type: ignore[misc]
    """ADK's ``BaseMemoryService``: what a user said and heard, in any call, and facts about them.

    Sessions of ``SessionService`` are found without being added. So are calls of the user that ADK
    knows nothing of. Sessions of other apps are not.

    Args:
        client: The client. Default: one with the settings of the environment.
        k: How many memories a search returns at most.
    """

    def __init__(self, client: AsyncHeardlog | None = None, *, k: int = 10) -> None:
        self._log = client or AsyncHeardlog()
        self._k = k

    async def add_session_to_memory(self, session: Session) -> None:
        """Adds the events of a session that are not there yet."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Adds events that are not there yet."""
        records = [record_of(event) for event in events if event.content and event.content.parts]
        await self._add(app_name, user_id, session_id or "", records)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Adds memories."""
        records = []
        for memory in memories:
            item = json.loads(memory.model_dump_json(exclude_none=True))
            views = _views(memory.content, memory.author or memory.content.role)
            records.append(AsyncRecord(item, views, f"adk-{uuid.uuid4().hex}"))
        await self._add(app_name, user_id, "", records)

    async def _add(
        self, app: str, user: str, session_id: str, records: Sequence[AsyncRecord]
    ) -> None:
        items = AsyncItems(self._log, name_of(app, user, session_id), user)
        known = {stored.key for stored in await items.read()}
        await items.add([record for record in records if record.key not in known])

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Finds memories of a user, the best first."""
        if not query.strip():
            return SearchMemoryResponse(memories=[])
        found = await self._log.recall(user_id, query[:4000], k=min(self._k * 2, 100))
        if found["strength"] == "none":  # nothing of it is about the query
            return SearchMemoryResponse(memories=[])
        memories = []
        mine = f"adk:{quote(app_name, safe='')}:"
        for hit in found["hits"]:
            session = str(hit.get("session_id") or "")
            if session.startswith("adk:") and not session.startswith(mine):
                continue  # of another app
            user = hit.get("role") != "assistant"
            memories.append(
                MemoryEntry(
                    id=str(hit["id"]),
                    content=_content(hit["content"], user),
                    author="user" if user else "agent",
                    timestamp=_iso(hit["at"]),
                    custom_metadata={"kind": hit["kind"], "score": hit["score"]},
                )
            )
        return SearchMemoryResponse(memories=memories[: self._k])

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Deletes what a search found, by its ID."""
        if not memory_id:
            return
        agent_id, _, seq = memory_id.partition(":")
        if not seq.isdigit():
            await self._log.facts(user_id).delete(memory_id)
            return
        entries = self._log.agent(agent_id).messages(after_seq=int(seq) - 1, limit=1)
        try:
            found = [entry async for entry in entries if entry["seq"] == int(seq)]
        except NotFoundError:
            return
        for entry in found:
            scope = entry.get("scope") or {}
            if scope.get("user_id") == user_id and scope.get("task_id"):
                body = {"scope": "task", **scope}
                await self._log.request("POST", "/memories/clear", json=body, repeatable=True)


def _iso(at: str) -> str:
    when = datetime.fromisoformat(at.replace("Z", "+00:00"))
    return when.astimezone(timezone.utc).isoformat()
