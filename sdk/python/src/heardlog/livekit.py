"""Heardlog for LiveKit Agents.

    session = AgentSession(llm=heardlog.livekit.LLM(), ...)
    heardlog.livekit.attach(session, ctx)

`LLM` is LiveKit's OpenAI plugin, pointed at Heardlog and told which call it is. `attach` reports
what the session knows and a list of messages cannot say: how much of each answer was played, word
by word if the voice gives word times, what was said without the model, and the end. It also works
with a realtime model, which Heardlog then only records.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from livekit.agents import AgentSession, JobContext, get_job_context
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.agents.voice import io
from livekit.plugins import openai

from ._client import AsyncHeardlog
from .reporter import Reporter

try:  # which speech a piece of code works for; LiveKit has no public name for it
    from livekit.agents.voice.agent_activity import _SpeechHandleContextVar as _speech
except ImportError:  # pragma: no cover
    _speech = None  # type: ignore[assignment]

__all__ = ["LLM", "Recorder", "attach"]

log = logging.getLogger("heardlog")

# How long a request for an answer waits until what was reported before it has arrived.
_FLUSH_SECONDS = 0.3
_MAX_WORDS = 2000
_TAIL = 12  # items of the history that go with each event


def _call_of(ctx: JobContext | None, call: str | None) -> str:
    if call:
        return call
    if ctx is None:
        try:
            ctx = get_job_context()
        except RuntimeError:
            raise ValueError("call is required outside a LiveKit job: it names the call") from None
    return ctx.job.id


def _headers(call: str, user: str | None) -> dict[str, str]:
    out = {"X-LiveKit-Job-ID": call}
    if user:
        out["X-Heardlog-User"] = user
    return out


class LLM(openai.LLM):
    """LiveKit's OpenAI plugin with Heardlog as the LLM of one call.

    url and secret are those of the server: HEARDLOG_URL and HEARDLOG_SECRET if they are not given.
    call names the call; in a LiveKit job it is the job's ID. user is the caller across calls; by
    default `attach` finds it. All other arguments are those of livekit.plugins.openai.LLM.
    """

    def __init__(
        self,
        *,
        call: str | None = None,
        user: str | None = None,
        url: str | None = None,
        secret: str | None = None,
        model: str = "default",
        **more: Any,
    ) -> None:
        url = url or os.environ.get("HEARDLOG_URL") or "http://127.0.0.1:8080/v1"
        secret = secret or os.environ.get("HEARDLOG_SECRET") or "unused"
        headers = {**more.pop("extra_headers", {}), **_headers(_call_of(None, call), user)}
        super().__init__(model=model, base_url=url, api_key=secret, extra_headers=headers, **more)
        self._names = headers
        self._recorder: Recorder | None = None

    def chat(self, **arguments: Any) -> openai.LLMStream:  # type: ignore[override]
        stream = super().chat(**arguments)
        speech = _speech.get(None) if _speech else None
        run, parse = stream._run, stream._parse_choice
        named = False

        async def waiting() -> None:
            if self._recorder:
                await self._recorder._before_request()
            await run()

        def marked(id: str, *rest: Any) -> Any:
            # The ID of the answer ends up in the item that LiveKit makes of it.
            nonlocal named
            chunk = parse(id, *rest)
            if chunk and chunk.delta and not named:
                named = True
                # "livekit" is one of the keys that LiveKit sends back in later requests.
                chunk.delta.extra = {**(chunk.delta.extra or {}), "livekit": {"heardlog": id}}
                if self._recorder and speech is not None:
                    self._recorder._answers[speech.id] = id
            return chunk

        stream._run, stream._parse_choice = waiting, marked  # type: ignore[method-assign]
        return stream


@dataclass
class _Playback:
    """One segment of audio, as the output of the session plays it."""

    speech: str
    handle: Any = None
    duration: float = 0.0
    words: list[dict[str, Any]] = field(default_factory=list)
    started: float = 0.0
    stopped: float = 0.0
    position: float = 0.0
    interrupted: bool = False
    finished: bool = False
    whole: bool = False  # the voice has said all it wanted to say

    def body(self) -> dict[str, Any]:
        return {
            "started_at": self.started,
            "stopped_at": self.stopped,
            "playback_position": round(self.position, 3),
            "duration": round(self.duration, 3) if self.whole else None,
            "interrupted": self.interrupted,
            "words": self.words[:_MAX_WORDS],
        }


class Recorder:
    """Reports a session to Heardlog until it is closed; see `attach`."""

    def __init__(self, session: AgentSession, reporter: Reporter, close: Callable[[], Awaitable[None]]) -> None:
        self._session = session
        self._reporter = reporter
        self._close = close
        self._answers: dict[str, str] = {}  # the newest answer of the model, by speech
        self._segments: list[_Playback] = []  # in the order of their playing
        self._open: _Playback | None = None
        self._watched: set[int] = set()
        self._closed = asyncio.Event()
        session.on("conversation_item_added", self._item)
        session.on("speech_created", self._watch)
        session.on("agent_state_changed", self._state)
        session.on("agent_false_interruption", self._simple)
        session.on("function_tools_executed", self._simple)
        session.on("close", self._ended)
        self._watch()

    async def _before_request(self) -> None:
        await self._reporter.flush(_FLUSH_SECONDS)

    async def aclose(self) -> None:
        """Waits until everything has arrived, at most ten seconds, and ends the reporting."""
        await self._reporter.aclose()
        await self._close()

    # What the session's output plays

    def _watch(self, _: Any = None) -> None:
        output = self._session.output.audio
        if output is None or id(output) in self._watched:
            return
        self._watched.add(id(output))
        capture, flush = output.capture_frame, output.flush

        async def captured(frame: Any) -> None:
            await capture(frame)
            self._captured(frame)

        def flushed() -> None:
            if self._open:
                # A cut answer is flushed as well.
                self._open.whole = not (self._open.handle and self._open.handle.interrupted)
                self._open = None
            flush()

        output.capture_frame, output.flush = captured, flushed  # type: ignore[method-assign]
        output.on("playback_started", self._started)
        output.on("playback_finished", self._finished)

    def _captured(self, frame: Any) -> None:
        speech = _speech.get(None) if _speech else self._session.current_speech
        if self._open is None:
            self._open = _Playback(speech=speech.id if speech else "", handle=speech, started=time.time())
            self._segments.append(self._open)
        s = self._open
        for w in frame.userdata.get(USERDATA_TIMED_TRANSCRIPT) or ():
            start, end = getattr(w, "start_time", None), getattr(w, "end_time", None)
            if isinstance(end, float):
                s.words.append({"text": str(w), "start": start if isinstance(start, float) else end, "end": end})
        s.duration += frame.duration

    def _started(self, ev: io.PlaybackStartedEvent) -> None:
        for s in self._segments:
            if not s.finished:
                s.started = ev.created_at
                return

    def _finished(self, ev: io.PlaybackFinishedEvent) -> None:
        for s in self._segments:
            if s.finished:
                continue
            s.finished, s.stopped = True, time.time()
            s.position, s.interrupted = ev.playback_position, ev.interrupted
            if s is self._open:
                self._open = None
            if s.interrupted and (answer := self._answers.get(s.speech)):
                # LiveKit commits a cut answer late; the next request must know of it.
                parts = [p for p in self._segments if p.speech == s.speech and p.finished]
                self._send({"type": "playback_finished", "response_id": answer, "playback": _joined(parts)})
            return

    # Events of the session

    def _send(self, event: dict[str, Any]) -> None:
        event.setdefault("created_at", time.time())
        self._reporter.send(event)

    def _item(self, ev: Any) -> None:
        item = ev.item
        if item.type != "message":
            return
        body = {"type": ev.type, "created_at": ev.created_at, "item": _dump(item), "chat_history": self._history(_TAIL)}
        speech = _speech.get(None) if _speech else None
        if item.role == "assistant" and speech is not None:
            parts = [s for s in self._segments if s.speech == speech.id and s.finished]
            if parts:
                body["playback"] = _joined(parts)
                self._segments = [s for s in self._segments if s not in parts]
        self._send(body)

    def _history(self, newest: int) -> dict[str, Any]:
        kinds = ("message", "function_call", "function_call_output")
        return {"items": [_dump(i) for i in self._session.history.items if i.type in kinds][-newest:]}

    def _state(self, ev: Any) -> None:
        self._watch()

    def _simple(self, ev: Any) -> None:
        self._send(ev.model_dump(mode="json", exclude_none=True, exclude={"message", "extra_instructions"}))

    def _ended(self, ev: Any) -> None:
        reason = getattr(ev.reason, "value", str(ev.reason))
        self._send({"type": "close", "created_at": ev.created_at, "reason": reason, "chat_history": self._history(1000)})
        self._closed.set()


def _joined(parts: list[_Playback]) -> dict[str, Any]:
    """Makes one account of the segments of one answer."""
    if len(parts) == 1:
        return parts[0].body()
    out = parts[-1].body()
    out["started_at"] = parts[0].started
    out["playback_position"] = round(sum(p.position for p in parts), 3)
    out["duration"] = round(sum(p.duration for p in parts), 3) if all(p.whole for p in parts) else None
    words, before = [], 0.0
    for p in parts:
        words += [{**w, "start": w["start"] + before, "end": w["end"] + before} for w in p.words]
        before += p.duration if p.whole else p.position
    out["words"] = words[:_MAX_WORDS]
    return out


def _dump(item: Any) -> dict[str, Any]:
    return item.model_dump(mode="json", exclude_none=True, exclude={"hash"}, warnings=False)


def attach(
    session: AgentSession,
    ctx: JobContext | None = None,
    *,
    call: str | None = None,
    user: str | None = None,
    url: str | None = None,
    secret: str | None = None,
) -> Recorder:
    """Reports what a session plays, hears and commits to Heardlog. Call it before `session.start`.

    call and user name the call and the caller as in `LLM`; they must be the same there. With a
    job's ctx, everything that was reported has arrived before the worker goes; without it, await
    the result's aclose(). Reporting never delays or breaks a session.
    """
    name = _call_of(ctx, call)
    client = AsyncHeardlog(url=url, secret=secret)
    reporter = Reporter(client, "livekit", _headers(name, user))
    recorder = Recorder(session, reporter, client.aclose)
    if isinstance(session.llm, LLM):
        session.llm._recorder = recorder
    if ctx is not None:
        ctx.add_shutdown_callback(recorder.aclose)
    return recorder
