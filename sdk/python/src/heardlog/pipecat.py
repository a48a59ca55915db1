"""Connects a Pipecat bot to Heardlog: an LLM service and one observer.

    llm = heardlog.pipecat.LLMService(args=args)
    worker = PipelineWorker(Pipeline([..., llm, ...]), observers=[llm.observer])

The service asks the LLM through Heardlog and names the call and its caller. The observer reports
what was played of each answer, and the end of the call. See docs/guides/pipecat.md.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import ssl
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
from openai import AsyncStream
from openai.types.chat import ChatCompletionChunk
from pipecat.frames.frames import (
    AggregatedTextFrame,
    Frame,
    FunctionCallCancelFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    StartFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    UserStartedSpeakingFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.openai.base_llm import OpenAILLMSettings
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.utils.types import is_given

from ._client import AsyncHeardlog
from ._pipecat_call import Answer, Call, identify
from ._pipecat_speech import LETTER_MS, Speech

__all__ = ["LLMService", "Observer"]

logger = logging.getLogger("heardlog")

# How much audio is played between two reports of an answer's progress.
PROGRESS_MS = 2000.0

# Whether a request is no turn of the call: a summary, for example.
_aside: contextvars.ContextVar[bool] = contextvars.ContextVar("heardlog_aside", default=False)

_ANSWER = "heardlog.answer"  # in the metadata of the frame that starts a response


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Returns the certificates to trust. To load them takes a tenth of a second: once is enough."""
    return httpx.create_ssl_context()


class LLMService(OpenAILLMService):
    """An LLM service whose requests go through Heardlog, which puts the call's memory in them.

    The call is named by the first of these that is known: ``session_id``; the call ID of the
    telephone provider, that of Daily's dial-in, or the session ID in ``args``; Daily's or LiveKit's
    room. Otherwise it gets a random name. The caller is ``caller``, or the telephone number in
    ``args``.

    Args:
        args: The runner's arguments of the bot.
        transport: The transport, if the bot is started without a runner.
        session_id: Names the call.
        caller: The person who calls, across calls: a ``user_id``.
        url: Base URL of the server. Default: ``HEARDLOG_URL``, or http://127.0.0.1:8080/v1.
        secret: Secret of a key. Default: ``HEARDLOG_SECRET``.
        properties: Properties of the join that starts the agent, such as ``labels``.
        settings: As for OpenAILLMService. Without a model, the server chooses it.
        kwargs: Other arguments of OpenAILLMService.
    """

    def __init__(
        self,
        *,
        args: Any = None,
        transport: Any = None,
        session_id: str | None = None,
        caller: str | None = None,
        url: str | None = None,
        secret: str | None = None,
        properties: dict[str, Any] | None = None,
        settings: OpenAILLMSettings | None = None,
        **kwargs: Any,
    ) -> None:
        named = identify(args, transport, session_id, caller)
        self._reports = httpx.AsyncClient(timeout=30.0, verify=_certificates())
        client = AsyncHeardlog(url, secret, http_client=self._reports)
        self.call = Call(client, named, properties)
        settings = settings or self.Settings()
        if not is_given(settings.model) or settings.model is None:
            settings.model = "default"
        headers = {**kwargs.pop("default_headers", {}), **self.call.headers}
        super().__init__(
            base_url=client.url,
            api_key=client._secret or "unused",
            default_headers=headers,
            settings=settings,
            **kwargs,
        )
        self.observer = Observer(self)
        self.answers: list[Answer] = []  # those of which not all is reported yet, and the newest
        self._answer: Answer | None = None

    @property
    def session_id(self) -> str:
        """The name of the call, as the server's key ``pipecat.session`` has it."""
        return self.call.session_id

    async def close(self) -> None:
        """Closes the connections of the reports. The observer does so at the end of the call."""
        await self._reports.aclose()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, StartFrame):
            self.call.join()
        await super().process_frame(frame, direction)

    async def push_frame(
        self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM
    ) -> None:
        if isinstance(frame, LLMFullResponseStartFrame):
            self._answer = frame.metadata[_ANSWER] = Answer()
            self.answers = [a for a in self.answers if not a.settled] + [self._answer]
        elif isinstance(frame, LLMTextFrame) and self._answer is not None:
            self._answer.text += frame.text
        await super().push_frame(frame, direction)

    async def get_chat_completions(self, context: LLMContext) -> AsyncStream[ChatCompletionChunk]:
        answer = self._answer or Answer()
        await self.call.joined()
        await self.call.asks(context)
        return _Watched(await super().get_chat_completions(context), answer)  # type: ignore[return-value]

    async def run_inference(self, *args: Any, **kwargs: Any) -> str | None:
        token = _aside.set(True)
        try:
            return await super().run_inference(*args, **kwargs)
        finally:
            _aside.reset(token)

    def build_chat_completion_params(self, params_from_context: Any) -> dict[str, Any]:
        params: dict[str, Any] = super().build_chat_completion_params(params_from_context)
        if _aside.get():
            params["extra_headers"] = {**params.get("extra_headers", {}), "X-Heardlog-Mode": "off"}
        return params


