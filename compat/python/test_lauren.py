"""lauren-ai: its protocols, with its own stores as the measure, and its runner."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from heardlog import AsyncHeardlog
from heardlog.lauren import ConversationStore, Remembering, UserMemoryStore, VectorStore
from lauren_ai import LLMConfig, agent, remember
from lauren_ai._agents._runner import AgentRunnerBase
from lauren_ai._memory import ConversationStore as ConversationProtocol
from lauren_ai._memory import MemoryStore as VectorProtocol
from lauren_ai._memory import ShortTermMemory
from lauren_ai._memory._in_memory_user import InMemoryUserMemoryStore
from lauren_ai._memory._stores import InMemoryConversationStore
from lauren_ai._memory._user import MemoryFact
from lauren_ai._memory._user import UserMemoryStore as UserProtocol
from lauren_ai._memory._vector import InMemoryVectorStore
from lauren_ai._transport._openai import OpenAITransport

from harness import guide
from harness.server import Server
from harness.upstream import Answer, Upstream

Make = Callable[[AsyncHeardlog], Any]


def both(ours: Make, theirs: Callable[[], Any]) -> Any:
    """Runs a test with our store and with lauren-ai's own."""

    @pytest.fixture(params=["ours", "theirs"])
    def store(request: pytest.FixtureRequest, alog: AsyncHeardlog) -> Any:
        return ours(alog) if request.param == "ours" else theirs()

    return store


conversations = both(ConversationStore, InMemoryConversationStore)
vectors = both(lambda log: VectorStore("docs", client=log), InMemoryVectorStore)
users = both(UserMemoryStore, InMemoryUserMemoryStore)


async def test_protocols(alog: AsyncHeardlog) -> None:
    stores = [ConversationStore(alog), VectorStore(client=alog), UserMemoryStore(alog)]
    protocols = [ConversationProtocol, VectorProtocol, UserProtocol]
    for store, protocol in zip(stores, protocols, strict=True):
        for name in vars(protocol):
            if not name.startswith("_"):
                assert callable(getattr(store, name)), name


async def test_conversations(conversations: Any) -> None:
    assert await conversations.load("nobody") == []
    memory = ShortTermMemory()
    memory.add_user("When is my train?")
    memory.set_summary("Anna calls.")
    snapshot = memory.snapshot()
    for name in ["b", "a/1 ?#%", "Z", "10", ""]:
        await conversations.save(name, snapshot)
    assert await conversations.load("a/1 ?#%") == snapshot
    await conversations.save("b", [{"role": "user", "content": "Hello"}])
    loaded = await conversations.load("b")
    assert loaded == {"messages": [{"role": "user", "content": "Hello"}], "summary": None}
    loaded["messages"].clear()
    assert len((await conversations.load("b"))["messages"]) == 1
    restored = ShortTermMemory()
    restored.restore(await conversations.load("Z"))
    assert restored.snapshot() == snapshot and restored.summary == "Anna calls."
    assert await conversations.list_conversations() == ["", "10", "Z", "a/1 ?#%", "b"]
    await conversations.delete("b")
    await conversations.delete("b")
    assert await conversations.load("b") == []
    await conversations.clear()
    assert await conversations.list_conversations() == []


