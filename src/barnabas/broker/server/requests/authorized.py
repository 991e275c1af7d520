"""Checks the client's permissions, and removes the denied items of a request before the handler gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import MaybeAwaitable, continued, is_awaitable, then
from barnabas.broker.logins.delegation_tokens import TokenPrincipal
from barnabas.broker.server.requests.api import Api, Direct, Outcome, Served
from barnabas.broker.server.requests.context import Client, Handle, RequestContext
from barnabas.broker.server.requests.needs import Each, Need, Refused, with_items, without
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.protocol.wire import Readable
from barnabas.kafka.security.acls import Access, Authorizer
from barnabas.kafka.security.principal import ANONYMOUS


class Denials(Protocol):
    """Records denied requests and items, for example in the audit log."""

    def record_request(
        self, api: Api[Any], context: RequestContext, request: Request, error: KafkaError
    ) -> None:
        """Record a request that was rejected as a whole, if `error` is an authorization error."""

    def record_items(self, api: Api[Any], context: RequestContext, response: Response | None) -> None:
        """Record the items in `response` that have an authorization error. There may be none."""


def authorized(
    served: Served, authorizer: Authorizer, view: BrokerView, denials: Denials | None = None
) -> Served:
    """Wrap an API so that its handler gets only the items of a request that the client may use.

    In the response, each other item gets an authorization error, for example TOPIC_AUTHORIZATION_FAILED. If
    the client lacks a permission for the whole request, the request fails with such an error. If the whole
    request or all items are rejected, the handler does not run.

    Args:
        served: the API.
        authorizer: finds the permissions of a client.
        view: image of this broker, which has the names of topics by id.
        denials: records what was denied; None to record nothing.
    """
    whole = [need for need in served.api.needs if need.is_checked and not isinstance(need, Each)]
    each = next((need for need in served.api.needs if isinstance(need, Each)), None)
    checked = _Authorized(served, authorizer, whole, each, view, denials)
    direct = served.direct
    return Served(served.api, checked.handle, None if direct is None else _directly(direct, authorizer))


def _directly(direct: Direct, authorizer: Authorizer) -> Direct:
    def answer(frame: Readable, client: Client, _: Access, began: float, /) -> Outcome:
        access = client.access
        if access is None:
            access = client.access = authorizer.access(client.principal, client.client_host)
        elif access.acls is not authorizer.acls():
            access.catch_up()
        return direct(frame, client, access, began)

    return answer


class _Authorized:
    def __init__(
        self,
        served: Served,
        authorizer: Authorizer,
        whole: Sequence[Need],
        each: Each | None,
        view: BrokerView,
        denials: Denials | None,
    ) -> None:
        self._served = served
        self._access = authorizer.access
        self._whole = whole
        self._each = each
        self._view = view
        self._denials = denials

    def handle(self, context: RequestContext, request: Request) -> MaybeAwaitable[Response | None]:
        """Check the client's permissions, and pass the allowed items of the request to the handler.

        Return the handler's response, with the errors of the rejected items, or an awaitable of it. Also set
        the client's permissions in `context`.

        Raises:
            KafkaError: the client lacks a permission for the whole request, or the handler raised the error.
        """
        connection = context.connection
        context.access = access = self._access(connection.principal, connection.client_host)
        if access.is_unrestricted:
            return self._served.handle(context, request)
        denials = self._denials
        if denials is None:
            return self._handle(access, context, request)
        refusals = access.refusals
        try:
            answer = self._handle(access, context, request)
        except KafkaError as error:
            denials.record_request(self._served.api, context, request, error)
            raise
        if is_awaitable(answer):
            # A future is of a handler that has made all its checks.
            if access.refusals != refusals or not isinstance(answer, asyncio.Future):
                observed = self._observed(denials, access, refusals, context, request, answer)
                return continued(answer, observed)
        elif access.refusals != refusals:
            denials.record_items(self._served.api, context, answer)
        return answer

    async def _observed(
        self,
        denials: Denials,
        access: Access,
        refusals: int,
        context: RequestContext,
        request: Request,
        answer: Awaitable[Response | None],
    ) -> Response | None:
        try:
            response = await answer
        except KafkaError as error:
            denials.record_request(self._served.api, context, request, error)
            raise
        if access.refusals != refusals:
            denials.record_items(self._served.api, context, response)
        return response

    def _handle(
        self, access: Access, context: RequestContext, request: Request
    ) -> MaybeAwaitable[Response | None]:
        handle = self._served.handle
        for need in self._whole:
            need.check(access, request)
        each = self._each
        if each is None:
            return handle(context, request)
        refused = each.sort_out(access, request, self._view.image.topic_names)
        if not refused:
            return handle(context, request)
        api = self._served.api
        left = without(request, each.array, refused)
        if not getattr(left, each.array):
            return _with_refused(api, each, None, request, refused)
        answer = handle(context, left)
        return then(answer, lambda response: _with_refused(api, each, response, request, refused))


def _with_refused(
    api: Api[Any], each: Each, response: Response | None, request: Request, refused: Sequence[Refused]
) -> Response | None:
    """Return the handler's response, with a failed answer for each rejected item added at the end.

    If `response` is None, return a new response with only the failed answers. `refused` is never empty, so
    the result is not None.

    Args:
        api: the API, which makes the failed answers.
        each: names the arrays of the items and of the answers.
        response: the handler's response, to which this function adds; None if the handler did not run.
        request: the client's request.
        refused: the rejected items, with their errors.
    """
    for items, error in refused:
        part = api.on_error(with_items(request, each.array, items), error)
        if response is None:
            response = part
        else:
            getattr(response, each.answers).extend(getattr(part, each.answers))
    return response


def logged_in_only(handle: Handle) -> Handle:
    """Wrap `handle` so that it rejects clients that are anonymous, or have logged in by a delegation token.

    The error is DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """

    def check_and_handle(context: RequestContext, request: Request) -> MaybeAwaitable[Response | None]:
        principal = context.connection.principal
        if principal == ANONYMOUS or isinstance(principal, TokenPrincipal):
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
                "ask on a listener where clients log in, and not by a delegation token",
            )
        return handle(context, request)

    return check_and_handle