class _Watched:
    """A stream of chunks that notes the ID of the answer."""

    def __init__(self, stream: AsyncStream[ChatCompletionChunk], answer: Answer) -> None:
        self._stream, self._answer = stream, answer

    async def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        async for chunk in self._stream:
            if self._answer.id is None and chunk.id:
                self._answer.id = chunk.id
            yield chunk

    async def close(self) -> None:
        await self._stream.close()


class Observer(BaseObserver):
    """Reports what was played of each answer. It is ``llm.observer``."""

    def __init__(self, llm: LLMService) -> None:
        super().__init__()
        self._llm, self._call = llm, llm.call
        self._open: list[Answer] = []  # answers of which not all is known yet
        self._making: Answer | None = None  # the answer whose audio the TTS makes
        self._speeches: dict[str, Speech] = {}
        self._making_speech: Speech | None = None
        self._playing: Speech | None = None
        self._last_pts = 0
        self._letter_ms: float | None = None
        # The caller's words that the LLM has not been asked with, and when that turn began, ns.
        self._turn: list[tuple[int, str]] = []
        self._turn_began: int | None = None
        self._functions: set[str] = set()  # IDs of the calls that run
        self._closed = False

    async def on_push_frame(self, data: FramePushed) -> None:
        try:
            self._on_frame(data)
        except Exception:  # the call goes on, and so do the reports
            logger.exception("a frame of Pipecat could not be read: %s", data.frame)

    def _on_frame(self, data: FramePushed) -> None:
        frame, source = data.frame, data.source
        if isinstance(source, BaseOutputTransport):
            if data.direction is FrameDirection.DOWNSTREAM:
                self._on_played(frame)
        elif isinstance(source, TTSService):
            if data.direction is FrameDirection.DOWNSTREAM:
                self._on_made(frame, data.timestamp)
        elif source is self._llm:
            if isinstance(frame, LLMFullResponseStartFrame):
                self._open.append(frame.metadata[_ANSWER])
                self._turn, self._turn_began = [], None  # the LLM has been asked with these words
        if data.first_push:
            self._on_others(frame, data.timestamp)

    async def cleanup(self) -> None:
        """Reports the rest and the end of the call."""
        await super().cleanup()  # type: ignore[no-untyped-call]
        if self._closed:
            return
        self._closed = True
        # The worker drops the frames that an observer has not read yet.
        missed = [a for a in self._llm.answers if not a.settled and a not in self._open]
        self._open.extend(missed)
        for answer in list(self._open):
            self._settle(answer, "interrupted", by="api_leave")
        said = ""
        if self._turn_began is not None:  # a transcript may have begun the turn
            since = self._turn_began - 200_000_000
            said = " ".join(text for at, text in self._turn if at >= since)
        await self._call.end(said)
        await self._llm.close()

    # What the TTS makes

    def _on_made(self, frame: Frame, now: int) -> None:
        if isinstance(frame, LLMFullResponseStartFrame):
            self._making = frame.metadata.get(_ANSWER)
            return
        if isinstance(frame, LLMFullResponseEndFrame):
            if self._making:
                self._making.made = True
                self._finish(self._making)
            self._making = None
            return
        if not isinstance(
            frame, (AggregatedTextFrame, TTSStartedFrame, TTSAudioRawFrame, TTSStoppedFrame)
        ):
            return
        speech = self._speech(frame)
        if speech is None:
            return
        if not speech.owned and not isinstance(frame, TTSStartedFrame):
            self._own(speech, frame)
        if isinstance(frame, TTSStartedFrame):
            speech.interruptible = frame.interruptible
        elif isinstance(frame, TTSAudioRawFrame):
            if speech.base is None:
                speech.base = max(self._last_pts, now)
            speech.sound.add(frame.audio, frame.sample_rate, frame.num_channels)
        elif isinstance(frame, TTSStoppedFrame):
            speech.made = True
            self._last_pts = max([self._last_pts, *(pts for _, pts in speech.timings)])
            self._letter_ms = speech.letter_ms() or self._letter_ms
        elif isinstance(frame, TTSTextFrame):
            text = frame.raw_text or frame.text
            if frame.pts:
                speech.timings.append((text, frame.pts))
            else:
                speech.close(text)
        elif frame.will_be_spoken:
            speech.announce(frame.raw_text or frame.text)

    def _speech(self, frame: Any) -> Speech | None:
        """Returns the speech that a frame of the TTS belongs to."""
        id = getattr(frame, "context_id", None)
        if id is None:
            return self._making_speech
        speech = self._speeches.get(id)
        if speech is None:
            speech = self._speeches[id] = Speech(id)
        self._making_speech = speech
        return speech

    def _own(self, speech: Speech, frame: Frame) -> None:
        """Decides whose words a speech has, by its first text."""
        speech.owned = True
        answer = self._making
        if isinstance(frame, AggregatedTextFrame) and answer is not None:
            if not answer.has(frame.raw_text or frame.text):
                answer = None
        if answer is None:
            # Between an answer and the next, the next request has these words in their place.
            listed = bool(self._functions) or any(not a.own for a in self._open)
            answer = Answer(own=True, listed=listed, made=True)
            self._open.append(answer)
        answer.speeches.append(speech)

    # What the transport plays

    def _on_played(self, frame: Frame) -> None:
        if isinstance(frame, TTSAudioRawFrame):
            speech = self._playing
            if speech is not None:
                samples = len(frame.audio) / 2 / frame.num_channels
                speech.chunk = 1000 * samples / frame.sample_rate
                speech.played += speech.chunk
                self._progress(speech)
        elif isinstance(frame, TTSStartedFrame):
            self._playing = self._speeches.get(frame.context_id or "") or self._playing
            if self._playing:
                self._playing.started = True
        elif isinstance(frame, TTSStoppedFrame):
            speech = self._speeches.get(frame.context_id or "") or self._playing
            if speech is not None:
                speech.stopped = True
                for answer in list(self._open):
                    if speech in answer.speeches:
                        self._finish(answer)
        elif isinstance(frame, InterruptionFrame):
            self._last_pts = 0
            for answer in list(self._open):
                if all(s.interruptible for s in answer.speeches):
                    self._settle(answer, "interrupted")

    def _finish(self, answer: Answer) -> None:
        """Settles an answer that was played to its end."""
        if answer.made and all(s.stopped for s in answer.speeches):
            self._settle(answer, "completed")

    def _progress(self, speech: Speech) -> None:
        for answer in self._open:
            if speech in answer.speeches and answer.id:
                played = answer.played()
                if played - answer.reported >= PROGRESS_MS:
                    answer.reported = played
                    self._send(answer, "speaking")

    def _settle(self, answer: Answer, status: str, by: str | None = None) -> None:
        """Reports what was heard of an answer in the end."""
        if answer not in self._open:
            return
        self._open.remove(answer)
        answer.settled = True
        for speech in answer.speeches:
            self._speeches.pop(speech.id, None)
            if self._playing is speech:
                self._playing = None
                # The piece that is being written is played to its end, unless the call is over.
                speech.played += speech.chunk if by is None else speech.chunk / 2
        if answer.own:
            if not answer.listed or answer.played() > 0:
                self._call.speaks(*answer.heard(self._rate()), listed=answer.listed)
        elif answer.id and (answer.speeches or status == "interrupted"):
            self._send(answer, status, by)

    def _rate(self) -> float:
        return self._letter_ms or LETTER_MS

    def _send(self, answer: Answer, status: str, by: str | None = None) -> None:
        played = answer.played()
        words, estimated = answer.timed(self._rate())
        # Of the words to come, one is enough.
        ended = sum(1 for w in words if w["end_ms"] <= played)
        data = {
            "id": answer.id,
            "status": status,
            "words": words if status == "completed" else words[: ended + 1],
            "played_ms": round(played),
            "timestamp": round(time.time() * 1000),
        }
        if estimated:
            data["estimated"] = True
        if by:
            data["caused_by"] = by
        self._call.report({"type": "bot-speech", "data": data})

    # What the caller says, and what the bot looks up

    def _on_others(self, frame: Frame, now: int) -> None:
        if isinstance(frame, FunctionCallsStartedFrame):
            self._functions.update(f.tool_call_id for f in frame.function_calls)
        elif isinstance(frame, (FunctionCallResultFrame, FunctionCallCancelFrame)):
            self._functions.discard(frame.tool_call_id)
        elif isinstance(frame, UserStartedSpeakingFrame):
            self._turn_began = now
        elif isinstance(frame, TranscriptionFrame):
            self._turn.append((now, frame.text))
            del self._turn[:-64]
