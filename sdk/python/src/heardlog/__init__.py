"""Heardlog: conversation memory for voice agents that knows what was heard.

``Heardlog`` and ``AsyncHeardlog`` are the clients; an ``Agent`` is one call. ``heardlog.webhooks``
verifies webhooks. The other modules connect frameworks, and import them only when they are used.
"""

from ._client import Agent, AsyncAgent, AsyncHeardlog, Heardlog
from .errors import (
    AuthError,
    ConflictError,
    EndedError,
    HeardlogError,
    NotFoundError,
    UnavailableError,
)

__all__ = [
    "Agent",
    "AsyncAgent",
    "AsyncHeardlog",
    "AuthError",
    "ConflictError",
    "EndedError",
    "Heardlog",
    "HeardlogError",
    "NotFoundError",
    "UnavailableError",
]
__version__ = "0.1.0"
