"""Presidio's analyzer as the detector of names: its own engine and requests, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
import spacy
from heardlog import Heardlog
from presidio_analyzer import (
    AnalyzerEngine,
    AnalyzerRequest,
    BatchAnalyzerEngine,
    PatternRecognizer,
    RecognizerRegistry,
)
from presidio_analyzer.nlp_engine import SpacyNlpEngine

from harness.server import Server
from harness.upstream import Upstream


class Blank(SpacyNlpEngine):  # type: ignore[misc]
    """An engine without a model: the recognizers know the names."""

    def __init__(self) -> None:
        super().__init__()
        self.nlp = {"en": spacy.blank("en")}


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def presidio() -> Iterator[str]:
    """The URL of POST /analyze, which does what Presidio's app.py does."""
    registry = RecognizerRegistry(supported_languages=["en"])
    registry.add_recognizer(
        PatternRecognizer("PERSON", deny_list=["Anna Müller", "Anna", "John Miller"])
    )
    registry.add_recognizer(PatternRecognizer("LOCATION", deny_list=["Köln"]))
    engine = AnalyzerEngine(registry=registry, nlp_engine=Blank(), supported_languages=["en"])
    batch = BatchAnalyzerEngine(engine)

    def analyze(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        request = AnalyzerRequest(json.loads(body))
        results = batch.analyze_iterator(
            texts=request.text if isinstance(request.text, list) else [request.text],
            batch_size=len(request.text),
            language=request.language,
            score_threshold=request.score_threshold,
            entities=request.entities,
        )
        for found in results:
            for result in found:
                del result.recognition_metadata
        if not isinstance(request.text, list):
            results = results[0]
        out = json.dumps(results, default=lambda o: o.to_dict(), sort_keys=True).encode()
        start("200 OK", [("Content-Type", "application/json")])
        return [out]

    server = make_server("127.0.0.1", 0, analyze, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/analyze"
    server.shutdown()
    thread.join()
    server.server_close()


def test_names(presidio: str, start_server: Callable[..., Server], upstream: Upstream) -> None:
    """Names in a call are replaced by pseudonyms, at the offsets that Presidio counts."""
    detector = {"url": presidio, "pseudonyms": True, "timeout_ms": 5000}
    server = start_server(
        HEARDLOG_LLM_URL=upstream.url,
        HEARDLOG_REDACT=json.dumps([{"types": ["card"], "detector": detector}]),
    )
    said = "👋🏽 I am Anna Müller from Köln, card 4111 1111 1111 1111."
    with Heardlog(server.url) as log, log.start("call-1") as agent:
        upstream.say("Hello Anna! John Miller is out.")
        body = {"messages": [{"role": "user", "content": said}]}
        answer = httpx.post(f"{server.url}/agents/{agent.id}/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"].startswith("Hello Anna!")
        got = [(m["role"], m["content"]) for m in agent.history()]
    assert got == [
        ("user", "👋🏽 I am [person-1] from [location-1], card [card]."),
        ("assistant", "Hello [person-1]! [person-2] is out."),
    ]
    assert not [line for line in server.log if "Anna" in line]
