"""The two clients: the same methods, synchronous and asynchronous."""

from ._async.agent import AsyncAgent
from ._async.client import AsyncHeardlog
from ._async.endpoints import AsyncEndpoints
from ._async.facts import AsyncFacts
from ._sync.agent import Agent
from ._sync.client import Heardlog
from ._sync.endpoints import Endpoints
from ._sync.facts import Facts

__all__ = [
    "Agent",
    "AsyncAgent",
    "AsyncEndpoints",
    "AsyncFacts",
    "AsyncHeardlog",
    "Endpoints",
    "Facts",
    "Heardlog",
]
