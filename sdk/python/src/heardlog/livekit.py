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
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from livekit.agents import AgentSession, JobContext, get_job_context
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.agents.voice import io
from livekit.plugins import openai

from . import _http
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
_JOIN_SECONDS = 5.0
_CLOSE_SECONDS = 10.0
_MAX_WORDS = 2000
_MAX_HISTORY = 400_000  # characters of history that go with an event
_MAX_TOOL = 4_000  # characters of a tool's arguments or result
_TAIL = 12  # items of the history that go with each event


def _call_of(ctx: JobContext | None, call: str | None) -> str:
    if call:
        return call
    if ctx is None:
        try:
            ctx = get_job_context()
        except RuntimeError:
            raise ValueError("call: is required outside a LiveKit job; it names the call") from None
    return ctx.job.id


class LLM(openai.LLM):
    """LiveKit's OpenAI plugin with Heardlog as the LLM of one call.

    Args:
        call: Names the call. Default: the ID of the LiveKit job.
        user: The person who calls, across calls: a ``user_id``. Default: the telephone number of
            the SIP participant, which `attach` finds.
        url: Base URL of the server. Default: ``HEARDLOG_URL``, or http://127.0.0.1:8080/v1.
        secret: Secret of a key. Default: ``HEARDLOG_SECRET``.
        model: The model. With "default" the server chooses it.
        kwargs: Other arguments of livekit.plugins.openai.LLM.
    """

    def __init__(
        self,
        *,
        call: str | None = None,
        user: str | None = None,
        url: str | None = None,
        secret: str | None = None,
        model: str = "default",
        **kwargs: Any,
    ) -> None:
        self._names = {**kwargs.pop("extra_headers", {}), "X-LiveKit-Job-ID": _call_of(None, call)}
        if user:
            self._names["X-Heardlog-User"] = user
        super().__init__(
            model=model,
            base_url=_http.base_url(url),
            api_key=_http.secret_of(secret) or "unused",
            extra_headers=self._names,
            **kwargs,
        )
        self._recorder: Recorder | None = None

    def chat(self, **kwargs: Any) -> openai.LLMStream:
        """As LiveKit's. The answer's ID is kept in the item that LiveKit makes of it."""
        stream = super().chat(**kwargs)
        speech = _speech.get(None) if _speech else None
        run, parse = stream._run, getattr(stream, "_parse_choice", None)
        named = False

        async def waiting() -> None:
            if self._recorder:
                await self._recorder._before_request(self._names)
            await run()

        def marked(id: str, *rest: Any) -> Any:
            nonlocal named
            chunk = parse(id, *rest)  # type: ignore[misc]
            if chunk and chunk.delta and not named:
                named = True
                # "livekit" is one of the keys that LiveKit sends back in later requests.
                chunk.delta.extra = {**(chunk.delta.extra or {}), "livekit": {"heardlog": id}}
                if self._recorder and speech is not None:
                    self._recorder._answers[speech.id] = id
            return chunk

        stream._run = waiting  # type: ignore[method-assign]
        if parse is not None:
            stream._parse_choice = marked
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
    transcript: str | None = None  # LiveKit's text, as far as it follows the sound
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
            "text": _text_of(self.words),
        }


