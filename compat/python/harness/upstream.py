"""An OpenAI-compatible LLM that answers what a test tells it to."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """One answer.

    Attributes:
        text: What it says, streamed word by word.
        tool_calls: Calls as (name, arguments as JSON).
        status: A status other than 200 answers an error.
        delay: Seconds before each piece of a stream.
        hold: If set, the stream waits for it after ``hold_after`` pieces.
    """

    text: str = ""
    tool_calls: list[tuple[str, str]] = field(default_factory=list)
    status: int = 200
    delay: float = 0.0
    hold: threading.Event | None = None
    hold_after: int = 0


class Upstream:
    """The LLM. ``url`` is its base URL, ``requests`` are the bodies that it was sent, oldest first.

    Without an answer in the script it says "You said: " and the newest user message.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self._script: deque[Answer] = deque()
        self._ids = itertools.count(1)
        upstream = self

        class Handler(_Handler):
            llm = upstream

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def say(self, *answers: str | Answer) -> None:
        """Adds answers to the script, in the order in which they will be asked for."""
        self._script.extend(Answer(a) if isinstance(a, str) else a for a in answers)

    def call(self, name: str, **arguments: Any) -> None:
        """Adds an answer that calls a tool."""
        self._script.append(Answer(tool_calls=[(name, json.dumps(arguments))]))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next(self, request: dict[str, Any]) -> tuple[int, Answer]:
        """Returns a number for the answer, and the answer."""
        self.requests.append(request)
        try:
            return next(self._ids), self._script.popleft()
        except IndexError:
            users = [m for m in request.get("messages", []) if m.get("role") == "user"]
            return next(self._ids), Answer("You said: " + _text(users[-1] if users else {}))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)


class _Handler(BaseHTTPRequestHandler):
    llm: Upstream
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._json(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        request = json.loads(self.rfile.read(size) or b"{}")
        if not self.path.split("?")[0].endswith("/chat/completions"):
            self._json(404, {"error": {"message": f"no path {self.path}", "code": "not_found"}})
            return
        number, answer = self.llm.next(request)
        if answer.status != 200:
            error = {"message": "the script says so", "type": "server_error", "code": "scripted"}
            self._json(answer.status, {"error": error})
        elif request.get("stream"):
            self._stream(number, answer, request)
        else:
            self._whole(number, answer, request)

    def _whole(self, number: int, answer: Answer, request: dict[str, Any]) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.tool_calls:
            message["tool_calls"] = _calls(number, answer)
        choice = {"index": 0, "message": message, "finish_reason": _reason(answer)}
        head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1780000000}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        model = request.get("model", "scripted")
        self._json(200, {**head, "model": model, "choices": [choice], "usage": usage})

    def _stream(self, number: int, answer: Answer, request: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk"}
        head |= {"created": 1780000000, "model": request.get("model", "scripted")}
        try:
            for i, delta in enumerate(_deltas(number, answer)):
                if answer.hold is not None and i == answer.hold_after:
                    answer.hold.wait(30)
                if answer.delay:
                    time.sleep(answer.delay)
                self._event(
                    {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
                )
            end = {"index": 0, "delta": {}, "finish_reason": _reason(answer)}
            self._event({**head, "choices": [end]})
            if (request.get("stream_options") or {}).get("include_usage"):
                usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
                self._event({**head, "choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass  # the client went away

    def _event(self, event: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _reason(answer: Answer) -> str:
    return "tool_calls" if answer.tool_calls else "stop"


def _calls(number: int, answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{number}_{i}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for i, (name, arguments) in enumerate(answer.tool_calls)
    ]


def _deltas(number: int, answer: Answer) -> Iterator[dict[str, Any]]:
    for i, word in enumerate(answer.text.split(" ") if answer.text else []):
        first = {"role": "assistant"} if i == 0 else {}
        yield {**first, "content": word if i == 0 else " " + word}
    if answer.tool_calls:
        calls = _calls(number, answer)
        yield {"role": "assistant", "tool_calls": [{"index": i, **c} for i, c in enumerate(calls)]}
