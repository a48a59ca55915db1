"""OpenAI's Agents SDK: its Runner with our Session, and its realtime sessions with our Recorder."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, Runner, SQLiteSession, function_tool
from agents.memory import Session as SessionProtocol
from agents.memory import SessionSettings
from agents.realtime import RealtimeAgent, RealtimeRunner
from agents.realtime.model_events import RealtimeModelRawServerEvent
from agents.realtime.testing import ScriptedRealtimeModel
from heardlog import AsyncHeardlog
from heardlog.agents import Recorder, Session
from openai import AsyncOpenAI

from harness import guide
from harness.server import Server
from harness.upstream import Upstream

ITEMS: list[Any] = [
    {"role": "user", "content": "Hello"},
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 30_000,
         "detail": "auto", "file_id": None},
    ]},
    {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
     "encrypted_content": "x" * 40_000},
    {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "A dot.", "annotations": [], "logprobs": []}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a": 1}',
     "id": "fc_1", "status": "completed"},
    {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "red 🟥"},
    {"type": "function_call_output", "call_id": "c2", "output": [
        {"type": "input_text", "text": "blue"}]},
    {"id": "ws_1", "type": "web_search_call", "status": "completed",
     "action": {"type": "search", "query": "dots"}},
    {"role": "user", "content": ""},
    {"type": "item_reference", "id": "msg_9"},
    {"role": "assistant", "content": "Y" * 20_000},
]  # fmt: skip


@pytest.fixture
def session(alog: AsyncHeardlog) -> Session:
    return Session("call-1", client=alog, user_id="anna")


async def test_items_come_back(session: Session, alog: AsyncHeardlog) -> None:
    assert isinstance(session, SessionProtocol)
    assert await session.get_items() == []
    assert await session.pop_item() is None
    assert [a async for a in alog.find()] == []  # reading starts nothing
    await session.add_items([])
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS
    assert await Session("call-1", client=alog).get_items() == ITEMS
    assert await Session("call-2", client=alog).get_items() == []


@pytest.mark.parametrize("limit", [0, 1, 3, 13, 14, 100])
async def test_limits(session: Session, limit: int) -> None:
    """As the SDK's own SQLite session has it."""
    theirs = SQLiteSession("call-1")
    for each in (session, theirs):
        await each.add_items(ITEMS)
    assert await session.get_items(limit) == await theirs.get_items(limit)
    session.session_settings = theirs.session_settings = SessionSettings(limit=2)
    assert await session.get_items() == await theirs.get_items()
    assert await session.get_items(limit) == await theirs.get_items(limit)


async def test_pop_and_clear(session: Session, server: Server) -> None:
    await session.add_items(ITEMS)
    for item in reversed(ITEMS):
        assert await session.pop_item() == item
    assert await session.pop_item() is None and await session.get_items() == []
    await session.add_items(ITEMS[:6])
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items(ITEMS[:1])
    server.restart()
    assert await session.get_items() == ITEMS[:1]
    await session.clear_session()
    await session.clear_session()
    assert await session.pop_item() is None


async def test_two_take_different_items(session: Session, alog: AsyncHeardlog) -> None:
    await session.add_items([{"role": "user", "content": str(i)} for i in range(6)])
    others = [Session("call-1", client=alog, user_id="anna") for _ in range(3)]
    popped = await asyncio.gather(*(other.pop_item() for other in others))
    assert sorted(item["content"] for item in popped) == ["3", "4", "5"]
    assert [i["content"] for i in await session.get_items()] == ["0", "1", "2"]


async def test_it_goes_on_after_the_call(session: Session, alog: AsyncHeardlog) -> None:
    await session.add_items(ITEMS[:7])
    first = await session.agent()
    await first.leave()
    await session.add_items(ITEMS[7:])
    assert (await session.agent()).id != first.id
    assert await session.get_items() == ITEMS
    assert await session.get_items(9) == ITEMS[-9:]
    await (await session.agent()).leave()
    assert await session.pop_item() == ITEMS[-1]  # of an ended agent
    await session.clear_session()
    assert await session.get_items() == []


async def test_many_items(session: Session) -> None:
    items: list[Any] = [{"role": "user", "content": f"Number {i}"} for i in range(2500)]
    await session.add_items(items)
    assert await session.get_items() == items
    assert await session.get_items(3) == items[-3:]


async def test_what_was_heard_comes_back(session: Session) -> None:
    await session.add_items([{"role": "user", "content": "Train?"}, ITEMS[5]])
    agent = await session.agent()
    await agent.interrupt(heard="A")
    item = (await session.get_items())[-1]
    assert item == {**ITEMS[5], "content": [{**ITEMS[5]["content"][0], "text": "A"}]}
    assert [m["content"] for m in await agent.history()] == ["Train?", "A"]


async def test_messages_of_others(session: Session) -> None:
    agent = await session.agent()
    function = {"name": "look", "arguments": "{}"}
    await agent.append(
        {"role": "user", "content": "Hello", "source": "asr"},
        {"role": "assistant", "content": "Let me see.",
         "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "red"},
    )  # fmt: skip
    items = await session.get_items()
    assert items == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", **function},
        {"type": "function_call_output", "call_id": "c1", "output": "red"},
    ]
    assert await session.pop_item() == items[-1]
    assert await session.get_items() == items[:-1]


