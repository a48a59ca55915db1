"""OVOS' own tests of personas, with our memory module in the place of theirs."""

from __future__ import annotations

from pathlib import Path

from harness import their_tests
from harness.server import Server

FILES = ["test/test_memory_e2e.py", "test/test_session_e2e.py", "test/test_smoke.py"]


def test_their_persona_tests(server: Server, tmp_path: Path) -> None:
    assert their_tests.run("ovos", "ovos-persona", FILES, [], server, tmp_path) > 20
