"""lauren-ai's memory: conversations, documents and facts of users.

@agent(model="…", conversation_store=ConversationStore())
@remember()
class Desk: ...

runner = Remembering(agent_runner, UserMemoryStore())
await runner.run(Desk(), "When is my train?", user_id="anna", conversation_id="call-1")
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import uuid
from datetime import datetime, timezone
from typing import Any

from lauren_ai._agents import AGENT_META
from lauren_ai._memory import MemoryResult
from lauren_ai._memory._remember import (
    REMEMBER_META,
    RememberMeta,
    build_memory_context,
    extract_facts,
)
from lauren_ai._memory._user import MemoryFact

from . import _http
from ._client import AsyncHeardlog
from .errors import HeardlogError, NotFoundError

__all__ = ["ConversationStore", "Remembering", "UserMemoryStore", "VectorStore"]

logger = logging.getLogger("heardlog")

# lauren-ai takes an empty ID; a path cannot.
_EMPTY = "(empty)"


class ConversationStore:
    """lauren-ai's ``ConversationStore``. It keeps snapshots byte for byte.

    Args:
        client: The client. Default: one with the settings of the environment.
        prefix: What the IDs begin with on the server. Stores of different prefixes share nothing.
    """

    def __init__(self, client: AsyncHeardlog | None = None, *, prefix: str = "") -> None:
        self._log = client or AsyncHeardlog()
        self._prefix = prefix

    async def load(self, conversation_id: str) -> Any:
        """Returns the snapshot of a conversation, or an empty list if there is none."""
        try:
            return await self._log.request("GET", self._path(conversation_id))
        except NotFoundError:
            return []

    async def save(self, conversation_id: str, snapshot: Any) -> None:
        """Replaces the snapshot of a conversation. A plain list is kept as one without summary."""
        if not conversation_id:
            logger.warning("a conversation with an empty ID is saved")
        if not isinstance(snapshot, (dict, list)):
            raise TypeError(f"snapshot: must be a dict or a list, not {type(snapshot).__name__}")
        await self._log.request("PUT", self._path(conversation_id), json=_plain(snapshot))

    async def delete(self, conversation_id: str) -> None:
        """Deletes a conversation, if there is one."""
        await self._log.request("DELETE", self._path(conversation_id))

    async def list_conversations(self) -> list[str]:
        """Returns the IDs of all conversations, sorted."""
        pages = self._log._pages("/saved-conversations", "conversations", {}, None, 1000)
        names = [name async for name in pages if name.startswith(self._prefix)]
        names = [name[len(self._prefix) :] for name in names]
        return sorted("" if name == _EMPTY else name for name in names)

    async def clear(self) -> None:
        """Deletes all conversations. Without a prefix these are all of the project."""
        if not self._prefix:
            await self._log.request("DELETE", "/saved-conversations")
            return
        for conversation_id in await self.list_conversations():
            await self.delete(conversation_id)

    def _path(self, conversation_id: str) -> str:
        return _http.join("saved-conversations", self._prefix + (conversation_id or _EMPTY))


def _plain(value: Any) -> Any:
    """Returns a value without dataclasses."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


class VectorStore:
    """lauren-ai's ``MemoryStore``: documents that are found by their words.

    Args:
        collection: The collection of documents.
        user_id: Keeps the documents as those of one caller, with whom they are erased.
    """

    def __init__(
        self,
        collection: str = "lauren",
        *,
        client: AsyncHeardlog | None = None,
        user_id: str | None = None,
    ) -> None:
        self._log = client or AsyncHeardlog()
        self._path = _http.join("vectors", _http.text("collection", collection))
        self._user = _http.given(user_id=user_id)

    async def upsert(
        self,
        content: str,
        *,
        id: str | None = None,
        metadata: dict[str, Any] | None = None,
        embedding: list[float] | None = None,
    ) -> str:
        """Stores a document and returns its ID. An embedding is compared in place of the words."""
        name = str(uuid.uuid4()) if id is None else id
        document = _http.given(
            id=name, content=content, metadata=metadata or {}, embedding=embedding, **self._user
        )
        await self._log._post(self._path, document)
        return name

    async def search(
        self, query: str, *, k: int = 5, filter: dict[str, Any] | None = None
    ) -> list[MemoryResult]:
        """Returns the k documents that are closest to a text, the best first."""
        if k <= 0 or not query.strip():
            return []
        body = {"query": query[:4000], "k": min(k, 1000), **self._user}
        if filter:
            body["filter"] = filter
        found = await self._log.request("POST", self._path + "/search", json=body, repeatable=True)
        return [_result(document) for document in found["results"]]

    async def get(self, id: str) -> MemoryResult | None:
        """Returns a document, or None if there is none."""
        try:
            document = await self._log.request(
                "GET", self._path + _http.join(id), params=self._user
            )
        except NotFoundError:
            return None
        return _result(document)

    async def delete(self, ids: list[str]) -> None:
        """Deletes documents. Unknown IDs are ignored."""
        for first in range(0, len(ids), 1000):
            body = {"ids": ids[first : first + 1000], **self._user}
            await self._log.request("POST", self._path + "/delete", json=body, repeatable=True)

    async def clear(self) -> None:
        """Deletes all documents of the collection, or those of its caller."""
        if not self._user:
            await self._log.request("DELETE", self._path)
            return
        pages = self._log._pages(self._path, "documents", self._user, None, 500)
        await self.delete([document["id"] async for document in pages])


