"""An OpenAI-compatible LLM whose answers come from a seed, and which keeps the prompts it got.

A call is known by the words "call <tag>" in its system message.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from .livekit_phrases import Phrases


@dataclass
class Prompt:
    at: float
    messages: list[dict[str, Any]]


@dataclass
class Script:
    """What the model says in one call, and what it was told."""

    phrases: Phrases
    rnd: random.Random
    tools: float = 0.0  # share of answers that call a tool
    answers: list[str] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)


class ScriptedLLM:
    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=16 << 20)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self.url = f"http://127.0.0.1:{port}/v1"

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    def add(self, tag: str, script: Script) -> None:
        self.scripts[tag] = script

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        messages = body["messages"]
        found = re.search(
            r"call (\S+)",
            " ".join(str(m.get("content")) for m in messages if m["role"] == "system"),
        )
        if not found or found[1] not in self.scripts:
            return web.json_response({"error": {"message": "no such call"}}, status=404)
        script = self.scripts[found[1]]
        script.prompts.append(Prompt(time.time(), messages))
        rnd = script.rnd
        after_tool = messages[-1]["role"] == "tool"
        tool = bool(body.get("tools")) and not after_tool and rnd.random() < script.tools
        text = script.phrases.answer(short=tool)
        if tool and rnd.random() < 0.5:
            text = ""
        if text:
            script.answers.append(text)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
        except ConnectionError:
            return response
        identity = f"chatcmpl-{rnd.getrandbits(64):x}"

        async def send(delta: dict[str, Any], finish: str | None = None) -> None:
            chunk = {
                "id": identity,
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": "scripted",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())

        await asyncio.sleep(rnd.uniform(0.05, 0.3))
        try:
            await send({"role": "assistant", "content": ""})
            for word in re.findall(r"\S+\s*", text):
                await send({"content": word})
                await asyncio.sleep(0.015)
            if tool:
                call = {"index": 0, "id": f"call_{rnd.getrandbits(40):x}", "type": "function"}
                call["function"] = {"name": "look_up", "arguments": json.dumps({"what": "train"})}
                await send({"tool_calls": [call]})
            await send({}, "tool_calls" if tool else "stop")
            await response.write(b"data: [DONE]\n\n")
        except ConnectionError:
            pass  # the caller went on, and the answer is not needed any more
        return response
