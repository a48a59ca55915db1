"""Open Voice OS: its persona with our memory module, and its own memory as the measure."""

from __future__ import annotations

import random
import socket
import threading
import time
from typing import Any

import pytest
from heardlog import Heardlog
from heardlog.ovos import HeardlogMemory
from ovos_bus_client.session import Session
from ovos_persona import Persona
from ovos_persona.memory import BasicShortTermMemory
from ovos_plugin_manager.agents import find_memory_plugins, load_memory_plugin
from ovos_plugin_manager.templates.agents import AgentMessage, MessageRole, ToolCall

from harness.server import Server
from harness.upstream import Upstream

MODULE = "ovos-memory-heardlog"
USER, ASSISTANT, SYSTEM = MessageRole.USER, MessageRole.ASSISTANT, MessageRole.SYSTEM


def said(*pairs: tuple[MessageRole, str]) -> list[AgentMessage]:
    return [AgentMessage(role=role, content=content) for role, content in pairs]


@pytest.fixture
def memory(server: Server) -> HeardlogMemory:
    return HeardlogMemory({"url": server.url, "system_prompt": " You are a helpful robot. \n"})


def test_it_is_found() -> None:
    assert find_memory_plugins()[MODULE] is HeardlogMemory
    assert load_memory_plugin(MODULE) is HeardlogMemory


def test_the_rules_one_by_one(memory: HeardlogMemory) -> None:
    assert memory.get_history("s") == []
    memory.update_history([], "s")
    memory.update_history(said((USER, "hanging")), "s")
    memory.update_history(said((USER, "question")), "s")
    memory.update_history(said((ASSISTANT, "one")), "s")
    memory.update_history(said((ASSISTANT, "two")), "s")
    assert memory.get_history("s") == said((USER, "question"), (ASSISTANT, "one\ntwo"))
    memory.update_history(said((USER, "again"), (USER, "and again")), "s")
    assert memory.get_history("s")[2:] == said((USER, "again"), (USER, "and again"))
    context = memory.build_conversation_context("  now ", "s")
    assert context == said(
        (SYSTEM, "You are a helpful robot."),
        (USER, "question"), (ASSISTANT, "one\ntwo"), (USER, "now"),
    )  # fmt: skip
    assert len(memory.get_history("s")) == 4  # a context changes nothing
    memory.update_history(said((ASSISTANT, "three"), (USER, "last")), "s")
    assert [m.content for m in memory.get_history("s")] == [
        "one\ntwo", "again", "and again", "three", "last",
    ]  # fmt: skip
    assert memory.build_conversation_context("x", "s")[1].role == USER  # no answer comes first
    assert memory.get_history("other") == []


@pytest.mark.parametrize("seed", range(6))
def test_like_their_own(server: Server, seed: int) -> None:
    dice = random.Random(seed)
    limit = dice.choice([1, 2, 5, 7])
    config = {"max_history": limit, "system_prompt": dice.choice(["", " ", "Be brief."])}
    ours = HeardlogMemory({**config, "url": server.url})
    theirs = BasicShortTermMemory(config)
    for step in range(25):
        session = dice.choice(["a", "b"])
        roles = dice.choices([USER, USER, ASSISTANT, ASSISTANT, SYSTEM], k=dice.randint(1, 3))
        # Two copies: theirs joins texts in the message that it was given.
        for memory in (ours, theirs):
            memory.update_history(said(*((r, f"{step}.{i}") for i, r in enumerate(roles))), session)
        assert ours.get_history(session) == theirs.get_history(session)
        want = theirs.build_conversation_context(f" {step}? ", session)
        assert ours.build_conversation_context(f" {step}? ", session) == want


def test_tools(memory: HeardlogMemory) -> None:
    call = ToolCall(id="c1", name="lamp", arguments={"on": True})
    messages = [
        AgentMessage(role=USER, content="Light!"),
        AgentMessage(role=ASSISTANT, content="", tool_calls=[call]),
        AgentMessage(role=MessageRole.TOOL, content="done", tool_call_id="c1", name="lamp"),
        AgentMessage(role=ASSISTANT, content="It is on."),
    ]
    memory.update_history(messages, "s")
    assert memory.get_history("s") == messages


def test_it_survives(server: Server, memory: HeardlogMemory) -> None:
    memory.update_history(said((USER, "q"), (ASSISTANT, "a")), "s")
    server.restart()
    again = HeardlogMemory({"url": server.url, "max_history": 3})
    assert again.get_history("s") == said((USER, "q"), (ASSISTANT, "a"))
    with Heardlog(server.url) as log:
        (running,) = log.find(status="running")
        log.agent(running["agent_id"]).leave()
    again.update_history(said((USER, "q2"), (ASSISTANT, "a2")), "s")
    assert [m.content for m in again.get_history("s")] == ["a", "q2", "a2"]


