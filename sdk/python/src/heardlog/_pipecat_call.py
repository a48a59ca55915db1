"""The call of a Pipecat bot, as the server knows it: its name, its caller and its reports."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ._client import AsyncHeardlog
from ._pipecat_speech import Speech, words_of
from .errors import HeardlogError
from .reporter import Reporter

logger = logging.getLogger("heardlog")

# How long the first request and the end of the call wait for the server, in seconds.
PATIENCE = 5.0


@dataclass
class Named:
    """The name of a call, and who calls."""

    session_id: str
    caller: str | None = None
    keys: list[str] = field(default_factory=list)


def identify(args: Any, transport: Any, session_id: str | None, caller: str | None) -> Named:
    """Returns the name of a call, from what the runner and the transport know of it."""
    data = getattr(args, "call_data", None)
    body = getattr(args, "body", None)
    dial_in = (body.get("dialin_settings") or {}) if isinstance(body, dict) else {}
    call_id = getattr(data, "call_id", None)
    provider = getattr(args, "transport_type", None)
    keys = [f"{provider}.call:{call_id}"] if call_id and provider in ("twilio", "telnyx") else []
    client = getattr(transport, "_client", None)
    room = (
        getattr(args, "room_name", None)
        or getattr(client, "room_name", None)
        or getattr(args, "room_url", None)
        or getattr(transport, "room_url", None)
    )
    name = session_id or call_id or dial_in.get("call_id") or getattr(args, "session_id", None)
    who = caller or getattr(data, "from_number", None) or dial_in.get("From") or dial_in.get("from")
    named = str(name or room or uuid.uuid4())
    if not _fits_header(named):
        named = quote(named, safe="")
    return Named(named, str(who) if who else None, keys)


def _fits_header(text: str) -> bool:
    """Reports whether a text may be the value of an HTTP header."""
    return text.isascii() and text.isprintable() and text == text.strip()


def letters(text: str) -> str:
    """Returns the letters and digits of a text."""
    return "".join(c for c in text.lower() if c.isalnum())


@dataclass(eq=False)
class Answer:
    """One answer of the LLM, or words of the bot's own (own)."""

    id: str | None = None  # the LLM's
    text: str = ""  # as far as the LLM has made it
    own: bool = False
    listed: bool = False  # with own: the next request has it in its place
    made: bool = False  # the TTS got all of it
    speeches: list[Speech] = field(default_factory=list)
    reported: float = 0.0  # ms that the last report of progress counted
    settled: bool = False  # the last report was sent

    def has(self, text: str) -> bool:
        """Reports whether a text is part of the answer."""
        return letters(text) in letters(self.text)

    def played(self) -> float:
        """Returns how much was played, in ms."""
        return sum(s.sound.ms if s.stopped else min(s.played, s.sound.ms) for s in self.speeches)

    def timed(self, letter_ms: float) -> tuple[list[dict[str, Any]], bool]:
        """Returns the words with their times, and whether these are estimated."""
        words: list[dict[str, Any]] = []
        offset, estimated = 0, False
        for s in self.speeches:
            some, guessed = s.timed(letter_ms)
            for w in some:
                words.append(
                    {
                        "text": w["text"],
                        "start_ms": w["start_ms"] + offset,
                        "end_ms": w["end_ms"] + offset,
                    }
                )
            offset += round(s.sound.ms)
            estimated = estimated or guessed
        return words, estimated

    def heard(self, letter_ms: float) -> tuple[str, str]:
        """Returns what was heard, and the whole text."""
        whole = " ".join(s.text() for s in self.speeches)
        if all(s.stopped for s in self.speeches):
            return whole, whole
        words, _ = self.timed(letter_ms)
        n = sum(1 for w in words if w["end_ms"] <= self.played())
        if n >= len(words_of(whole)):
            return whole, whole
        glue = "" if len(words_of(whole)) > 2 * len(whole.split()) else " "
        return glue.join(w["text"].strip() for w in words[:n]), whole


