"""What is known of the audio of an answer: which words it has, when, and how much was played."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FRAME_MS = 10  # the resolution in which sound and silence are told apart
PAUSE_MS = 80  # shorter silences are within words

# How long a slow voice takes for a letter, where nothing was heard of it yet: no word is to count
# as heard that was not.
LETTER_MS = 80.0
# How many letters a word counts for besides its own.
WORD_LETTERS = 1.6
# How much the length of a word differs from the estimate, as a part of the mean, twice.
SPREAD = 0.35
# How much the voice may be slower than before, as a part.
DOUBT = 0.05
DENSE_LETTERS = 3.3  # a character of a script that is written without spaces
ABJAD_LETTERS = 1.5  # a letter of a script that leaves vowels out


def is_dense(c: str) -> bool:
    """Reports whether a character belongs to a script that is written without spaces."""
    name = unicodedata.name(c, "")
    return name.startswith(("CJK UNIFIED", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER"))


def words_of(text: str) -> list[str]:
    """Returns the words of a text; in scripts without spaces, its characters."""
    out: list[str] = []
    for chunk in text.split():
        if not any(is_dense(c) for c in chunk):
            out.append(chunk)
            continue
        run = ""
        for c in chunk:
            if is_dense(c):
                if run:
                    out.append(run)
                out.append(c)
                run = ""
            elif c.isalnum() or not out:
                run += c
            elif run:
                run += c
            else:
                out[-1] += c
        if run:
            out.append(run)
    return out


def weight(word: str) -> float:
    """Returns about how long a word takes to say, in letters."""
    letters = sum(1 for c in word if c.isalnum())
    if not letters:
        return 0.0
    if any(is_dense(c) for c in word):
        return DENSE_LETTERS * letters
    if any(unicodedata.name(c, "").startswith(("ARABIC LETTER", "HEBREW LETTER")) for c in word):
        return ABJAD_LETTERS * letters + WORD_LETTERS
    # Digits are said as words.
    return letters + sum(2 for c in word if c.isdigit()) + WORD_LETTERS


class Sound:
    """Which parts of a stretch of audio are silent."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._levels: list[int] = []
        self._rest = np.zeros(0, dtype=np.int16)
        self._loudest = 0

    def add(self, pcm: bytes, rate: int, channels: int) -> None:
        """Adds 16-bit audio."""
        samples = np.frombuffer(pcm[: len(pcm) // 2 * 2], dtype=np.int16)
        if channels > 1:
            samples = samples[::channels]
        if not len(samples) or rate <= 0:
            return
        self.ms += 1000 * len(samples) / rate
        samples = np.concatenate([self._rest, samples])
        size = max(1, rate * FRAME_MS // 1000)
        n = len(samples) // size
        self._rest = samples[n * size :]
        if n:
            frames = samples[: n * size].reshape(n, size).astype(np.int32)
            peaks = np.abs(frames).max(axis=1)
            self._loudest = max(self._loudest, int(peaks.max()))
            self._levels.extend(peaks.tolist())

    def runs(self, start: float, end: float) -> list[tuple[float, float]]:
        """Returns the stretches with sound between two times, in ms. Short silences are sound."""
        floor = max(60, self._loudest // 40)
        out: list[tuple[float, float]] = []
        first, last = int(start / FRAME_MS), int(end / FRAME_MS)
        for i in range(first, min(last, len(self._levels))):
            if self._levels[i] <= floor:
                continue
            at = float(i * FRAME_MS)
            if out and at - out[-1][1] < PAUSE_MS:
                out[-1] = (out[-1][0], at + FRAME_MS)
            else:
                out.append((at, at + FRAME_MS))
        return out


@dataclass
class Stretch:
    """A word with its time, or a sentence."""

    text: str
    start: float  # ms from the start of the audio
    end: float | None = None  # None is not known


@dataclass
class Speech:
    """One audio context of a TTS: one answer, or a part of it, or words of the bot's own."""

    id: str
    owned: bool = False  # it is known which answer it belongs to
    interruptible: bool = True
    sound: Sound = field(default_factory=Sound)
    timings: list[tuple[str, int]] = field(default_factory=list)  # words of the TTS, and when, ns
    sentences: list[Stretch] = field(default_factory=list)  # as announced
    made: bool = False  # the TTS has sent all of it
    started: bool = False  # it is being played
    stopped: bool = False  # it has been played
    played: float = 0.0  # ms
    chunk: float = 0.0  # ms of the piece that was played last
    base: int | None = None  # the clock's time at the start of its audio, ns
    open: Stretch | None = None  # the sentence that was announced last
    mixed: bool = False  # sentences are announced ahead of their audio

    def announce(self, text: str) -> None:
        """Notes a sentence that the TTS begins to make."""
        self.open = Stretch(text, self.sound.ms)
        self.sentences.append(self.open)

    def close(self, text: str) -> None:
        """Notes that the TTS says it has made a sentence."""
        if self.open is None:
            self.announce(text)
        assert self.open is not None
        least = 0.3 * LETTER_MS * sum(weight(w) for w in words_of(text))
        if self.sound.ms - self.open.start < least:
            self.mixed = True  # its audio comes later
        self.open.text = text
        self.open.end = self.sound.ms
        self.open = None

    def text(self) -> str:
        """Returns the text, as far as it is known."""
        parts = [s.text for s in self.sentences] or [text for text, _ in self.timings]
        return " ".join(p.strip() for p in parts if p.strip())

    def timed(self, letter_ms: float) -> tuple[list[dict[str, Any]], bool]:
        """Returns the words with their times, and whether these are estimated.

        Args:
            letter_ms: How long the voice takes for a letter, for sentences that are not made yet.
        """
        if self.timings:
            return self._exact(letter_ms), False
        out: list[dict[str, Any]] = []
        if self.mixed:
            text = self.text()
            out = self._spread(text, 0.0, self.sound.ms if self.made else None, letter_ms)
        else:
            for s in self.sentences:
                out.extend(self._spread(s.text, s.start, s.end, letter_ms))
        return out, True

    def letter_ms(self) -> float | None:
        """Returns how long the voice takes for a letter in this speech, or None."""
        ms = letters = 0.0
        parts = [] if self.mixed else [s for s in self.sentences if s.end is not None]
        if self.mixed and self.made:
            parts = [Stretch(self.text(), 0.0, self.sound.ms)]
        for s in parts:
            assert s.end is not None
            ms += sum(b - a for a, b in self.sound.runs(s.start, s.end))
            letters += sum(weight(w) for w in words_of(s.text))
        return ms / letters if letters > 8 and ms > 300 else None

    def _exact(self, letter_ms: float) -> list[dict[str, Any]]:
        """Gives each word that the TTS timed an end: the last sound before the next word."""
        out: list[dict[str, Any]] = []
        base = self.base or 0
        for i, (text, pts) in enumerate(self.timings):
            last = i + 1 == len(self.timings)
            start = (pts - base) / 1e6
            until = self.sound.ms if last else (self.timings[i + 1][1] - base) / 1e6
            if last and not self.made:
                until = max(until, start + letter_ms * weight(text))
            elif sounds := self.sound.runs(start, until):
                until = sounds[-1][1]
            out.append(_word(text, start, until))
        return out

    def _spread(
        self, text: str, start: float, end: float | None, letter_ms: float
    ) -> list[dict[str, Any]]:
        """Spreads words over the sound between two times, each by its letters.

        If the sentence has as many pauses as punctuation marks, the words between two marks are
        spread over the sound between two pauses.
        """
        words = words_of(text)
        runs = self.sound.runs(start, end if end is not None else self.sound.ms)
        if not runs or not words:
            begin = start if not runs else runs[0][0]
            runs = [(begin, begin)]
        if end is None:  # the rest of it is still to come
            total = letter_ms * sum(weight(w) for w in words)
            have = sum(b - a for a, b in runs)
            if total > have:
                runs[-1] = (runs[-1][0], runs[-1][1] + total - have)
        groups: list[list[str]] = [[]]
        for i, w in enumerate(words):
            groups[-1].append(w)
            if not w[-1].isalnum() and i + 1 < len(words):
                groups.append([])
        if end is not None and len(groups) == len(runs):
            return [x for g, r in zip(groups, runs, strict=True) for x in _fill(g, [r], True)]
        return _fill(words, runs, end is not None)


def _fill(words: list[str], runs: list[tuple[float, float]], whole: bool) -> list[dict[str, Any]]:
    """Spreads words over stretches of sound, by their letters.

    A word ends as late as it may, so that no word counts as heard that was not. If whole, the sound
    is all that there is of the words: the last one ends with it.
    """
    total = sum(weight(w) for w in words) or 1.0
    length = sum(b - a for a, b in runs)
    mean = length / max(1, len(words))
    out, done = [], 0.0
    for i, w in enumerate(words):
        begin = _at(runs, length * done / total, after=True)
        done += weight(w)
        n = i + 1
        late = SPREAD * mean * math.sqrt(n * (len(words) - n) / len(words) if whole else n)
        end = length * done / total * (1 if whole else 1 + DOUBT) + late
        out.append(_word(w, begin, _at(runs, min(end, length) if whole else end, after=False)))
    return out


def _at(runs: list[tuple[float, float]], ms: float, after: bool) -> float:
    """Returns the time at which so much sound has been heard.

    Between two stretches it is the end of the first or, with after, the start of the second.
    """
    for a, b in runs[:-1]:
        if ms < b - a or (ms == b - a and not after):
            return a + ms
        ms -= b - a
    a, _ = runs[-1]
    return a + max(ms, 0.0)


def _word(text: str, start: float, end: float) -> dict[str, Any]:
    return {"text": text, "start_ms": round(start), "end_ms": round(max(start, end))}
