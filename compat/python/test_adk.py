"""Google's ADK: its Runner with our services, and its own services as the measure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from heardlog import AsyncHeardlog
from heardlog.adk import MemoryService, SessionService

from harness import guide
from harness.server import Server

KEY: dict[str, Any] = {"app_name": "desk", "user_id": "anna"}


@pytest.fixture(params=["ours", "theirs"])
def service(request: pytest.FixtureRequest, alog: AsyncHeardlog) -> BaseSessionService:
    """Our service, and ADK's own, which must pass the same tests."""
    return SessionService(alog) if request.param == "ours" else InMemorySessionService()


def said(text: str, author: str = "user", **fields: Any) -> Event:
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author=author, content=content, invocation_id="i1", **fields)


async def test_create_get_delete(service: BaseSessionService) -> None:
    made = await service.create_session(**KEY, session_id=" s/1 ?#% ", state={"a": 1})
    assert (made.id, made.app_name, made.user_id) == ("s/1 ?#%", "desk", "anna")
    assert made.state == {"a": 1} and made.events == []
    other = await service.create_session(**KEY)
    assert other.id and other.id != made.id
    with pytest.raises(Exception, match="already exists"):
        await service.create_session(**KEY, session_id="s/1 ?#%")
    got = await service.get_session(**KEY, session_id="s/1 ?#%")
    assert got is not None and got == made
    assert await service.get_session(**KEY, session_id="nobody") is None
    assert await service.get_session(app_name="desk", user_id="ben", session_id=made.id) is None
    assert await service.get_session(app_name="x", user_id="anna", session_id=made.id) is None
    await service.create_session(app_name="desk", user_id="ben", session_id="s/1 ?#%")
    await service.append_event(got, said("Hello"))
    await service.delete_session(**KEY, session_id="s/1 ?#%")
    await service.delete_session(**KEY, session_id="s/1 ?#%")
    assert await service.get_session(**KEY, session_id="s/1 ?#%") is None
    again = await service.create_session(**KEY, session_id="s/1 ?#%")
    assert again.state == {} and again.events == []
    assert (await service.get_session(**KEY, session_id="s/1 ?#%")).events == []
    ben = await service.get_session(app_name="desk", user_id="ben", session_id="s/1 ?#%")
    assert ben is not None


async def test_state(service: BaseSessionService) -> None:
    start = {"app:theme": "dark", "user:name": "Anna", "temp:x": 1, "step": [1, {"deep": None}]}
    session = await service.create_session(**KEY, session_id="s1", state=start)
    delta = {"app:theme": "light", "user:age": 30, "temp:y": 2, "step": 2, "ä ö.": "ü"}
    event = said("Hello", actions=EventActions(state_delta=delta))
    await service.append_event(session, event)
    assert session.state["temp:y"] == 2 and session.state["step"] == 2
    got = await service.get_session(**KEY, session_id="s1")
    assert got is not None
    assert got.state == {
        "app:theme": "light", "user:name": "Anna", "user:age": 30, "step": 2, "ä ö.": "ü",
    }  # fmt: skip
    assert "temp:y" not in got.events[0].actions.state_delta
    second = await service.create_session(**KEY, session_id="s2")
    assert second.state == {"app:theme": "light", "user:name": "Anna", "user:age": 30}
    ben = await service.create_session(app_name="desk", user_id="ben")
    assert ben.state == {"app:theme": "light"}
    assert await service.get_user_state(**KEY) == {"name": "Anna", "age": 30}
    assert await service.get_user_state(app_name="desk", user_id="x") == {}
    assert (await service.create_session(app_name="other", user_id="anna")).state == {}


async def test_events(service: BaseSessionService) -> None:
    session = await service.create_session(**KEY, session_id="s1")
    events = [said(f"Number {i}", timestamp=100.0 + i) for i in range(6)]
    for event in events:
        assert await service.append_event(session, event) == event
    assert await service.append_event(session, said("Half", partial=True)) is not None
    await service.append_event(session, events[5])  # again

    async def numbers(**config: Any) -> list[str]:
        got = await service.get_session(
            **KEY, session_id="s1", config=GetSessionConfig(**config) if config else None
        )
        assert got is not None
        return [e.content.parts[0].text[-1] for e in got.events]

    assert await numbers() == list("012345")
    assert await numbers(num_recent_events=2) == list("45")
    assert await numbers(num_recent_events=0) == []
    assert await numbers(num_recent_events=50) == list("012345")
    assert await numbers(after_timestamp=103.0) == list("345")
    assert await numbers(after_timestamp=99.0) == list("012345")
    assert await numbers(after_timestamp=999.0) == []
    assert await numbers(after_timestamp=103.0, num_recent_events=2) == list("45")
    got = await service.get_session(**KEY, session_id="s1")
    assert got is not None and got.events == events and got.last_update_time == 105.0
    assert session.last_update_time == 105.0
    lost = await service.create_session(**KEY, session_id="lost")
    await service.delete_session(**KEY, session_id="lost")
    with pytest.raises(ValueError, match="not found"):
        await service.append_event(lost, said("Too late"))


