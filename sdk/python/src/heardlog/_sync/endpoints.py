"""The project's webhook endpoints and deliveries."""

# Generated from heardlog/_async by tools/generate.py; do not edit.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import _http

if TYPE_CHECKING:
    from .client import Heardlog


class Endpoints:
    """Webhook endpoints and deliveries. ``Heardlog.webhooks`` returns it.

    Iterating yields the endpoints.

    ``heardlog.webhooks.Verifier`` checks what an endpoint receives.
    """

    def __init__(self, log: Heardlog) -> None:
        self._log = log

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._all()

    def _all(self) -> Iterator[dict[str, Any]]:
        answer = self._log.request("GET", "/webhooks/endpoints")
        for endpoint in answer["endpoints"]:
            yield endpoint

    def create(
        self,
        url: str,
        *,
        events: Iterable[str] | None = None,
        secrets: Iterable[Mapping[str, Any]] | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Creates an endpoint. Only this answer shows the signing secret.

        Args:
            events: Types of events, such as ``agent.history`` or ``agent.*``. Default: all.
            secrets: Signing secrets. Default: a new one.
            fields: Other fields of an endpoint, such as ``description`` or ``payload``.
        """
        body = _http.given(
            url=_http.text("url", url),
            events=None if events is None else list(events),
            secrets=None if secrets is None else list(secrets),
            **fields,
        )
        endpoint: dict[str, Any] = self._log._post("/webhooks/endpoints", body, idempotency_key)
        return endpoint

    def get(self, endpoint_id: str) -> dict[str, Any]:
        """Returns an endpoint."""
        endpoint: dict[str, Any] = self._log.request("GET", _path(endpoint_id))
        return endpoint

    def change(self, endpoint_id: str, **fields: Any) -> dict[str, Any]:
        """Changes the fields that are given."""
        endpoint: dict[str, Any] = self._log.request(
            "PATCH", _path(endpoint_id), json=fields, repeatable=True
        )
        return endpoint

    def delete(self, endpoint_id: str) -> None:
        """Deletes an endpoint and what waits for it."""
        self._log.request("DELETE", _path(endpoint_id))

    def test(self, endpoint_id: str) -> Any:
        """Sends a test event."""
        return self._log._post(_path(endpoint_id) + "/test")

    def deliveries(self, *, limit: int | None = None, **filters: Any) -> Iterator[dict[str, Any]]:
        """Yields deliveries, newest first.

        Args:
            filters: Query parameters of ``GET /v1/webhooks/deliveries``, such as ``state``.
        """
        for delivery in self._log._pages("/webhooks/deliveries", "deliveries", filters, limit, 500):
            yield delivery

    def replay(self, delivery_id: str) -> Any:
        """Sends the event of a delivery again."""
        path = _http.join("webhooks", "deliveries", delivery_id, "replay")
        return self._log._post(path)


def _path(endpoint_id: str) -> str:
    return _http.join("webhooks", "endpoints", endpoint_id)
