"""LiveKit's LLM of the Responses API, which uses a WebSocket."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

pytest.importorskip("livekit.agents")

from livekit.agents import llm, utils
from livekit.agents.llm import ChatContext, function_tool
from livekit.plugins import openai

from harness.server import Server
from harness.upstream import Answer, Upstream


@function_tool
async def timetable(to: str) -> str:
    """Says when the train leaves."""
    return json.dumps({"to": to, "at": "9:00"})


class Call:
    """A call whose context is kept as an AgentSession keeps it."""

    def __init__(self, model: llm.LLM) -> None:
        self.model, self.context = model, ChatContext.empty()

    async def ask(self, text: str | None, pieces: int = 0) -> tuple[str, list[Any]]:
        """Returns the words, up to so many pieces of them, and the tool calls."""
        if text:
            self.context.add_message(role="user", content=text)
        words, calls, n = "", [], 0
        async with self.model.chat(chat_ctx=self.context, tools=[timetable]) as stream:
            async for chunk in stream:
                if chunk.delta and chunk.delta.tool_calls:
                    calls += chunk.delta.tool_calls
                if chunk.delta and chunk.delta.content:
                    words, n = words + chunk.delta.content, n + 1
                    if n == pieces:
                        break
        return words, calls

    def heard(self, text: str, interrupted: bool = False) -> None:
        self.context.add_message(role="assistant", content=text, interrupted=interrupted)


@pytest.mark.parametrize("store", [True, False])
async def test_a_call(server: Server, upstream: Upstream, store: bool) -> None:
    upstream.say("It leaves at nine.", Answer("one two three four five six", delay=0.05))
    upstream.call("timetable", to="Bern")
    upstream.say("At nine.", "Goodbye.")
    async with utils.http_context.open():
        model = openai.responses.LLM(
            model="scripted",
            api_key="any",
            base_url=f"{server.url}/responses",
            metadata={"agent_id": "call-1"},
            store=store,  # False sends the whole context each time
        )
        call = Call(model)
        call.context.add_message(role="system", content="You are brief.")
        words, _ = await call.ask("When is my train?")
        assert words == "It leaves at nine."
        call.heard(words)
        words, _ = await call.ask("Count.", pieces=4)
        assert words == "one two three four"
        call.heard("one two", interrupted=True)
        words, calls = await call.ask("And to Bern?")
        assert (words, [c.name for c in calls]) == ("", ["timetable"])
        for c in calls:
            call.context.items.append(
                llm.FunctionCall(call_id=c.call_id, name=c.name, arguments=c.arguments)
            )
            call.context.items.append(
                llm.FunctionCallOutput(
                    call_id=c.call_id, name=c.name, output='{"at":"9:00"}', is_error=False
                )
            )
        words, _ = await call.ask(None)
        assert words == "At nine."
        call.heard(words)
        words, _ = await call.ask("Thanks.")
        assert words == "Goodbye."
        await model.aclose()

    async with httpx.AsyncClient(base_url=server.url) as client:
        ledger = (await client.get("/agents/call-1/messages")).json()["messages"]
    told = [
        (m["turn_id"], m["role"], m["content"])
        for m in ledger
        if m["role"] not in ("system", "tool")
    ]
    assert told == [
        (0, "user", "When is my train?"),
        (0, "assistant", "It leaves at nine."),
        (1, "user", "Count."),
        (1, "assistant", "one two"),
        (2, "user", "And to Bern?"),
        (2, "assistant", ""),
        (2, "assistant", "At nine."),
        (3, "user", "Thanks."),
        (3, "assistant", "Goodbye."),
    ]
    cut = next(m for m in ledger if m["content"] == "one two")
    assert cut["evidence"]["method"] == "echo_diff"
    assert cut["sent"].startswith("one two three four")
    # The model is told what was heard.
    last = [m.get("content") for m in upstream.requests[-1]["messages"]]
    assert any(c and c.startswith("one two") and "three" not in c for c in last), last
