"""Reports the events of a voice platform in their order, without slowing the platform down."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from . import _http
from ._async.client import AsyncHeardlog
from .errors import HeardlogError, UnavailableError

logger = logging.getLogger("heardlog")


class Reporter:
    """An ordered queue of events that one background task posts to ``/evidence/{platform}``.

    ``send`` never blocks and never raises. The task posts one event after another, so they arrive
    in the order in which they were sent. It repeats an event after network errors and after 408,
    429 and 5xx, for at most ``give_up`` seconds. An event that is given up or refused is logged
    with ``logging.getLogger("heardlog")`` and left out; those after it are sent.

    Args:
        client: The client. The reporter does not close it.
        platform: The platform, as in the path.
        headers: The headers that name the call.
        limit: How many events may wait. Further ones are dropped, which is logged.
        give_up: How long one event is tried, in seconds.

    Attributes:
        dropped: How many events were not delivered: refused, given up, or beyond the limit.
    """

    def __init__(
        self,
        client: AsyncHeardlog,
        platform: str,
        headers: Mapping[str, str],
        *,
        limit: int = 10_000,
        give_up: float = 60.0,
    ) -> None:
        self._client = client
        self._path = "/evidence" + _http.join(_http.text("platform", platform))
        self._headers = dict(headers)
        self._limit = limit
        self._give_up = give_up
        self._events: deque[dict[str, Any]] = deque()
        self._sending = False
        self._closed = False
        self._full = False  # whether the log knows
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._more: asyncio.Event | None = None
        self._idle: asyncio.Event | None = None
        self.dropped = 0

    def send(self, event: Mapping[str, Any]) -> None:
        """Adds an event to the queue. It may be called from any thread.

        The task starts with the first event that is sent on a running event loop.
        """
        try:
            if self._closed:
                self._drop("the reporter is closed")
                return
            if len(self._events) >= self._limit:
                self.dropped += 1
                if not self._full:
                    logger.warning(
                        "%d events wait for %s; more are dropped", self._limit, self._path
                    )
                self._full = True
                return
            # A copy: the framework may change the event later.
            self._events.append(json.loads(_http.encoded(dict(event))))
            self._wake()
        except Exception as error:  # such as an event that is not JSON
            self._drop(f"{type(error).__name__}: {error}")

    async def flush(self, timeout: float | None = None) -> bool:
        """Waits until all events are delivered or given up, or for timeout seconds.

        Returns:
            Whether the queue is empty.
        """
        if not self._events and not self._sending:
            return True
        self._wake()
        if self._idle is None:
            return False
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except asyncio.TimeoutError:
            return False
        return True

    async def aclose(self, timeout: float = 5.0) -> None:
        """Flushes for at most timeout seconds, and stops the task. What is left is dropped."""
        self._closed = True
        await self.flush(timeout)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._events:
            logger.warning("%d events for %s were not delivered", len(self._events), self._path)
            self.dropped += len(self._events)
            self._events.clear()

    def _wake(self) -> None:
        """Starts the task if there is none yet, and lets it know of new events."""
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if self._loop is None:
            if running is None:
                return  # a later send or a flush starts it
            self._loop = running
            self._more, self._idle = asyncio.Event(), asyncio.Event()
            self._task = running.create_task(self._run(), name=f"heardlog {self._path}")
        if running is self._loop:
            self._signal()
        else:
            self._loop.call_soon_threadsafe(self._signal)

    def _signal(self) -> None:
        assert self._more is not None and self._idle is not None
        self._more.set()
        if self._events or self._sending:
            self._idle.clear()

    async def _run(self) -> None:
        assert self._more is not None and self._idle is not None
        while True:
            while self._events:
                self._sending = True
                self._idle.clear()
                event = self._events.popleft()
                if len(self._events) < self._limit // 2:
                    self._full = False
                try:
                    await self._deliver(event)
                except asyncio.CancelledError:
                    self._drop("the reporter was stopped")
                    raise
                except HeardlogError as error:
                    self._drop(str(error))
                except Exception as error:
                    self._drop(f"{type(error).__name__}: {error}")
                finally:
                    self._sending = False
            self._idle.set()
            self._more.clear()
            await self._more.wait()

    async def _deliver(self, event: dict[str, Any]) -> None:
        """Posts one event, until it is taken, refused, or its time is over."""
        end = time.monotonic() + self._give_up
        attempt = 0
        while True:
            try:
                await self._client.request(
                    "POST", self._path, json=event, headers=self._headers, retries=0
                )
                return
            except HeardlogError as error:
                again = (
                    isinstance(error, UnavailableError)
                    or error.status in _http.RETRIED
                    or error.status >= 500
                )
                wait = _http.pause(attempt)
                if not again or time.monotonic() + wait > end:
                    raise
                attempt += 1
                await asyncio.sleep(wait)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        logger.warning("an event for %s was dropped: %s", self._path, why)
