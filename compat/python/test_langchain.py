"""LangChain's chat histories and LangGraph's store, as their own programs use them."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timezone
from typing import Any

import pytest
from heardlog import AsyncHeardlog, Heardlog
from heardlog.langchain import ChatMessageHistory, Store
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from harness import guide
from harness.server import Server
from harness.upstream import Upstream

MESSAGES: list[BaseMessage] = [
    SystemMessage("Be brief.", id="s1"),
    HumanMessage("When is my train?", name="anna", additional_kwargs={"a": [1, None]}),
    HumanMessage([{"type": "text", "text": "What is this?"},
                  {"type": "image_url", "image_url": {"url": "data:," + "A" * 30_000}}]),
    AIMessage("", tool_calls=[{"name": "trains", "args": {"to": "Rome"}, "id": "c1"}],
              usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
              response_metadata={"finish_reason": "tool_calls"}),
    ToolMessage("nine", tool_call_id="c1", artifact={"raw": [9]}, status="success"),
    ToolMessage([{"type": "text", "text": "broken"}], tool_call_id="c2", status="error"),
    AIMessage([{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "At nine."}],
              invalid_tool_calls=[{"name": "x", "args": "{", "id": "c3", "error": "bad",
                                   "type": "invalid_tool_call"}]),
    AIMessageChunk("Chunk", id="run-1"),
    ChatMessage("Hello", role="user"),
    ChatMessage("Aside", role="narrator"),
    FunctionMessage("7", name="seven"),
    AIMessage(""),
    AIMessage("Y" * 20_000),
    RemoveMessage(id="s1"),
]  # fmt: skip


@pytest.fixture
def history(log: Heardlog) -> ChatMessageHistory:
    return ChatMessageHistory("call-1", client=log, user_id="anna")


def test_every_type_comes_back(history: ChatMessageHistory, server: Server) -> None:
    assert isinstance(history, BaseChatMessageHistory) and history.messages == []
    history.add_messages(MESSAGES)
    assert history.messages == MESSAGES
    assert [type(m) for m in history.messages] == [type(m) for m in MESSAGES]
    server.restart()
    again = ChatMessageHistory("call-1", client=Heardlog(server.url))
    assert again.messages == MESSAGES
    again.add_user_message("Thanks.")
    again.add_ai_message(AIMessage("Bye."))
    assert history.messages[-2:] == [HumanMessage("Thanks."), AIMessage("Bye.")]
    history.clear()
    assert again.messages == [] and ChatMessageHistory("x", client=history.client).messages == []


async def test_without_blocking(history: ChatMessageHistory) -> None:
    await history.aadd_messages(MESSAGES)
    assert await history.aget_messages() == MESSAGES == await asyncio.to_thread(
        lambda: history.messages
    )  # fmt: skip
    await history.aclear()
    assert await history.aget_messages() == []


def test_what_was_heard(history: ChatMessageHistory, log: Heardlog) -> None:
    history.add_messages([HumanMessage("Train?"), AIMessage("At nine from platform two.", id="a")])
    agent = log.start("call-1", reuse=True)
    agent.interrupt(heard="At nine")
    assert history.messages[-1] == AIMessage("At nine", id="a")
    agent.append({"role": "user", "content": "Which platform?", "source": "asr"})
    assert history.messages[-1] == HumanMessage("Which platform?")


def test_a_chain(log: Heardlog, upstream: Upstream) -> None:
    model = ChatOpenAI(model="scripted", base_url=upstream.url, api_key="unused")
    prompt = ChatPromptTemplate(
        [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    chain = RunnableWithMessageHistory(
        prompt | model,
        lambda session_id: ChatMessageHistory(session_id, client=log),
        input_messages_key="question",
        history_messages_key="history",
    )
    upstream.say("It leaves at nine.", "From platform two.")
    config: Any = {"configurable": {"session_id": "call-7"}}
    assert chain.invoke({"question": "When is my train?"}, config).content == "It leaves at nine."
    log.start("call-7", reuse=True).interrupt(heard="It leaves")
    chain.invoke({"question": "From where?"}, config)
    sent = [m["content"] for m in upstream.requests[-1]["messages"]]
    assert sent == ["Be brief.", "When is my train?", "It leaves", "From where?"]


@pytest.fixture(params=["ours", "theirs"])
def store(request: pytest.FixtureRequest, log: Heardlog) -> BaseStore:
    """Our store, and LangGraph's own, which must pass the same tests."""
    return Store(client=log) if request.param == "ours" else InMemoryStore()


