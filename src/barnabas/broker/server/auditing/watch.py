"""Records the changes and the denied operations of clients in the audit log."""

from __future__ import annotations

from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.broker.awaitables import resolve
from barnabas.broker.server.auditing.outline import DENIALS, error_name, failures, outline
from barnabas.broker.server.auditing.trail import CHANGE, DENIED, AuditTrail
from barnabas.broker.server.requests.api import Api, Served
from barnabas.broker.server.requests.context import RequestContext
from barnabas.kafka.protocol.schema import Request, Response


def changes_audited(served: Served, trail: AuditTrail) -> Served:
    """Wrap an API so that the audit log records its requests and their errors.

    Return `served` itself if there is no audit file, or if the API changes nothing (`Api.is_audited`).
    """
    if not served.api.is_audited or not trail.has_file:
        return served

    def note(context: RequestContext, request: Request, failed: list[dict[str, Any]]) -> None:
        details: dict[str, Any] = {"request": served.api.name, "change": outline(request)}
        if failed:
            details["failed"] = failed
        trail.note(CHANGE, context.connection, context.client_id, **details)

    async def handle(context: RequestContext, request: Request) -> Response | None:
        try:
            response = await resolve(served.handle(context, request))
        except KafkaError as error:
            if error.code not in DENIALS:  # those are noted where they are decided
                note(context, request, [{"error": error_name(error.code)}])
            raise
        note(context, request, [] if response is None else failures(response))
        return response

    return Served(served.api, handle)


class Denials:
    """Records the denied operations of an API."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail

    def record_request(
        self, api: Api[Any], context: RequestContext, request: Request, error: KafkaError
    ) -> None:
        """Record that `error` denied a whole request. Do nothing if it is no authorization error.

        The entry has the names of resources in the request, for example the topic.
        """
        if error.code in DENIALS:
            named = {
                name: value
                for name, value in outline(request).items()
                if isinstance(value, str) and name not in ("client_id", "member_id")
            }
            self._note(api, context, [{**named, "error": error_name(error.code)}])

    def record_items(self, api: Api[Any], context: RequestContext, response: Response | None) -> None:
        """Record the items of a response that have an authorization error, in one entry of the audit log.

        An item is, for example, a topic of the request. Do nothing if there is no such item or no response.
        """
        if response is not None:
            denied = failures(response, DENIALS)
            if denied:
                self._note(api, context, denied)

    def _note(self, api: Api[Any], context: RequestContext, denied: list[dict[str, Any]]) -> None:
        self._trail.note(DENIED, context.connection, context.client_id, request=api.name, denied=denied)
