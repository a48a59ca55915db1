"""The errors that this package raises."""

from __future__ import annotations

import re
from typing import Any

import httpx

# The server's texts begin with the field at fault: "messages[0].role: must be one of …".
_FIELD = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\]|\[[\w-]+\])*): ")


class HeardlogError(Exception):
    """A call that Heardlog refused, or that did not reach it.

    Attributes:
        detail: What is wrong, in words. It holds no secret.
        status: The HTTP status, or 0 if there was no answer.
        reason: One of a few words that never change, such as ``InvalidFieldValue``. For an error of
            the OpenAI-compatible calls it is the code. Empty if there was no answer.
        field: The field at fault, such as ``messages[0].role``, or None.
        request_id: The ID under which the server's log has the call, or None.
        agent_id: The running agent that has the name, if a name is taken.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int = 0,
        reason: str = "",
        field: str | None = None,
        request_id: str | None = None,
        agent_id: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.reason = reason
        self.field = field
        self.request_id = request_id
        self.agent_id = agent_id

    def __str__(self) -> str:
        notes = [str(self.status)] if self.status else []
        notes += [self.reason] if self.reason else []
        notes += [f"request {self.request_id}"] if self.request_id else []
        return f"{self.detail} ({', '.join(notes)})" if notes else self.detail


class AuthError(HeardlogError):
    """The secret is missing, wrong, or not for this call (401, 403)."""


class NotFoundError(HeardlogError):
    """The thing does not exist (404)."""


class EndedError(HeardlogError):
    """The agent has ended and takes no more messages (410)."""


class ConflictError(HeardlogError):
    """The current state forbids the call (409), such as a name that a running agent has."""


class UnavailableError(HeardlogError):
    """The server could not be reached, or was too busy (429, 502, 503, 504), after all retries."""


_CLASSES: dict[int, type[HeardlogError]] = {
    401: AuthError,
    403: AuthError,
    404: NotFoundError,
    409: ConflictError,
    410: EndedError,
    429: UnavailableError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def from_response(response: httpx.Response) -> HeardlogError:
    """Returns the error in an answer whose status is not 2xx."""
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    detail, reason, field, agent_id = "", "", None, None
    if isinstance(body, dict):
        openai = body.get("error")
        if isinstance(openai, dict):
            detail, reason = _text(openai.get("message")), _text(openai.get("code"))
            field = _text(openai.get("param")) or None
        else:
            detail, reason = _text(body.get("detail")), _text(body.get("reason"))
            agent_id = _text(body.get("agent_id")) or None
            found = _FIELD.match(detail)
            if found and response.status_code < 500:
                field = found[1]
    if not detail:
        detail = f"the server answered {response.status_code} {response.reason_phrase}".rstrip()
    return _CLASSES.get(response.status_code, HeardlogError)(
        detail,
        status=response.status_code,
        reason=reason,
        field=field,
        request_id=response.headers.get("x-request-id"),
        agent_id=agent_id,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