def test_put_get_delete(store: BaseStore) -> None:
    before = datetime.now(timezone.utc)
    value = {"text": "Ünïcode 🟥", "n": 1.5, "deep": {"a": [1, None, {"b": False}]}}
    store.put(("docs", "ann a"), "key/1 ?#%", value)
    item = store.get(("docs", "ann a"), "key/1 ?#%")
    assert item is not None and item.value == value and item.key == "key/1 ?#%"
    assert item.namespace == ("docs", "ann a")
    assert before <= item.created_at <= datetime.now(timezone.utc)
    store.put(("docs", "ann a"), "key/1 ?#%", {"text": "new"})
    newer = store.get(("docs", "ann a"), "key/1 ?#%")
    assert newer is not None and newer.value == {"text": "new"}
    assert newer.updated_at >= item.updated_at
    assert store.get(("docs",), "key/1 ?#%") is None
    assert store.get(("docs", "ann a", "b"), "key/1 ?#%") is None
    store.delete(("docs", "ann a"), "key/1 ?#%")
    store.delete(("docs", "ann a"), "key/1 ?#%")
    assert store.get(("docs", "ann a"), "key/1 ?#%") is None


def test_batches(store: BaseStore) -> None:
    store.put(("a",), "k", {"n": 0})
    results = store.batch(
        [
            PutOp(("a",), "k", {"n": 1}),
            GetOp(("a",), "k"),
            PutOp(("a",), "k", {"n": 2}),
            SearchOp(("a",)),
            ListNamespacesOp(),
            PutOp(("b",), "k", {"n": 3}),
            PutOp(("b",), "k", None),
        ]
    )
    assert results[1].value == {"n": 0} and results[3][0].value == {"n": 0}
    assert results[4] == [("a",)] and [results[i] for i in (0, 2, 5, 6)] == [None] * 4
    assert store.get(("a",), "k").value == {"n": 2} and store.get(("b",), "k") is None


def test_filters(store: BaseStore) -> None:
    for i in range(6):
        store.put(
            ("shop", "red" if i % 2 else "blue"),
            f"k{i}",
            {"n": i, "kind": "odd" if i % 2 else "even", "deep": {"m": i}, "list": [i, "x"]},
        )
    store.put(("shopping",), "other", {"n": 1})

    def keys(prefix: tuple[str, ...] = ("shop",), **options: Any) -> list[str]:
        return sorted(item.key for item in store.search(prefix, **options))

    assert keys() == [f"k{i}" for i in range(6)]
    assert keys(("shop", "red")) == ["k1", "k3", "k5"]
    assert len(keys(())) == 7 and keys(("nothing",)) == []
    assert keys(filter={"kind": "even"}) == ["k0", "k2", "k4"]
    assert keys(filter={"n": {"$gt": 3}}) == ["k4", "k5"]
    assert keys(filter={"n": {"$gte": 2, "$lt": 4}}) == ["k2", "k3"]
    assert keys(filter={"n": {"$lte": 1}, "kind": {"$ne": "odd"}}) == ["k0"]
    assert keys(filter={"n": {"$eq": 5}}) == ["k5"]
    assert keys(filter={"deep": {"m": 3}}) == ["k3"]
    assert keys(filter={"list": [2, "x"]}) == ["k2"]
    assert keys(filter={"missing": 1}) == []
    assert [i.key for i in store.search(("shop", "red"), limit=2)] == ["k1", "k3"]
    assert [i.key for i in store.search(("shop", "red"), limit=2, offset=2)] == ["k5"]


def test_namespaces(store: BaseStore) -> None:
    for namespace in [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "c", "f"), ("x", "y", "f")]:
        store.put(namespace, "k", {"v": 1})
    everything = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "c", "f"), ("x", "y", "f")]
    assert store.list_namespaces() == everything
    assert store.list_namespaces(prefix=("a", "b")) == everything[:2]
    assert store.list_namespaces(prefix=("a", "*", "f")) == [("a", "c", "f")]
    assert store.list_namespaces(suffix=("f",)) == everything[2:]
    assert store.list_namespaces(prefix=("a",), suffix=("f",)) == [("a", "c", "f")]
    assert store.list_namespaces(prefix=("a",), max_depth=2) == [("a", "b"), ("a", "c")]
    assert store.list_namespaces(max_depth=1) == [("a",), ("x",)]
    assert store.list_namespaces(limit=2, offset=1) == everything[1:3]
    both = (MatchCondition("prefix", ("a", "*")), MatchCondition("suffix", ("*", "e")))
    assert store.batch([ListNamespacesOp(both)]) == [[("a", "b", "d", "e")]]


def test_bad_namespaces(store: BaseStore) -> None:
    for namespace in [(), ("a", ""), ("a.b",), ("langgraph", "x")]:
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {"v": 1})


