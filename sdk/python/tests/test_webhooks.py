"""The verifier, with signatures that are computed here in another way."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from heardlog.webhooks import SignatureError, Verifier, thin_body

NOW = 1780000000
KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
BODY = json.dumps(
    {"noticeId": "n1", "productId": 17, "eventType": 103, "notifyMs": 1, "sid": "a", "payload": {}}
).encode()


def sign(key: bytes, body: bytes = BODY, at: object = NOW, ident: str = "n1") -> dict[str, str]:
    mac = hmac.digest(key, f"{ident}.{at}.".encode() + body, hashlib.sha256)
    signature = "v1," + base64.b64encode(mac).decode()
    return {
        "Webhook-Id": ident,
        "Webhook-Timestamp": str(at),
        "Webhook-Signature": signature,
    }


def verifier(*secrets: str, **options: float) -> Verifier:
    return Verifier(*(secrets or (SECRET,)), now=lambda: NOW, **options)


def test_good_requests() -> None:
    event = verifier().verify(sign(KEY), BODY)
    assert event["noticeId"] == "n1" and event["eventType"] == 103
    verifier("plain text secret").verify(sign(b"plain text secret"), BODY.decode())
    lists = {name: [value.encode()] for name, value in sign(KEY).items()}
    verifier().verify(lists, memoryview(BODY))  # type: ignore[arg-type]
    verifier().verify(sign(KEY, at=NOW - 300), BODY)
    verifier().verify(sign(KEY, at=NOW + 300), BODY)
    verifier(tolerance=1000).verify(sign(KEY, at=NOW - 900), BODY)


def test_rotation() -> None:
    old, new = b"o" * 32, b"n" * 32
    both = sign(old)["Webhook-Signature"] + " v1a,abc " + sign(new)["Webhook-Signature"]
    headers = {**sign(old), "Webhook-Signature": both}
    old_secret = "whsec_" + base64.b64encode(old).decode()
    new_secret = "whsec_" + base64.b64encode(new).decode()
    for secrets in [(old_secret,), (new_secret,), (old_secret, new_secret)]:
        verifier(*secrets).verify(headers, BODY)
    verifier([old_secret, new_secret]).verify(sign(new), BODY)  # type: ignore[arg-type]
    with pytest.raises(SignatureError):
        verifier().verify(headers, BODY)


@pytest.mark.parametrize(
    "change",
    [
        {"Webhook-Signature": ""},
        {"Webhook-Signature": "v1," + "A" * 43 + "="},
        {"Webhook-Signature": sign(KEY)["Webhook-Signature"].replace("v1,", "v2,")},
        {"Webhook-Signature": "é" + sign(KEY)["Webhook-Signature"]},
        {"Webhook-Signature": "x " * 40 + sign(KEY)["Webhook-Signature"]},
        {"Webhook-Id": "n2"},
        {"Webhook-Id": ""},
        {"Webhook-Timestamp": str(NOW + 1)},
        {"Webhook-Timestamp": f"0{NOW}"},
        {"Webhook-Timestamp": f"{NOW}.0"},
        {"Webhook-Timestamp": "²"},
        {"Webhook-Timestamp": "9" * 5000},
        {"Webhook-Timestamp": ""},
    ],
)
def test_bad_requests(change: dict[str, str]) -> None:
    with pytest.raises(SignatureError):
        verifier().verify({**sign(KEY), **change}, BODY)


@pytest.mark.parametrize("at", [NOW - 301, NOW + 301, NOW * 1000, 0, -NOW])
def test_old_requests(at: int) -> None:
    with pytest.raises(SignatureError, match="webhook-timestamp"):
        verifier().verify(sign(KEY, at=at), BODY)


def test_changed_bodies() -> None:
    for body in [BODY + b" ", BODY.replace(b"103", b"104"), b""]:
        with pytest.raises(SignatureError):
            verifier().verify(sign(KEY), body)
    with pytest.raises(ValueError, match="not an event"):
        verifier().verify(sign(KEY, b"[]"), b"[]")
    with pytest.raises(TypeError, match="raw bytes, not dict"):
        verifier().verify(sign(KEY), json.loads(BODY))


@pytest.mark.parametrize(
    "secret", ["", " x", "whsec_hidden!", "whsec_aGlkZGVu", "whsk_hidden", "v1,hidden"]
)
def test_bad_secrets(secret: str) -> None:
    with pytest.raises(ValueError, match="secret 2: ") as error:
        Verifier(SECRET, secret)
    assert "hidden" not in str(error.value)
    assert SECRET not in repr(verifier())
    with pytest.raises(ValueError, match="needs a secret"):
        Verifier()


def test_thin_events() -> None:
    digest = hashlib.sha256(BODY).hexdigest()
    event = verifier().verify(sign(KEY), BODY)
    event["payload"] = {"thin": True, "bytes": len(BODY), "sha256": digest}
    assert thin_body(event, BODY)["noticeId"] == "n1"
    for body in [BODY + b" ", BODY.replace(b"n1", b"n2")]:
        with pytest.raises(SignatureError):
            thin_body(event, body)
