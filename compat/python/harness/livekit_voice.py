"""The outside of a LiveKit call, by script: ears, a voice, and a loudspeaker that keeps its sound.

Nothing here knows Heardlog. The loudspeaker plays by its own clock, so what it kept is the truth
that records are compared with.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

from livekit import rtc
from livekit.agents import stt, tts, vad
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions, TimedString
from livekit.agents.voice import io

RATE = 8000  # samples a second
FRAME_MS = 100


@dataclass
class Utterance:
    """One stream of text that the voice has spoken, and how much of it was played."""

    number: int
    text: str = ""
    ends: list[tuple[int, float]] = field(
        default_factory=list
    )  # characters, seconds: ends of words
    seconds: float = 0.0
    played: float = 0.0
    first: float = 0.0  # Unix time of the first sound

    def heard(self) -> str:
        """Returns the words that were played to their end."""
        at = 0
        for chars, end in self.ends:
            if end <= self.played + 0.005:
                at = chars
        return self.text[:at]


def words_of(text: str) -> list[str]:
    """Splits a text into words with the space after them; in scripts without spaces, characters."""
    out: list[str] = []
    word = ""
    for c in text:
        wide = "\u3040" <= c <= "\u9fff"
        if word and (wide or (word[-1].isspace() and not c.isspace())):
            out.append(word)
            word = ""
        word += c
    if word:
        out.append(word)
    return out


def is_wide(text: str) -> bool:
    return any("\u3040" <= c <= "\u9fff" for c in text)


class Voice(tts.TTS):
    """Speaks words at the rate of one person. Each sample holds the number of its utterance."""

    def __init__(self, rnd: random.Random, *, word_times: bool) -> None:
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=word_times),
            sample_rate=RATE,
            num_channels=1,
        )
        self.word_times = word_times
        self.rnd = rnd
        self.pace = rnd.lognormvariate(0, 0.15)
        self.utterances: list[Utterance] = []

    def sound(self, number: int, samples: int) -> bytes:
        """Returns the sound of a word of an utterance."""
        return number.to_bytes(2, "little") * samples

    def seconds_of(self, word: str) -> float:
        letters = len(word.strip())
        seconds = 0.16 if is_wide(word) else 0.06 + 0.062 * letters
        seconds *= self.pace * self.rnd.lognormvariate(0, 0.12)
        if word.strip().endswith((".", "!", "?", "。", "？")):  # noqa: RUF001
            seconds += 0.25
        return seconds

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> Any:
        raise NotImplementedError

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> VoiceStream:
        return VoiceStream(self, conn_options)


class VoiceStream(tts.SynthesizeStream):
    def __init__(self, voice: Voice, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=voice, conn_options=conn_options)
        self._voice = voice

    async def _run(self, output: tts.AudioEmitter) -> None:
        voice = self._voice
        u = Utterance(number=len(voice.utterances) + 1)
        output.initialize(
            request_id=str(u.number),
            sample_rate=RATE,
            num_channels=1,
            mime_type="audio/pcm",
            stream=True,
            frame_size_ms=FRAME_MS,
        )
        pending = ""
        begun = False

        def speak(word: str) -> None:
            nonlocal begun
            if not begun:
                begun = True
                voice.utterances.append(u)
                u.number = len(voice.utterances)
                output.start_segment(segment_id=str(u.number))
            start = u.seconds
            samples = int(voice.seconds_of(word) * RATE)
            u.text += word
            u.seconds += samples / RATE
            u.ends.append((len(u.text.rstrip()), u.seconds))
            if voice.word_times:
                output.push_timed_transcript(
                    TimedString(word, start_time=start, end_time=u.seconds)
                )
            output.push(voice.sound(u.number, samples))

        async for data in self._input_ch:
            if isinstance(data, self._FlushSentinel):
                continue
            pending += data
            *whole, pending = words_of(pending) or [""]
            if whole and not begun:
                await asyncio.sleep(voice.rnd.uniform(0.05, 0.2))
            for word in whole:
                speak(word)
                await asyncio.sleep(0.02)
        if pending.strip():
            if not begun:
                await asyncio.sleep(voice.rnd.uniform(0.05, 0.2))
            speak(pending)
        if begun:
            output.end_segment()


class Loudspeaker(io.AudioOutput):
    """Plays by its own clock and notes in each utterance how much of it was played."""

    def __init__(self, voice: Voice) -> None:
        super().__init__(
            label="loudspeaker",
            capabilities=io.AudioOutputCapabilities(pause=True),
            sample_rate=RATE,
        )
        self.voice = voice
        self._queue: list[tuple[int, float]] = []  # utterance, seconds; of the current segment
        self._pushed = 0.0
        self._position = 0.0
        self._anchor: float | None = None  # when the position was true; None while paused
        self._paused = False
        self._flushed = False
        self._ending: asyncio.TimerHandle | None = None
        self._free = asyncio.Event()  # set when a segment has been played
        self.sounding = asyncio.Event()  # set while sound comes out

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        if self._flushed and self._pushed:  # the segment before is still being played
            await self._free.wait()
        await super().capture_frame(frame)
        if self._pushed == 0.0:
            self._position, self._flushed = 0.0, False
            self._anchor = None if self._paused else time.monotonic()
            if not self._paused:
                self.sounding.set()
            self.on_playback_started(created_at=time.time())
        self._advance()
        number = int.from_bytes(bytes(frame.data.cast("B")[:2]), "little")
        u = self.voice.utterances[number - 1]
        u.first = u.first or time.time()
        self._queue.append((number, frame.duration))
        self._pushed += frame.duration

    def _advance(self) -> None:
        if self._anchor is not None:
            now = time.monotonic()
            self._position = min(self._pushed, self._position + now - self._anchor)
            self._anchor = now

    def flush(self) -> None:
        super().flush()
        if self._pushed:
            self._flushed = True
            self._free.clear()
            self._schedule()

    def _schedule(self) -> None:
        self._advance()
        if self._ending:
            self._ending.cancel()
            self._ending = None
        if self._flushed and self._anchor is not None:
            self._ending = asyncio.get_running_loop().call_later(
                max(0.0, self._pushed - self._position), self._ended
            )

    def _ended(self) -> None:
        self._position = self._pushed
        self._finish(interrupted=False)

    def clear_buffer(self) -> None:
        self._paused = False
        if self._pushed:
            self._advance()
            self._finish(interrupted=self._position < self._pushed or not self._flushed)

    def pause(self) -> None:
        super().pause()
        self._advance()
        self._paused, self._anchor = True, None
        self.sounding.clear()
        self._schedule()

    def resume(self) -> None:
        super().resume()
        if self._paused:
            self._paused = False
            if self._pushed:
                self._anchor = time.monotonic()
                self.sounding.set()
                self._schedule()

    def _finish(self, *, interrupted: bool) -> None:
        if self._ending:
            self._ending.cancel()
            self._ending = None
        position, left = self._position, self._position
        for number, seconds in self._queue:
            part = min(seconds, left)
            self.voice.utterances[number - 1].played += part
            left -= part
        self._queue, self._pushed, self._position, self._anchor, self._flushed = (
            [],
            0.0,
            0.0,
            None,
            False,
        )
        self.sounding.clear()
        self._free.set()
        self.on_playback_finished(playback_position=position, interrupted=interrupted)

    def settle(self) -> None:
        """Ends what is still playing, as a hang-up does for the caller."""
        self.clear_buffer()


class Microphone(io.AudioInput):
    """Silence; what the caller says comes from the script."""

    def __init__(self) -> None:
        super().__init__(label="microphone")
        self._frame = rtc.AudioFrame(b"\0\0" * (RATE // 10), RATE, 1, RATE // 10)

    async def __anext__(self) -> rtc.AudioFrame:
        await asyncio.sleep(0.1)
        return self._frame


class Ears(vad.VAD):
    """Voice activity and speech recognition of one caller, by script."""

    def __init__(self) -> None:
        super().__init__(capabilities=vad.VADCapabilities(update_interval=0.05))
        self.streams: list[EarsStream] = []
        self.recognizer = Recognizer()

    def stream(self) -> EarsStream:
        s = EarsStream(self)
        self.streams.append(s)
        return s

    def _vad(self, kind: vad.VADEventType, speech: float, silence: float = 0.0) -> None:
        ev = vad.VADEvent(
            type=kind,
            samples_index=0,
            timestamp=time.time(),
            speech_duration=speech,
            silence_duration=silence,
            raw_accumulated_speech=speech,
            raw_accumulated_silence=silence,
            probability=1.0,
            speaking=silence == 0.0,
        )
        for s in self.streams:
            s.say(ev)

    async def hear(self, text: str, seconds: float, *, late: float = 0.15, parts: int = 1) -> None:
        """Hears someone speak for some seconds; a text of "" is noise that no words follow."""
        self._vad(vad.VADEventType.START_OF_SPEECH, 0.1)
        began = time.monotonic()
        interim = False
        words = text.split(" ")
        said = 0
        while (spoken := time.monotonic() - began) < seconds:
            await asyncio.sleep(0.1)
            self._vad(vad.VADEventType.INFERENCE_DONE, spoken + 0.1)
            if text and not interim and spoken > seconds / 2:
                interim = True
                self.recognizer.say(
                    stt.SpeechEventType.INTERIM_TRANSCRIPT,
                    " ".join(words[: max(1, len(words) // 2)]),
                )
            if parts > 1 and said == 0 and spoken > seconds * 0.6:
                said = max(1, len(words) // 2)
                self.recognizer.say(stt.SpeechEventType.FINAL_TRANSCRIPT, " ".join(words[:said]))
        self._vad(vad.VADEventType.END_OF_SPEECH, seconds, 0.2)
        if text:
            await asyncio.sleep(late)
            if rest := " ".join(words[said:]):
                self.recognizer.say(stt.SpeechEventType.FINAL_TRANSCRIPT, rest)


class EarsStream(vad.VADStream):
    def __init__(self, ears: Ears) -> None:
        super().__init__(ears)

    def say(self, ev: vad.VADEvent) -> None:
        if not self._event_ch.closed:
            self._event_ch.send_nowait(ev)

    async def _main_task(self) -> None:
        async for _ in self._input_ch:
            pass


class Recognizer(stt.STT):
    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=True))
        self.streams: list[RecognizerStream] = []

    def say(self, kind: stt.SpeechEventType, text: str) -> None:
        ev = stt.SpeechEvent(
            type=kind, alternatives=[stt.SpeechData(language="en", text=text, confidence=1.0)]
        )
        for s in self.streams:
            s.say(ev)

    async def _recognize_impl(self, *args: Any, **kwargs: Any) -> stt.SpeechEvent:
        raise NotImplementedError

    def stream(
        self, *, language: Any = None, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> RecognizerStream:
        s = RecognizerStream(self, conn_options)
        self.streams.append(s)
        return s


class RecognizerStream(stt.RecognizeStream):
    def __init__(self, recognizer: Recognizer, conn_options: APIConnectOptions) -> None:
        super().__init__(stt=recognizer, conn_options=conn_options)

    def say(self, ev: stt.SpeechEvent) -> None:
        if not self._event_ch.closed:
            self._event_ch.send_nowait(ev)

    async def _run(self) -> None:
        async for _ in self._input_ch:
            pass
