"""Runs many calls of Pipecat bots against a server and prints what it knows of them."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from typing import Any

import httpx
from loguru import logger

from .pipecat_calls import BotFactory, Call, Plan, run_call
from .pipecat_clock import Loop, flights
from .pipecat_score import Score, score
from .pipecat_texts import ANSWERS
from .pipecat_upstream import Upstream

ORIGINAL = httpx.AsyncHTTPTransport.handle_async_request


async def _waiting(self: Any, request: httpx.Request) -> httpx.Response:
    """Lets virtual time wait for the answers to short requests."""
    if request.url.path.endswith("/chat/completions"):
        return await ORIGINAL(self, request)
    land = flights().open()
    try:
        res = await ORIGINAL(self, request)
        await res.aread()
        return res
    finally:
        land()


def plans(n: int, seed: int = 1) -> list[Plan]:
    """Returns the plans of n calls. The same seed gives the same calls."""
    rng = random.Random(seed)
    languages = list(ANSWERS)
    out = []
    for i in range(n):
        language = languages[i % len(languages)]
        voice = ("words", "sentences", "words", "socket")[i // len(languages) % 4]
        spaced = language not in ("zh", "ja")
        out.append(
            Plan(
                i,
                seed * 100_003 + i,
                language,
                voice,
                min_words=spaced and rng.random() < 0.25,
                greeting=rng.random() < 0.4,
                tools=rng.random() < 0.3,
                summaries=rng.random() < 0.1,
                hang_up=rng.choice(["after", "after", "after", "in mid-answer"]),
                turns=rng.randint(3, 7),
            )
        )
    return out


def session(plan: Plan) -> str:
    """Returns the session ID of a call."""
    return f"pc-{plan.seed}"


async def ledger(client: httpx.AsyncClient, plan: Plan) -> list[dict[str, Any]]:
    """Returns the messages that the server has of a call, in all states."""
    headers = {"X-Pipecat-Session-Id": session(plan)}
    res = await client.post("/evidence/pipecat", json={"type": "nothing"}, headers=headers)
    res.raise_for_status()
    agent = res.json().get("agent_id")
    if not agent:
        return []
    res = await client.get(f"/agents/{agent}/messages", params={"limit": 500})
    res.raise_for_status()
    return res.json()["messages"]


async def _all(
    chosen: list[Plan], bot: BotFactory, upstream: Upstream, base: str, at_once: int
) -> list[tuple[Plan, Call, Score]]:
    out = []
    gate = asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(base_url=base, timeout=30) as client:

        async def one(plan: Plan) -> None:
            async with gate:
                call = await run_call(plan, upstream, bot)
                out.append((plan, call, score(call, await ledger(client, plan))))

        await asyncio.gather(*(one(p) for p in chosen))
    return sorted(out, key=lambda x: x[0].number)


def table(results: list[tuple[Plan, Call, Score]]) -> dict[str, Score]:
    """Returns the figures by kind of voice, and of all."""
    out: dict[str, Score] = {}
    for plan, _, s in results:
        for name in (plan.voice, "all"):
            out.setdefault(name, Score()).add(s)
    return dict(sorted(out.items()))


def show(figures: dict[str, Score]) -> str:
    """Returns the figures as a table."""
    rows: list[tuple[str, Any]] = [
        ("calls", lambda s: s.calls),
        ("answers", lambda s: s.answers),
        ("cut answers", lambda s: s.cut),
        ("cut in the last word (not rated)", lambda s: s.edge),
        ("precision of 'interrupted'", lambda s: f"{s.precision:.4f}"),
        ("recall", lambda s: f"{s.recall:.4f}"),
        ("F1", lambda s: f"{s.f1:.4f}"),
        ("false interruptions", lambda s: s.false),
        ("missed interruptions", lambda s: s.missed),
        ("heard right within 1 word", lambda s: f"{s.within(1):.1%}"),
        ("heard right within 3 words", lambda s: f"{s.within(3):.1%}"),
        ("ghosts stored", lambda s: s.ghosts),
        ("answers lost", lambda s: s.lost),
        ("answers doubled", lambda s: s.doubled),
        ("caller's messages", lambda s: s.users),
        ("of them lost / doubled", lambda s: f"{s.user_lost} / {s.user_doubled}"),
        ("prompts", lambda s: s.prompts),
        ("with unheard words", lambda s: s.unheard),
        ("lacking 4 or more heard words", lambda s: s.missing),
        ("answers with confidence >= 90", lambda s: s.sure),
        ("of them right within 1 word", lambda s: f"{s.sure_right / max(1, s.sure):.1%}"),
        ("Pipecat's own list: within 1 word", lambda s: _share(s, "right within one")),
        ("Pipecat's own list: unheard words", lambda s: s.pipecat["unheard words"]),
        ("Pipecat's own list: lacks 4 or more", lambda s: s.pipecat["misses more than three"]),
        ("calls that failed", lambda s: len(s.failures)),
    ]
    names = list(figures)
    lines = ["".join([f"{'':36}"] + [f"{n:>12}" for n in names])]
    for title, of in rows:
        lines.append("".join([f"{title:36}"] + [f"{of(figures[n])!s:>12}" for n in names]))
    return "\n".join(lines)


def _share(s: Score, name: str) -> str:
    return f"{s.pipecat[name] / max(1, s.pipecat['answers']):.1%}"


def run(
    chosen: list[Plan],
    bot: BotFactory,
    start_server: Any,
    at_once: int = 20,
) -> tuple[list[tuple[Plan, Call, Score]], float]:
    """Runs the calls. start_server gets the upstream's URL and returns the server's base URL."""
    logger.remove()
    logger.add(sys.stderr, level=os.environ.get("PIPECAT_LOG", "ERROR"))
    httpx.AsyncHTTPTransport.handle_async_request = _waiting  # type: ignore[method-assign]
    loop = Loop()
    asyncio.set_event_loop(loop)
    began = time.monotonic()

    async def main() -> list[tuple[Plan, Call, Score]]:
        upstream = Upstream()
        base = start_server(await upstream.start())
        try:
            return await _all(chosen, bot, upstream, base, at_once)
        finally:
            await upstream.stop()

    try:
        return loop.run_until_complete(main()), time.monotonic() - began
    finally:
        httpx.AsyncHTTPTransport.handle_async_request = ORIGINAL  # type: ignore[method-assign]
        loop.close()
