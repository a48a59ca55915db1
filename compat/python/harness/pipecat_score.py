"""Compares what the server remembers of a call with what its caller heard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .cuts import Cuts
from .pipecat_calls import Call
from .pipecat_upstream import Request
from .pipecat_voice import Word, split


def plain(text: str) -> str:
    """Returns the letters and digits of a text."""
    return re.sub(r"[\W_]+", "", text).lower()


def count(text: str) -> int:
    """Returns the number of words of a text that have letters or digits."""
    return sum(1 for w in split(text) if plain(w))


@dataclass
class Truth:
    """What really happened to one answer."""

    request: Request
    words: list[Word]  # of its spoken part, in order
    total: int  # words of the whole answer

    def heard(self, before: float | None = None) -> int:
        """Returns how many words were heard: half of each, or more."""
        n = 0
        for w in self.words:
            if 2 * w.played < w.samples or (before is not None and w.first_at > before):
                break
            n += plain(w.text) != ""
        return n

    def begun(self, before: float) -> int:
        """Returns how many words had begun by a time."""
        return sum(1 for w in self.words if w.played and w.first_at <= before and plain(w.text))

    @property
    def cut(self) -> bool:
        return self.heard() < self.total

    @property
    def at_the_edge(self) -> bool:
        """Reports whether the last word was being spoken when the answer was cut."""
        if len(self.words) == 0:
            return False
        last = [w for w in self.words if plain(w.text)][-1]
        whole = len([w for w in self.words if plain(w.text)]) == self.total
        return whole and 0 < last.played < last.samples


def truths(call: Call) -> list[Truth]:
    """Returns the truth of each answer of a call, in order."""
    out: list[Truth] = []
    used: set[int] = set()
    for r in call.brain.requests:
        if not r.stream or r.tool or not r.text:
            continue
        words: list[Word] = []
        whole = plain(r.text)
        for i, u in enumerate(call.ear.utterances):
            if i not in used and plain(u.text) and plain(u.text) in whole:
                used.add(i)
                words.extend(u.words)
        out.append(Truth(r, words, count(r.text)))
    return out


@dataclass
class Score(Cuts):
    """The figures of a set of calls."""

    calls: int = 0
    answers: int = 0
    cut: int = 0
    edge: int = 0  # cut in the last word: neither right nor wrong
    near: Counter[int] = field(default_factory=Counter)  # by how many words the text is off
    spoken: int = 0
    own: int = 0  # what the bot said without the LLM, such as greetings
    own_right: int = 0
    ghosts: int = 0
    lost: int = 0
    doubled: int = 0
    user_lost: int = 0
    user_doubled: int = 0
    users: int = 0
    prompts: int = 0
    unheard: int = 0  # prompts that contain unheard words
    missing: int = 0  # prompts that lack words heard
    sure: int = 0  # answers with a confidence of 90 or more
    sure_right: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pipecat: Counter[str] = field(default_factory=Counter)  # what Pipecat's own list has wrong

    def add(self, other: Score) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def within(self, words: int) -> float:
        """Returns the share of heard texts that are right within so many words."""
        return sum(n for off, n in self.near.items() if off <= words) / max(1, self.spoken)


def score(call: Call, ledger: list[dict[str, Any]]) -> Score:
    """Returns the figures of one call, given its messages as GET …/messages has them."""
    s = Score(calls=1)
    where = f"call {call.plan.number} ({call.plan.language}, {call.plan.voice})"
    if call.failure:
        s.failures.append(f"{where}: {call.failure}")
    answers = truths(call)
    final = [m for m in ledger if m["role"] == "assistant" and m.get("state", "final") == "final"]
    owner: dict[int, list[dict[str, Any]]] = {i: [] for i in range(len(answers))}
    for m in final:
        whole = generated(m)
        if not plain(whole):
            continue
        found = [
            i
            for i, t in enumerate(answers)
            if plain(t.request.text).startswith(plain(whole))
            or plain(whole) in plain(t.request.text)
        ]
        if found:
            owner[found[-1] if len(found) == 1 else _best(found, owner)].append(m)
        elif not _is_own(call, whole) and plain(text_of(m)):
            s.ghosts += 1
            s.notes.append(f"{where}: no answer is {whole!r}")
    for i, t in enumerate(answers):
        _answer(s, where, t, owner[i])
    _own(s, where, call, final)
    _users(s, where, call, ledger)
    _prompts(s, where, call, answers)
    _pipecat(s, call, answers)
    return s


def _best(found: list[int], owner: dict[int, list[dict[str, Any]]]) -> int:
    return next((i for i in found if not owner[i]), found[-1])


def _is_own(call: Call, text: str) -> bool:
    """Reports whether a text is the bot's own, such as a greeting."""
    return any(
        plain(text) in plain(u.text) or plain(u.text) in plain(text) for u in call.ear.utterances
    )


def generated(m: dict[str, Any]) -> str:
    return (m.get("metadata") or {}).get("original") or text_of(m)


def text_of(m: dict[str, Any]) -> str:
    content = m.get("content")
    return content if isinstance(content, str) else ""


