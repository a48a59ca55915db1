"""The ends of a Pipecat pipeline: a caller's script, voices, and a transport that plays."""

# ruff: noqa: RUF001 - punctuation of other scripts
from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable

from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    OutputAudioRawFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams

from .pipecat_voice import RATE, Ear, Speech, Voice, has_no_spaces

CHUNK_SECONDS = 0.2


class Player(BaseOutputTransport):
    """Plays audio by the loop's clock. What it played is what the caller heard."""

    def __init__(self, ear: Ear) -> None:
        params = TransportParams(
            audio_out_enabled=True,
            audio_out_sample_rate=RATE,
            audio_out_end_silence_secs=0,
            audio_out_10ms_chunks=8,  # half as many frames as by default
        )
        super().__init__(params)
        self.ear = ear
        self.connected = True
        self.notice: Callable[[Frame], None] = lambda frame: None

    async def push_frame(
        self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM
    ) -> None:
        if direction is FrameDirection.DOWNSTREAM:
            self.notice(frame)
        await super().push_frame(frame, direction)

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        if not self.connected:
            return False
        seconds = len(frame.audio) / 2 / RATE
        start = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(seconds)
        finally:  # a cancelled write has played a part
            spent = min(seconds, asyncio.get_running_loop().time() - start)
            self.ear.play(frame.audio[: 2 * round(spent * RATE)], start)
        return True


class Caller(FrameProcessor):
    """Stands for the input transport and the STT: it pushes frames as the script says."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)


class _TTS(TTSService):
    """What the voices share. First audio comes after latency, then speedup times real time."""

    def __init__(self, voice: Voice, rng: random.Random, **kwargs) -> None:
        settings = TTSSettings(model=None, voice="scripted", language=None)
        super().__init__(sample_rate=RATE, push_start_frame=True, settings=settings, **kwargs)
        self.voice, self.rng = voice, rng
        self.latency = rng.uniform(0.08, 0.3)
        self.speedup = rng.uniform(1.5, 8)

    async def chunks(self, speech: Speech) -> AsyncGenerator[tuple[float, bytes], None]:
        """Yields pieces of audio, each with its start in seconds, as fast as the TTS makes them."""
        await asyncio.sleep(self.latency)
        size = 2 * int(RATE * CHUNK_SECONDS)
        for at in range(0, len(speech.audio), size):
            piece = speech.audio[at : at + size]
            yield at / 2 / RATE, piece
            await asyncio.sleep(len(piece) / 2 / RATE / self.speedup)


class SentenceTTS(_TTS):
    """A TTS over HTTP without word times: run_tts returns when the sentence is made."""

    def __init__(self, voice: Voice, rng: random.Random) -> None:
        super().__init__(voice, rng, push_stop_frames=True)

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        async for _, piece in self.chunks(self.voice.speak(text)):
            yield TTSAudioRawFrame(piece, RATE, 1, context_id=context_id)


class SocketTTS(_TTS):
    """A TTS over a WebSocket: run_tts returns at once, and the audio comes later."""

    word_times = False

    def __init__(self, voice: Voice, rng: random.Random, **kwargs) -> None:
        kwargs = {"push_stop_frames": True, "pause_frame_processing": True} | kwargs
        super().__init__(voice, rng, **kwargs)
        self._texts: asyncio.Queue[tuple[str, str | None]] = asyncio.Queue()
        self._offset: dict[str, float] = {}
        self._maker: asyncio.Task | None = None

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        self._maker = self.create_task(self._make())

    async def stop(self, frame: EndFrame) -> None:
        await super().stop(frame)
        await self._end()

    async def cancel(self, frame: CancelFrame) -> None:
        await super().cancel(frame)
        await self._end()

    async def _end(self) -> None:
        if self._maker:
            await self.cancel_task(self._maker)
            self._maker = None

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        await self._texts.put((context_id, text))
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        if context_id:
            await self._texts.put((context_id, None))

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        self._offset.pop(context_id, None)

    async def _make(self) -> None:
        while True:
            context_id, text = await self._texts.get()
            if not self.audio_context_available(context_id):
                continue
            if text is None:
                self._offset.pop(context_id, None)
                if self.word_times:
                    stopped = TTSStoppedFrame(context_id=context_id)
                    await self.append_to_audio_context(context_id, stopped)
                await self.remove_audio_context(context_id)
                continue
            await self._make_one(context_id, text)

    async def _make_one(self, context_id: str, text: str) -> None:
        speech = self.voice.speak(text)
        base = self._offset.setdefault(context_id, 0.0)
        told = 0
        async for at, piece in self.chunks(speech):
            if not self.audio_context_available(context_id):
                return
            if self.word_times:
                end = at + CHUNK_SECONDS
                due = [i for i in range(told, len(speech.starts)) if speech.starts[i] < end]
                told += len(due)
                times = [(speech.words[i], base + speech.starts[i]) for i in due]
                dense = has_no_spaces(text)
                await self.add_word_timestamps(
                    times,
                    context_id,
                    includes_inter_frame_spaces=True if dense else None,
                    pre_merge_tokens=dense,
                )
            frame = TTSAudioRawFrame(piece, RATE, 1, context_id=context_id)
            await self.append_to_audio_context(context_id, frame)
        if context_id in self._offset:
            self._offset[context_id] = base + len(speech.audio) / 2 / RATE


class WordTTS(SocketTTS):
    """A TTS that sends the time of each word, like those of Cartesia and ElevenLabs."""

    word_times = True

    def __init__(self, voice: Voice, rng: random.Random) -> None:
        super().__init__(
            voice,
            rng,
            push_text_frames=False,
            push_stop_frames=False,
            pause_frame_processing=False,
        )


class TokenTTS(SocketTTS):
    """A TTS without word times that gets each piece of the LLM's text at once."""

    def __init__(self, voice: Voice, rng: random.Random) -> None:
        super().__init__(
            voice,
            rng,
            pause_frame_processing=False,
            text_aggregation_mode=TextAggregationMode.TOKEN,
        )
        self._pending: dict[str, str] = {}

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        whole = self._pending.pop(context_id, "") + text
        end = max((whole.rfind(c) for c in ".!?。！？؟"), default=-1) + 1
        dense = has_no_spaces(whole)
        if 0 < end and (end < len(whole) or dense):  # the next sentence has begun
            await self._texts.put((context_id, whole[:end]))
            whole = whole[end:]
        if whole:
            self._pending[context_id] = whole
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        if context_id and self._pending.get(context_id, "").strip():
            await self._texts.put((context_id, self._pending[context_id]))
        self._pending.pop(context_id or "", None)
        await super().flush_audio(context_id)

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        await super().on_audio_context_interrupted(context_id)
        self._pending.pop(context_id, None)


VOICES = {"words": WordTTS, "sentences": SentenceTTS, "socket": SocketTTS, "tokens": TokenTTS}