async def test_every_part_comes_back(service: BaseSessionService) -> None:
    session = await service.create_session(**KEY, session_id="s1")
    call = types.FunctionCall(id="c1", name="look", args={"a": [1, None, "ü"]})
    result = types.FunctionResponse(id="c1", name="look", response={"ok": True})
    other = types.FunctionResponse(id="c2", name="look", response={"ok": False})
    parts = [
        [types.Part(text="Look.", thought=True), types.Part(text="Let me see.")],
        [types.Part(text="One"), types.Part(function_call=call)],
        [types.Part(function_response=result), types.Part(function_response=other)],
        [types.Part(inline_data=types.Blob(data=b"\x00\xff" * 20_000, mime_type="image/png"))],
        [types.Part(text="Y" * 30_000)],
        [types.Part(executable_code=types.ExecutableCode(code="1", language="PYTHON"))],
    ]
    events = [
        Event(author="desk", invocation_id="i", branch="a.b", turn_complete=True,
              long_running_tool_ids={"c1"} if i == 1 else None,
              custom_metadata={"n": i}, content=types.Content(role="model", parts=p))
        for i, p in enumerate(parts)
    ]  # fmt: skip
    grounding = types.GroundingMetadata(
        search_entry_point=types.SearchEntryPoint(sdk_blob=b"\x00blob"), web_search_queries=["q"]
    )
    words = types.Transcription(text="words", finished=True)
    usage = types.GenerateContentResponseUsageMetadata(total_token_count=2)
    events.append(
        Event(author="desk", grounding_metadata=grounding, usage_metadata=usage, interrupted=True,
              input_transcription=words, output_transcription=words, timestamp=1700000000.123)
    )  # fmt: skip
    events.append(Event(author="desk", error_code="E", error_message="broken"))
    events.append(Event(author="desk", actions=EventActions(transfer_to_agent="x", escalate=True)))
    for event in events:
        await service.append_event(session, event)
    got = await service.get_session(**KEY, session_id="s1")
    assert got is not None and got.events == events


async def test_lists(service: BaseSessionService) -> None:
    assert (await service.list_sessions(app_name="desk", user_id="anna")).sessions == []
    for user, name in [("anna", "a"), ("anna", "b"), ("ben", "c")]:
        await service.create_session(app_name="desk", user_id=user, session_id=name,
                                     state={"user:who": user})  # fmt: skip
    first = await service.get_session(**KEY, session_id="a")
    assert first is not None
    await service.append_event(first, said("Hello", timestamp=4e9))
    mine = (await service.list_sessions(**KEY)).sessions
    assert [(s.id, s.events) for s in mine] == [("b", []), ("a", [])]
    everyone = (await service.list_sessions(app_name="desk")).sessions
    assert [s.id for s in everyone] == ["b", "c", "a"]
    assert {s.state["user:who"] for s in everyone} == {"anna", "ben"}
    assert (await service.list_sessions(app_name="other")).sessions == []
    assert (await service.list_sessions(app_name="desk", user_id="")).sessions == []


async def test_changes_at_the_same_time(alog: AsyncHeardlog) -> None:
    service = SessionService(alog)
    await service.create_session(**KEY, session_id="s1")

    async def change(i: int) -> None:
        session = await service.get_session(**KEY, session_id="s1")
        delta = {f"k{i}": i, f"user:k{i}": i, f"app:k{i}": i}
        await service.append_event(session, said(str(i), actions=EventActions(state_delta=delta)))

    await asyncio.gather(*(change(i) for i in range(12)))
    got = await service.get_session(**KEY, session_id="s1")
    assert got is not None and len(got.events) == 12 and len(got.state) == 36


async def test_it_survives(alog: AsyncHeardlog, server: Server) -> None:
    service = SessionService(alog)
    session = await service.create_session(**KEY, session_id="s1", state={"a": 1})
    events = [said("Train?"), said("It leaves at nine from platform two.", "desk")]
    for event in events:
        await service.append_event(session, event)
    agent = await service.agent(session)
    await agent.interrupt(heard="It leaves at nine")
    server.restart()
    await agent.leave()
    await service.append_event(session, said("Thanks."))
    got = await SessionService(alog).get_session(**KEY, session_id="s1")
    assert got is not None and got.state == {"a": 1}
    texts = [e.content.parts[0].text for e in got.events]
    assert texts == ["Train?", "It leaves at nine", "Thanks."]
    assert [m["content"] for m in await agent.history()] == texts[:2]