def _answer(s: Score, where: str, t: Truth, stored: list[dict[str, Any]]) -> None:
    heard = t.heard()
    kept = [m for m in stored if plain(text_of(m))]
    any_played = any(w.played for w in t.words)
    if not any_played:
        if kept:
            s.ghosts += 1
            s.notes.append(f"{where}: never played, but stored: {text_of(kept[0])!r}")
        return
    s.answers += 1
    s.cut += t.cut
    if not stored:
        if heard:
            s.lost += 1
            s.notes.append(f"{where}: lost {t.request.text!r}, {heard} words heard")
        return
    if len(kept) > 1:
        s.doubled += 1
        s.notes.append(f"{where}: {len(kept)} times {t.request.text!r}")
    m = stored[0]
    interrupted = bool((m.get("metadata") or {}).get("interrupted"))
    stored_as = f"{text_of(m)!r} {m.get('evidence')}"
    if t.at_the_edge:
        s.edge += 1
    elif interrupted and t.cut:
        s.hits += 1
    elif interrupted:
        s.false += 1
        s.notes.append(f"{where}: heard in full: {t.request.text!r}, stored {stored_as}")
    elif t.cut:
        s.missed += 1
        s.notes.append(f"{where}: {heard} of {t.total} words heard, stored whole: {stored_as}")
    off = abs(count(text_of(m)) - heard)
    s.spoken += 1
    s.near[off] += 1
    confidence = (m.get("evidence") or {}).get("confidence") or 0
    if confidence >= 90:
        s.sure += 1
        s.sure_right += off <= 1
    if off > 1:
        s.notes.append(f"{where}: off by {off}: {heard} of {t.total} heard, stored {stored_as}")


def _own(s: Score, where: str, call: Call, final: list[dict[str, Any]]) -> None:
    """Rates the greeting and the like: they are right if the ledger has what was heard of them."""
    for text in call.own:
        words = [w for u in call.ear.utterances if plain(u.text) == plain(text) for w in u.words]
        heard = Truth(Request("", 0, []), words, count(text)).heard()
        if not heard:
            continue
        s.own += 1
        stored = [n for m in final if (n := _shared(text_of(m), text)) > 0]
        if len(stored) < 2 and abs(sum(stored) - heard) <= 3:
            s.own_right += 1
        else:
            s.notes.append(f"{where}: {heard} words heard of {text!r}, stored {stored}")


def _shared(stored: str, text: str) -> int:
    """Returns how many words of a text a message begins or ends with."""
    words = [plain(w) for w in split(text) if plain(w)]
    return max(
        (
            n
            for n in range(1, len(words) + 1)
            if (part := "".join(words[:n])) and (n > 2 or plain(stored) == part)
            if plain(stored).startswith(part) or plain(stored).endswith(part)
        ),
        default=0,
    )


def _users(s: Score, where: str, call: Call, ledger: list[dict[str, Any]]) -> None:
    users = [
        plain(text_of(m))
        for m in ledger
        if m["role"] == "user" and m.get("state", "final") == "final"
    ]
    for text in call.said:
        s.users += 1
        n = sum(u.count(plain(text)) for u in users)
        if n == 0:
            s.user_lost += 1
            s.notes.append(f"{where}: the caller's words are lost: {text!r}")
        elif n > 1:
            s.user_doubled += 1
            s.notes.append(f"{where}: the caller's words are there {n} times: {text!r}")


def _of_list(
    messages: Iterable[dict[str, Any]], t: Truth, others: list[Truth], right: int
) -> int | None:
    """Returns how many words a list of messages has of an answer, or None if it has none.

    Answers may begin alike. A message that may be of another one counts only if it is right.
    """
    whole, best = plain(t.request.text), None
    for m in messages:
        text = plain(text_of(m))
        if m.get("role") != "assistant" or not text:
            continue
        if whole.startswith(text) or text.startswith(whole):
            n = min(count(text_of(m)), t.total)
            alike = any(plain(o.request.text).startswith(text) for o in others if o is not t)
            if not alike or n <= right:
                best = max(best or 0, n)
    return best


def _prompts(s: Score, where: str, call: Call, answers: list[Truth]) -> None:
    for r in call.brain.requests:
        if not r.stream:
            continue
        s.prompts += 1
        bad = lacks = False
        for t in answers:
            if t.request.at >= r.at:
                break
            begun = t.begun(r.at)
            n = _of_list(r.messages, t, answers, begun)
            if n is not None and n > begun:
                bad = True
                s.notes.append(
                    f"{where}: a prompt has {n} words, {begun} had begun: {t.request.text!r}"
                )
            shortened = call.plan.flow or call.plan.summaries  # the bot drops what is old
            lacks = lacks or (not shortened and (n or 0) < t.heard(r.at) - 3)
        s.unheard += bad
        s.missing += lacks


def _pipecat(s: Score, call: Call, answers: list[Truth]) -> None:
    """Counts what Pipecat's own list has of the answers, for comparison."""
    for t in answers:
        heard = t.heard()
        n = _of_list(call.context, t, answers, heard) or 0
        s.pipecat["answers"] += 1
        s.pipecat["right within one"] += abs(n - heard) <= 1
        s.pipecat["unheard words"] += n > t.begun(1e12)
        s.pipecat["misses more than three"] += n < heard - 3