async def test_a_runner(session: Session, upstream: Upstream) -> None:
    @function_tool
    def departure(city: str) -> str:
        """Returns when the train leaves."""
        return f"{city}: nine"

    client = AsyncOpenAI(base_url=upstream.url, api_key="unused")
    model = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
    agent = Agent(name="desk", instructions="Be brief.", model=model, tools=[departure])
    upstream.call("departure", city="Rome")
    upstream.say("It leaves at nine.", "From platform two.")
    first = await Runner.run(agent, "When is my train to Rome?", session=session)
    assert first.final_output == "It leaves at nine."
    await (await session.agent()).interrupt(heard="It leaves")
    again = await Runner.run(agent, "From where?", session=session)
    assert again.final_output == "From platform two."
    sent = [(m["role"], m.get("content")) for m in upstream.requests[-1]["messages"]]
    assert sent == [
        ("system", "Be brief."),
        ("user", "When is my train to Rome?"),
        ("assistant", None),
        ("tool", "Rome: nine"),
        ("assistant", "It leaves"),
        ("user", "From where?"),
    ]
    recalled = await session._log.recall("anna", "train to Rome")
    assert recalled["hits"][0]["content"] == "When is my train to Rome?"


SERVER_EVENTS = [
    {"type": "session.created", "event_id": "e0", "session": {"id": "sess_1"}},
    {"type": "conversation.item.added", "event_id": "e1", "previous_item_id": None,
     "item": {"id": "item_6", "type": "message", "role": "user", "content": [
         {"type": "input_audio", "transcript": None}]}},
    {"type": "conversation.item.added", "event_id": "e2", "previous_item_id": "item_6",
     "item": {"id": "item_7", "type": "message", "role": "assistant", "content": []}},
    {"type": "response.output_audio_transcript.done", "event_id": "e3", "item_id": "item_7",
     "transcript": "The train leaves at nine from platform two."},
    {"type": "conversation.item.truncated", "event_id": "e4", "item_id": "item_7",
     "content_index": 0, "audio_end_ms": 700},
    {"type": "conversation.item.input_audio_transcription.completed", "event_id": "e5",
     "item_id": "item_6", "content_index": 0, "transcript": "When is my train?"},
    {"type": "conversation.item.added", "event_id": "e6", "previous_item_id": "item_7",
     "item": {"id": "item_8", "type": "message", "role": "user", "content": [
         {"type": "input_text", "text": "Thanks."}]}},
]  # fmt: skip


async def test_a_realtime_session(alog: AsyncHeardlog) -> None:
    agent = await alog.start("realtime-1")
    raw = [RealtimeModelRawServerEvent(data=event) for event in SERVER_EVENTS]
    model = ScriptedRealtimeModel(connect_events=raw)
    runner = RealtimeRunner(RealtimeAgent(name="desk"), model=model)
    recorder = Recorder(agent)
    seen = 0
    async with await runner.run() as session:
        async for event in session:
            recorder.on(event)
            data = getattr(getattr(event, "data", None), "data", None)
            seen += isinstance(data, dict)
            if seen == len(SERVER_EVENTS):
                break
    await recorder.aclose()
    assert recorder.dropped == 0
    ledger = [m async for m in agent.messages()]
    assert [(m["id"], m["role"]) for m in ledger] == [
        ("item_6", "user"), ("item_7", "assistant"), ("item_8", "user"),
    ]  # fmt: skip
    answer = ledger[1]
    assert answer["generated"] == "The train leaves at nine from platform two."
    assert answer["evidence"]["method"] == "audio_ms"
    assert answer["content"] and answer["generated"].startswith(answer["content"])
    assert answer["content"] != answer["generated"]
    assert (await agent.info())["status"] == "STOPPED"


async def test_a_recorder_stops_nothing(alog: AsyncHeardlog) -> None:
    agent = await alog.start("realtime-2")
    recorder = Recorder(agent, leave=False)
    for odd in [None, 5, {}, {"type": 7}, {"type": "conversation.item.added"}, object()]:
        recorder.on(odd)
    await agent.erase()
    for event in SERVER_EVENTS:
        recorder.on(event)
    await recorder.aclose()
    assert recorder.dropped > 0


def test_the_guide(server: Server, upstream: Upstream) -> None:
    """The program asks the model through the Responses API, which the server has."""
    upstream.say("At nine.")
    llm = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "unused"}
    # Its model is asked through another agent than the one of the session.
    program = guide.program("OpenAI Agents SDK").replace(
        'model="gpt-5-mini"', 'model="gpt-5-mini", model_settings=_named'
    )
    named = "from agents import ModelSettings\n"
    named += "_named = ModelSettings(extra_headers={'X-Agent-Id': 'llm'})\n"
    out = guide.run_text(named + program, HEARDLOG_URL=server.url, **llm)
    assert out == "At nine.\n"
