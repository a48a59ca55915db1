"""One client in several event loops, as when a program calls asyncio.run again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from heardlog import AsyncHeardlog


@pytest.fixture
def url() -> Iterator[str]:
    """A server that keeps connections open."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_loop_after_the_other(url: str) -> None:
    log = AsyncHeardlog(url, retries=0)
    for _ in range(3):
        assert asyncio.run(log.request("GET", "/models")) == {}


def test_loops_at_the_same_time(url: str) -> None:
    log = AsyncHeardlog(url, retries=0)
    errors: list[BaseException] = []

    async def ask() -> None:
        await asyncio.gather(*(log.request("GET", "/models") for _ in range(5)))
        await log.aclose()

    def run() -> None:
        try:
            for _ in range(5):
                asyncio.run(ask())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
