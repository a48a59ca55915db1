"""Chat histories of LangChain, and LangGraph's store for long-term memory.

history = ChatMessageHistory("call-1", user_id="anna")
chain = RunnableWithMessageHistory(model, lambda session_id: ChatMessageHistory(session_id))
graph = builder.compile(store=Store())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from ._async.items import AsyncItems, AsyncRecord, AsyncStored
from ._client import AsyncHeardlog, Heardlog
from ._sync.items import Items, Record, Stored

if TYPE_CHECKING:
    from ._langgraph import Store

__all__ = ["ChatMessageHistory", "Store"]

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "system": "system"}
_ROLES |= {"HumanMessageChunk": "user", "SystemMessageChunk": "system"}


def __getattr__(name: str) -> Any:
    if name == "Store":  # needs LangGraph
        from ._langgraph import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ChatMessageHistory(BaseChatMessageHistory):
    """A chat history. Messages of all types come back as they were added.

    An answer that was interrupted comes back as it was heard.

    Args:
        session_id: The name of the agent. The history goes on when that agent has ended.
        client: The client of the synchronous methods. Default: one with the settings of the
            environment.
        async_client: The client of the asynchronous methods. Default: one with the same URL and
            secret.
        user_id: The caller, across calls.
    """

    def __init__(
        self,
        session_id: str,
        *,
        client: Heardlog | None = None,
        async_client: AsyncHeardlog | None = None,
        user_id: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.client, self._async = clients(client, async_client)
        self._items = Items(self.client, session_id, user_id)
        self._async_items = AsyncItems(self._async, session_id, user_id)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages, oldest first."""
        return [_message(stored) for stored in self._items.read()]

    async def aget_messages(self) -> list[BaseMessage]:
        """Returns the messages, oldest first."""
        return [_message(stored) for stored in await self._async_items.read()]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Appends messages."""
        self._items.add([Record(message_to_dict(m), _view(m)) for m in messages])

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Appends messages."""
        await self._async_items.add([AsyncRecord(message_to_dict(m), _view(m)) for m in messages])

    def clear(self) -> None:
        """Removes all messages."""
        self._items.clear()

    async def aclear(self) -> None:
        """Removes all messages."""
        await self._async_items.clear()


def clients(
    client: Heardlog | None, async_client: AsyncHeardlog | None
) -> tuple[Heardlog, AsyncHeardlog]:
    """Returns both clients. One that is missing is made like the other."""
    if client is None:
        other = async_client
        client = Heardlog(other.url, other._secret) if other is not None else Heardlog()
    if async_client is None:
        async_client = AsyncHeardlog(client.url, client._secret)
    return client, async_client


def _view(message: BaseMessage) -> dict[str, Any] | None:
    """Returns the message of the ledger that stands for one of LangChain's."""
    words = _words(message.content)
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": words}
    role = _ROLES.get(message.type)
    if role is None and message.type == "chat":
        name = str(getattr(message, "role", ""))
        role = name if name in ("user", "assistant", "system", "developer") else None
    if isinstance(message, (AIMessage, AIMessageChunk)) and message.tool_calls:
        calls = [
            {
                "id": call["id"] or f"call_{i}",
                "type": "function",
                "function": {"name": call["name"], "arguments": _json(call["args"])},
            }
            for i, call in enumerate(message.tool_calls)
        ]
        return {"role": "assistant", "content": words or None, "tool_calls": calls}
    return {"role": role, "content": words} if role and words else None


def _json(value: Any) -> str:
    from ._http import encoded

    return encoded(value).decode()


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = (part if isinstance(part, str) else part.get("text") for part in content or [])
    return "\n".join(part for part in parts if isinstance(part, str))


def _message(stored: Stored | AsyncStored) -> BaseMessage:
    """Returns the message that was added, or what stands for one that something else stored."""
    raw = stored.item
    if raw is not None:
        if stored.heard is not None and raw["type"] in ("ai", "AIMessageChunk"):
            data = {**raw["data"], "content": _heard(raw["data"]["content"], stored.heard)}
            raw = {**raw, "data": data}
        return messages_from_dict([raw])[0]
    entry = stored.entry
    data = {"content": entry["content"]}
    kind = {"user": "human", "assistant": "ai", "tool": "tool"}.get(entry["role"], "system")
    if kind == "tool":
        data["tool_call_id"] = entry.get("tool_call_id", "")
    if kind == "ai" and entry.get("tool_calls"):
        data["tool_calls"] = [_call(call) for call in entry["tool_calls"]]
    return messages_from_dict([{"type": kind, "data": data}])[0]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    from ._http import decoded

    function = call.get("function") or {}
    args = decoded(function.get("arguments") or "{}")
    args = args if isinstance(args, dict) else {}
    return {"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "args": args}


def _heard(content: Any, heard: str) -> Any:
    """Returns the content of an answer of which only a part was heard."""
    if isinstance(content, str):
        return heard
    others = [p for p in content if isinstance(p, Mapping) and "text" not in p]
    return [{"type": "text", "text": heard}, *others]
