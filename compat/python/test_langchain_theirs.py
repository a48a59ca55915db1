"""LangGraph's own tests of stores, with our Store."""

from __future__ import annotations

from pathlib import Path

from harness import their_tests
from harness.server import Server

# Their embeddings count letters; the server has words.
EMBEDDINGS = ["vector_store_initialization", "vector_search_with_filters", "embed_with_path"]


def test_their_store_tests(server: Server, tmp_path: Path) -> None:
    files = ["tests/test_store.py"]
    passed = their_tests.run(
        "langchain", "langgraph-checkpoint", files, EMBEDDINGS, server, tmp_path
    )
    assert passed > 100
