"""Runs many calls of Pipecat bots against a server and prints what it knows of them."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
from loguru import logger
from pipecat.services.openai.llm import OpenAILLMService

from .pipecat_calls import Bot, BotFactory, Call, Plan, counted, run_call
from .pipecat_clock import Loop, flights
from .pipecat_score import Score, score
from .pipecat_texts import ANSWERS
from .pipecat_upstream import Brain, Upstream
from .server import Server, build

VOICES_OF_CALLS = ("words", "sentences", "words", "socket", "words", "tokens")
AT_ONCE = 20  # calls in one process
SYSTEM = "You help callers."
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
        voice = VOICES_OF_CALLS[i // len(languages) % len(VOICES_OF_CALLS)]
        spaced = language not in ("zh", "ja")
        flow = rng.random() < 0.1
        out.append(
            Plan(
                i,
                seed * 100_003 + i,
                language,
                voice,
                min_words=spaced and rng.random() < 0.25,
                greeting=not flow and rng.random() < 0.4,
                tools=not flow and rng.random() < 0.3,
                summaries=not flow and rng.random() < 0.1,
                flow=flow,
                hang_up=rng.choice(["after", "after", "after", "in mid-answer"]),
                turns=rng.randint(2, 5),
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


def with_package(base: str) -> BotFactory:
    """Returns bots that use the package: the LLM service and its observer."""
    from heardlog.pipecat import LLMService

    def bot(plan: Plan, brain: Brain) -> Bot:
        cls = counted(LLMService, brain)
        settings = cls.Settings(system_instruction=SYSTEM, seed=plan.number)
        llm = cls(url=base, session_id=session(plan), settings=settings)
        return Bot(llm, [llm.observer])

    return bot


def without_events(base: str) -> BotFactory:
    """Returns bots that have only the server's URL and a header, and send the list at the end."""

    def bot(plan: Plan, brain: Brain) -> Bot:
        cls = counted(OpenAILLMService, brain)
        headers = {"X-Pipecat-Session-Id": session(plan)}
        settings = cls.Settings(model="default", system_instruction=SYSTEM, seed=plan.number)
        llm = cls(base_url=base, api_key="unused", default_headers=headers, settings=settings)

        async def finish(context: Any) -> None:
            messages = [m for m in context.messages if isinstance(m.get("content"), str)]
            async with httpx.AsyncClient(base_url=base, headers=headers) as client:
                await client.post("/evidence/pipecat", json={"type": "end", "messages": messages})

        return Bot(llm, [], finish)

    return bot


BOTS = {"package": with_package, "no events": without_events}
Rated = tuple[Plan, Score]


async def _all(chosen: list[Plan], bot: BotFactory, upstream: Upstream, base: str) -> list[Rated]:
    out: list[Rated] = []
    gate = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=base, timeout=30) as client:

        async def one(plan: Plan) -> None:
            async with gate:
                call = await run_call(plan, upstream, bot)
                out.append((plan, score(call, await ledger(client, plan))))

        await asyncio.gather(*(one(p) for p in chosen))
    return out


def table(results: list[Rated]) -> dict[str, Score]:
    """Returns the figures by kind of voice, and of all."""
    out: dict[str, Score] = {"all": Score()}
    for plan, s in sorted(results, key=lambda x: x[0].number):
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
        ("the bot's own words", lambda s: s.own),
        ("of them right within 3 words", lambda s: f"{s.own_right / max(1, s.own):.1%}"),
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


def run_here(chosen: list[Plan], kind: str, program: Path, folder: Path) -> list[Rated]:
    """Runs calls in this process, with a server of their own."""
    logger.remove()
    logger.add(sys.stderr, level=os.environ.get("PIPECAT_LOG", "CRITICAL"))
    httpx.AsyncHTTPTransport.handle_async_request = _waiting  # type: ignore[method-assign]
    loop = Loop()
    asyncio.set_event_loop(loop)

    async def main() -> list[Rated]:
        upstream = Upstream()
        url = await upstream.start()
        server = Server(program, folder, HEARDLOG_LLM_URL=url, HEARDLOG_LLM_CONNECT_TIMEOUT="60s")
        try:
            return await _all(chosen, BOTS[kind](server.url), upstream, server.url)
        finally:
            await upstream.stop()
            server.stop()

    try:
        return loop.run_until_complete(main())
    finally:
        httpx.AsyncHTTPTransport.handle_async_request = ORIGINAL  # type: ignore[method-assign]
        loop.close()


def die(chosen: list[Plan], base: str, port: int, after: float, file: Path) -> None:
    """Runs calls, writes what was heard of them to a file after some seconds, and dies."""
    logger.remove()
    httpx.AsyncHTTPTransport.handle_async_request = _waiting  # type: ignore[method-assign]
    loop = Loop()
    asyncio.set_event_loop(loop)
    calls: list[Call] = []

    async def main() -> None:
        upstream = Upstream()
        await upstream.start(port)
        bot = with_package(base)
        running = [asyncio.create_task(run_call(p, upstream, bot, calls.append)) for p in chosen]
        await asyncio.sleep(after)
        for call in calls:
            call.brain = Brain(call.plan.number, requests=call.brain.requests)
        file.write_bytes(pickle.dumps(calls))  # noqa: ASYNC240 - nothing else is to run
        os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.gather(*running)

    loop.run_until_complete(main())


def run(chosen: list[Plan], kind: str, program: Path, folder: Path, processes: int) -> list[Rated]:
    """Runs calls in several processes. kind is a key of BOTS."""
    jobs = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for i in range(processes):
            own = folder / f"{kind.replace(' ', '-')}-{i}"
            own.mkdir(parents=True)
            jobs.append(pool.submit(run_here, chosen[i::processes], kind, program, own))
        return [one for job in jobs for one in job.result()]


def main() -> None:
    """Runs calls and prints their figures: python -m harness.pipecat_run --calls 300"""
    import argparse
    import tempfile

    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bot", choices=list(BOTS), default="package")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--notes", type=int, default=30, help="how many faults to print")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of calls")
    args = parser.parse_args()
    chosen = [p for p in plans(args.calls, args.seed) if not args.only or p.number in args.only]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        program = build(Path(folder))
        figures = table(run(chosen, args.bot, program, Path(folder), args.processes))
        print(show(figures), f"\nin {time.monotonic() - began:.0f} s")
    for line in figures["all"].failures + figures["all"].notes[: args.notes]:
        print(line)


if __name__ == "__main__":
    main()