async def test_documents(vectors: Any) -> None:
    assert await vectors.search("train") == [] and await vectors.get("x") is None
    first = await vectors.upsert("The train leaves at nine.", metadata={"lang": "en", "n": 1})
    assert uuid.UUID(first).version == 4
    assert await vectors.upsert("A dog barks.", id="dog", metadata={"lang": "en"}) == "dog"
    await vectors.upsert("Der Zug ist weg, train gone.", id="zug", metadata={"lang": "de"})
    await vectors.upsert("Nothing here.", id="none")
    found = await vectors.search("When does the train leave?", k=2)
    assert [r.id for r in found] == [first, "zug"] and found[0].score >= found[1].score > 0
    assert found[0].metadata == {"lang": "en", "n": 1}
    assert [r.id for r in await vectors.search("train", filter={"lang": "de"})] == ["zug"]
    assert len(await vectors.search("train", k=10)) == 4  # the others score 0
    assert [r.id for r in await vectors.search("xyz", k=2)] == [first, "dog"]
    assert len(await vectors.search("train", filter={})) == 4
    assert await vectors.search("train", filter={"lang": "en", "n": 2}) == []
    assert await vectors.search(" ") == [] and await vectors.search("train", k=0) == []
    document = await vectors.get("dog")
    assert (document.content, document.score) == ("A dog barks.", 1.0)
    await vectors.upsert("A cat.", id="dog")
    document = await vectors.get("dog")
    assert (document.content, document.metadata) == ("A cat.", {})
    assert await vectors.upsert("Numbers.", id="v", embedding=[3.0, 4.0]) == "v"
    await vectors.delete(["dog", "unknown"])
    assert await vectors.get("dog") is None
    await vectors.delete([])
    await vectors.clear()
    assert await vectors.search("train") == [] and await vectors.get("zug") is None


async def test_documents_of_a_user(alog: AsyncHeardlog) -> None:
    anna = VectorStore("docs", client=alog, user_id="anna")
    everyone = VectorStore("docs", client=alog)
    await anna.upsert("Anna's seat.", id="a")
    await everyone.upsert("A seat.", id="b")
    assert [r.id for r in await anna.search("seat")] == ["a"]
    assert [r.id for r in await everyone.search("seat")] == ["b"]
    await anna.clear()
    assert await anna.get("a") is None and await everyone.get("b") is not None


def fact(memory_id: str, content: str, user: str = "anna", **fields: Any) -> MemoryFact:
    return MemoryFact(memory_id=memory_id, user_id=user, content=content, **fields)


async def test_facts(users: Any) -> None:
    now = datetime.now(timezone.utc)
    seen = [now - timedelta(days=3 - i) for i in range(3)]
    tea = fact("1", "Likes TEA.", topics=["Food"], confidence=0.5, last_seen_at=seen[0],
               created_at=seen[0], source_conversation_id="call-1")  # fmt: skip
    seat = fact("2", "Likes window seats.", topics=["travel"], last_seen_at=seen[2])
    nuts = fact("3", "Allergic to nuts.", topics=["food", "health"], last_seen_at=seen[1])
    for each in (tea, seat, nuts):
        await users.add(each)
    assert await users.get("anna", "1") == tea
    assert await users.get("ben", "1") is None and await users.get("anna", "9") is None
    assert [f.memory_id for f in await users.list("anna")] == ["2", "3", "1"]
    assert [f.memory_id for f in await users.list("anna", "FOOD")] == ["3", "1"]
    assert await users.list("anna", "foo") == [] and await users.list("ben") == []
    assert [f.memory_id for f in await users.search("anna", "likes")] == ["2", "1"]
    assert [f.memory_id for f in await users.search("anna", "FOOD")] == ["3", "1"]
    assert [f.memory_id for f in await users.search("anna", "", top_k=2)] == ["2", "3"]
    assert await users.search("anna", "x" * 5000) == []
    await users.update("1", confidence=0.0)
    await users.update("2", content="Likes aisle seats.")
    await users.update("9", content="Nothing.")
    assert (await users.get("anna", "1")).confidence == 0.0
    changed = await users.get("anna", "2")
    assert (changed.content, changed.topics) == ("Likes aisle seats.", ["travel"])
    assert changed.last_seen_at == seen[2]
    await users.add(fact("3", "Allergic to milk."))  # the same ID
    assert [f.content for f in await users.search("anna", "allergic")] == ["Allergic to milk."]
    await users.add(fact("3", "Is called Ben.", user="ben"))  # and of another user
    assert await users.get("anna", "3") is None
    assert (await users.get("ben", "3")).content == "Is called Ben."
    await users.delete("1")
    await users.delete("1")
    await users.clear("anna")
    assert await users.list("anna") == [] and len(await users.list("ben")) == 1


async def test_facts_that_heardlog_learned(alog: AsyncHeardlog) -> None:
    added = await alog.facts("anna").add("Anna lives in Lund.", topics=["home"])
    (found,) = await UserMemoryStore(alog).list("anna")
    assert (found.memory_id, found.content) == (added["id"], "Anna lives in Lund.")


