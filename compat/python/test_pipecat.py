"""Calls of real Pipecat pipelines, rated against the audio that was played.

HEARDLOG_PIPECAT_CALLS sets how many calls are made. The harness runs alone, too:
``python -m harness.pipecat_run --calls 300``.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("pipecat")

from heardlog import AsyncHeardlog
from heardlog._pipecat_call import Call, identify
from heardlog._pipecat_speech import Speech, words_of
from pipecat.runner.types import (
    CallData,
    DailyRunnerArguments,
    LiveKitRunnerArguments,
    RunnerArguments,
    WebSocketRunnerArguments,
)

from harness.pipecat_calls import Plan
from harness.pipecat_run import Score, die, ledger, plans, run, show, table
from harness.pipecat_score import count, generated, plain, score, text_of, truths
from harness.server import Server

CALLS = int(os.environ.get("HEARDLOG_PIPECAT_CALLS", "96"))


def right(s: Score) -> None:
    """Checks what has to be right whatever the voice is."""
    assert not s.failures, s.failures[:3]
    assert (s.ghosts, s.lost, s.doubled) == (0, 0, 0), s.notes
    assert (s.user_lost, s.user_doubled) == (0, 0), s.notes
    assert s.unheard == 0, s.notes
    assert s.f1 >= 0.95 and s.false <= 1, s.notes
    assert s.sure_right >= 0.9 * s.sure, s.notes


def test_calls(program: Path, tmp_path: Path) -> None:
    figures = table(run(plans(CALLS), "package", program, tmp_path, os.cpu_count() or 1))
    print("\n" + show(figures))
    for s in figures.values():
        right(s)
    assert figures["all"].f1 >= 0.99, figures["all"].notes
    assert figures["words"].within(1) >= 0.98, figures["words"].notes
    for voice in ("sentences", "socket", "tokens"):
        assert figures[voice].within(3) >= 0.85, figures[voice].notes


def test_without_the_package(program: Path, tmp_path: Path) -> None:
    """The ruler itself: bots that send no events are rated worse."""
    figures = table(run(plans(32), "no events", program, tmp_path, os.cpu_count() or 1))
    print("\n" + show(figures))
    assert figures["socket"].f1 < 0.9 and figures["socket"].unheard > 0
    assert figures["sentences"].within(3) < 0.9
    assert figures["words"].f1 >= 0.95


def test_a_worker_that_dies(start_server: Callable[..., Server], tmp_path: Path) -> None:
    """The process of twelve calls is killed: what it had reported stays."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = start_server(HEARDLOG_LLM_URL=f"http://127.0.0.1:{port}/v1")
    chosen, file = plans(12, seed=3), tmp_path / "calls"
    for plan in chosen:
        plan.summaries = plan.flow = False
    process = get_context("spawn").Process(target=die, args=(chosen, server.url, port, 30.0, file))
    process.start()
    process.join(300)
    assert process.exitcode == -9
    calls = pickle.loads(file.read_bytes())
    assert len(calls) == 12
    settled = 0
    for call in calls:
        stored = asyncio.run(messages(server.url, call.plan))
        asked = " ".join(str(r.messages) for r in call.brain.requests)
        call.said = [text for text in call.said if text in asked]
        call.own = []
        s = score(call, stored)
        assert (s.lost, s.doubled, s.user_lost, s.user_doubled) == (0, 0, 0, 0), s.notes
        for t in truths(call)[:-1]:  # the last one was in progress
            whole, near = plain(t.request.text), 1 if call.plan.voice == "words" else 6
            found = [m for m in stored if whole.startswith(plain(generated(m)) or "-")]
            assert all(count(text_of(m)) <= t.heard() + near for m in found), found
            if t.heard():
                assert any(count(text_of(m)) >= t.heard() - near for m in found), t.request.text
                settled += 1
    assert settled > 15


async def messages(base: str, plan: Plan) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=base) as client:
        return await ledger(client, plan)


def with_session(args: RunnerArguments, session_id: str | None) -> RunnerArguments:
    args.session_id = session_id
    return args


TWILIO = WebSocketRunnerArguments(
    websocket=None,  # type: ignore[arg-type]
    transport_type="twilio",
    call_data=CallData(call_id="CA1", from_number="+4930123456"),
)
DIAL_IN = {"dialin_settings": {"call_id": "sip-1", "call_domain": "d", "From": "+4930123456"}}


@pytest.mark.parametrize(
    ("args", "transport", "name", "caller", "keys"),
    [
        (TWILIO, None, "CA1", "+4930123456", ["twilio.call:CA1"]),
        (
            DailyRunnerArguments(room_url="https://d.daily.co/room", body=DIAL_IN),
            None,
            "sip-1",
            "+4930123456",
            [],
        ),
        (with_session(DailyRunnerArguments(room_url="https://d/r"), "s1"), None, "s1", None, []),
        (DailyRunnerArguments(room_url="https://d/r"), None, "https://d/r", None, []),
        (LiveKitRunnerArguments(room_name="r1", url="u", token="t"), None, "r1", None, []),
        (None, SimpleNamespace(room_url="https://d/r"), "https://d/r", None, []),
        (None, SimpleNamespace(_client=SimpleNamespace(room_name="r2")), "r2", None, []),
    ],
)
def test_the_call_is_named(
    args: RunnerArguments, transport: object, name: str, caller: str | None, keys: list[str]
) -> None:
    named = identify(args, transport, None, None)
    assert (named.session_id, named.caller, named.keys) == (name, caller, keys)
    own = identify(args, transport, "mine", "anna")
    assert (own.session_id, own.caller) == ("mine", "anna")


def test_a_call_without_a_name_gets_one() -> None:
    assert (
        identify(None, None, None, None).session_id != identify(None, None, None, None).session_id
    )


def test_names_fit_into_headers() -> None:
    named = identify(None, None, "Büro 7", "Žofie")
    assert named.session_id == "B%C3%BCro%207"
    call = Call(AsyncHeardlog(), named, None)
    assert call.headers == {"X-Pipecat-Session-Id": "B%C3%BCro%207"}


def test_words() -> None:
    assert words_of("The train, at 9.") == ["The", "train,", "at", "9."]
    assert words_of("二番線から 出ます。") == ["二", "番", "線", "か", "ら", "出", "ま", "す。"]


def tone(ms: int, level: int) -> bytes:
    return level.to_bytes(2, "little") * (8 * ms)


def test_words_are_spread_over_the_sound_between_pauses() -> None:
    speech = Speech("c")
    speech.announce("Yes, of course.")
    for ms, level in ((100, 0), (400, 9000), (300, 0), (800, 9000), (400, 0)):
        speech.sound.add(tone(ms, level), 8000, 1)
    speech.close("Yes, of course.")
    words, estimated = speech.timed(60)
    assert estimated
    assert [w["text"] for w in words] == ["Yes,", "of", "course."]
    assert (words[0]["start_ms"], words[0]["end_ms"]) == (100, 500)
    assert words[1]["start_ms"] == 800 and words[2]["end_ms"] == 1600


def test_a_word_ends_with_its_sound() -> None:
    speech = Speech("c")
    speech.base = 0
    for ms, level in ((400, 9000), (300, 0), (500, 9000), (700, 0)):
        speech.sound.add(tone(ms, level), 8000, 1)
    speech.timings = [("Yes.", 0), ("Nine.", 700_000_000)]
    speech.made = True
    words, estimated = speech.timed(60)
    assert not estimated
    assert [(w["start_ms"], w["end_ms"]) for w in words] == [(0, 400), (700, 1200)]
