"""Calls of real LiveKit sessions, rated against the sound that was played.

HEARDLOG_LIVEKIT_CALLS sets how many calls are made in each series. The harness runs alone, too:
``python -m harness.livekit_run --calls 300``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("livekit.agents")

from harness.livekit_run import faults, run
from harness.livekit_score import Score, table

CALLS = int(os.environ.get("HEARDLOG_LIVEKIT_CALLS", "16"))


def right(s: Score) -> None:
    """Checks what has to be right whatever the voice is, on a machine that may be slow."""
    assert s.errors <= 1, s.faults
    assert s.f1 >= 0.94 and s.false <= 2, s.faults
    assert s.lost + s.doubled + s.ghosts <= 3, s.faults
    assert s.sure_right >= 0.9 * s.sure, s.faults


async def test_calls(program: Path, tmp_path: Path) -> None:
    rows = await run(CALLS, 1, program, tmp_path)
    print("\n" + table(rows) + "\n" + faults(rows, 3))
    for name, score in rows.items():
        if name.endswith("+ events"):
            right(score)
    words = rows["word times + events"]
    assert words.within[1] >= 0.92 * words.cut, words.faults
    for name in ("estimate + events", "no synchronizer + events"):
        assert rows[name].within[3] >= 0.85 * rows[name].cut, rows[name].faults
    # The ruler itself: without events, a session with an output of its own is rated worse.
    assert rows["no synchronizer"].f1 < 0.5