class Scripted(BaseLlm):
    """A model that answers from a list."""

    model: str = "scripted"
    answers: list[str]
    asked: list[list[str]]

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> Any:
        texts = [p.text for c in llm_request.contents for p in c.parts or [] if p.text]
        self.asked.append(texts)
        part = types.Part(text=self.answers.pop(0))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def ask(runner: Runner, session_id: str, text: str) -> None:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    async for _ in runner.run_async(user_id="anna", session_id=session_id, new_message=message):
        pass


async def test_a_runner(alog: AsyncHeardlog) -> None:
    model = Scripted(answers=["It leaves at nine.", "From platform two."], asked=[])
    sessions, memory = SessionService(alog), MemoryService(alog)
    agent = LlmAgent(name="desk", model=model, instruction="Be brief.", output_key="last")
    runner = Runner(agent=agent, app_name="desk", session_service=sessions, memory_service=memory)
    session = await sessions.create_session(**KEY, session_id="s1")
    await ask(runner, "s1", "When is my train to Rome?")
    await (await sessions.agent(session)).interrupt(heard="It leaves")
    await ask(runner, "s1", "From where?")
    assert model.asked[1] == ["When is my train to Rome?", "It leaves", "From where?"]
    got = await sessions.get_session(**KEY, session_id="s1")
    assert got is not None and got.state["last"] == "From platform two."
    found = await memory.search_memory(**KEY, query="train to Rome")
    assert found.memories[0].content.parts[0].text == "When is my train to Rome?"
    assert found.memories[0].author == "user"


@pytest.fixture(params=["ours", "theirs"])
def memory(request: pytest.FixtureRequest, alog: AsyncHeardlog) -> Any:
    return MemoryService(alog) if request.param == "ours" else InMemoryMemoryService()


async def found(memory: Any, query: str, **key: Any) -> list[str]:
    response = await memory.search_memory(**{**KEY, **key}, query=query)
    return [m.content.parts[0].text for m in response.memories]


async def test_memory(memory: Any) -> None:
    sessions = InMemorySessionService()
    session = await sessions.create_session(**KEY, session_id="s1")
    for event in [
        said("I am allergic to peanuts."),
        said("Noted, no peanuts.", "desk"),
        Event(author="desk"),
    ]:
        await sessions.append_event(session, event)
    assert await found(memory, "peanuts") == []
    await memory.add_session_to_memory(session)
    await memory.add_session_to_memory(session)  # again
    assert sorted(await found(memory, "peanuts")) == [
        "I am allergic to peanuts.", "Noted, no peanuts.",
    ]  # fmt: skip
    assert (await found(memory, "allergic"))[0] == "I am allergic to peanuts."
    assert await found(memory, "zebra") == [] and await found(memory, "") == []
    assert await found(memory, "peanuts", user_id="ben") == []
    assert await found(memory, "peanuts", app_name="other") == []
    extra = said("My zebra is called Bob.")
    for _ in range(2):
        await memory.add_events_to_memory(**KEY, events=[extra], session_id="s2")
    assert await found(memory, "zebra") == ["My zebra is called Bob."]
    response = await memory.search_memory(**KEY, query="zebra")
    await memory.delete_memory(**KEY, memory_id=response.memories[0].id)
    assert await found(memory, "zebra") == []
    await memory.delete_memory(**KEY, memory_id="unknown")
    await memory.delete_memory(**KEY, memory_id=None)


async def test_memories_and_facts(alog: AsyncHeardlog) -> None:
    memory = MemoryService(alog)
    content = types.Content(role="user", parts=[types.Part(text="Prefers aisle seats.")])
    await memory.add_memory(**KEY, memories=[MemoryEntry(content=content, author="user")])
    await alog.facts("anna").add("Anna sits in the window seat.")
    assert set(await found(memory, "Which seats?")) <= {
        "Prefers aisle seats.", "Anna sits in the window seat.",
    }  # fmt: skip
    assert (await found(memory, "aisle seats"))[0] == "Prefers aisle seats."
    response = await memory.search_memory(**KEY, query="window seat")
    (fact,) = [m for m in response.memories if m.custom_metadata["kind"] == "fact"]
    await memory.delete_memory(**KEY, memory_id=fact.id)
    assert [f async for f in alog.facts("anna")] == []


def test_the_guide(server: Server) -> None:
    assert "I am allergic to peanuts." in guide.run("Google ADK", HEARDLOG_URL=server.url)
