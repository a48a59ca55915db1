"""Memory for personas of Open Voice OS. In the persona's configuration:

"memory_module": "ovos-memory-heardlog",
"ovos-memory-heardlog": {"url": "http://127.0.0.1:8080/v1", "max_history": 10}
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ovos_plugin_manager.templates.agents import AgentContextManager, AgentMessage, MessageRole

from . import _http
from ._client import Agent, Heardlog
from .errors import EndedError, HeardlogError, NotFoundError

__all__ = ["HeardlogMemory"]

logger = logging.getLogger("heardlog")
T = TypeVar("T")

# After a failure the memory is left alone for this many seconds, so that not each question waits.
_REST = 5.0


class HeardlogMemory(AgentContextManager):  # type: ignore[misc]
    """OVOS' ``AgentContextManager``, with the rules of its short-term memory.

    While the server cannot be reached, the persona goes on without a memory: histories are empty,
    and what is said meanwhile is not stored.

    The configuration may have:
        url, secret: As of ``Heardlog``.
        max_history: Messages to keep of a session; 0 is no limit. Default: 5.
        system_prompt: What comes first in each context.
        user_id: The caller of all sessions. What is known of them follows the system prompt.
        name: What the names of the agents begin with. Personas with the same name share the
            memory of a session. Default: ``ovos``.
        timeout: Seconds to wait for the server. Default: 2.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__(config)
        get = self.config.get
        limit = get("max_history", 5)
        if not isinstance(limit, int) or limit < 0:
            raise ValueError(f"max_history: must be a whole number from 0, not {limit!r}")
        self._policy = {"preset": "ovos", "max_messages": limit}
        self._name = str(get("name") or "ovos")
        self._user: str | None = get("user_id") or None
        self._log = Heardlog(
            get("url"), get("secret"), timeout=float(get("timeout") or 2.0), retries=0
        )
        self._agents: dict[str, Agent] = {}
        self._lock = threading.Lock()
        self._rest_until = 0.0

    def get_history(self, session_id: str) -> list[AgentMessage]:
        """Returns what is remembered of a session, oldest first."""
        messages = self._try("read the history", lambda: self._read(session_id))
        return messages or []

    def update_history(self, new_messages: list[AgentMessage], session_id: str) -> None:
        """Appends messages. A question that was never answered is dropped when the next one comes;
        answers that follow each other become one.
        """
        if new_messages:
            self._try("store what was said", lambda: self._append(session_id, new_messages))

    def build_conversation_context(self, utterance: str, session_id: str) -> list[AgentMessage]:
        """Returns the system prompt, the history and the utterance. Questions without an answer at
        the end of the history are left out, and answers without a question at its beginning.
        """
        history = self.get_history(session_id)
        while history and history[-1].role == MessageRole.USER:
            history.pop()
        while history and history[0].role == MessageRole.ASSISTANT:
            history.pop(0)
        prompt = str(self.system_prompt or "").strip()
        if self._user is not None:
            prompt = f"{prompt}\n\n{self._known(utterance)}".strip()
        if prompt:
            history.insert(0, AgentMessage(role=MessageRole.SYSTEM, content=prompt))
        history.append(AgentMessage(role=MessageRole.USER, content=utterance.strip()))
        return history

    def _known(self, utterance: str) -> str:
        facts = self._log.facts(self._user or "")
        block = self._try("read the facts", lambda: facts.block(query=utterance[:4000]))
        return block or ""

    def _try(self, what: str, call: Callable[[], T]) -> T | None:
        """Returns the result of a call, or None if it fails. No failure stops the persona."""
        if time.monotonic() < self._rest_until:
            return None
        try:
            return call()
        except HeardlogError as error:
            if error.status in (0, *_http.RETRIED) or error.status >= 500:
                self._rest_until = time.monotonic() + _REST
            logger.warning("could not %s: %s", what, error)
        except Exception:
            logger.exception("could not %s", what)
        return None

    def _read(self, session_id: str) -> list[AgentMessage]:
        agent = self._agents.get(session_id) or self._newest(session_id)
        if agent is None:
            return []
        try:
            memory = agent.snapshot()
        except NotFoundError:  # erased in the meantime
            self._agents.pop(session_id, None)
            return []
        return [message for m in memory["messages"] if (message := _message(m)) is not None]

    def _newest(self, session_id: str) -> Agent | None:
        for found in self._log.find(name=self._agent_name(session_id), limit=1):
            return self._log.agent(found["agent_id"])
        return None

    def _append(self, session_id: str, new_messages: list[AgentMessage]) -> None:
        messages = [_stored(message) for message in new_messages]
        agent = self._started(session_id)
        try:
            agent.append(messages)
        except (EndedError, NotFoundError):
            self._agents.pop(session_id, None)
            self._started(session_id).append(messages)

    def _started(self, session_id: str) -> Agent:
        """Returns the running agent of a session. A new one goes on with the memory of the last."""
        with self._lock:
            agent = self._agents.get(session_id)
            if agent is None:
                agent = self._log.start(
                    self._agent_name(session_id),
                    user_id=self._user,
                    session_id=session_id,
                    inherit="full",
                    idle_timeout=0,
                    properties={"heardlog": {"policy": self._policy}},
                    reuse=True,
                )
                # One that runs already may have been started with another limit.
                agent.update(heardlog={"policy": self._policy})
                self._agents[session_id] = agent
            return agent

    def _agent_name(self, session_id: str) -> str:
        return f"{self._name}:{session_id}"


def _stored(message: AgentMessage) -> dict[str, Any]:
    """Returns a message as the server takes it."""
    out: dict[str, Any] = {"role": MessageRole(message.role).value, "content": message.content}
    calls = getattr(message, "tool_calls", None)
    if calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in calls
        ]
    for field in ("tool_call_id", "name"):
        if value := getattr(message, field, None):
            out[field] = value
    return out


def _message(stored: dict[str, Any]) -> AgentMessage | None:
    """Returns a stored message as OVOS has it, or None for a role that it does not know."""
    try:
        role = MessageRole(stored["role"])
    except ValueError:
        return None
    content = stored.get("content")
    if isinstance(content, list):
        content = "\n".join(p["text"] for p in content if isinstance(p.get("text"), str))
    message = AgentMessage(role=role, content=content or "")
    if calls := stored.get("tool_calls"):
        from ovos_plugin_manager.templates.agents import ToolCall

        message.tool_calls = [
            ToolCall(
                id=call["id"],
                name=call["function"]["name"],
                arguments=_http.decoded(call["function"]["arguments"]) or {},
            )
            for call in calls
        ]
    for field in ("tool_call_id", "name"):
        if stored.get(field) and hasattr(message, field):
            setattr(message, field, stored[field])
    return message
