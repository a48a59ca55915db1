"""Agora's Python SDK, `agora-agents`, against the server's Agora paths."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from agora_agent import Agent, Agora, Area, AsyncAgora
from agora_agent.agentkit.vendors import CustomLLM, DeepgramSTT, MicrosoftTTS, MiniMaxTTS, OpenAI
from agora_agent.agents.types.update_agents_request_properties import (
    UpdateAgentsRequestProperties,
)
from agora_agent.core.api_error import ApiError
from heardlog import Heardlog

from harness.server import Server
from harness.upstream import Upstream

APP_ID = "970ca35de60c44645bbae8a215061b33"
CERTIFICATE = "5cfd2fd1755d40ecb72977518be15d3b"
Start = Callable[..., Server]


class Elsewhere(httpx.BaseTransport):
    """Sends what is meant for Agora's hosts to another server."""

    def __init__(self, root: str) -> None:
        self._to = httpx.URL(root)
        self._http = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = _moved(request.url, self._to)
        return self._http.handle_request(request)


class AsyncElsewhere(httpx.AsyncBaseTransport):
    """The same without blocking."""

    def __init__(self, root: str) -> None:
        self._to = httpx.URL(root)
        self._http = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = _moved(request.url, self._to)
        return await self._http.handle_async_request(request)


def _moved(url: httpx.URL, to: httpx.URL) -> httpx.URL:
    assert url.host.endswith((".agora.io", ".sd-rtn.com"))
    return url.copy_with(scheme=to.scheme, host=to.host, port=to.port)


@pytest.fixture(params=["app ID and certificate", "basic"])
def sign_in(request: pytest.FixtureRequest) -> dict[str, str]:
    """How the SDK signs in."""
    if request.param == "basic":
        return {"customer_id": "customer", "customer_secret": "a-long-secret"}
    return {}


@pytest.fixture
def agora_server(start_server: Start, upstream: Upstream) -> Server:
    return start_server(
        HEARDLOG_LLM_URL=upstream.url,
        HEARDLOG_CREDENTIALS=f"{APP_ID}=customer:a-long-secret",
        HEARDLOG_AGORA_CERTIFICATES=f"{APP_ID}={CERTIFICATE}",
    )


def client(server: Server, sign_in: dict[str, str], area: Any = Area.US) -> Any:
    http = httpx.Client(transport=Elsewhere(server.root))
    key = {"app_id": APP_ID, "app_certificate": CERTIFICATE}
    return Agora(area=area, **key, httpx_client=http, **sign_in)


def desk(client: Any, upstream: Upstream) -> Any:
    llm = CustomLLM(
        api_key="unused",
        base_url=upstream.url + "/chat/completions",
        model="scripted",
        vendor="custom",
        greeting_message="Hello, how can I help?",
        system_messages=[{"role": "system", "content": "Be brief."}],
        max_history=32,
    )
    voice = MicrosoftTTS(key="k", region="eastus", voice_name="en-US-AndrewMultilingualNeural")
    agent = Agent(client=client, labels={"line": "sales"})
    return agent.with_llm(llm).with_tts(voice).with_stt(DeepgramSTT(api_key="k"))


OPTIONS = {"name": "desk-1", "channel": "room-1", "agent_uid": "1", "remote_uids": ["42"]}


