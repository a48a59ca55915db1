"""Calls of hosted platforms, built with the types of their own packages, filed by the server."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import httpx
import pytest

from harness.hosted import PAYLOADS
from harness.server import ROOT, Server

Start = Callable[..., Server]
IDS = {
    "vapi": "vapi-call-1",
    "retell": "call_retell_1",
    "elevenlabs": "conv_1",
    "livekit": "AJ_1",
    "twilio": "CA" + "1" * 32,
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload(name: str, start_server: Start) -> None:
    """Each payload is filed whole, and the stored one of the tests in Go, too."""
    payload = PAYLOADS[name]()
    stored = ROOT / "memory/hosted/testdata" / f"{name}.json"
    platform = name.split(".")[0]
    server = start_server(HEARDLOG_RETENTION="0")
    for want in ("filed", "known"):
        answer = httpx.post(f"{server.url}/ingest/{platform}", json=payload).json()
        assert answer == {"status": want, "agent_id": IDS[platform]}
    assert httpx.post(f"{server.url}/ingest/{platform}", content=stored.read_bytes()).json()[
        "status"
    ] in ("known", "filed")
    agent = httpx.get(f"{server.url}/agents/{IDS[platform]}").json()
    assert agent["status"] == "STOPPED"
    assert agent["started_at"] == "2026-05-28T20:26:40.000Z"
    assert agent["stopped_at"] == "2026-05-28T20:27:40.000Z"
    if platform != "livekit":  # a report of a session names no caller
        assert agent["user_id"] == "+4930123456"
        assert agent["hosted"]["cost_usd"] == 0.1234
    contents = httpx.get(f"{server.url}/agents/{IDS[platform]}/history").json()["contents"]
    assert [(m["role"], m["turn_id"]) for m in contents[:3]] == [
        ("assistant", 0),
        ("user", 1),
        ("assistant", 1),
    ]
    assert contents[1]["content"] == "When is my train?"
    assert contents[2]["content"].startswith("It leaves at")
    cut = contents[2]["metadata"].get("interrupted", False)
    assert cut == (platform in ("elevenlabs", "livekit"))


def test_signatures(start_server: Start) -> None:
    """What the platforms' own libraries sign and accept, the server accepts."""
    from elevenlabs.webhooks_custom import WebhooksClient
    from retell.lib import webhook_auth
    from twilio.request_validator import RequestValidator

    key = "a-secret"
    server = start_server(
        HEARDLOG_RETENTION="0",
        HEARDLOG_CREDENTIALS="shop=id:secret",
        HEARDLOG_PUBLIC_URL="https://heardlog.example",
        HEARDLOG_INGEST_SECRETS=",".join(
            f"shop/{p}={key}" for p in ("retell", "elevenlabs", "twilio", "vapi")
        ),
    )

    def post(platform: str, body: str, headers: dict[str, str]) -> int:
        url = f"{server.url}/ingest/{platform}?project=shop"
        return httpx.post(url, content=body, headers=headers).status_code

    body = json.dumps({"event": "call_ended", "call": PAYLOADS["retell.call"]()})
    signature = webhook_auth.symmetric["sign"](body, key)
    assert webhook_auth.verify(body, key, signature)
    assert post("retell", body, {"X-Retell-Signature": signature}) == 200
    assert post("retell", body + " ", {"X-Retell-Signature": signature}) == 401

    body = json.dumps(PAYLOADS["elevenlabs.hook"]())
    at = str(int(time.time()))
    digest = hmac.new(key.encode(), f"{at}.{body}".encode(), sha256).hexdigest()
    signature = f"t={at},v0={digest}"
    verify: Any = WebhooksClient.construct_event
    assert verify(None, body, signature, key)["type"] == "post_call_transcription"
    assert post("elevenlabs", body, {"ElevenLabs-Signature": signature}) == 200
    assert post("elevenlabs", body, {"ElevenLabs-Signature": signature + "0"}) == 401

    form = {"CallSid": "CA9", "CallStatus": "completed", "From": "+4930123456"}
    public = "https://heardlog.example/v1/ingest/twilio?project=shop"
    signature = RequestValidator(key).compute_signature(public, form)
    url = f"{server.url}/ingest/twilio?project=shop"
    assert httpx.post(url, data=form, headers={"X-Twilio-Signature": signature}).status_code == 204
    assert httpx.post(url, data=form, headers={"X-Twilio-Signature": "x"}).status_code == 401

    body = json.dumps(PAYLOADS["vapi.report"]())
    assert post("vapi", body, {"X-Vapi-Secret": key}) == 200
    assert post("vapi", body, {"X-Vapi-Secret": key + "x"}) == 401
