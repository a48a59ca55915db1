"""The client against the server."""

from __future__ import annotations

import threading

import pytest
from heardlog import AsyncHeardlog, ConflictError, EndedError, Heardlog, NotFoundError

from harness.server import Server
from harness.upstream import Answer, Upstream


def test_a_call(log: Heardlog, upstream: Upstream) -> None:
    with log.start("call-1", user_id="anna", labels={"line": "sales"}, greeting="Hello!") as agent:
        upstream.say("The train leaves at nine from platform two.")
        client = agent.openai()
        answer = client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "When is my train?"}]
        )
        assert answer.choices[0].message.content == "The train leaves at nine from platform two."
        done = agent.interrupt(heard="The train leaves")
        assert done["interrupted"][0]["heard"] == "The train leaves"
        agent.append({"role": "user", "content": "Thanks.", "source": "asr"})
        agent.append([{"role": "user", "content": "Bye."}])
        texts = [(m["role"], m["content"]) for m in agent.history()]
        assert texts == [
            ("assistant", "Hello!"),
            ("user", "When is my train?"),
            ("assistant", "The train leaves"),
            ("user", "Thanks."),
            ("user", "Bye."),
        ]
        assert [m["content"] for m in agent.history(limit=1)] == ["Bye."]
        ledger = list(agent.messages())
        assert ledger[2]["generated"] == "The train leaves at nine from platform two."
        assert ledger[2]["evidence"]["method"] == "vendor_text"
        assert [m["seq"] for m in agent.messages(after_seq=2, limit=1)] == [3]
        context = agent.context("What now?")
        assert context["messages"][-1] == {"role": "user", "content": "What now?"}
        info = agent.info()
        assert info["user_id"] == "anna" and info["labels"] == {"line": "sales"}
        assert agent.update(labels={"line": None, "tier": "gold"})["labels"] == {"tier": "gold"}
    assert agent.info()["status"] == "STOPPED"
    agent.leave()  # again
    with pytest.raises(EndedError):
        agent.append({"role": "user", "content": "Too late."})
    found = list(log.find(user_id="anna", labels={"tier": "gold"}))
    assert [a["agent_id"] for a in found] == [agent.id]
    assert log.recall("anna", "When is my train?")["hits"]
    agent.erase()
    with pytest.raises(NotFoundError):
        agent.info()


async def test_a_call_without_blocking(alog: AsyncHeardlog, upstream: Upstream) -> None:
    agent = await alog.start("call-1", system="Be brief.")
    go = threading.Event()
    upstream.say(Answer("One two three four five six.", hold=go, hold_after=3))
    stream = await agent.openai().chat.completions.create(
        model="default", messages=[{"role": "user", "content": "Count."}], stream=True
    )
    heard = ""
    async for chunk in stream:
        heard += chunk.choices[0].delta.content or ""
        if heard == "One two three":
            await agent.interrupt(heard="One two")
            go.set()
    await agent.leave()
    assert upstream.requests[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    history = await agent.history()
    assert history[-1]["content"] == "One two" and history[-1]["metadata"]["interrupted"]
    assert [m["seq"] async for m in agent.messages()] == [1, 2]


def test_names_and_errors(log: Heardlog) -> None:
    agent = log.start("desk")
    with pytest.raises(ConflictError) as taken:
        log.start("desk")
    assert taken.value.agent_id == agent.id and taken.value.field == "name"
    assert log.start("desk", reuse=True).id == agent.id
    with pytest.raises(Exception, match="one of user") as wrong:
        agent.append({"role": "user", "content": "a"}, {"role": "robot", "content": "b"})
    assert wrong.value.field == "messages[1].role"
    assert wrong.value.reason == "InvalidFieldValue" and wrong.value.status == 400
    assert wrong.value.request_id
    assert log.agent("nobody").id == "nobody"
    with pytest.raises(NotFoundError):
        log.agent("nobody").history()
    odd = log.start("Grüße/?#%", keys=["vapi.call:5f0c"])
    assert odd.info()["keys"] == ["vapi.call:5f0c"]
    assert [a["agent_id"] for a in log.find(name="Grüße/?#%")] == [odd.id]


def test_memory_goes_on(log: Heardlog, server: Server) -> None:
    first = log.start("ann", user_id="ann")
    first.append(*({"role": "user", "content": f"Number {i}."} for i in range(40)))
    first.leave()
    server.restart()
    second = log.start("ann", user_id="ann", inherit="full")
    assert second.inherited is not None and second.inherited["messages"] == 40
    assert len(second.history()) == 40
    second.set_summary("She counts.", up_to_seq=38)
    assert second.summary() == "She counts."
    memory = second.snapshot()
    assert [m["content"] for m in memory["messages"]] == ["Number 38.", "Number 39."]
    second.clear()
    assert second.history() == []
    second.restore(memory)
    assert len(second.history()) == 2


def test_facts(log: Heardlog) -> None:
    facts = log.facts("anna/1")
    fact = facts.add("Likes window seats.", topics=["travel"], confidence=0.9)
    tea = facts.add("Drinks tea.", idempotency_key="k1")
    assert facts.add("Drinks tea.", idempotency_key="k1")["id"] == tea["id"]
    assert {f["content"] for f in facts} == {"Likes window seats.", "Drinks tea."}
    assert [f["id"] for f in facts.find(topic="travel")] == [fact["id"]]
    assert facts.search("Which seats does she like?", top_k=1)[0]["id"] == fact["id"]
    assert "window seats" in facts.block()
    assert facts.change(fact["id"], confidence=0.5)["confidence"] == 0.5
    assert facts.get(fact["id"])["topics"] == ["travel"]
    facts.delete(fact["id"])
    facts.clear()
    assert list(facts) == []


async def test_facts_without_blocking(alog: AsyncHeardlog) -> None:
    facts = alog.facts("anna")
    await facts.add("Likes tea.")
    assert [f["content"] async for f in facts] == ["Likes tea."]


def test_endpoints(log: Heardlog) -> None:
    endpoint = log.webhooks.create("https://hooks.example.com/calls", events=["agent.history"])
    assert endpoint["secrets"][0]["secret"].startswith("whsec_")
    assert [e["id"] for e in log.webhooks] == [endpoint["id"]]
    changed = log.webhooks.change(endpoint["id"], description="billing")
    assert changed["description"] == "billing" == log.webhooks.get(endpoint["id"])["description"]
    assert list(log.webhooks.deliveries(state="dead")) == []
    log.webhooks.delete(endpoint["id"])
    assert list(log.webhooks) == []


def test_credentials(start_server) -> None:
    server = start_server(HEARDLOG_CREDENTIALS="shop=id:quiet-secret-1")
    with Heardlog(server.url, "quiet-secret-1") as log:
        agent = log.start("a")
        assert "quiet-secret-1" not in repr(log) + repr(agent) + repr(vars(agent))
    with Heardlog(server.url, "wrong-secret") as log, pytest.raises(Exception) as refused:
        log.start("b")
    assert refused.value.status == 401 and "wrong-secret" not in str(refused.value)
    with Heardlog(server.root, "id:quiet-secret-1") as log:
        log.start("c")
