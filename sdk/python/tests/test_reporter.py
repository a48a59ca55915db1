"""The queue of platform events."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable

import httpx
import pytest

from heardlog import AsyncHeardlog, _http
from heardlog.reporter import Reporter


class Server:
    """Answers 200, or what ``script`` says, and keeps what it took."""

    def __init__(self) -> None:
        self.took: list[int] = []
        self.asked: list[httpx.Request] = []
        self.script: list[int | Exception] = []
        self.open = asyncio.Event()
        self.open.set()

    async def answer(self, request: httpx.Request) -> httpx.Response:
        await self.open.wait()
        self.asked.append(request)
        status = self.script.pop(0) if self.script else 200
        if isinstance(status, Exception):
            raise status
        if status == 200:
            self.took.append(json.loads(request.content)["n"])
        return httpx.Response(status, json={"detail": "so", "reason": "x"})

    def reporter(self, **options: float) -> Reporter:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        log = AsyncHeardlog("http://heard.test", http_client=http)
        return Reporter(log, "livekit", {"X-Call": "c1"}, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "pause", lambda attempt, retry_after=None: 0.0)


async def test_order() -> None:
    server = Server()
    server.script = [503, httpx.ConnectError("x"), 429, httpx.ReadTimeout("x"), 500]
    reporter = server.reporter()
    for n in range(5):
        reporter.send({"n": n})
    assert await reporter.flush(5)
    assert server.took == [0, 1, 2, 3, 4] and reporter.dropped == 0
    assert server.asked[0].url.path == "/v1/evidence/livekit"
    assert server.asked[0].headers["x-call"] == "c1"
    reporter.send({"n": 5})
    await reporter.aclose()
    assert server.took[-1] == 5


async def test_refused_and_broken_events_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.script = [400, 404]
    reporter = server.reporter()
    with caplog.at_level(logging.WARNING, "heardlog"):
        reporter.send({"n": 0})
        reporter.send({"n": 1})
        reporter.send({"n": object()})
        reporter.send(5)  # type: ignore[arg-type]
        reporter.send({"n": 2})
        assert await reporter.flush(5)
    assert server.took == [2] and reporter.dropped == 4
    assert len(caplog.records) == 4 and "400" in caplog.text
    await reporter.aclose()


async def test_an_event_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.script = [503, 503]
    reporter = server.reporter(give_up=-1)
    for n in range(3):
        reporter.send({"n": n})
    assert await reporter.flush(5)
    assert server.took == [2] and reporter.dropped == 2
    assert len(server.asked) == 3 and "503" in caplog.text
    await reporter.aclose()


async def test_the_queue_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.open.clear()
    reporter = server.reporter(limit=3)
    for n in range(10):
        reporter.send({"n": n})
    assert reporter.dropped == 7
    assert len(caplog.records) == 1  # not one for each
    assert not await reporter.flush(0.01)
    server.open.set()
    assert await reporter.flush(5)
    assert server.took == [0, 1, 2]
    await reporter.aclose()


async def test_a_copy_is_sent() -> None:
    server = Server()
    reporter = server.reporter()
    event = {"n": 1, "inner": {"a": 1}}
    reporter.send(event)
    event["inner"]["a"] = 2  # type: ignore[index]
    await reporter.flush(5)
    assert json.loads(server.asked[0].content)["inner"] == {"a": 1}
    await reporter.aclose()


async def test_other_threads() -> None:
    server = Server()
    reporter = server.reporter()
    reporter.send({"n": 0})
    thread = threading.Thread(target=_send_all(reporter, 1, 50))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert await reporter.flush(5)
    assert server.took == list(range(50))
    await reporter.aclose()


async def test_before_the_loop_runs() -> None:
    server = Server()
    reporter = server.reporter()
    thread = threading.Thread(target=_send_all(reporter, 0, 3))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert await reporter.flush(5)
    assert server.took == [0, 1, 2]
    await reporter.aclose()


async def test_close() -> None:
    server = Server()
    server.open.clear()
    reporter = server.reporter()
    reporter.send({"n": 0})
    reporter.send({"n": 1})
    await reporter.aclose(timeout=0.01)
    assert reporter.dropped == 2
    reporter.send({"n": 2})
    assert reporter.dropped == 3
    await reporter.aclose()


def _send_all(reporter: Reporter, first: int, end: int) -> Callable[[], None]:
    def send() -> None:
        for n in range(first, end):
            reporter.send({"n": n})

    return send
