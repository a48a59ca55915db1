"""LiteLLM on both sides: as a client of the server, and as the server's LLM."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import litellm
import pytest
from heardlog import Heardlog

from harness.server import Server
from harness.upstream import Answer, Upstream

litellm.telemetry = False
TOOL = {
    "type": "function",
    "function": {
        "name": "trains",
        "description": "Finds trains.",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
    },
}


def ask(base: str, text: str, **options: Any) -> Any:
    return litellm.completion(
        model="openai/default",
        api_base=base,
        api_key="unused",
        messages=options.pop("messages", [{"role": "user", "content": text}]),
        **options,
    )


def test_a_client(log: Heardlog, upstream: Upstream) -> None:
    agent = log.start("call-1")
    upstream.say("Hello Anna.", "You are Anna.")
    assert ask(agent.url, "I am Anna.").choices[0].message.content == "Hello Anna."
    stream = ask(agent.url, "Who am I?", stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "You are Anna."
    sent = [m["content"] for m in upstream.requests[-1]["messages"]]
    assert sent == ["I am Anna.", "Hello Anna.", "Who am I?"]


def test_a_client_that_names_its_session(log: Heardlog, upstream: Upstream) -> None:
    for text in ["One", "Two"]:
        ask(log.url, text, extra_headers={"X-LiteLLM-Session-Id": "s-42"})
    (agent,) = log.find()
    assert agent["keys"] == ["litellm.session:s-42"]
    assert len(log.agent(agent["agent_id"]).history()) == 4


async def test_a_client_without_blocking(log: Heardlog, upstream: Upstream) -> None:
    agent = log.start("call-1")
    upstream.call("trains", to="Rome")
    upstream.say("At nine.")
    messages: list[Any] = [{"role": "user", "content": "When is my train to Rome?"}]
    options: dict[str, Any] = {"model": "openai/default", "api_base": agent.url}
    options |= {"api_key": "unused", "tools": [TOOL]}
    first = await litellm.acompletion(messages=messages, **options)
    (call,) = first.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"to": "Rome"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "nine"}
    second = await litellm.acompletion(messages=[result], **options)
    assert second.choices[0].message.content == "At nine."
    roles = [m["role"] for m in upstream.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "tool"]


def test_an_interrupted_client(log: Heardlog, upstream: Upstream) -> None:
    agent = log.start("call-1")
    go = threading.Event()
    upstream.say(Answer("One two three four five six.", hold=go, hold_after=3))
    stream = ask(agent.url, "Count.", stream=True)
    heard = ""
    for chunk in stream:
        heard += chunk.choices[0].delta.content or ""
        if heard == "One two three":
            agent.interrupt(heard="One two")
            go.set()
    assert agent.history()[-1]["content"] == "One two"


def test_errors(log: Heardlog, upstream: Upstream) -> None:
    with pytest.raises(litellm.NotFoundError):
        ask(log.agent("nobody").url, "Hello", max_retries=0)
    agent = log.start("call-1")
    upstream.say(*[Answer(status=400)] * 3)
    with pytest.raises(litellm.BadRequestError):
        ask(agent.url, "Hello", max_retries=0)
    agent.leave()
    with pytest.raises(Exception, match="stopped at") as ended:
        ask(agent.url, "Hello", max_retries=0)
    assert ended.value.status_code == 410


@pytest.fixture
def proxy(upstream: Upstream, tmp_path: Path) -> Iterator[str]:
    """LiteLLM's own proxy, with the scripted LLM behind it. It yields its base URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    target = {"model": "openai/scripted", "api_base": upstream.url, "api_key": "unused"}
    config = {
        "model_list": [{"model_name": "desk", "litellm_params": target}],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
        "general_settings": {"master_key": "sk-litellm"},
    }
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    program = Path(sys.executable).with_name("litellm")
    log = (tmp_path / "litellm.log").open("w+")
    process = subprocess.Popen(
        [str(program), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)],
        stdout=log,
        stderr=log,
        env={**os.environ, "NO_PROXY": "*", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        cwd=tmp_path,
    )
    base = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 240
    try:
        while True:  # it has no other sign of being ready
            assert process.poll() is None and time.monotonic() < deadline, log.seek(0) or log.read()
            try:
                if httpx.get(base + "/health/liveliness", timeout=5).is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.2)
        yield base + "/v1"
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def test_the_upstream(start_server: Callable[..., Server], upstream: Upstream, proxy: str) -> None:
    server = start_server(
        HEARDLOG_LLM_URL=proxy, HEARDLOG_LLM_API_KEY="sk-litellm", HEARDLOG_LLM_MODEL="desk"
    )
    with Heardlog(server.url) as log:
        agent = log.start("call-1", system="Be brief.")
        chat = agent.openai().chat.completions
        upstream.say("Hello Anna.", "You are Anna.")
        said: Any = [{"role": "user", "content": "I am Anna."}]
        answer = chat.create(model="default", messages=said)
        assert answer.choices[0].message.content == "Hello Anna."
        stream = chat.create(
            model="default", messages=[{"role": "user", "content": "Who am I?"}], stream=True
        )
        assert "".join(c.choices[0].delta.content or "" for c in stream) == "You are Anna."
        sent = [m["content"] for m in upstream.requests[-1]["messages"]]
        assert sent == ["Be brief.", "I am Anna.", "Hello Anna.", "Who am I?"]

        upstream.call("trains", to="Rome")
        called = chat.create(model="default", messages=said, tools=[TOOL])
        assert called.choices[0].message.tool_calls[0].function.name == "trains"

        go = threading.Event()
        upstream.say(Answer("One two three four five six.", hold=go, hold_after=3))
        heard = ""
        for chunk in chat.create(model="default", messages=said, stream=True):
            heard += chunk.choices[0].delta.content or ""
            if heard.startswith("One two three"):
                agent.interrupt(heard="One two")
                go.set()
        assert agent.history()[-1]["content"] == "One two"