def test_what_was_heard(server: Server, memory: HeardlogMemory) -> None:
    memory.update_history(said((USER, "q"), (ASSISTANT, "One two three four.")), "s")
    with Heardlog(server.url) as log:
        (running,) = log.find(name="ovos:s")
        log.agent(running["agent_id"]).interrupt(heard="One two")
    assert memory.build_conversation_context("x", "s")[2].content == "One two"


def test_what_is_known(server: Server) -> None:
    with Heardlog(server.url) as log:
        log.facts("anna").add("Anna likes tea.")
    memory = HeardlogMemory({"url": server.url, "user_id": "anna", "system_prompt": "Be brief."})
    system = memory.build_conversation_context("Do I like tea?", "s")[0]
    assert system.role == SYSTEM and system.content.startswith("Be brief.\n\n")
    assert "Anna likes tea." in system.content


def test_many_at_once(memory: HeardlogMemory, server: Server) -> None:
    def ask(i: int) -> None:
        memory.update_history(said((USER, f"q{i}"), (ASSISTANT, f"a{i}")), f"s{i % 2}")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Heardlog(server.url) as log:
        assert sorted(a["name"] for a in log.find()) == ["ovos:s0", "ovos:s1"]
    assert len(memory.get_history("s0")) == 5


def persona(upstream: Upstream, config: dict[str, Any]) -> Persona:
    engine = "ovos-chat-openai-plugin"
    chat: dict[str, Any] = {"api_url": upstream.url, "key": "unused", "model": "scripted"}
    chat |= {"enabled": True, "allow_system_prompts": True}
    return Persona(
        "robot", {"handlers": [engine], engine: chat, "memory_module": MODULE, MODULE: config}
    )


def talk(robot: Persona, words: str) -> str:
    session = Session("s1")
    answer: str = robot.chat(robot.get_messages(words, session), session)
    robot.remember(words, answer, session)
    return answer


def test_a_persona(server: Server, upstream: Upstream) -> None:
    robot = persona(upstream, {"url": server.url, "system_prompt": "Be brief."})
    assert isinstance(robot.memory, HeardlogMemory)
    upstream.say("At nine.", "From platform two.")
    assert talk(robot, "When is my train?") == "At nine."
    assert talk(robot, "From where?") == "From platform two."
    sent = [(m["role"], m["content"]) for m in upstream.requests[-1]["messages"]]
    assert sent[-4:] == [
        ("system", "Be brief."), ("user", "When is my train?"), ("assistant", "At nine."),
        ("user", "From where?"),
    ]  # fmt: skip


def test_a_persona_without_its_memory(
    server: Server, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    robot = persona(upstream, {"url": server.url})
    upstream.say("One.", "Two.", "Three.")
    assert talk(robot, "First?") == "One."
    server.stop()
    begin = time.monotonic()
    assert talk(robot, "Second?") == "Two."
    assert time.monotonic() - begin < 5 and "could not be reached" in caplog.text
    sent = [m["content"] for m in upstream.requests[-1]["messages"] if m["role"] != "system"]
    assert sent == ["Second?"]


def test_a_server_that_hangs(upstream: Upstream) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        robot = persona(upstream, {"url": url, "timeout": 0.2})
        upstream.say("One.", "Two.", "Three.")
        begin = time.monotonic()
        for words in ["First?", "Second?", "Third?"]:
            talk(robot, words)
        assert time.monotonic() - begin < 2  # the second and third do not wait


def test_odd_input_stops_nothing(memory: HeardlogMemory, server: Server) -> None:
    memory.update_history([AgentMessage(role="robot", content="x")], "s")
    memory.update_history([AgentMessage(role=USER, content=object())], "s")
    memory.update_history(said((USER, "q"), (ASSISTANT, "a")), "")
    assert memory.get_history("s") == [] and memory.get_history("") == []
    refused = HeardlogMemory({"url": server.root + "/nothing"})
    refused.update_history(said((USER, "q")), "s")
    assert refused.build_conversation_context("x", "s") == said((USER, "x"))


def test_bad_settings() -> None:
    for limit in [-1, "5", None]:
        with pytest.raises(ValueError, match="max_history"):
            HeardlogMemory({"max_history": limit})
    with pytest.raises(ValueError, match="url"):
        HeardlogMemory({"url": "ftp://x"})