class Call:
    """Starts the call's agent, reports its events in order, and ends it."""

    def __init__(self, client: AsyncHeardlog, named: Named, properties: dict[str, Any] | None):
        self.client = client
        self.session_id = named.session_id
        self.headers = {"X-Pipecat-Session-Id": named.session_id}
        if named.caller and _fits_header(named.caller):  # the join has it, too
            self.headers["X-Heardlog-User"] = named.caller
        self._named, self._properties = named, properties
        self._reporter = Reporter(client, "pipecat", self.headers)
        self._agent: Any = None
        self._joining: asyncio.Task[None] | None = None
        self._appending: list[asyncio.Task[None]] = []
        self._unlisted: list[tuple[str, str]] = []
        self._context: Any = None
        self._asked = 0  # how many messages of the context were asked with

    def join(self) -> None:
        """Starts the agent in the background."""
        if self._joining is None:
            self._joining = asyncio.create_task(self._join())

    async def _join(self) -> None:
        try:
            self._agent = await self.client.start(
                self.session_id,
                user_id=self._named.caller,
                keys=["pipecat.session:" + self.session_id, *self._named.keys],
                properties=self._properties,
                reuse=True,
            )
        except Exception as error:  # the server may still start it with the first request
            logger.warning("the call was not joined: %s", error)

    async def joined(self) -> None:
        """Waits until the agent is started, for a bounded time."""
        if self._joining is not None and not self._joining.done():
            await asyncio.wait([self._joining], timeout=PATIENCE)

    async def asks(self, context: Any) -> None:
        """Notes that the LLM is asked with a context."""
        self._context, self._asked = context, len(context.messages)
        await self._keep_unlisted()

    async def _keep_unlisted(self) -> None:
        """Stores words of the bot's own that the context has not as they were heard."""
        said, self._unlisted = self._unlisted, []
        recent = self._context.messages[-12:] if self._context is not None else []
        known = letters(" ".join(_text(m) for m in recent if _role(m) == "assistant"))
        wrong = [
            _spoken(heard, whole)
            for heard, whole in said
            # It has more of them than was heard, or less.
            if (heard != whole and letters(whole) in known) or letters(heard) not in known
        ]
        if wrong:
            await self._append_now(wrong)

    def report(self, event: dict[str, Any]) -> None:
        """Reports an event, after those before it."""
        self._reporter.send(event)

    def speaks(self, heard: str, whole: str, listed: bool) -> None:
        """Stores words that the bot said without the LLM, such as a greeting.

        Args:
            listed: The framework has them in its context, at a place that only it knows. They are
                stored only if the next request lacks them.
        """
        if listed:
            self._unlisted.append((heard, whole))
        else:
            task = asyncio.create_task(self._append_now([_spoken(heard, whole)]))
            self._appending.append(task)

    async def _append_now(self, messages: list[dict[str, Any]]) -> None:
        await self.joined()
        if self._agent is None:
            return
        try:
            await self._agent.append(messages)
        except HeardlogError as error:
            logger.warning("%d messages were not stored: %s", len(messages), error)

    async def end(self, said: str) -> None:
        """Stores what the caller said last, and ends the call.

        Args:
            said: What the caller said after the LLM was asked last.
        """
        if self._joining is None:
            return
        await self._reporter.flush(PATIENCE)
        if self._appending:
            await asyncio.wait(self._appending, timeout=PATIENCE)
        await self._keep_unlisted()
        rest = self._rest(said)
        if rest:
            await self._append_now(rest)
        self._reporter.send({"type": "end"})
        await self._reporter.aclose(PATIENCE)

    def _rest(self, said: str) -> list[dict[str, Any]]:
        """Returns messages that no request had: the caller's last words, and results of tools."""
        out: list[dict[str, Any]] = []
        context = self._context
        tail = context.messages[self._asked :] if context is not None else []
        for m in tail:
            if _role(m) in ("user", "tool") and _text(m) not in ("", "IN_PROGRESS"):
                out.append({k: m[k] for k in ("role", "content", "tool_call_id") if k in m})
        if said and not any(said in _text(m) for m in out if m["role"] == "user"):
            asked = context.messages[: self._asked] if context is not None else []
            if not any(isinstance(m, dict) and said in _text(m) for m in asked[-4:]):
                out.append({"role": "user", "content": said})
        return out


def _spoken(heard: str, whole: str) -> dict[str, Any]:
    """Returns the message for words that the bot said without the LLM."""
    metadata: dict[str, Any] = {"source": "greeting"}
    if heard != whole:
        metadata |= {"interrupted": True, "original": whole}
    return {"role": "assistant", "content": heard, "metadata": metadata}


def _role(message: Any) -> str:
    return str(message.get("role")) if isinstance(message, dict) else ""


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""
