"""A server that speaks OpenAI's Realtime protocol as far as a test of a client needs it."""

from __future__ import annotations

import base64
import json
from typing import Any

from aiohttp import WSMsgType, web

WORD_MS = 500
ANSWER = "The train leaves at nine from platform two."


class RealtimeUpstream:
    """Answers each ``response.create`` with ANSWER, of which each word takes WORD_MS."""

    def __init__(self) -> None:
        self.url = ""
        self.events: list[dict[str, Any]] = []
        self._sockets: list[web.WebSocketResponse] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Starts the server."""
        app = web.Application()
        app.router.add_get("/v1/realtime", self._serve)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.url = f"ws://127.0.0.1:{port}/v1/realtime"

    async def close(self) -> None:
        """Ends the server."""
        if self._runner:
            await self._runner.cleanup()

    async def hear(self) -> None:
        """Tells the newest client that its caller has begun to speak."""
        started = {"audio_start_ms": 0, "item_id": "item_next"}
        event = {"type": "input_audio_buffer.speech_started", "event_id": "event_vad", **started}
        await self._sockets[-1].send_str(json.dumps(event))

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        self._sockets.append(ws)
        n = 0

        async def send(kind: str, **members: Any) -> None:
            await ws.send_str(
                json.dumps({"type": kind, "event_id": f"event_{id(members)}", **members})
            )

        await send(
            "session.created", session={"id": "sess_1", "type": "realtime", "model": "gpt-realtime"}
        )
        async for frame in ws:
            if frame.type != WSMsgType.TEXT:
                continue
            e = json.loads(frame.data)
            self.events.append(e)
            match e["type"]:
                case "session.update":
                    await send("session.updated", session=e["session"])
                case "input_audio_buffer.commit":
                    n += 1
                    await send(
                        "input_audio_buffer.committed", item_id=f"item_u{n}", previous_item_id=None
                    )
                    await send(
                        "conversation.item.input_audio_transcription.completed",
                        item_id=f"item_u{n}",
                        content_index=0,
                        transcript="When is my train?",
                        usage={"type": "duration", "seconds": 1},
                    )
                case "conversation.item.truncate":
                    await send(
                        "conversation.item.truncated",
                        item_id=e["item_id"],
                        content_index=0,
                        audio_end_ms=e["audio_end_ms"],
                    )
                case "response.create":
                    n += 1
                    await self._answer(send, n, (e.get("response") or {}).get("metadata"))
        return ws

    async def _answer(self, send: Any, n: int, metadata: Any) -> None:
        response, item = f"resp_{n}", f"item_a{n}"
        at = {"response_id": response, "item_id": item, "output_index": 0, "content_index": 0}
        made = {
            "id": response,
            "object": "realtime.response",
            "conversation_id": "conv_1",
            "metadata": metadata,
        }
        said = {"id": item, "object": "realtime.item", "type": "message", "role": "assistant"}
        await send("response.created", response={**made, "status": "in_progress", "output": []})
        new = {**said, "status": "in_progress", "content": []}
        await send("response.output_item.added", response_id=response, output_index=0, item=new)
        await send("conversation.item.added", previous_item_id=None, item=new)
        await send("response.content_part.added", **at, part={"type": "audio", "transcript": ""})
        for word in ANSWER.split(" "):
            audio = base64.b64encode(bytes(WORD_MS * 48)).decode()
            await send("response.output_audio_transcript.delta", **at, delta=word + " ")
            await send("response.output_audio.delta", **at, delta=audio)
        await send("response.output_audio.done", **at)
        await send("response.output_audio_transcript.done", **at, transcript=ANSWER)
        whole = {
            **said,
            "status": "completed",
            "content": [{"type": "output_audio", "transcript": ANSWER}],
        }
        await send("response.output_item.done", response_id=response, output_index=0, item=whole)
        usage = {"total_tokens": 12, "input_tokens": 4, "output_tokens": 8}
        await send(
            "response.done",
            response={**made, "status": "completed", "output": [whole], "usage": usage},
        )