@pytest.mark.parametrize("area", [Area.US, Area.CN])
def test_a_session(
    agora_server: Server, upstream: Upstream, sign_in: dict[str, str], area: Any
) -> None:
    agora = client(agora_server, sign_in, area)
    session = desk(agora, upstream).create_session(**OPTIONS, idle_timeout=120)
    agent_id = session.start()
    assert agent_id and session.status == "running"
    with Heardlog(agora_server.url, "a-long-secret") as log:
        upstream.say("The train leaves at nine from platform two.")
        call = log.agent(agent_id)
        call.openai().chat.completions.create(
            model="default", messages=[{"role": "user", "content": "When is my train?"}]
        )
        call.interrupt(heard="The train leaves")
        assert call.info()["labels"] == {"line": "sales"}
    session.say("One moment.", priority="APPEND", interruptable=False)
    session.interrupt()
    session.think("Say goodbye.", on_listening_action="inject")
    session.update(UpdateAgentsRequestProperties(llm={"max_history": 16}))
    info = session.get_info()
    assert (info.agent_id, info.status) == (agent_id, "RUNNING")
    history = session.get_history()
    texts = [(m.role, m.content) for m in history.contents]
    assert texts[:3] == [
        ("assistant", "Hello, how can I help?"),
        ("user", "When is my train?"),
        ("assistant", "The train leaves"),
    ]
    turns = session.get_turns()
    assert len(turns.turns) >= 2
    listed = agora.agents.list(APP_ID, channel="room-1", request_options=session._request_options())
    assert [a.agent_id for a in listed] == [agent_id]
    session.stop()
    assert session.status == "stopped"
    agora.stop_agent(agent_id)  # again: its 404 is a success
    assert session.get_history().contents[0].content == "Hello, how can I help?"


def test_refusals(agora_server: Server, upstream: Upstream, sign_in: dict[str, str]) -> None:
    agora = client(agora_server, sign_in)
    first = desk(agora, upstream).create_session(**OPTIONS)
    first.start()
    with pytest.raises(ApiError) as taken:
        desk(agora, upstream).create_session(**OPTIONS).start()
    assert taken.value.status_code == 409
    with pytest.raises(ApiError) as unknown:
        agora.agents.get_history(APP_ID, "nobody", request_options=first._request_options())
    assert unknown.value.status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [{"customer_id": "customer", "customer_secret": "another"}, {"auth_token": "007eJx"}],
)
def test_wrong_credentials(agora_server: Server, upstream: Upstream, wrong: Any) -> None:
    with pytest.raises(ApiError) as refused:
        desk(client(agora_server, wrong), upstream).create_session(**OPTIONS).start()
    assert refused.value.status_code in (401, 403)


async def test_without_blocking(
    agora_server: Server, upstream: Upstream, sign_in: dict[str, str]
) -> None:
    http = httpx.AsyncClient(transport=AsyncElsewhere(agora_server.root))
    key = {"app_id": APP_ID, "app_certificate": CERTIFICATE}
    agora = AsyncAgora(area=Area.EU, **key, httpx_client=http, **sign_in)
    session = desk(agora, upstream).create_async_session(**OPTIONS)
    agent_id = await session.start()
    await session.say("One moment.")
    history = await session.get_history()
    assert [m.content for m in history.contents] == ["Hello, how can I help?", "One moment."]
    await session.stop()
    assert (await session.get_info()).agent_id == agent_id


def test_presets_and_manual_turns(
    agora_server: Server, upstream: Upstream, sign_in: dict[str, str]
) -> None:
    """Vendors without keys become presets, and the server's own LLM answers."""
    manual = {
        "language": "en-US",
        "config": {"start_of_speech": {"mode": "manual"}, "end_of_speech": {"mode": "manual"}},
    }
    agent = Agent(client=client(agora_server, sign_in)).with_turn_detection(manual)
    agent = agent.with_llm(OpenAI(model="gpt-4o-mini")).with_tts(
        MiniMaxTTS(model="speech-2.8-turbo", voice_id="v")
    )
    session = agent.with_stt(DeepgramSTT(model="nova-3")).create_session(**OPTIONS)
    session.start()
    upstream.say("Hello to you.", "Later.")
    session.think("Greet the caller.", metadata={"why": "test"})
    session.think(
        "And then?",
        on_listening_action="append",
        on_thinking_action="append",
        on_speaking_action="append",
        interruptable=False,
    )
    deadline = time.monotonic() + 30
    while len(session.get_history().contents) < 4 and time.monotonic() < deadline:
        pass
    said = [(m.role, m.content) for m in session.get_history().contents]
    assert said == [
        ("user", "Greet the caller."),
        ("assistant", "Hello to you."),
        ("user", "And then?"),
        ("assistant", "Later."),
    ]
    turns = session.get_all_turns().turns
    assert [t.turn_id for t in turns] == sorted(t.turn_id for t in turns) and len(turns) == 2
    session.stop()