def test_queries(log: Heardlog) -> None:
    store = Store(client=log)
    store.put(("users", "anna"), "seat", {"text": "Likes window seats on trains."})
    store.put(("users", "anna"), "food", {"text": "Allergic to peanuts.", "kind": "health"})
    store.put(("users", "anna"), "quiet", {"text": "Likes window seats, too."}, index=False)
    store.put(("users", "ben"), "seat", {"text": "Wants an aisle seat."})
    found = store.search(("users", "anna"), query="Is she allergic to peanuts?")
    assert [i.key for i in found][:1] == ["food"] and (found[0].score or 0) > 0
    assert {i.key for i in found} == {"food", "seat", "quiet"} and found[-1].score is None
    found = store.search(("users",), query="window seats", limit=1)
    assert [(i.namespace[1], i.key) for i in found] == [("anna", "seat")]
    found = store.search(("users",), query="window seats", filter={"kind": "health"})
    assert [i.key for i in found] == ["food"]
    store.put(("users", "anna"), "seat", {"title": "peanuts", "text": "None."}, index=["text"])
    found = store.search(("users", "anna"), query="peanuts", limit=1)
    assert found[0].key == "food"
    store.delete(("users", "anna"), "food")
    assert "food" not in {i.key for i in store.search(("users",), query="peanuts")}
    other = Store("other", client=log)
    assert other.search((), query="window") == [] and other.list_namespaces() == []


def test_recall(log: Heardlog) -> None:
    with log.start("call-1", user_id="anna") as agent:
        agent.append(
            {"role": "user", "content": "I am allergic to peanuts."},
            {"role": "assistant", "content": "I will remember the peanuts."},
        )
    log.facts("anna").add("Anna is allergic to peanuts.")
    store = Store(client=log)
    found = store.search(("recall", "anna"), query="What am I allergic to?")
    kinds = {item.value["kind"] for item in found}
    assert kinds == {"turn", "fact"} and found[0].score > 0
    assert any(item.value["content"] == "I am allergic to peanuts." for item in found)
    assert len(store.search(("recall", "anna"), query="peanuts allergic", limit=1)) == 1
    turns = store.search(("recall", "anna"), query="peanuts", filter={"kind": "turn"})
    assert {item.value["kind"] for item in turns} == {"turn"}
    assert store.search(("recall", "ben"), query="peanuts") == []
    with pytest.raises(ValueError, match="cannot be written"):
        store.put(("recall", "anna"), "k", {"v": 1})


def test_expiry(log: Heardlog) -> None:
    store = Store(client=log, ttl={"refresh_on_read": False, "default_ttl": None})
    store.put(("a",), "short", {"v": 1}, ttl=1 / 60)
    store.put(("a",), "long", {"v": 1}, ttl=10)
    store.put(("a",), "ever", {"v": 1})
    path = f"/kv/{'langgraph.a'}/"
    ends = log.request("GET", path + "long")["expires_at"]
    assert "expires_at" not in log.request("GET", path + "ever")
    deadline = time.monotonic() + 10
    while store.get(("a",), "short") is not None and time.monotonic() < deadline:
        pass  # a read that does not refresh does not keep it
    assert store.get(("a",), "short") is None
    assert {i.key for i in store.search(("a",))} == {"long", "ever"}
    assert log.request("GET", path + "long")["expires_at"] == ends
    assert store.get(("a",), "long", refresh_ttl=True) is not None
    assert log.request("GET", path + "long")["expires_at"] > ends


async def test_a_graph(alog: AsyncHeardlog, upstream: Upstream) -> None:
    store = Store(async_client=alog)
    model = ChatOpenAI(model="scripted", base_url=upstream.url, api_key="unused")

    async def answer(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        said = state["messages"][-1].content
        known = await store.asearch(("memories", "anna"), query=said)
        system = "Known: " + "; ".join(item.value["text"] for item in known)
        await store.aput(("memories", "anna"), str(len(known)), {"text": said})
        return {"messages": await model.ainvoke([SystemMessage(system), *state["messages"]])}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(store=store)
    await graph.ainvoke({"messages": [HumanMessage("I like window seats.")]})
    await graph.ainvoke({"messages": [HumanMessage("Book a seat.")]})
    sent = [r["messages"][0]["content"] for r in upstream.requests]
    assert sent == ["Known: ", "Known: I like window seats."]
    assert await store.alist_namespaces() == [("memories", "anna")]
    await store.adelete(("memories", "anna"), "0")
    assert await store.aget(("memories", "anna"), "0") is None
    assert [i.key for i in await store.asearch(("memories",))] == ["1"]


def test_the_guide(server: Server) -> None:
    messages, found, recalled = guide.run(
        "LangChain and LangGraph", HEARDLOG_URL=server.url
    ).splitlines()
    assert "I am allergic to peanuts." in messages and "Likes window seats." in found
    assert "I am allergic to peanuts." in recalled
