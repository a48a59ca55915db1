"""OpenAI's own client and Pipecat's realtime service through the relay."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import httpx
import pytest

pytest.importorskip("pipecat")

from openai import AsyncOpenAI
from pipecat.frames.frames import LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

from harness.pipecat_parts import Player
from harness.pipecat_voice import RATE
from harness.realtime import ANSWER, WORD_MS, RealtimeUpstream
from harness.server import Server

WORDS = ANSWER.split(" ")


async def cut_answer(server: Server, call: str) -> dict[str, Any]:
    """Returns the answer of a call once it is filed as interrupted."""
    async with httpx.AsyncClient(base_url=server.url) as client:
        for _ in range(1000):  # the relay stores what passes beside the socket
            ledger = (await client.get(f"/agents/{call}/messages")).json().get("messages", [])
            answers = [m for m in ledger if m["role"] == "assistant"]
            if answers and answers[-1]["metadata"].get("interrupted"):
                return answers[-1]
    raise AssertionError(f"no answer was cut: {ledger}")


async def test_openai(start_server: Callable[..., Server]) -> None:
    model_server = RealtimeUpstream()
    await model_server.start()
    server = start_server(HEARDLOG_REALTIME_URL=model_server.url, HEARDLOG_AUTO_JOIN="true")
    client = AsyncOpenAI(api_key="any", base_url=server.url)
    async with client.realtime.connect(
        model="gpt-realtime", extra_query={"agent_id": "call-1"}
    ) as conn:
        await conn.input_audio_buffer.append(audio=base64.b64encode(bytes(9600)).decode())
        await conn.input_audio_buffer.commit()
        await conn.response.create()
        item, said = "", ""
        async for event in conn:
            if event.type == "response.output_audio_transcript.delta":
                item, said = event.item_id, said + event.delta
            if event.type == "response.done":
                break
        assert said.strip() == ANSWER
        await conn.conversation.item.truncate(
            item_id=item, content_index=0, audio_end_ms=3 * WORD_MS + 100
        )
        answer = await cut_answer(server, "call-1")
    await model_server.close()
    assert answer["content"] == "The train leaves"
    assert answer["generated"].strip() == ANSWER


class Heard:
    """What the caller's ear got, in seconds. enough is set after three words."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.enough = asyncio.Event()

    def play(self, audio: bytes, start: float) -> None:
        """Counts audio that was played."""
        self.seconds += len(audio) / 2 / RATE
        if self.seconds > 3 * WORD_MS / 1000:
            self.enough.set()


async def test_pipecat(start_server: Callable[..., Server]) -> None:
    model_server = RealtimeUpstream()
    await model_server.start()
    server = start_server(HEARDLOG_REALTIME_URL=model_server.url, HEARDLOG_AUTO_JOIN="true")
    llm = OpenAIRealtimeLLMService(
        api_key="any", base_url=f"{server.url.replace('http', 'ws')}/realtime?agent_id=call-2&x=1"
    )
    ear = Heard()
    pair = LLMContextAggregatorPair(LLMContext([{"role": "user", "content": "When is my train?"}]))
    player = Player(ear)  # type: ignore[arg-type]
    task = PipelineTask(
        Pipeline([pair.user(), llm, player, pair.assistant()]),
        params=PipelineParams(audio_out_sample_rate=RATE),
    )
    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
    await task.queue_frame(LLMRunFrame())
    await ear.enough.wait()
    await model_server.hear()
    answer = await cut_answer(server, "call-2")
    heard = ear.seconds
    await task.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await model_server.close()
    words = answer["content"].split()
    assert words == WORDS[: len(words)]
    assert abs(len(words) - heard * 1000 // WORD_MS) <= 1, (words, heard)  # those that ended
    assert answer["generated"].strip() == ANSWER