@agent(model="scripted", system="Be brief.")
@remember(top_k=3)
class Desk:
    """A desk."""


@agent(model="scripted", system="Be brief.")
@remember(inject=True, extract=False)
class Reader:
    """Only reads."""


@agent(model="scripted", system="Be brief.")
class Plain:
    """Remembers nothing."""


def runner(upstream: Upstream) -> AgentRunnerBase:
    config = LLMConfig(provider="openai", model="scripted", api_key="unused", base_url=upstream.url)
    return AgentRunnerBase(transport=OpenAITransport(config))


def systems(upstream: Upstream) -> list[str]:
    return [m["content"] for r in upstream.requests for m in r["messages"] if m["role"] == "system"]


async def test_remember(alog: AsyncHeardlog, upstream: Upstream) -> None:
    store = UserMemoryStore(alog)
    remembering = Remembering(runner(upstream), store)
    upstream.say("Noted.", 'Sure: [{"content": "User likes window seats.", "topics": ["travel"]}]')
    response = await remembering.run(
        Desk(), "I like window seats.", user_id="anna", conversation_id="call-1"
    )
    assert response.content == "Noted."
    (learned,) = await store.list("anna")
    assert (learned.content, learned.topics) == ("User likes window seats.", ["travel"])
    assert (learned.source_conversation_id, learned.confidence) == ("call-1", 1.0)
    upstream.say("A window seat.", "[]", "Hello Ben.", "no facts here")
    await remembering.run(Desk(), "Which seats do I like?", user_id="anna")
    await remembering.run(Desk(), "Which seats do I like?", user_id="ben")
    prompts = [s for s in systems(upstream) if "Be brief." in s]
    block = "## What I remember about you:\n- User likes window seats. (confidence: high)"
    assert prompts == ["Be brief.", f"{block}\n\nBe brief.", "Be brief."]
    assert len(await store.list("anna")) == 1 and await store.list("ben") == []
    asked = len(upstream.requests)
    await remembering.run(Reader(), "Which seats do I like?", user_id="anna")
    await remembering.run(Plain(), "Which seats do I like?", user_id="anna")
    assert len(upstream.requests) == asked + 2
    assert systems(upstream)[-2:] == [f"{block}\n\nBe brief.", "Be brief."]


async def test_failures_stop_nothing(
    alog: AsyncHeardlog, server: Server, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    remembering = Remembering(runner(upstream), UserMemoryStore(alog))
    upstream.say("One.", Answer(status=400))
    assert (await remembering.run(Desk(), "First", user_id="a")).content == "One."
    assert "could not extract" in caplog.text
    upstream.say("Two.", '[{"content": "My card is 4111 1111 1111 1111"}, 5, {"content": 7}]')
    assert (await remembering.run(Desk(), "Second", user_id="a")).content == "Two."
    assert "was not stored" in caplog.text
    server.stop()
    quick = AsyncHeardlog(server.url, retries=0)
    remembering = Remembering(runner(upstream), UserMemoryStore(quick))
    upstream.say("Three.", '[{"content": "User is late."}]')
    assert (await remembering.run(Desk(), "Third", user_id="a")).content == "Three."
    with pytest.raises(ValueError, match="user_id"):
        await remembering.run(Desk(), "Fourth", user_id="")


async def test_a_runner_with_our_conversations(
    alog: AsyncHeardlog, server: Server, upstream: Upstream
) -> None:
    upstream.say("At nine.", "From platform two.")
    for question in ["When is my train?", "From where?"]:
        await runner(upstream).run(
            Plain(), question, conversation_id="call-1", conversation_store=ConversationStore(alog)
        )
        server.restart()
    sent = [m["content"] for m in upstream.requests[-1]["messages"]]
    assert sent == ["Be brief.", "When is my train?", "At nine.", "From where?"]


def test_the_guide(server: Server) -> None:
    found, facts = guide.run("lauren-ai", HEARDLOG_URL=server.url).splitlines()
    assert "A refund takes five days." in found and "Likes window seats." in facts