class Recorder:
    """Reports a session to Heardlog until it is closed; see `attach`."""

    def __init__(
        self,
        session: AgentSession[Any],
        client: AsyncHeardlog,
        call: str,
        user: str | None,
        ctx: JobContext | None,
    ) -> None:
        self._session, self._client, self._ctx = session, client, ctx
        self._call, self._user = call, user
        self._reporter = Reporter(client, "livekit", {"X-LiveKit-Job-ID": call})
        self._joining: asyncio.Task[None] | None = None
        self._early: list[dict[str, Any]] = []  # events that wait for the agent
        self._answers: dict[str, str] = {}  # the newest answer of the model, by speech
        self._segments: list[_Playback] = []  # in the order of their playing
        self._open: _Playback | None = None
        self._watched: set[int] = set()
        self._heard: list[str] = []  # of the caller, and not committed yet
        session.on("conversation_item_added", self._item)
        session.on("user_input_transcribed", self._transcribed)
        session.on("speech_created", self._watch)
        session.on("agent_state_changed", self._watch)
        session.on("close", self._ended)
        self._watch()

    async def aclose(self) -> None:
        """Waits until everything has arrived, for at most ten seconds, and ends the reporting."""
        if self._joining is not None:
            await asyncio.wait([self._joining], timeout=_JOIN_SECONDS)
        await self._reporter.aclose(_CLOSE_SECONDS)
        await self._client.aclose()

    def _caller(self) -> str | None:
        if self._user is None and self._ctx is not None:
            for p in self._ctx.room.remote_participants.values():
                self._user = self._user or p.attributes.get("sip.phoneNumber") or None
        return self._user

    def _join(self) -> asyncio.Task[None]:
        """Starts the agent with the first event or request, when the caller is there."""
        if self._joining is None:
            self._joining = asyncio.create_task(self._start())
        return self._joining

    async def _start(self) -> None:
        name = "livekit.job:" + self._call
        keys = {name}
        with contextlib.suppress(RuntimeError):  # in a job LiveKit's plugins name it by themselves
            keys.add("livekit.job:" + get_job_context().job.id)
        try:
            await self._client.start(name, user_id=self._caller(), keys=sorted(keys), reuse=True)
        except Exception as error:  # the server may still start it with the first request
            log.warning("the call was not joined: %s", error)
        for event in self._early:
            self._reporter.send(event)
        self._early = []

    async def _before_request(self, headers: dict[str, str]) -> None:
        """Waits a moment for what was reported before, which the answer depends on."""
        if user := self._caller():
            headers.setdefault("X-Heardlog-User", user)
        join = self._join()
        if not join.done():
            await asyncio.wait([join], timeout=_JOIN_SECONDS)
        await self._reporter.flush(_FLUSH_SECONDS)

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
            self._open = _Playback(
                speech=speech.id if speech else "", handle=speech, started=time.time()
            )
            self._segments.append(self._open)
        s = self._open
        for w in frame.userdata.get(USERDATA_TIMED_TRANSCRIPT) or ():
            start, end = getattr(w, "start_time", None), getattr(w, "end_time", None)
            if isinstance(end, float):
                s.words.append(
                    {
                        "text": str(w),
                        "start": start if isinstance(start, float) else end,
                        "end": end,
                    }
                )
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
            s.transcript = ev.synchronized_transcript
            if s is self._open:
                self._open = None
            if s.interrupted and (answer := self._answers.get(s.speech)):
                # LiveKit commits a cut answer late; the next request must know of it.
                parts = [p for p in self._segments if p.speech == s.speech and p.finished]
                self._send(
                    {"type": "playback_finished", "response_id": answer, "playback": _joined(parts)}
                )
            return

    # Events of the session

    def _send(self, event: dict[str, Any]) -> None:
        event.setdefault("created_at", time.time())
        if self._join().done():
            self._reporter.send(event)
        else:
            self._early.append(event)

    def _item(self, ev: Any) -> None:
        item = ev.item
        if item.type != "message":
            return
        if item.role == "user":
            text = f" {item.text_content or ''} "
            self._heard = [t for t in self._heard if f" {t} " not in text]
        body = {
            "type": ev.type,
            "created_at": ev.created_at,
            "item": _dump(item),
            "chat_history": self._history(_TAIL),
        }
        speech = _speech.get(None) if _speech else None
        if item.role == "assistant" and speech is not None:
            parts = [s for s in self._segments if s.speech == speech.id and s.finished]
            if parts:
                body["playback"] = _joined(parts)
                said = "".join(p.transcript or "" for p in parts).strip()
                # Otherwise LiveKit has kept all of the text.
                body["playback"]["synchronized"] = said == (item.text_content or "").strip()
                body["playback"]["aligned"] = self._aligned()
                self._segments = [s for s in self._segments if s not in parts]
        self._send(body)

    def _aligned(self) -> bool:
        """Whether LiveKit's text follows the voice's own word times."""
        session = self._session
        voice = session.tts
        return bool(
            getattr(session.options, "use_tts_aligned_transcript", False)
            and voice is not None
            and voice.capabilities.aligned_transcript
        )

    def _history(self, newest: int) -> dict[str, Any]:
        kinds = ("message", "function_call", "function_call_output")
        items: list[dict[str, Any]] = []
        left = _MAX_HISTORY
        for item in reversed([i for i in self._session.history.items if i.type in kinds]):
            made = _dump(item)
            left -= len(str(made))
            if left < 0 or len(items) == newest:
                break
            items.insert(0, made)
        return {"items": items}

    def _transcribed(self, ev: Any) -> None:
        if ev.is_final and ev.transcript.strip():
            self._heard.append(ev.transcript.strip())

    def _ended(self, ev: Any) -> None:
        reason = getattr(ev.reason, "value", str(ev.reason))
        history = self._history(1000)
        if self._heard:  # LiveKit closes without committing the last words
            last = {"type": "message", "role": "user", "content": [" ".join(self._heard)]}
            history["items"].append(last)
        event = {"type": "close", "created_at": ev.created_at, "reason": reason}
        self._send({**event, "chat_history": history})


