"""The server and the LLM that all tests of this folder use."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from heardlog import AsyncHeardlog, Heardlog

from harness.server import Server, build
from harness.upstream import Upstream


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's program."""
    return build(tmp_path_factory.mktemp("bin"))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """An LLM that answers what the test tells it to."""
    llm = Upstream()
    yield llm
    llm.close()


@pytest.fixture
def start_server(
    program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Server]]:
    """Starts servers: ``start_server(HEARDLOG_NAME="value")``. They stop after the test."""
    servers: list[Server] = []

    def start(**settings: str) -> Server:
        servers.append(Server(program, tmp_path_factory.mktemp("data"), **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(start_server: Callable[..., Server], upstream: Upstream) -> Server:
    """A server without credentials whose LLM is the scripted one."""
    return start_server(HEARDLOG_LLM_URL=upstream.url, HEARDLOG_LLM_MODEL="scripted")


@pytest.fixture
def log(server: Server) -> Iterator[Heardlog]:
    """A client of the server."""
    with Heardlog(server.url) as client:
        yield client


@pytest_asyncio.fixture
async def alog(server: Server) -> AsyncIterator[AsyncHeardlog]:
    """An asynchronous client of the server."""
    async with AsyncHeardlog(server.url) as client:
        yield client


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run in which a test was skipped, if HEARDLOG_NO_SKIP is set."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("HEARDLOG_NO_SKIP") and reporter and reporter.stats.get("skipped"):
        reporter.write_line("a skipped test is a failure here")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
