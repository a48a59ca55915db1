"""lauren-ai's own tests of its stores, with ours."""

from __future__ import annotations

from pathlib import Path

from harness import their_tests
from harness.server import Server

FILES = [
    "tests/unit/test_memory.py",
    "tests/unit/test_user_memory.py",
    "tests/unit/test_vector_extended.py",
    "tests/integration/test_agent_runner_e2e.py",
    "tests/integration/test_per_agent_state.py",
    "tests/integration/test_skill_conversation_memory.py",
    "tests/integration/test_skill_rag_pipeline.py",
    "tests/integration/test_skill_session_isolation.py",
    "tests/integration/test_skill_vector_memory.py",
    "tests/integration/test_skill_vector_store.py",
]


def test_their_store_tests(server: Server, tmp_path: Path) -> None:
    assert their_tests.run("lauren", "lauren-ai", FILES, [], server, tmp_path) > 200