def _joined(parts: list[_Playback]) -> dict[str, Any]:
    """Makes one account of the segments of one answer."""
    if len(parts) == 1:
        return parts[0].body()
    out = parts[-1].body()
    out["started_at"] = parts[0].started
    out["playback_position"] = round(sum(p.position for p in parts), 3)
    out["duration"] = (
        round(sum(p.duration for p in parts), 3) if all(p.whole for p in parts) else None
    )
    words, before = [], 0.0
    for p in parts:
        words += [{**w, "start": w["start"] + before, "end": w["end"] + before} for w in p.words]
        before += p.duration if p.whole else p.position
    out["words"], out["text"] = words[:_MAX_WORDS], _text_of(words)
    return out


def _text_of(words: list[dict[str, Any]]) -> str:
    texts = [w["text"] for w in words]
    return ("" if any(t != t.strip() for t in texts) else " ").join(texts)


def _dump(item: Any) -> dict[str, Any]:
    """Returns an item without pictures and sound; long arguments and results are clipped."""
    exclude = {"hash", "content"} if item.type == "message" else {"hash"}
    out = item.model_dump(mode="json", exclude_none=True, exclude=exclude, warnings=False)
    if item.type == "message":
        parts = (c if isinstance(c, str) else getattr(c, "transcript", None) for c in item.content)
        out["content"] = [p for p in parts if isinstance(p, str)]
    elif len(out.get("arguments") or "") > _MAX_TOOL:
        out["arguments"] = "{}"
    elif len(out.get("output") or "") > _MAX_TOOL:
        out["output"] = out["output"][:_MAX_TOOL]
    return out


def attach(
    session: AgentSession[Any],
    ctx: JobContext | None = None,
    *,
    call: str | None = None,
    user: str | None = None,
    url: str | None = None,
    secret: str | None = None,
) -> Recorder:
    """Reports to Heardlog what a session plays, hears and commits. Call it before `session.start`.

    Reporting never breaks a session. Only a request for an answer waits for it: at most 0.3 s for
    what was reported before, and the first one at most 5 s for the start of the agent.

    Args:
        session: The session. Its LLM is usually an `LLM`, or a realtime model, of whose calls
            Heardlog then only keeps the record.
        ctx: The job's context. Everything that was reported has arrived before the job ends.
            Without it, await the result's ``aclose``.
        call: Names the call, as in `LLM`. Default: the ID of the job.
        user: The person who calls, as in `LLM`.
        url: Base URL of the server. Default: ``HEARDLOG_URL``, or http://127.0.0.1:8080/v1.
        secret: Secret of a key. Default: ``HEARDLOG_SECRET``.
    """
    client = AsyncHeardlog(url, secret)
    recorder = Recorder(session, client, _call_of(ctx, call), user, ctx)
    if isinstance(session.llm, LLM):
        session.llm._recorder = recorder
    if ctx is not None:
        ctx.add_shutdown_callback(recorder.aclose)
    return recorder