def _result(document: dict[str, Any]) -> MemoryResult:
    return MemoryResult(
        id=document["id"],
        content=document["content"],
        score=float(document.get("score", 1.0)),
        metadata=document["metadata"],
    )


class UserMemoryStore:
    """lauren-ai's ``UserMemoryStore``: the facts of Heardlog's callers.

    Facts that Heardlog itself has learned are among them. A fact has at most 300 characters.

    Args:
        match: ``substring``, as lauren-ai searches, or ``words``, which finds facts for a whole
            sentence.
    """

    # lauren-ai names a fact by its ID alone, Heardlog by caller and ID. This namespace has the
    # caller of each ID, and what only lauren-ai keeps of a fact.
    _INDEX = "lauren-facts"

    def __init__(self, client: AsyncHeardlog | None = None, *, match: str = "substring") -> None:
        self._log = client or AsyncHeardlog()
        self._match = match

    async def add(self, fact: MemoryFact) -> None:
        """Stores a fact. One with the same ID is replaced."""
        old = await self._index(fact.memory_id)
        if old is not None:
            await self._log.facts(old["user_id"]).delete(fact.memory_id)
        facts = self._log.facts(fact.user_id)
        fields = {"topics": list(fact.topics), "confidence": fact.confidence, "id": fact.memory_id}
        await facts.add(fact.content, **fields)  # type: ignore[arg-type]
        record = {
            "user_id": fact.user_id,
            "created_at": fact.created_at.isoformat(),
            "last_seen_at": fact.last_seen_at.isoformat(),
            "source_conversation_id": fact.source_conversation_id,
        }
        await self._log.request("PUT", self._entry(fact.memory_id), json={"value": record})

    async def get(self, user_id: str, memory_id: str) -> MemoryFact | None:
        """Returns a fact of a user, or None."""
        try:
            fact = await self._log.facts(user_id).get(memory_id)
        except NotFoundError:
            return None
        if fact["state"] != "active":
            return None
        return _fact(fact, await self._index(memory_id))

    async def search(self, user_id: str, query: str, top_k: int = 10) -> list[MemoryFact]:
        """Returns the facts with a text in their content or topics, the surest first."""
        return await self._search(user_id, query, top_k, self._match)

    async def _search(self, user_id: str, query: str, top_k: int, match: str) -> list[MemoryFact]:
        if top_k <= 0 or (match == "substring" and len(query) > 4000):
            return []
        found = await self._log.facts(user_id).search(
            query[:4000], top_k=min(top_k, 1000), match=match
        )
        return await self._facts(found)

    async def list(self, user_id: str, topic: str | None = None) -> list[MemoryFact]:
        """Returns the facts of a user, the last seen first."""
        found = [fact async for fact in self._log.facts(user_id).find(topic=topic or None)]
        facts = await self._facts(found)
        return sorted(facts, key=lambda fact: fact.last_seen_at, reverse=True)

    async def update(
        self, memory_id: str, *, content: str | None = None, confidence: float | None = None
    ) -> None:
        """Changes a fact, if there is one with this ID."""
        index = await self._index(memory_id)
        if index is None:
            return
        facts = self._log.facts(index["user_id"])
        try:
            old = await facts.get(memory_id)
        except NotFoundError:
            return
        if content is not None and content != old["content"]:
            # A change of content would make a fact with another ID.
            await facts.delete(memory_id)
            sure = old["confidence"] if confidence is None else confidence
            await facts.add(
                content, id=memory_id, topics=old["topics"], confidence=sure, kind=old["kind"]
            )
        elif confidence is not None:
            await facts.change(memory_id, confidence=confidence)

    async def delete(self, memory_id: str) -> None:
        """Deletes a fact, if there is one with this ID."""
        index = await self._index(memory_id)
        if index is not None:
            await self._log.facts(index["user_id"]).delete(memory_id)
            await self._log.request("DELETE", self._entry(memory_id))

    async def clear(self, user_id: str) -> None:
        """Deletes all facts of a user."""
        facts = self._log.facts(user_id)
        ids = [fact["id"] async for fact in facts.find(state="all")]
        await facts.clear()
        for memory_id in ids:
            await self._log.request("DELETE", self._entry(memory_id))

    def _entry(self, memory_id: str) -> str:
        return _http.join("kv", self._INDEX, memory_id)

    async def _index(self, memory_id: str) -> dict[str, Any] | None:
        with contextlib.suppress(NotFoundError):
            entry = await self._log.request("GET", self._entry(memory_id))
            record: dict[str, Any] = entry["value"]
            return record
        return None

    async def _facts(self, found: Any) -> Any:
        known: dict[str, Any] = {}
        path = _http.join("kv", self._INDEX, "batch", "get")
        for first in range(0, len(found), 100):
            keys = [fact["id"] for fact in found[first : first + 100]]
            answer = await self._log.request("POST", path, json={"keys": keys}, repeatable=True)
            known |= {entry["key"]: entry["value"] for entry in answer["entries"]}
        return [_fact(fact, known.get(fact["id"])) for fact in found]


