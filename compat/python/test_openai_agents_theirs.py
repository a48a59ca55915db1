"""The Agents SDK's own tests of sessions, with our Session."""

from __future__ import annotations

from pathlib import Path

from harness import their_tests
from harness.server import Server

# What is in the files and threads of SQLite, and its broken rows.
SQLITE = [
    "await_mutation", "worker_thread", "closed_rejects", "corrupt", "file_lock", "releases_write",
    "rolls_back", "evicts_connection", "quarantined", "post_commit", "retired_connections",
]  # fmt: skip


def test_their_session_tests(server: Server, tmp_path: Path) -> None:
    files = ["tests/memory/test_session.py", "tests/memory/test_session_limit.py"]
    passed = their_tests.run("openai_agents", "openai-agents", files, SQLITE, server, tmp_path)
    assert passed > 40
