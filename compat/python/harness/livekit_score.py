"""Compares what a server recorded of calls with what was played and said."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .cuts import Cuts

UNHEARD_WORDS = 3  # a prompt may have this many words that were not heard: a cut is never exact


def split(text: str) -> list[str]:
    """Returns the words of a text without punctuation; in scripts without spaces, characters."""
    out: list[str] = []
    for word in re.findall(r"[\w'\u0900-\u097f]+", text):
        if any("\u3040" <= c <= "\u9fff" for c in word):
            out.extend(word)
        else:
            out.append(word.lower())
    return out


@dataclass
class Spoken:
    """One answer: what was made of it, and what was played."""

    text: str
    heard: str
    sounded: bool  # some of it was played, perhaps less than a word
    prompted: bool  # it is an answer of the model, not of say()

    @property
    def played(self) -> int:
        return len(split(self.heard))

    @property
    def words(self) -> int:
        return len(split(self.text))


@dataclass
class Score(Cuts):
    calls: int = 0
    answers: int = 0
    cut: int = 0
    never: int = 0
    within: Counter[int] = field(
        default_factory=Counter
    )  # 1 and 3: cut answers within so many words
    ghosts: int = 0  # never played, but kept as heard
    lost: int = 0  # played, but not in the record, or without words
    doubled: int = 0
    says: int = 0
    says_lost: int = 0
    caller: int = 0
    caller_lost: int = 0
    prompts: int = 0
    prompts_unheard: int = 0  # with more than UNHEARD_WORDS unheard words
    prompts_missing: int = 0
    sure: int = 0
    sure_right: int = 0
    errors: int = 0
    faults: list[str] = field(default_factory=list)

    def row(self) -> dict[str, str]:
        return {
            "calls": f"{self.calls}",
            "answers (cut / never played)": f"{self.answers} ({self.cut}/{self.never})",
            "interrupted: precision / recall": f"{self.precision:.1%} / {self.recall:.1%}",
            "F1": f"{self.f1:.3f}",
            "false interruptions": f"{self.false}",
            "cut answers within one / three words": (
                f"{share(self.within[1], self.cut):.1%} / {share(self.within[3], self.cut):.1%}"
            ),
            "unheard answers kept": f"{self.ghosts}",
            "answers lost / doubled": f"{self.lost} / {self.doubled}",
            "say(): lost": f"{self.says_lost} of {self.says}",
            "caller's messages lost": f"{self.caller_lost} of {self.caller}",
            "prompts: with unheard words / with heard words missing": (
                f"{self.prompts_unheard} / {self.prompts_missing} of {self.prompts}"
            ),
            "confidence >= 90: right": (
                f"{self.sure_right} of {self.sure} ({share(self.sure_right, self.sure):.1%})"
            ),
            "failed calls": f"{self.errors}",
        }


def share(n: int, of: int) -> float:
    return n / of if of else 1.0


def table(rows: dict[str, Score]) -> str:
    """Returns a Markdown table with a column for each series."""
    names = list(rows)
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    made = [rows[n].row() for n in names]
    for label in made[0]:
        lines.append(f"| {label} | " + " | ".join(m[label] for m in made) + " |")
    return "\n".join(lines)


def apart(a: str, b: str) -> int:
    """By how many words two beginnings of a text differ."""
    return abs(len(split(a)) - len(split(b)))


def judge(
    score: Score, tag: str, answers: list[Spoken], caller: list[str], record: list[dict[str, Any]]
) -> None:
    """Adds one call. record are the messages of GET /v1/agents/{id}/messages."""
    score.calls += 1
    final = [m for m in record if m["state"] == "final"]
    spoken = [m for m in final if m["role"] == "assistant" and m["content"].strip()]

    def fault(kind: str, text: str) -> None:
        score.faults.append(f"{tag}: {kind}: {text}")

    pairs = pair(spoken, answers)
    for n, a in enumerate(answers):
        mine = pairs[n]
        score.answers += 1
        if not a.prompted:
            score.says += 1
        if a.played == 0:
            score.never += not a.sounded
            if mine and (not a.sounded or len(split(mine[0]["content"])) > 1):
                score.ghosts += 1
                fault("ghost", f"{mine[0]['content']!r} of {a.text!r} {mine[0].get('evidence')}")
            continue
        cut = a.played < a.words
        score.cut += cut
        if len(mine) > 1:
            score.doubled += len(mine) - 1
            fault("doubled", repr([m["content"] for m in mine]))
        if not mine and a.played <= 1 and any(begins(m, a) for m in record):
            # One word was heard at most, and none is in the record: right within a word.
            if cut:
                score.hits += 1
                score.within.update((1, 3))
            continue
        if not mine:
            if a.prompted:
                score.lost += 1
            else:
                score.says_lost += 1
            if cut:
                score.missed += 1
            other = [
                (m["state"], m["content"])
                for m in record
                if m["role"] == "assistant" and begins(m, a)
            ]
            fault("lost" if a.prompted else "say() lost", f"{a.heard!r} of {a.text!r}; {other}")
            continue
        m = mine[0]
        flagged = bool((m.get("metadata") or {}).get("interrupted"))
        off = apart(m["content"], a.heard)
        if cut and flagged:
            score.hits += 1
        elif cut:
            score.missed += 1
            fault("cut missed", f"heard {a.heard!r}, recorded {m['content']!r} {m.get('evidence')}")
        elif flagged:
            score.false += 1
            fault("false cut", f"{a.text!r}, recorded {m['content']!r} {m.get('evidence')}")
        if cut:
            for n in (1, 3):
                score.within[n] += off <= n
            if off > 3:
                fault(
                    "far off",
                    f"{off} words: heard {a.heard!r}, recorded {m['content']!r} {m['evidence']}",
                )
        if (m.get("evidence") or {}).get("confidence", 0) >= 90:
            score.sure += 1
            score.sure_right += off <= 1
    words = Counter(w for m in final if m["role"] == "user" for w in split(m["content"]))
    for text in caller:
        score.caller += 1
        need = Counter(split(text))
        if any(words[w] < n for w, n in need.items()):
            score.caller_lost += 1
            fault("caller's words lost", repr(text))
        words -= need


def pair(spoken: list[dict[str, Any]], answers: list[Spoken]) -> list[list[dict[str, Any]]]:
    """Returns the messages of the record that each answer became."""
    out: list[list[dict[str, Any]]] = [[] for _ in answers]
    left = []
    for m in spoken:
        whole = split(m.get("generated") or m["content"])
        same = [n for n, a in enumerate(answers) if split(a.text) == whole]
        if same:
            out[next((n for n in same if not out[n]), same[0])].append(m)
        else:
            left.append(m)
    for m in left:  # what is known of them begins like the answer
        like = [n for n, a in enumerate(answers) if begins(m, a)]
        own = (m.get("metadata") or {}).get("source") == "command"
        free = [n for n in like if not out[n] and answers[n].prompted != own]
        if free or like:
            near = free or like
            out[min(near, key=lambda n: apart(answers[n].heard, m["content"]))].append(m)
    return out


def begins(m: dict[str, Any], a: Spoken) -> bool:
    whole = split(m.get("generated") or m["content"])
    return bool(whole) and split(a.text)[: len(whole)] == whole


def judge_prompts(
    score: Score, tag: str, answers: list[Spoken], prompts: list[list[dict[str, Any]]]
) -> None:
    """Compares what the model was told of its earlier answers with what was heard of them."""
    for messages in prompts:
        told = [str(m.get("content") or "") for m in messages if m["role"] == "assistant"]
        if not told:
            continue
        score.prompts += 1
        unheard = missing = 0
        for text in told:
            mine = [
                a
                for a in answers
                if split(a.text)[: len(split(text))] == split(text) and split(text)
            ]
            if not mine:
                continue
            best = min(mine, key=lambda a: abs(a.played - len(split(text))))
            unheard = max(unheard, len(split(text)) - best.played)
            missing = max(missing, best.played - len(split(text)))
        if unheard > UNHEARD_WORDS:
            score.prompts_unheard += 1
            score.faults.append(f"{tag}: prompt with {unheard} unheard words: {told!r}")
        score.prompts_missing += missing > UNHEARD_WORDS