def _fact(fact: Any, index: dict[str, Any] | None) -> MemoryFact:
    """Returns a fact as lauren-ai has it. Facts that it did not add are not in the index."""
    if index is not None and index["user_id"] != fact["user_id"]:
        index = None
    index = index or {}
    return MemoryFact(
        memory_id=fact["id"],
        user_id=fact["user_id"],
        content=fact["content"],
        topics=fact["topics"],
        confidence=float(fact["confidence"]),
        created_at=_time(index.get("created_at") or fact["created_at"]),
        last_seen_at=_time(index.get("last_seen_at") or fact["last_seen_at"]),
        source_conversation_id=index.get("source_conversation_id"),
    )


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)


class Remembering:
    """Runs agents with what lauren-ai's ``@remember`` asks for.

    With ``inject``, facts of the user that share words with the message come before the system
    prompt. With ``extract``, the model is asked for new facts after the turn, and they are stored.
    An agent without ``@remember`` runs as it is. Neither failure stops the agent: it is logged.

    Args:
        runner: lauren-ai's ``AgentRunner``.
        store: Where the facts are.
        llm: What extracts facts: an object with ``complete``. Default: the runner's transport.
    """

    def __init__(
        self, runner: Any, store: UserMemoryStore | None = None, *, llm: Any = None
    ) -> None:
        self._runner = runner
        self._store = store or UserMemoryStore()
        self._llm = llm

    async def run(self, agent: Any, message: str, *, user_id: str, **options: Any) -> Any:
        """Runs an agent: ``AgentRunner.run`` for a user, with the same options."""
        user_id = _http.text("user_id", user_id)
        wanted: RememberMeta | None = getattr(agent, REMEMBER_META, None)
        if wanted is None:
            return await self._runner.run(agent, message, **options)
        if wanted.inject:
            agent = await self._informed(agent, message, user_id, wanted, options)
        response = await self._runner.run(agent, message, **options)
        if wanted.extract:
            meta = getattr(agent, AGENT_META)
            model = wanted.extraction_model or options.get("model_override") or meta.model
            turn = f"user: {message}\nassistant: {response.content}"
            await self._learn(user_id, turn, model, options.get("conversation_id"))
        return response

    async def _informed(
        self, agent: Any, message: str, user_id: str, wanted: RememberMeta, options: dict[str, Any]
    ) -> Any:
        """Returns the agent with what is known of the user before its system prompt."""
        try:
            facts = await self._store._search(user_id, message, wanted.top_k, "words")
        except HeardlogError as error:
            logger.warning("could not read the facts of the user: %s", error)
            return agent
        block = build_memory_context(facts)
        if not block:
            return agent
        kind = agent if isinstance(agent, type) else type(agent)
        meta = getattr(kind, AGENT_META)
        config = options.get("config_override") or meta.config
        system = meta.system or getattr(config, "system_prompt", "") or ""
        # The runner reads the prompt from the class, which other users share.
        meta = dataclasses.replace(meta, system=f"{block}\n\n{system}".strip())
        informed = type(kind.__name__, (kind,), {AGENT_META: meta, "__module__": kind.__module__})
        if isinstance(agent, type):
            return informed
        agent = copy.copy(agent)
        agent.__class__ = informed
        return agent

    async def _learn(
        self, user_id: str, turn: str, model: str | None, conversation_id: str | None
    ) -> None:
        """Asks the model for new facts of a turn, and stores them."""
        try:
            llm = self._llm or self._runner._transport
            found = await extract_facts(user_id, turn, llm, model)
        except Exception as error:  # of any model
            logger.warning("could not extract facts: %s: %s", type(error).__name__, error)
            return
        for entry in found if isinstance(found, list) else []:
            content = entry.get("content") if isinstance(entry, dict) else None
            if not isinstance(content, str) or not content.strip():
                continue
            topics = entry.get("topics")
            texts = [t for t in topics if isinstance(t, str)] if isinstance(topics, list) else []
            fact = MemoryFact(
                memory_id=uuid.uuid4().hex,
                user_id=user_id,
                content=content.strip()[:300],
                topics=texts,
                source_conversation_id=conversation_id,
            )
            try:
                await self._store.add(fact)
            except HeardlogError as error:
                logger.warning("a fact was not stored: %s", error)
