"""Runs series of LiveKit calls and prints what came of them.

    python -m harness.livekit_run --calls 60

Calls take their real time, a minute each, many at once.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import pathlib
import sys
import tempfile
from typing import Any

import httpx
from livekit.plugins import openai

from .livekit_call import Call, Series, run_series
from .livekit_llm import ScriptedLLM
from .livekit_score import Score, Spoken, judge, judge_prompts, table
from .server import Server, build

SYNCS = {"words": "word times", "estimate": "estimate", "none": "no synchronizer"}


def truth(call: Call) -> list[Spoken]:
    """Pairs what was made with what was played of it."""
    out = []
    for text, prompted in [(t, True) for t in call.script.answers] + [
        (t, False) for t in call.said
    ]:
        mine = [u for u in call.utterances if u.text.strip() and text.startswith(u.text.strip())]
        heard = max((u.heard() for u in mine), key=len, default="")
        out.append(Spoken(text, heard, any(u.played > 0 for u in mine), prompted))
    return out


async def series_of(
    llm: ScriptedLLM,
    server: str,
    calls: int,
    seed: int,
    sync: str,
    events: bool,
    prefix: str,
    gate: asyncio.Semaphore,
    dump: pathlib.Path | None,
) -> tuple[Score, list[Call]]:
    import heardlog.livekit as hl

    def make_llm(call: Call) -> Any:
        if events:
            return hl.LLM(url=server, call=call.tag)
        return openai.LLM(
            model="default",
            base_url=server,
            api_key="unused",
            extra_headers={"X-LiveKit-Job-ID": call.tag},
        )

    def attach(session: Any, call: Call) -> Any:
        recorder = hl.attach(session, call=call.tag, url=server)
        send = recorder._reporter.send

        def noted(event: dict[str, Any]) -> None:
            call.events.append(event)
            send(event)

        recorder._reporter.send = noted  # type: ignore[method-assign]
        return recorder.aclose

    series = Series(sync, make_llm, attach if events else None)
    done = await run_series(llm, calls, seed, series, prefix, gate)
    score = Score()
    async with httpx.AsyncClient(base_url=server, timeout=30) as client:
        for call in done:
            if call.error:
                score.errors += 1
                score.faults.append(f"{call.tag}: failed: {call.error}")
                continue
            found = (
                (await client.get("/agents", params={"name": f"livekit.job:{call.tag}"}))
                .json()
                .get("agents")
            )
            if not found:
                score.errors += 1
                score.faults.append(f"{call.tag}: no agent")
                continue
            res = await client.get(
                f"/agents/{found[0]['agent_id']}/messages", params={"limit": 500}
            )
            if res.status_code != 200:
                score.errors += 1
                score.faults.append(f"{call.tag}: {res.status_code} {res.text}")
                continue
            answers = truth(call)
            if dump:
                (dump / f"{call.tag}.json").write_text(
                    json.dumps(
                        {
                            "events": call.events,
                            "record": res.json()["messages"],
                            "truth": [vars(a) for a in answers],
                            "prompts": [vars(p) for p in call.script.prompts],
                            "caller": call.spoken,
                        },
                        indent=1,
                        ensure_ascii=False,
                    )
                )
            judge(score, call.tag, answers, call.spoken, res.json()["messages"])
            judge_prompts(score, call.tag, answers, [p.messages for p in call.script.prompts])
    return score, done


def title(wanted: tuple[str, str, bool]) -> str:
    return wanted[1] + (" + events" if wanted[2] else "")


async def run(
    calls: int,
    seed: int,
    program: pathlib.Path,
    folder: pathlib.Path,
    *,
    at_once: int = 24,
    only: str = "",
    dump: pathlib.Path | None = None,
) -> dict[str, Score]:
    """Makes calls in each series, and returns how their records are."""
    llm = ScriptedLLM()
    await llm.start()
    server = Server(program, folder, HEARDLOG_LLM_URL=llm.url, HEARDLOG_LLM_MODEL="scripted")
    wanted = [(sync, name, events) for sync, name in SYNCS.items() for events in (True, False)]
    wanted = [w for w in wanted if only in ("", title(w))]
    gate = asyncio.Semaphore(at_once)
    try:
        done = await asyncio.gather(
            *(
                series_of(
                    llm, server.url, calls, seed, sync, events, f"{sync}-{events}", gate, dump
                )
                for sync, _, events in wanted
            )
        )
    finally:
        server.stop()
        await llm.stop()
    return {title(w): score for w, (score, _) in zip(wanted, done, strict=True)}


def faults(rows: dict[str, Score], of_each: int) -> str:
    """Names some faults of each kind."""
    lines = []
    for name, score in rows.items():
        lines.append(name)
        shown: collections.Counter[str] = collections.Counter()
        for line in score.faults:
            kind = line.split(":")[1]
            shown[kind] += 1
            if shown[kind] <= of_each:
                lines.append("  " + line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=24)
    parser.add_argument("--dump", type=pathlib.Path, help="a folder for what happened in each call")
    parser.add_argument("--only", default="", help="one series by its title")
    parser.add_argument("--faults", type=int, default=5, help="how many of each kind are shown")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = asyncio.run(
            run(
                args.calls,
                args.seed,
                build(folder),
                folder,
                at_once=args.at_once,
                only=args.only,
                dump=args.dump,
            )
        )
    print(faults(rows, args.faults), file=sys.stderr)
    print(table(rows))


if __name__ == "__main__":
    main()
