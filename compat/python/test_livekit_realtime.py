"""LiveKit's realtime model through the relay."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest

pytest.importorskip("livekit.agents")

from livekit import rtc
from livekit.agents import utils
from livekit.plugins import openai

from harness.realtime import ANSWER, WORD_MS, RealtimeUpstream
from harness.server import Server


async def test_a_cut_answer(start_server: Callable[..., Server]) -> None:
    model_server = RealtimeUpstream()
    await model_server.start()
    server = start_server(HEARDLOG_REALTIME_URL=model_server.url, HEARDLOG_AUTO_JOIN="true")
    async with utils.http_context.open():
        model = openai.realtime.RealtimeModel(
            base_url=f"{server.url.replace('http', 'ws')}/realtime?agent_id={quote('call-1')}",
            api_key="any",
        )
        session = model.session()
        session.push_audio(rtc.AudioFrame(bytes(4800 * 2), 24000, 1, 4800))
        session.commit_audio()
        made = await session.generate_reply()
        said, at = "", ""
        async for message in made.message_stream:
            at = message.message_id
            async for piece in message.text_stream:
                said += piece
        assert said.strip() == ANSWER
        session.truncate(message_id=at, modalities=["audio"], audio_end_ms=3 * WORD_MS + 100)
        async with httpx.AsyncClient(base_url=server.url) as client:
            told = []
            for _ in range(500):  # the relay stores what passes beside the socket
                ledger = (await client.get("/agents/call-1/messages")).json().get("messages", [])
                told = [(m["role"], m["content"]) for m in ledger]
                if told == [("user", "When is my train?"), ("assistant", "The train leaves")]:
                    break
        await session.aclose()
        await model.aclose()
    await model_server.close()
    assert told == [("user", "When is my train?"), ("assistant", "The train leaves")]
    assert ledger[1]["generated"].strip() == ANSWER
    assert ledger[1]["metadata"]["interrupted"]
    assert any(e["type"] == "conversation.item.truncate" for e in model_server.events)
