"""Retries, settings and errors of the clients, against a server that answers from a list."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

import heardlog._http
from heardlog import (
    AsyncHeardlog,
    ConflictError,
    Heardlog,
    HeardlogError,
    UnavailableError,
)

Answer = httpx.Response | Exception


def client(answers: list[Answer], **options: object) -> tuple[Heardlog, list[httpx.Request]]:
    """Returns a client that gets these answers, and the requests that it makes."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        found = answers[min(len(seen), len(answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    http = httpx.Client(transport=httpx.MockTransport(answer))
    return Heardlog("http://heard.test/v1", http_client=http, **options), seen  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records how long the client would wait, and does not wait."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    return waits


STARTED = httpx.Response(200, json={"agent_id": "a1", "create_ts": 1, "status": "RUNNING"})
BUSY = httpx.Response(503, headers={"retry-after": "2"}, json={"detail": "busy", "reason": "x"})


def test_a_repeat_has_the_same_key(quick: list[float]) -> None:
    log, seen = client([httpx.ReadTimeout("slow"), BUSY, STARTED])
    assert log.start("call").id == "a1"
    keys = {request.headers["idempotency-key"] for request in seen}
    assert len(seen) == 3 and len(keys) == 1 and keys != {""}
    assert 0 < quick[0] < 0.2 and quick[1] == 2
    log.start("call")
    assert seen[3].headers["idempotency-key"] not in keys


def test_retries_end() -> None:
    log, seen = client([BUSY], retries=2)
    with pytest.raises(UnavailableError, match="busy") as error:
        log.agent("a").info()
    assert error.value.status == 503 and len(seen) == 3
    log, seen = client([httpx.ConnectError("refused")], retries=1)
    with pytest.raises(UnavailableError, match=r"http://heard\.test/v1 could not be reached"):
        log.agent("a").info()
    assert len(seen) == 2


def test_what_may_have_happened_is_not_repeated() -> None:
    log, seen = client([httpx.ReadTimeout("slow")])
    with pytest.raises(UnavailableError, match="in time"):
        log.request("POST", "/anything", json={})
    assert len(seen) == 1
    log, seen = client([httpx.ConnectError("refused"), httpx.Response(204)])
    assert log.request("POST", "/anything", json={}) is None
    assert len(seen) == 2
    log, seen = client([httpx.Response(400, json={"detail": "a.b: is wrong", "reason": "R"})])
    with pytest.raises(HeardlogError) as error:
        log.agent("a").info()
    assert error.value.field == "a.b" and len(seen) == 1


