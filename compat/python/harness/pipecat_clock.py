"""An event loop whose time jumps from timer to timer, for calls that last minutes.

Loop.time() stands still while anything runs, and while the server works on a request of the
harness. Otherwise it jumps to the next timer. So an hour of calls takes as long as its work, and
the same seeds give the same calls on a slow machine.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

# The longest real time for which virtual time waits for the server.
PATIENCE = 5.0


class Flights:
    """Counts what the server still has to answer or to pass on."""

    def __init__(self) -> None:
        self.pending = 0
        self.settle_until = 0.0
        self.stuck = 0  # how often PATIENCE ran out: the times of that run are not exact

    def open(self) -> Callable[[], None]:
        """Counts one piece of work of the server, and returns the function that ends it."""
        self.pending += 1
        ended = False

        def land() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self.pending -= 1

        return land

    def settle(self, seconds: float) -> None:
        """Keeps virtual time still for a while of real time, unless something arrives."""
        self.settle_until = time.monotonic() + seconds


class _Selector(selectors.DefaultSelector):
    loop: Loop

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        flights = self.loop.flights
        rest = flights.settle_until - time.monotonic()
        if flights.pending > 0:
            rest = PATIENCE
        if rest > 0:
            events = super().select(rest)
            if events or flights.pending == 0:
                return events
            flights.stuck += 1
        if timeout is None:
            return super().select(0.05)
        self.loop.advance(timeout)
        return []


class Loop(asyncio.SelectorEventLoop):
    """The event loop. Its clock starts at 1000 s."""

    def __init__(self) -> None:
        self._virtual = 1000.0
        self.flights = Flights()
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual

    def advance(self, seconds: float) -> None:
        self._virtual += seconds


def flights() -> Flights:
    """Returns the flights of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    return loop.flights


class VirtualTime:
    """A stand-in for the module time in modules that measure the call with it."""

    @staticmethod
    def time() -> float:
        return 1.8e9 + asyncio.get_running_loop().time()

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()

    @staticmethod
    def monotonic_ns() -> int:
        return int(asyncio.get_running_loop().time() * 1e9)


def use_virtual_time(*modules: Any) -> None:
    """Makes modules read the running loop's clock."""
    for module in modules:
        module.time = VirtualTime
