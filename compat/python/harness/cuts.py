"""How often an answer that was cut is recorded as interrupted, in calls of any framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Cuts:
    """Answers by whether they were cut, and whether they are recorded so."""

    hits: int = 0  # cut, and recorded as interrupted
    false: int = 0  # recorded as interrupted, but played to the end
    missed: int = 0  # cut, but not recorded as interrupted

    @property
    def precision(self) -> float:
        return self.hits / max(1, self.hits + self.false)

    @property
    def recall(self) -> float:
        return self.hits / max(1, self.hits + self.missed)

    @property
    def f1(self) -> float:
        return 2 * self.hits / max(1, 2 * self.hits + self.false + self.missed)
