"""Scripted calls of a real LiveKit AgentSession against a Heardlog server."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from livekit.agents import Agent, AgentSession, RunContext, function_tool
from livekit.agents.voice.transcription.synchronizer import TranscriptSynchronizer

from .livekit_llm import Script, ScriptedLLM
from .livekit_phrases import LANGUAGES, Phrases
from .livekit_voice import Ears, Loudspeaker, Microphone, Utterance, Voice

logger = logging.getLogger("harness")


@dataclass
class Call:
    """One call and the truth about it."""

    tag: str
    seed: int
    language: str
    script: Script
    utterances: list[Utterance] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # by say()
    spoken: list[str] = field(default_factory=list)  # by the caller
    events: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


class Bot(Agent):
    def __init__(self, call: Call) -> None:
        super().__init__(
            instructions=f"You help callers of a station. This is call {call.tag} of today."
        )
        self._rnd = random.Random(call.seed ^ 0x5EED)

    @function_tool
    async def look_up(self, ctx: RunContext, what: str) -> str:
        """Looks something up."""
        await asyncio.sleep(self._rnd.choice([0.05, 0.4, 1.5]))
        return f"The {what} is on time."


class Other(Bot):
    """The agent that a call is handed over to."""


@dataclass
class Series:
    sync: str  # words, estimate or none
    make_llm: Callable[[Call], Any]
    attach: Callable[[AgentSession, Call], Any] | None
    turns: int = 6


async def run_call(llm: ScriptedLLM, number: int, seed: int, series: Series, prefix: str) -> Call:
    rnd = random.Random(seed)
    language = "en" if number % 2 == 0 else LANGUAGES[number // 2 % len(LANGUAGES)]
    phrases = Phrases(language, rnd)
    tag = f"{prefix}-{number}"
    script = Script(phrases, random.Random(seed + 1), tools=0.2)
    call = Call(tag, seed, language, script)
    llm.add(tag, script)
    voice = Voice(rnd, word_times=series.sync == "words")
    ears, speaker = Ears(), Loudspeaker(voice)
    call.utterances = voice.utterances
    session: AgentSession = AgentSession(
        stt=ears.recognizer,
        vad=ears,
        llm=series.make_llm(call),
        tts=voice,
        use_tts_aligned_transcript=series.sync == "words",
        turn_handling={
            "turn_detection": "vad",
            "endpointing": {"min_delay": 0.3, "max_delay": 1.0},
            "interruption": {"mode": "vad", "min_duration": 0.3, "false_interruption_timeout": 0.7},
            "preemptive_generation": {"enabled": True},
        },
        user_away_timeout=None,
        aec_warmup_duration=None,
    )
    session.input.audio = Microphone()
    sync: TranscriptSynchronizer | None = None
    if series.sync == "none":
        session.output.audio = speaker
    else:
        sync = TranscriptSynchronizer(next_in_chain_audio=speaker, next_in_chain_text=None)
        session.output.audio = sync.audio_output
        session.output.transcription = sync.text_output
    finish = series.attach(session, call) if series.attach else None
    try:
        await session.start(agent=Bot(call))
        await asyncio.wait_for(
            converse(session, call, phrases, rnd, ears, speaker, series.turns), 150
        )
    except Exception as err:
        call.error = repr(err)
        logger.exception("call %s", tag)
    try:
        await asyncio.wait_for(session.aclose(), 30)
    except asyncio.TimeoutError:
        call.error = "the session did not close"
    speaker.settle()
    if sync:
        await sync.aclose()
    if finish:
        await finish()
    return call


async def until(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
        return True
    except asyncio.TimeoutError:
        return False


async def quiet(session: AgentSession, speaker: Loudspeaker, seconds: float = 20) -> None:
    """Waits until the agent has said what it wants to say."""
    end = time.monotonic() + seconds
    calm = 0
    while time.monotonic() < end and calm < 6:
        busy = (
            speaker.sounding.is_set()
            or session.agent_state in ("thinking", "speaking")
            or session.current_speech is not None
        )
        calm = 0 if busy else calm + 1
        await asyncio.sleep(0.05)


async def converse(
    session: AgentSession,
    call: Call,
    phrases: Phrases,
    rnd: random.Random,
    ears: Ears,
    speaker: Loudspeaker,
    turns: int,
) -> None:
    def say() -> None:
        text = phrases.answer(short=True)
        call.said.append(text)
        session.say(text)

    async def ask() -> None:
        text = phrases.question()
        call.spoken.append(text)
        await ears.hear(text, 0.35 + 0.03 * len(text), parts=rnd.choice([1, 1, 2]))

    match rnd.choice(["none", "say", "reply", "say-cut"]):
        case "say":
            say()
            await quiet(session, speaker)
        case "say-cut":
            say()
            await until(speaker.sounding, 3)
            await asyncio.sleep(rnd.uniform(0.2, 1.5))
        case "reply":
            session.generate_reply(instructions="Greet the caller.")
            if rnd.random() < 0.7:
                await quiet(session, speaker)
    for _ in range(turns):
        await ask()
        heard = await until(speaker.sounding, 4)
        if not heard:
            continue
        match rnd.choice(
            ["finish", "finish", "barge", "barge", "barge", "interrupt", "noise", "say", "handoff"]
        ):
            case "finish":
                await quiet(session, speaker)
                await asyncio.sleep(rnd.uniform(0, 0.5))
            case "barge":
                await asyncio.sleep(rnd.uniform(0.1, 4))
            case "interrupt":
                await asyncio.sleep(rnd.uniform(0.1, 3))
                await session.interrupt()
                await asyncio.sleep(rnd.uniform(0, 0.6))
            case "noise":
                await asyncio.sleep(rnd.uniform(0.2, 2))
                await ears.hear("", 0.5)
                await asyncio.sleep(1.5)
                if rnd.random() < 0.5:
                    await quiet(session, speaker)
            case "say":
                say()
                if rnd.random() < 0.6:
                    await quiet(session, speaker)
                else:
                    await asyncio.sleep(rnd.uniform(0.5, 4))
            case "handoff":
                await quiet(session, speaker)
                session.update_agent(Other(call))
                await asyncio.sleep(0.2)
    match rnd.choice(["clean", "hangup", "goodbye", "say"]):
        case "clean":
            await quiet(session, speaker)
        case "hangup":
            await ask()
            if await until(speaker.sounding, 4):
                await asyncio.sleep(rnd.uniform(0.1, 3))
        case "goodbye":
            await quiet(session, speaker)
            await ask()
            await asyncio.sleep(rnd.uniform(0.5, 0.9))
        case "say":
            await quiet(session, speaker)
            say()
            if rnd.random() < 0.5:
                await quiet(session, speaker)
            else:
                await asyncio.sleep(rnd.uniform(0.3, 2))


async def run_series(
    llm: ScriptedLLM, calls: int, seed: int, series: Series, prefix: str, gate: asyncio.Semaphore
) -> list[Call]:
    async def one(number: int) -> Call:
        async with gate:
            return await run_call(llm, number, seed * 100_003 + number, series, prefix)

    return list(await asyncio.gather(*(one(n) for n in range(calls))))


__all__ = ["Call", "Series", "run_call", "run_series"]
