"""What both clients share: settings, retries and the checks of arguments."""

from __future__ import annotations

import email.utils
import json
import os
import random
import time
import weakref
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from .errors import HeardlogError, UnavailableError, from_response

DEFAULT_URL = "http://127.0.0.1:8080/v1"

# Statuses after which the same request may succeed.
RETRIED = frozenset({408, 429, 502, 503, 504})


class Connections:
    """The connections of a client."""

    def __init__(self, timeout: float, client: httpx.Client | None) -> None:
        self._client = client or httpx.Client(timeout=timeout)
        self._own = client is None

    def client(self) -> httpx.Client:
        """Returns the HTTP client."""
        return self._client

    def close(self) -> None:
        """Closes the connections, unless the HTTP client is the caller's."""
        if self._own:
            self._client.close()


class AsyncConnections:
    """The connections of an asynchronous client. Each event loop has its own: a connection cannot
    be used in another loop than the one that opened it.
    """

    def __init__(self, timeout: float, client: httpx.AsyncClient | None) -> None:
        self._timeout = timeout
        self._given = client
        self._loops: weakref.WeakKeyDictionary[AbstractEventLoop, httpx.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    def client(self) -> httpx.AsyncClient:
        """Returns the HTTP client of the running loop."""
        if self._given is not None:
            return self._given
        loop = get_running_loop()
        client = self._loops.get(loop)
        if client is None:
            client = self._loops[loop] = httpx.AsyncClient(timeout=self._timeout)
        return client

    async def aclose(self) -> None:
        """Closes the connections of this loop, unless the HTTP client is the caller's."""
        client = self._loops.pop(get_running_loop(), None)
        if client is not None:
            await client.aclose()


def base_url(url: str | None) -> str:
    """Returns the base URL of the API, without a slash at its end."""
    url = url if url is not None else os.environ.get("HEARDLOG_URL") or DEFAULT_URL
    if not isinstance(url, str):
        raise TypeError(f"url: must be a string, not {type(url).__name__}")
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL:
        raise ValueError("url: is not a URL") from None
    if parsed.userinfo:
        raise ValueError("url: must not contain credentials; pass them as secret")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"url: must begin with http:// or https://, not {str(parsed)!r}")
    if parsed.query or parsed.fragment:
        raise ValueError("url: must not have a query or a fragment")
    text = str(parsed).rstrip("/")
    return text if parsed.path.strip("/") else text + "/v1"


def secret_of(secret: str | None) -> str:
    """Returns the secret, or an empty string if there is none."""
    secret = secret if secret is not None else os.environ.get("HEARDLOG_SECRET") or ""
    if not isinstance(secret, str):
        raise TypeError(f"secret: must be a string, not {type(secret).__name__}")
    secret = secret.strip()
    if not secret.isascii() or not secret.isprintable():
        raise ValueError("secret: must be printable ASCII")
    return secret


def join(*parts: str) -> str:
    """Returns a path of the parts, each of them quoted."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def text(name: str, value: object) -> str:
    """Returns value if it is a string that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: must be a string, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name}: must not be empty")
    return value


def message_list(messages: tuple[Any, ...]) -> list[Mapping[str, Any]]:
    """Returns the messages of append: one or more mappings, or one list of them."""
    if len(messages) == 1 and not isinstance(messages[0], (str, bytes, Mapping)):
        if not isinstance(messages[0], Iterable):
            raise TypeError(f"messages: must be mappings, not {type(messages[0]).__name__}")
        messages = tuple(messages[0])
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(
                f"messages[{i}]: must be a mapping such as "
                f'{{"role": "user", "content": "Hello"}}, not {type(message).__name__}'
            )
    return list(messages)


def given(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Returns base with the fields of over, objects field by field."""
    out = dict(base)
    for name, value in over.items():
        old = out.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            out[name] = merged(old, value)
        else:
            out[name] = value
    return out


def join_body(
    name: str,
    *,
    user_id: str | None,
    session_id: str | None,
    system: str | None,
    greeting: str | None,
    labels: Mapping[str, str] | None,
    keys: Iterable[str] | None,
    inherit: str | None,
    idle_timeout: int | None,
    remember: Mapping[str, Any] | str | None,
    properties: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Returns the body of a join."""
    if isinstance(keys, str):
        raise TypeError("keys: must be a list of strings, not a string")
    scope = given(
        user_id=None if user_id is None else text("user_id", user_id),
        session_id=None if session_id is None else text("session_id", session_id),
    )
    llm = given(
        system_messages=None if system is None else [{"role": "system", "content": system}],
        greeting_message=greeting,
    )
    own = given(
        scope=scope or None,
        keys=None if keys is None else list(keys),
        session=None if inherit is None else {"inherit": inherit},
        remember=remember,
    )
    made = given(
        labels=None if labels is None else dict(labels),
        idle_timeout=idle_timeout,
        llm=llm or None,
        heardlog=own or None,
    )
    body: dict[str, Any] = {"name": text("name", name)}
    if made or properties:
        body["properties"] = merged(made, properties or {})
    return body


def pause(attempt: int, retry_after: str | None = None) -> float:
    """Returns how many seconds to wait before a retry, at most 8: what the server asks for, or else
    0.1, 0.2, 0.4 …, with jitter.
    """
    asked = _seconds(retry_after) if retry_after else None
    if asked is not None:
        return min(max(asked, 0.0), 8.0)
    return min(float(min(0.1 * 2**attempt, 8.0) * random.uniform(0.75, 1.25)), 8.0)


def _seconds(retry_after: str) -> float | None:
    try:
        return float(retry_after)
    except ValueError:
        pass
    try:
        return email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (ValueError, TypeError):
        return None


def sent(error: httpx.TransportError) -> bool:
    """Reports whether the server may have received the request of a failed call."""
    return not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))


def unreachable(url: str, error: Exception) -> UnavailableError:
    """Returns the error of a call without an answer."""
    what = "did not answer in time" if isinstance(error, httpx.TimeoutException) else ""
    return UnavailableError(
        f"the server at {url} {what or f'could not be reached: {error or type(error).__name__}'}"
    )


def content(response: httpx.Response) -> Any:
    """Returns the JSON of an answer, None if it has no body, or raises its error."""
    if not response.is_success:
        raise from_response(response)
    if not response.content.strip():
        return None
    try:
        return response.json()
    except ValueError:
        raise HeardlogError(
            "the answer is not JSON; is this the URL of a Heardlog server?",
            status=response.status_code,
            request_id=response.headers.get("x-request-id"),
        ) from None


def encoded(body: Any) -> bytes:
    """Returns body as JSON."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def decoded(text: str) -> Any:
    """Returns the value of a JSON text, or None if it is not JSON, for one after a redaction."""
    try:
        return json.loads(text)
    except ValueError:
        return None
