"""Calls of a Pipecat bot: how each is planned, and how it runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pipecat.clocks.system_clock
import pipecat.processors.metrics.frame_processor_metrics
import pipecat.transports.base_output
from openai import AsyncStream
from pipecat.flows import FlowManager, FlowsFunctionSchema, NodeConfig
from pipecat.flows.types import ContextStrategy, ContextStrategyConfig
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EndFrame,
    Frame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.observers.base_observer import BaseObserver
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMAssistantAggregatorParams,
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.turns.user_start import MinWordsUserTurnStartStrategy
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import (
    UserTurnStrategies,
    default_user_turn_start_strategies,
)
from pipecat.utils.context.llm_context_summarization import LLMAutoContextSummarizationConfig
from pipecat.utils.time import time_now_iso8601
from pipecat.workers.runner import WorkerRunner

from .pipecat_clock import flights, use_virtual_time
from .pipecat_parts import VOICES, Caller, Player
from .pipecat_texts import GREETINGS, HUMS, Texts
from .pipecat_upstream import Brain, gone, received
from .pipecat_voice import Ear, Voice

use_virtual_time(
    pipecat.clocks.system_clock,
    pipecat.transports.base_output,
    pipecat.processors.metrics.frame_processor_metrics,
)


@dataclass
class Plan:
    """What happens in one call. Everything else follows from the seed."""

    number: int
    seed: int
    language: str
    voice: str  # a key of VOICES
    min_words: bool = False  # the caller must say three words to interrupt
    greeting: bool = False  # the bot speaks first
    tools: bool = False
    summaries: bool = False
    flow: bool = False  # Pipecat Flows: nodes with functions between them
    hang_up: str = "after"  # or in the middle of an answer, or "dies": the worker is lost
    turns: int = 6


@dataclass
class Call:
    """A call that has run."""

    plan: Plan
    ear: Ear
    brain: Brain
    said: list[str] = field(default_factory=list)  # what the caller said, hums excluded
    own: list[str] = field(default_factory=list)  # what the bot said without the LLM
    context: list[Any] = field(default_factory=list)  # Pipecat's own list at the end
    ended_at: float = 0.0
    failure: str = ""


Finish = Callable[[LLMContext], Awaitable[None]]


@dataclass
class Bot:
    """What a bot has of Heardlog."""

    llm: OpenAILLMService
    observers: list[BaseObserver]
    finish: Finish | None = None  # what it does after the call


BotFactory = Callable[[Plan, Brain], Bot]


def counted(base: type[OpenAILLMService], brain: Brain) -> type[OpenAILLMService]:
    """Returns a subclass of an LLM service that tells the clock what the server still owes."""

    class Counted(base):  # type: ignore[misc, valid-type]
        async def get_chat_completions(self, context: LLMContext) -> AsyncStream:
            land = flights().open()
            brain.outgoing.append(land)
            try:
                stream = await super().get_chat_completions(context)
            finally:
                land()
                if land in brain.outgoing:
                    brain.outgoing.remove(land)
                flights().settle(0.004)
            return _Stream(stream, brain)  # type: ignore[return-value]

        async def run_inference(self, *args: Any, **kwargs: Any) -> str | None:
            land = flights().open()
            brain.outgoing.append(land)
            try:
                return await super().run_inference(*args, **kwargs)
            finally:
                land()
                if land in brain.outgoing:
                    brain.outgoing.remove(land)
                gone(brain, "whole")

    return Counted


class _Stream:
    def __init__(self, stream: Any, brain: Brain) -> None:
        self._stream, self._brain = stream, brain
        self._whole = False

    async def __aiter__(self) -> Any:
        seen: set[str] = set()
        try:
            async for chunk in self._stream:
                seen.add(chunk.id)
                received(self._brain, chunk.id)
                yield chunk
            self._whole = True
        finally:
            for id in seen or {None}:  # type: ignore[arg-type]
                gone(self._brain, id)
            if not self._whole:
                flights().settle(0.008)  # the server must notice, too

    async def close(self) -> None:
        await self._stream.close()


class _Person:
    """Plays the caller's part of a call."""

    def __init__(self, call: Call, caller: Caller, player: Player, texts: Texts) -> None:
        self.call, self.caller, self.player, self.texts = call, caller, player, texts
        self.rng = random.Random(call.plan.seed * 8 + 7)
        self.speaking = asyncio.Event()
        self.silent = asyncio.Event()
        self.silent.set()

    def notice(self, frame: Frame) -> None:
        if isinstance(frame, BotStartedSpeakingFrame):
            self.speaking.set()
            self.silent.clear()
        elif isinstance(frame, BotStoppedSpeakingFrame):
            self.silent.set()
            self.speaking.clear()

    async def say(self, text: str, interim: bool = True) -> None:
        """Speaks, and the STT transcribes it."""
        push, rng = self.caller.push_frame, self.rng
        await push(VADUserStartedSpeakingFrame(start_secs=0.2))
        words = text.split() if " " in text else [text]
        await asyncio.sleep(rng.uniform(0.2, 0.5))
        if interim:
            part = " ".join(words[: max(3, len(words) // 2)])
            await push(InterimTranscriptionFrame(part, "caller", time_now_iso8601()))
        await asyncio.sleep(0.12 * len(words) + rng.uniform(0.1, 0.6))
        await push(VADUserStoppedSpeakingFrame(stop_secs=0.2))
        await asyncio.sleep(rng.uniform(0.05, 0.25))
        frame = TranscriptionFrame(text, "caller", time_now_iso8601())
        frame.finalized = True
        await push(frame)

    async def noise(self) -> None:
        """A cough: the VAD hears it and the STT does not."""
        await self.caller.push_frame(VADUserStartedSpeakingFrame(start_secs=0.2))
        await asyncio.sleep(self.rng.uniform(0.1, 0.4))
        await self.caller.push_frame(VADUserStoppedSpeakingFrame(stop_secs=0.2))

    async def ask(self, text: str) -> None:
        self.call.said.append(text)
        await self.say(text)

    async def wait_speaking(self, seconds: float = 12) -> bool:
        try:
            await asyncio.wait_for(self.speaking.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def hear_out(self) -> None:
        """Waits until the bot has been silent for a while."""
        for _ in range(20):
            await self.silent.wait()
            await asyncio.sleep(self.rng.uniform(0.5, 1.2))
            if self.silent.is_set():
                return

    async def talk(self) -> None:
        """Goes through the turns of the call."""
        rng, plan = self.rng, self.call.plan
        if (plan.greeting or plan.flow) and await self.wait_speaking():
            if rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(0.3, 3))
            else:
                await self.hear_out()
        for turn in range(plan.turns):
            await self.ask(self.texts.question())
            if rng.random() < 0.08:  # goes on while the bot is thinking
                await asyncio.sleep(rng.uniform(0.1, 1.4))
                await self.ask(self.texts.question())
            await self.wait_speaking()
            last = turn == plan.turns - 1
            if last and plan.hang_up in ("in mid-answer", "dies"):
                await asyncio.sleep(rng.uniform(0.2, 5))
                return
            draw = rng.random()
            if draw < 0.5:  # barge in at any moment of a long answer, or just after a short one
                await asyncio.sleep(rng.uniform(0.05, 9))
            elif draw < 0.6:
                await asyncio.sleep(rng.uniform(0.2, 3))
                if plan.min_words:
                    await self.say(HUMS[plan.language], interim=False)
                else:
                    await self.noise()
                await self.hear_out()
            else:
                await self.hear_out()
        await self.hear_out()


async def run_call(
    plan: Plan, upstream: Any, bot: BotFactory, seen: Callable[[Call], None] = lambda call: None
) -> Call:
    """Runs one call from its beginning to its end. seen gets it at its beginning."""
    # Each part has its own numbers, so that it does not matter which runs first.
    rng, texts, questions, voice, tts_rng = (random.Random(plan.seed * 8 + i) for i in range(5))
    answers = Texts(plan.language, texts)
    ear = Ear()

    def reply(messages: list[dict[str, Any]]) -> tuple[str, bool]:
        asked = messages[-1]["role"] == "user"
        if (plan.tools or plan.flow) and asked and rng.random() < 0.3:
            return "", True
        return answers.answer(), False

    brain = Brain(plan.number, reply, lambda: rng.uniform(0.15, 0.7), rng.uniform(0.008, 0.05))
    upstream.brains[plan.number] = brain
    call = Call(plan, ear, brain)
    seen(call)
    mine = bot(plan, brain)
    llm = mine.llm
    context = LLMContext()
    if plan.tools:
        _add_tool(llm, context, rng, call, answers)
    start = default_user_turn_start_strategies()
    if plan.min_words:
        start = [MinWordsUserTurnStartStrategy(min_words=3)]
    strategies = UserTurnStrategies(
        start=start, stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.4)]
    )
    summaries = LLMAutoContextSummarizationConfig(
        max_context_tokens=100_000, max_unsummarized_messages=6
    )
    pair = LLMContextAggregatorPair(
        context,
        user_params=LLMUserAggregatorParams(user_turn_strategies=strategies),
        assistant_params=LLMAssistantAggregatorParams(
            enable_auto_context_summarization=plan.summaries,
            auto_context_summarization_config=summaries if plan.summaries else None,
        ),
    )
    user, assistant = pair
    caller, player = Caller(), Player(ear)
    person = _Person(call, caller, player, Texts(plan.language, questions))
    player.notice = person.notice
    tts = VOICES[plan.voice](Voice(ear, voice), tts_rng)
    pipeline = Pipeline([caller, user, llm, tts, player, assistant])
    worker = PipelineWorker(
        pipeline,
        observers=mine.observers,
        enable_rtvi=False,
        enable_turn_tracking=False,
        idle_timeout_secs=None,
        cancel_on_idle_timeout=False,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    async def drive() -> None:
        try:
            await asyncio.sleep(0.2)
            if plan.greeting:
                call.own.append(GREETINGS[plan.language])
                await worker.queue_frame(TTSSpeakFrame(call.own[0]))
            if plan.flow:
                flow = FlowManager(llm=llm, context_aggregator=pair, worker=worker)
                await flow.initialize(_node(random.Random(plan.seed), 0))
            await person.talk()
        except Exception as err:  # reported with the call
            call.failure = repr(err)
        call.ended_at = asyncio.get_running_loop().time()
        player.connected = plan.hang_up == "after"
        if plan.hang_up == "after":
            await worker.queue_frame(EndFrame())
        else:
            await worker.cancel()

    driving = asyncio.create_task(drive())
    await runner.run()
    await driving
    call.context = [m for m in context.messages if isinstance(m, dict)]
    if mine.finish:
        await mine.finish(context)
    return call


def _node(rng: random.Random, number: int) -> NodeConfig:
    """Returns a node of a flow, whose function leads to the next one."""

    async def look_up(args: Any, flow: FlowManager) -> tuple[Any, NodeConfig]:
        await asyncio.sleep(rng.uniform(0.1, 0.8))
        return {"found": "trains"}, _node(rng, number + 1)

    what = {"what": {"type": "string"}}
    strategy = rng.choice([ContextStrategy.APPEND, ContextStrategy.APPEND, ContextStrategy.RESET])
    return NodeConfig(
        name=f"node {number}",
        role_message="You help callers.",
        task_messages=[{"role": "developer", "content": f"Do task {number}."}],
        functions=[FlowsFunctionSchema("look_up", "Looks it up", what, ["what"], look_up)],
        context_strategy=ContextStrategyConfig(strategy),
        respond_immediately=number > 0 or rng.random() < 0.5,
    )


def _add_tool(
    llm: OpenAILLMService, context: LLMContext, rng: random.Random, call: Call, texts: Texts
) -> None:
    from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
    from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema

    what = {"what": {"type": "string"}}
    schema = FunctionSchema("look_up", "Looks something up", what, ["what"])
    context.set_tools(ToolsSchema(standard_tools=[schema]))

    async def look_up(params: Any) -> None:
        if rng.random() < 0.4:
            call.own.append(texts.filler())
            await params.llm.push_frame(TTSSpeakFrame(call.own[-1]))
        await asyncio.sleep(rng.uniform(0.1, 0.8))
        await params.result_callback({"found": "trains"})

    llm.register_function("look_up", look_up)
