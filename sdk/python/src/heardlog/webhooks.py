"""Checks that webhooks come from Heardlog, and reads them.

    verifier = Verifier(os.environ["WEBHOOK_SECRET"])
    event = verifier.verify(request.headers, request.body)

Pass the raw body: the bytes as they arrived, before any JSON parser changed them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, cast

# How far an attempt's time may be from this machine's clock, in seconds, in either direction. Each
# attempt is signed again, so a retry after days passes, too.
TOLERANCE = 300

# Bounds of a secret's size and of how many signatures of one header are checked.
_MIN_KEY, _MAX_KEY, _MAX_SIGNATURES = 24, 64, 32


class SignatureError(Exception):
    """The request does not come from a holder of a secret, or is too old."""


class Event(TypedDict):
    """An event. ``payload`` depends on ``eventType``: pass over types that you do not know."""

    noticeId: str
    """The event's ID: drop repeats of it. Delivery is at least once."""
    productId: int
    eventType: int
    """Such as 103, the memory of a call that has ended."""
    notifyMs: int
    sid: str
    """The agent's ID."""
    payload: dict[str, Any]


class Verifier:
    """Verifies Standard Webhooks signatures. It is safe for concurrent use.

    Args:
        secrets: ``whsec_`` and base64, or other text. While a secret is being changed, pass the old
            and the new one: a signature of either is accepted.
        tolerance: Seconds that an attempt's time may differ from this machine's clock.
        now: Returns the time in Unix seconds.
    """

    def __init__(
        self,
        *secrets: str | Iterable[str],
        tolerance: float = TOLERANCE,
        now: Callable[[], float] = time.time,
    ) -> None:
        flat: list[str] = []
        for secret in secrets:
            flat += [secret] if isinstance(secret, str) else list(secret)
        if not flat:
            raise ValueError("secrets: a verifier needs a secret")
        self._keys = [_key(i, secret) for i, secret in enumerate(flat, 1)]
        if not tolerance > 0:
            raise ValueError(f"tolerance: must be above 0, not {tolerance!r}")
        self._tolerance = tolerance
        self._now = now

    def __repr__(self) -> str:
        return f"Verifier({len(self._keys)} secrets)"

    def verify(self, headers: Mapping[str, Any], body: bytes | str) -> Event:
        """Returns the event of a request.

        Args:
            headers: The request's headers, in any case.
            body: The raw body.

        Raises:
            SignatureError: The signature does not fit, or its time is too far off. The text may be
                shown to the sender; answer 401.
            ValueError: The signature fits, but the body is not an event.
        """
        if isinstance(body, str):
            body = body.encode()
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise TypeError(f"body: must be the raw bytes, not {type(body).__name__}")
        body = bytes(body)
        found = {str(name).lower(): value for name, value in headers.items()}
        ident = _header(found, "webhook-id")
        stamp = _header(found, "webhook-timestamp")
        signatures = _header(found, "webhook-signature")
        if not stamp.isascii() or not stamp.isdigit() or str(int(stamp[:20])) != stamp:
            raise SignatureError("webhook-timestamp is not a time in Unix seconds")
        if abs(self._now() - int(stamp)) > self._tolerance:
            raise SignatureError(
                f"webhook-timestamp is more than {self._tolerance:g} s away from the clock here"
            )
        signed = f"{ident}.{stamp}.".encode() + body
        wanted = [
            b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
            for key in self._keys
        ]
        fits = False
        for given in signatures.split()[:_MAX_SIGNATURES]:
            for want in wanted:  # all of them: the time must not tell which one fits
                fits |= hmac.compare_digest(given.encode("utf-8", "replace"), want)
        if not fits:
            raise SignatureError("no signature in webhook-signature fits the body and a secret")
        event = json.loads(body)
        if not isinstance(event, dict) or "noticeId" not in event or "eventType" not in event:
            raise ValueError("the body is not an event: it has no noticeId or eventType")
        return cast(Event, event)


def thin_body(event: Event, body: bytes) -> Event:
    """Returns the whole event of a thin one, from the bytes that its ``fetch_url`` returned.

    Raises:
        SignatureError: They are not the bytes whose hash was signed.
    """
    payload = event["payload"]
    want = str(payload.get("sha256", "")).encode()
    got = hashlib.sha256(body).hexdigest().encode()
    if len(body) != payload.get("bytes") or not hmac.compare_digest(want, got):
        raise SignatureError("the fetched bytes are not those of the event")
    return cast(Event, json.loads(body))


def _header(headers: Mapping[str, Any], name: str) -> str:
    value = headers.get(name)
    if isinstance(value, (list, tuple)):  # some frameworks keep several values of a name
        value = value[0] if len(value) == 1 else None
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if not isinstance(value, str) or not value:
        raise SignatureError(f"{name} is missing")
    return value


def _key(number: int, secret: str) -> bytes:
    """Returns the key of a secret. Errors name the secret by its number and do not show it."""
    if not isinstance(secret, str):
        raise TypeError(f"secret {number}: must be a string, not {type(secret).__name__}")
    if not secret or secret.strip() != secret:
        raise ValueError(f"secret {number}: is empty, or has white space around it")
    if secret.startswith(("v1,", "whsk_", "whpk_")):
        raise ValueError(
            f"secret {number}: is not a signing secret: those begin with whsec_, or are plain text"
        )
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        key = base64.b64decode(secret[6:], validate=True)
    except binascii.Error:
        key = b""
    if not _MIN_KEY <= len(key) <= _MAX_KEY:
        raise ValueError(
            f"secret {number}: begins with whsec_, but what follows is not base64 of "
            f"{_MIN_KEY} to {_MAX_KEY} bytes"
        )
    return key
