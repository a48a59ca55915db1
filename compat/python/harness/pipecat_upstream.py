"""A scripted OpenAI-compatible LLM in the harness's own loop. It keeps the prompts that it gets."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from .pipecat_clock import flights


@dataclass
class Request:
    """What the LLM was asked in one request, and what it answered."""

    id: str
    at: float
    messages: list[dict[str, Any]]
    text: str = ""
    sent: str = ""  # how much of it left the LLM
    tool: bool = False
    stream: bool = True
    answer: int = -1


@dataclass
class Brain:
    """The LLM of one call. Its requests have the call's number as their seed."""

    number: int
    # Returns the text, and whether to call a tool instead.
    reply: Callable[[list[dict[str, Any]]], tuple[str, bool]] | None = None
    first: Callable[[], float] | None = None
    pace: float = 0.0  # seconds between two pieces
    requests: list[Request] = field(default_factory=list)
    # Requests of the bot that have not reached the LLM yet: each lands its flight.
    outgoing: list[Callable[[], None]] = field(default_factory=list)
    chunk_flights: dict[str, list[Callable[[], None]]] = field(default_factory=dict)


def pieces(text: str) -> list[str]:
    """Cuts a text into pieces like those of an LLM: words, or two characters."""
    if " " in text:
        return re.findall(r"\s*\S{1,7}", text)
    return re.findall(r".{1,2}", text)


class Upstream:
    """Serves the LLMs of all calls."""

    def __init__(self) -> None:
        self.brains: dict[int, Brain] = {}
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        """Starts to listen and returns the base URL. Port 0 takes any free port."""
        app = web.Application(client_max_size=8 << 20)
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        server = site._server
        assert server is not None
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        brain = self.brains[body["seed"]]
        if brain.outgoing:
            brain.outgoing.pop(0)()
        loop = asyncio.get_running_loop()
        id = f"chatcmpl-{brain.number}-{len(brain.requests)}"
        one = Request(id, loop.time(), body["messages"], stream=bool(body.get("stream")))
        brain.requests.append(one)
        if not one.stream:
            return await self._whole(brain, one)
        assert brain.reply is not None and brain.first is not None
        one.text, one.tool = brain.reply(body["messages"])
        res = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await asyncio.sleep(brain.first())
        await res.prepare(request)
        if one.tool:
            call = {"index": 0, "id": "call_" + id[9:], "type": "function"}
            call["function"] = {"name": "look_up", "arguments": '{"what":"trains"}'}
            await self._chunk(brain, one, res, {"role": "assistant", "tool_calls": [call]})
        else:
            for piece in pieces(one.text):
                await self._chunk(brain, one, res, {"role": "assistant", "content": piece})
                one.sent += piece
                await asyncio.sleep(brain.pace)
        end = "tool_calls" if one.tool else "stop"
        await self._chunk(brain, one, res, {}, end)
        await res.write(b"data: [DONE]\n\n")
        await res.write_eof()
        return res

    async def _whole(self, brain: Brain, one: Request) -> web.Response:
        assert brain.first is not None
        one.text = "The caller asked about trains."
        await asyncio.sleep(brain.first())
        message = {"role": "assistant", "content": one.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        head = {"id": one.id, "object": "chat.completion", "created": 1, "model": "scripted"}
        brain.chunk_flights.setdefault("whole", []).append(flights().open())
        return web.json_response(head | {"choices": [choice]})

    async def _chunk(
        self,
        brain: Brain,
        one: Request,
        res: web.StreamResponse,
        delta: dict[str, Any],
        end: str | None = None,
    ) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": end}
        head = {"id": one.id, "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        line = json.dumps(head | {"choices": [choice]}, ensure_ascii=False)
        brain.chunk_flights.setdefault(one.id, []).append(flights().open())
        await res.write(f"data: {line}\n\n".encode())


def received(brain: Brain, id: str) -> None:
    """Notes that the bot got one piece of an answer."""
    waiting = brain.chunk_flights.get(id)
    if waiting:
        waiting.pop(0)()


def gone(brain: Brain, id: str | None) -> None:
    """Notes that the bot reads no more of an answer, or of any if id is None."""
    for key, waiting in brain.chunk_flights.items():
        if id is None or key == id:
            while waiting:
                waiting.pop()()
