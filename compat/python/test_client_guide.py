"""The programs of the guide that need no framework, and the package as it is built."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.metadata
import json
import subprocess
import sys
import time

from harness import guide
from harness.server import Server
from harness.upstream import Upstream


def test_the_first_program(server: Server, upstream: Upstream) -> None:
    upstream.say("The train leaves at nine.")
    out = guide.run("", HEARDLOG_URL=server.url)
    assert out == "user When is my train?\nassistant The train\n"


def test_without_blocking(server: Server) -> None:
    assert guide.run("The client", HEARDLOG_URL=server.root) == "1 I like window seats.\n"


def test_webhooks(monkeypatch) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "a plain secret")
    names: dict = {}
    exec(guide.program("Webhooks"), names)
    body = json.dumps({"noticeId": "n", "eventType": 103, "sid": "a", "payload": {}}).encode()
    stamp = str(int(time.time()))
    mac = hmac.new(b"a plain secret", f"n.{stamp}.".encode() + body, hashlib.sha256).digest()
    headers = {"webhook-id": "n", "webhook-timestamp": stamp}
    headers["webhook-signature"] = "v1," + base64.b64encode(mac).decode()
    assert names["receive"](headers, body) == 200
    assert names["receive"](headers, body + b" ") == 401


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, heardlog, heardlog.webhooks, heardlog.reporter; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "httpx" in loaded and not loaded & {"openai", "agents", "langchain_core", "google.adk"}


def test_the_package() -> None:
    files = {str(f) for f in importlib.metadata.files("heardlog") or []}
    assert "heardlog/py.typed" in files
    needs = importlib.metadata.requires("heardlog") or []
    assert [n for n in needs if "extra" not in n] == ["httpx<1,>=0.27"]