def test_waits_are_bounded() -> None:
    assert heardlog._http.pause(50) <= 10
    assert heardlog._http.pause(0, "3600") == 8
    assert heardlog._http.pause(0, "-5") == 0
    assert heardlog._http.pause(0, "Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert 0 < heardlog._http.pause(0, "soon") < 0.2


@pytest.mark.parametrize(
    ("detail", "field"),
    [
        ("messages[0].role: must be one of user", "messages[0].role"),
        ("properties.heardlog.scope: is wrong", "properties.heardlog.scope"),
        ("no agent: a", None),
        ("limit: must be a whole number from 1 to 500, not \"x\"", "limit"),
        ("the store did not answer", None),
    ],
)  # fmt: skip
def test_fields_of_errors(detail: str, field: str | None) -> None:
    body = {"detail": detail, "reason": "InvalidFieldValue"}
    log, _ = client([httpx.Response(400, json=body, headers={"x-request-id": "r1"})])
    with pytest.raises(HeardlogError) as error:
        log.agent("a").info()
    assert error.value.field == field and error.value.request_id == "r1"
    assert str(error.value) == f"{detail} (400, InvalidFieldValue, request r1)"


def test_other_errors() -> None:
    openai = {"error": {"message": "no", "type": "t", "param": "model", "code": "invalid"}}
    log, _ = client([httpx.Response(400, json=openai)])
    with pytest.raises(HeardlogError, match="no") as error:
        log.request("GET", "/models")
    assert (error.value.field, error.value.reason) == ("model", "invalid")
    log, _ = client([httpx.Response(500, text="<html>")])
    with pytest.raises(HeardlogError, match="500"):
        log.request("GET", "/models")
    log, _ = client([httpx.Response(200, text="<html>")])
    with pytest.raises(HeardlogError, match="not JSON"):
        log.request("GET", "/models")
    taken = {"detail": "name: is taken", "reason": "Conflict", "agent_id": "a9", "taskId": "a9"}
    log, _ = client([httpx.Response(409, json=taken)])
    with pytest.raises(ConflictError) as conflict:
        log.start("x")
    assert conflict.value.agent_id == "a9"
    assert log.start("x", reuse=True).id == "a9"


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEARDLOG_URL", raising=False)
    assert Heardlog().url == "http://127.0.0.1:8080/v1"
    monkeypatch.setenv("HEARDLOG_URL", "https://heard.test:444/")
    monkeypatch.setenv("HEARDLOG_SECRET", " key-1234\n")
    log = Heardlog()
    assert log.url == "https://heard.test:444/v1"
    assert repr(log) == "Heardlog(url='https://heard.test:444/v1', secret='[secret]')"
    assert Heardlog("http://x/base/v1/").url == "http://x/base/v1"
    log, seen = client([httpx.Response(200, json={})], headers={"X-Team": "t"})
    log.agent("a").info()
    assert seen[0].headers["authorization"] == "Bearer key-1234"
    assert seen[0].headers["x-team"] == "t"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Heardlog("ftp://x"), "url: must begin"),
        (lambda: Heardlog("localhost:8080"), "url: must begin"),
        (lambda: Heardlog("http://id:hidden@x"), "url: must not contain credentials"),
        (lambda: Heardlog("http://x/v1?a=b"), "url: must not have a query"),
        (lambda: Heardlog("http://x", "hidden\x07"), "secret: must be printable"),
        (lambda: Heardlog("http://x", retries=-1), "retries: must"),
        (lambda: Heardlog(5), "url: must be a string, not int"),
        (lambda: Heardlog("http://x").start(""), "name: must not be empty"),
        (lambda: Heardlog("http://x").start("a", user_id=7), "user_id: must be a string, not int"),
        (lambda: Heardlog("http://x").start("a", keys="k:v"), "keys: must be a list"),
        (lambda: Heardlog("http://x").agent("a").append("Hello"), r"messages\[0\]: must be a map"),
        (lambda: Heardlog("http://x").agent("a").append([1]), r"messages\[0\]: must be a mapping"),
        (lambda: Heardlog("http://x").agent("a").append(1), "messages: must be mappings, not int"),
        (lambda: Heardlog("http://x").recall("", "q"), "user_id: must not be empty"),
        (lambda: Heardlog("http://x").facts(None), "user_id: must be a string, not NoneType"),
    ],
)
def test_bad_arguments(make: Callable[[], object], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text) as error:
        make()
    assert "hidden" not in str(error.value)


def test_pages() -> None:
    pages = [
        httpx.Response(200, json={"agents": [{"agent_id": "1"}, {"agent_id": "2"}],
                                  "next_cursor": "c"}),
        httpx.Response(200, json={"agents": [], "next_cursor": "d"}),
        httpx.Response(200, json={"agents": [{"agent_id": "3"}]}),
    ]  # fmt: skip
    log, seen = client(list(pages))
    assert [a["agent_id"] for a in log.find(labels={"a": "b"}, limit=5)] == ["1", "2", "3"]
    asked = [dict(request.url.params) for request in seen]
    assert asked[0] == {"label[a]": "b", "limit": "5"}
    assert asked[1] == {"label[a]": "b", "limit": "3", "cursor": "c"}
    log, seen = client(list(pages))
    assert len(list(log.find(limit=2))) == 2 and len(seen) == 1


def test_what_a_join_says() -> None:
    log, seen = client([STARTED])
    log.start(
        "n", user_id="u", system="S", greeting="G", inherit="full", remember="off",
        properties={"llm": {"vendor": "custom"}, "heardlog": {"scope": {"task_id": "t"}}},
    )  # fmt: skip
    assert json.loads(seen[0].content) == {
        "name": "n",
        "properties": {
            "llm": {
                "system_messages": [{"role": "system", "content": "S"}],
                "greeting_message": "G",
                "vendor": "custom",
            },
            "heardlog": {
                "scope": {"user_id": "u", "task_id": "t"},
                "session": {"inherit": "full"},
                "remember": "off",
            },
        },
    }


async def test_the_same_without_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"retry-after": "2"}
    started = {"agent_id": "a1", "create_ts": 1, "status": "RUNNING"}
    answers = [httpx.Response(503, headers=headers), httpx.Response(200, json=started)]

    async def wait(seconds: float) -> None:
        assert seconds == 2

    monkeypatch.setattr("asyncio.sleep", wait)
    transport = httpx.MockTransport(lambda request: answers.pop(0))
    http = httpx.AsyncClient(transport=transport)
    async with AsyncHeardlog("http://heard.test", http_client=http) as log:
        assert (await log.start("call")).id == "a1"
    assert not http.is_closed  # the caller's
    await http.aclose()
