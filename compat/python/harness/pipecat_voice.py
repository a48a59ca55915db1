"""Speech whose samples say which word they are of, and the ear that reads them.

Voice turns a text into audio in which each sample has the number of its word. Ear counts the
samples that were played. So what the caller heard is read from the audio itself, whatever the
framework believes.
"""

# ruff: noqa: RUF001 - punctuation of other scripts
from __future__ import annotations

import array
import random
import re
import unicodedata
from dataclasses import dataclass, field

RATE = 8000  # samples a second
LOUD = 2000  # a sample of word k is LOUD + k; 0 is silence


@dataclass
class Word:
    """One word of an utterance, or one character in scripts without spaces."""

    text: str
    utterance: int
    samples: int = 0
    played: int = 0
    first_at: float = 0.0  # when its first sample was played


@dataclass
class Utterance:
    """One text that the TTS was asked to speak."""

    text: str
    words: list[Word] = field(default_factory=list)


@dataclass
class Speech:
    """The audio of one utterance. starts has the time of each word, in seconds."""

    audio: bytes
    starts: list[float]
    words: list[str]


def has_no_spaces(text: str) -> bool:
    """Reports whether a text is of a script that is written without spaces."""
    letters = [c for c in text if c.isalpha()]
    if not letters:
        return False
    names = (unicodedata.name(c, "") for c in letters[:8])
    return all(n.startswith(("CJK", "HIRAGANA", "KATAKANA")) for n in names)


def split(text: str) -> list[str]:
    """Returns the words of a text. Punctuation belongs to the word before it."""
    if not has_no_spaces(text):
        return text.split()
    out: list[str] = []
    for c in text:
        if out and not (c.isalnum() or c.isspace()):
            out[-1] += c
        elif not c.isspace():
            out.append(c)
    return out


class Ear:
    """What was spoken to the caller of one call."""

    def __init__(self) -> None:
        self.utterances: list[Utterance] = []
        self.words: list[Word] = []
        self.played_ms = 0.0

    def play(self, audio: bytes, now: float) -> None:
        """Counts the samples of a piece of audio that was played."""
        samples = array.array("h", audio)
        self.played_ms += 1000 * len(samples) / RATE
        at, n = 0, len(samples)
        while at < n:
            k, end = samples[at], at + 1
            while end < n and samples[end] == k:
                end += 1
            if k:
                word = self.words[k - LOUD]
                if not word.played:
                    word.first_at = now
                word.played += end - at
            at = end


def _seconds(word: str, dense: bool) -> float:
    """Returns how long a word takes on average: by its syllables, and numbers as they are read."""
    digits = sum(1 for c in word if c.isdigit())
    plain = unicodedata.normalize("NFD", word.lower())
    syllables = len(re.findall(r"[aeiouyаеёиоуыэюя]+", plain))
    if not syllables and not digits:
        syllables = 1 if dense else (sum(1 for c in plain if c.isalpha()) + 1) // 2
    return 0.06 + (0.15 if dense else 0.17) * syllables + 0.26 * digits


class Voice:
    """A voice with its own speed. Words take as long as their syllables, more or less."""

    def __init__(self, ear: Ear, rng: random.Random) -> None:
        self.ear, self.rng = ear, rng
        self.speed = rng.uniform(0.8, 1.3)

    def speak(self, text: str) -> Speech:
        """Returns the speech of a text."""
        rng, ear = self.rng, self.ear
        utterance = Utterance(text)
        ear.utterances.append(utterance)
        samples = array.array("h", [0] * int(RATE * rng.uniform(0.03, 0.15)))
        starts: list[float] = []
        words = split(text)
        dense = has_no_spaces(text)
        for w in words:
            seconds = _seconds(w, dense) * min(2.0, rng.lognormvariate(0, 0.25))
            word = Word(w, len(ear.utterances) - 1, int(RATE * seconds / self.speed))
            starts.append(len(samples) / RATE)
            samples.extend([LOUD + len(ear.words)] * word.samples)
            ear.words.append(word)
            utterance.words.append(word)
            pause = 0.0
            if w[-1] in ".!?。！？؟":
                pause = rng.uniform(0.25, 0.5)
            elif w[-1] in ",;:，、،":
                pause = rng.uniform(0.1, 0.25)
            samples.extend([0] * int(RATE * pause / self.speed))
        assert LOUD + len(ear.words) < 32000
        return Speech(samples.tobytes(), starts, words)
