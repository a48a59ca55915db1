"""The client."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any

import httpx

from .. import _http, models
from ..errors import ConflictError
from .agent import AsyncAgent
from .endpoints import AsyncEndpoints
from .facts import AsyncFacts


class AsyncHeardlog:
    """A client of one Heardlog server, for one project.

    It is safe for concurrent use, and may be used in several event loops.

    Args:
        url: Base URL of the API. Default: ``HEARDLOG_URL``, or ``http://127.0.0.1:8080/v1``.
            A URL without a path gets ``/v1``.
        secret: Secret of a key, or ``id:secret``. Default: ``HEARDLOG_SECRET``. A server without
            credentials needs none.
        timeout: Seconds to wait for an answer.
        retries: How often a call is repeated after a network error or a 408, 429, 502, 503 or 504.
            Calls that would do harm if repeated carry an ``Idempotency-Key``.
        headers: Headers to send with each call.
        http_client: An ``httpx.AsyncClient`` to use. The caller closes it.
    """

    def __init__(
        self,
        url: str | None = None,
        secret: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        headers: Mapping[str, str] | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        self.url = _http.base_url(url)
        self._secret = _http.secret_of(secret)
        if not isinstance(retries, int) or retries < 0:
            raise ValueError(f"retries: must be a whole number from 0, not {retries!r}")
        self._retries = retries
        self._timeout = timeout
        self._headers = dict(headers or {})
        self._connections = _http.AsyncConnections(timeout, http_client)

    def __repr__(self) -> str:
        secret = "'[secret]'" if self._secret else "None"
        return f"{type(self).__name__}(url={self.url!r}, secret={secret})"

    async def __aenter__(self) -> AsyncHeardlog:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._connections.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        retries: int | None = None,
    ) -> Any:
        """Makes any call of the API, with this client's URL, secret and retries.

        Args:
            path: The path after the base URL, such as ``/kv/shop/cart``. Quote IDs in it.
            json: The body.
            params: Query parameters. Those that are None are left out.
            repeatable: Whether the call may be repeated if the server may have received it.
                Default: true for all methods except POST and PATCH, and for a POST with an
                ``Idempotency-Key``.
            retries: Overrides the client's number.

        Returns:
            The JSON of the answer, or None for an answer without a body.

        Raises:
            HeardlogError: The server refused the call, or could not be reached.
        """
        sending = {**self._headers, **(headers or {})}
        names = {name.lower() for name in sending}
        if self._secret and "authorization" not in names:
            sending["Authorization"] = f"Bearer {self._secret}"
        content = None
        if json is not None:
            content = _http.encoded(json)
            sending["Content-Type"] = "application/json"
        if repeatable is None:
            repeatable = method not in ("POST", "PATCH") or "idempotency-key" in names
        left = self._retries if retries is None else retries
        url = self.url + path
        attempt = 0
        while True:
            try:
                response = await self._connections.client().request(
                    method,
                    url,
                    content=content,
                    params=_http.given(**(params or {})) or None,
                    headers=sending,
                    timeout=self._timeout,
                )
            except httpx.TransportError as error:
                if attempt >= left or (_http.sent(error) and not repeatable):
                    raise _http.unreachable(self.url, error) from error
                wait = _http.pause(attempt)
            else:
                # A server that is too busy has done nothing. A gateway may have passed the call on.
                again = response.status_code == 429 or repeatable
                if response.status_code not in _http.RETRIED or attempt >= left or not again:
                    return _http.content(response)
                wait = _http.pause(attempt, response.headers.get("retry-after"))
            attempt += 1
            await asyncio.sleep(wait)

    async def _post(self, path: str, json: Any = None, key: str | None = None) -> Any:
        """Makes a call that may be repeated, because it changes nothing or has a key."""
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        return await self.request("POST", path, json=json, headers=headers)

    # Agents

    async def start(
        self,
        name: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        system: str | None = None,
        greeting: str | None = None,
        labels: Mapping[str, str] | None = None,
        keys: Iterable[str] | None = None,
        inherit: str | None = None,
        idle_timeout: int | None = None,
        remember: Mapping[str, Any] | str | None = None,
        properties: Mapping[str, Any] | None = None,
        reuse: bool = False,
        idempotency_key: str | None = None,
    ) -> AsyncAgent:
        """Starts an agent: one call, from its start to its end.

        Args:
            name: Unique among the project's running agents.
            user_id: The caller, across calls.
            session_id: A session of the caller, for scopes of memories.
            system: The system message.
            greeting: What the agent says first.
            labels: Names and values to find the call by.
            keys: Keys that find the agent of a request that does not name it, such as
                ``vapi.call:5f0c``.
            inherit: ``full`` or ``summary`` takes over the memory of the last agent of this name.
            idle_timeout: Seconds without a request after which the agent ends.
            remember: What prompts are given of the caller's earlier calls: see the guide.
            properties: All other properties of a join. They win over the arguments.
            reuse: If a running agent has the name, returns it instead of raising ConflictError.
        """
        body = _http.join_body(
            name,
            user_id=user_id,
            session_id=session_id,
            system=system,
            greeting=greeting,
            labels=labels,
            keys=keys,
            inherit=inherit,
            idle_timeout=idle_timeout,
            remember=remember,
            properties=properties,
        )
        try:
            answer: models.JoinAnswer = await self._post("/agents", body, idempotency_key)
        except ConflictError as error:
            if not reuse or error.agent_id is None:
                raise
            return AsyncAgent(self, error.agent_id)
        return AsyncAgent(self, answer["agent_id"], answer.get("inherited"))

    def agent(self, agent_id: str) -> AsyncAgent:
        """Returns the agent with an ID, without asking the server."""
        return AsyncAgent(self, _http.text("agent_id", agent_id))

    async def find(
        self,
        *,
        name: str | None = None,
        user_id: str | None = None,
        status: str | None = None,
        q: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
        **filters: Any,
    ) -> AsyncIterator[models.AgentShown]:
        """Finds calls, newest first, running and ended ones.

        Args:
            status: Words such as ``running`` or ``stopped,failed``.
            q: A text that occurs in the call.
            since: A time, or how long ago, such as ``24h``.
            limit: How many at most. Default: all.
            filters: Other query parameters of ``GET /v1/agents``, such as ``platform``.
        """
        params = _http.given(
            name=name, user_id=user_id, status=status, q=q, since=since, until=until, **filters
        )
        params |= {f"label[{label}]": value for label, value in (labels or {}).items()}
        async for agent in self._pages("/agents", "agents", params, limit, 500):
            yield agent

    async def _pages(
        self, path: str, name: str, params: Mapping[str, Any], limit: int | None, most: int
    ) -> AsyncIterator[Any]:
        """Yields the entries of a list, page by page."""
        cursor = None
        while limit is None or limit > 0:
            size = most if limit is None else min(limit, most)
            page = await self.request(
                "GET", path, params={**params, "limit": size, "cursor": cursor}
            )
            for entry in page[name]:
                yield entry
            if limit is not None:
                limit -= len(page[name])
            cursor = page.get("next_cursor")
            if not cursor:
                return

    # Callers

    async def recall(
        self,
        user_id: str,
        query: str,
        *,
        k: int | None = None,
        kinds: Iterable[str] | None = None,
        **fields: Any,
    ) -> models.Recalled:
        """Finds what was said in any call of a caller, and what is known of them.

        Args:
            query: A question or a few words.
            k: How many hits at most.
            kinds: ``turn``, ``fact``, or both.
            fields: Other fields of ``POST /v1/recall``, such as ``budget_tokens``.
        """
        body = _http.given(
            user_id=_http.text("user_id", user_id),
            query=_http.text("query", query),
            k=k,
            kinds=None if kinds is None else list(kinds),
            **fields,
        )
        found: models.Recalled = await self.request("POST", "/recall", json=body, repeatable=True)
        return found

    def facts(self, user_id: str) -> AsyncFacts:
        """Returns the facts of a caller: iterate over them, add, search, change and delete them."""
        return AsyncFacts(self, _http.text("user_id", user_id))

    @property
    def webhooks(self) -> AsyncEndpoints:
        """The project's webhook endpoints and deliveries."""
        return AsyncEndpoints(self)

    async def evidence(
        self, platform: str, event: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> models.EvidenceAnswer:
        """Reports an event of a voice platform that names its call, or whose headers do."""
        answer: models.EvidenceAnswer = await self.request(
            "POST",
            "/evidence" + _http.join(platform),
            json=dict(event),
            headers=headers,
            repeatable=True,
        )
        return answer

    def openai(self, **options: Any) -> Any:
        """Returns an ``openai.AsyncOpenAI`` whose base URL is this server.

        Name the call with ``default_headers={"X-Agent-Id": …}``, or use ``agent.openai()``.
        """
        return self._openai(self.url, options)

    def _openai(self, url: str, options: dict[str, Any]) -> Any:
        from openai import AsyncOpenAI

        options.setdefault("api_key", self._secret or "unused")
        headers = {**self._headers, **(options.pop("default_headers", None) or {})}
        return AsyncOpenAI(base_url=url, default_headers=headers, **options)
