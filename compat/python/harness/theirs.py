"""A pytest plugin that puts our classes in the place of a project's own, under the project's tests.

The variable THEIRS names the project. Each function replaces classes before tests are collected.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from heardlog import Heardlog


def openai_agents() -> None:
    """The Session of the OpenAI Agents SDK, in the place of its SQLite session."""
    import agents
    from heardlog.agents import Session

    class SQLiteSession(Session):
        def __init__(
            self, session_id: str, db_path: Any = ":memory:", session_settings: Any = None, **_: Any
        ) -> None:
            place = uuid.uuid4().hex if str(db_path) == ":memory:" else str(db_path)[-150:]
            name = f"{place}:{session_id}"
            super().__init__(name, session_settings=session_settings)
            self.session_id = session_id

        def close(self) -> None:
            pass

    agents.SQLiteSession = SQLiteSession  # type: ignore[misc]


def langchain() -> None:
    """The store of LangGraph, in the place of its store in memory."""
    import langgraph.store.memory
    from heardlog.langchain import Store

    class InMemoryStore(Store):
        def __init__(self, **_: Any) -> None:
            super().__init__(uuid.uuid4().hex)

    langgraph.store.memory.InMemoryStore = InMemoryStore  # type: ignore[misc]


def lauren() -> None:
    """The stores of lauren-ai, in the place of its stores in memory. Theirs also have a length."""
    import lauren_ai
    import lauren_ai._memory
    import lauren_ai._memory._in_memory_user as users
    import lauren_ai._memory._stores as stores
    import lauren_ai._memory._vector as vectors
    from heardlog.lauren import ConversationStore, UserMemoryStore, VectorStore

    class InMemoryConversationStore(ConversationStore):
        def __init__(self) -> None:
            super().__init__(prefix=uuid.uuid4().hex)

        def __len__(self) -> int:
            with Heardlog() as log:
                names = log.request("GET", "/conversations", params={"limit": 1000})
            return sum(name.startswith(self._prefix) for name in names["conversations"])

        def __contains__(self, conversation_id: str) -> bool:
            with Heardlog() as log:
                names = log.request("GET", "/conversations", params={"limit": 1000})
            return self._prefix + conversation_id in names["conversations"]

    class InMemoryUserMemoryStore(UserMemoryStore):
        def __init__(self) -> None:
            super().__init__()
            with Heardlog() as log:
                for caller in log.request("GET", "/users")["users"]:
                    log.facts(caller["user_id"]).clear()
                log.request("DELETE", "/kv/lauren-facts")

        def __len__(self) -> int:
            with Heardlog() as log:
                return int(log.request("GET", "/kv/lauren-facts")["total"])

    class InMemoryVectorStore(VectorStore):
        def __init__(self) -> None:
            super().__init__(uuid.uuid4().hex)

        def __len__(self) -> int:
            with Heardlog() as log:
                return int(log.request("GET", self._path)["total"])

    for made, module in (
        (InMemoryConversationStore, stores),
        (InMemoryUserMemoryStore, users),
        (InMemoryVectorStore, vectors),
    ):
        for place in (module, lauren_ai._memory, lauren_ai):
            if hasattr(place, made.__name__):
                setattr(place, made.__name__, made)


def ovos() -> None:
    """The memory of OVOS' personas, in the place of its own."""
    import ovos_persona.memory
    from heardlog.ovos import HeardlogMemory

    class BasicShortTermMemory(HeardlogMemory):
        def __init__(self, config: Any = None) -> None:
            super().__init__({"name": uuid.uuid4().hex, **(config or {})})

        @property
        def session2history(self) -> dict[str, Any]:
            # Their tests empty it: from here on, the sessions are others.
            self._name, self._agents = uuid.uuid4().hex, {}
            return {}

    ovos_persona.memory.BasicShortTermMemory = BasicShortTermMemory


{"openai_agents": openai_agents, "langchain": langchain, "lauren": lauren, "ovos": ovos}[
    os.environ["THEIRS"]
]()
