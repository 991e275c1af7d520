"""Dispatches requests: decodes a frame, calls its handler, and encodes the response."""

from __future__ import annotations

import asyncio
import math
import struct
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError, ProtocolError, TooManyElements
from barnabas.base.metrics import BOUNDS
from barnabas.base.text import logger_of
from barnabas.broker.awaitables import (
    LongPoll,
    LongResponse,
    MaybeAwaitable,
    PromptFuture,
    SecondPhase,
    resolve,
)
from barnabas.broker.server.requests.api import DIRECT_ELEMENTS, Api, Begun, Served
from barnabas.broker.server.requests.context import Chunks, Client, ClientConnection, RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.order import NOTHING
from barnabas.broker.server.requests.pieces import (
    MAX_ITEM_ELEMENTS,
    Piece,
    Pieces,
    count_along,
    elements,
    has_more_elements,
)
from barnabas.broker.server.requests.usage import Metering, timed
from barnabas.kafka.protocol.framing import RequestHeader, encode_response, parse_counted
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.protocol.wire import MAX_ELEMENTS, Readable
from barnabas.kafka.security.acls import UNRESTRICTED

log = logger_of(__name__, is_limited=True)

AnyApi: TypeAlias = Api[Any]

_MAX_DIVIDED = 4

_KEY = struct.Struct(">h")
_KEY_VERSION_CORRELATION = struct.Struct(">hhi")


def _api_versions_of_unknown_version(frame: Readable) -> RequestHeader | None:
    """Return the header, as of v0, of an ApiVersions request of an unknown version.

    Return None if `frame` is any other request.

    The client cannot know the versions of this broker yet. So the broker answers in v0, which every client
    understands.
    """
    if len(frame) < _KEY_VERSION_CORRELATION.size:
        return None
    key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(frame)
    lowest, highest = ApiVersionsRequest.versions
    if key != ApiVersionsRequest.api_key or lowest <= version <= highest:
        return None
    return RequestHeader(key, 0, correlation_id, None)


class Dispatcher:
    """Serves the requests of all connections of a broker.

    The dispatcher serves most requests in the turn of the event loop in which they arrive, and divides a
    request with many elements into pieces. After each slice of time, the event loop serves requests of other
    connections before the next piece. The request's own connection waits. If a request has more than
    `DIRECT_ELEMENTS` elements, a thread decodes and divides the request, and encodes the response.

    Args:
        served: APIs by API key.
        long_work: runs work that would block the event loop.
        metering: measures requests for the quotas of clients; None without quotas.
        slow: duration in seconds from which a request is logged as slow. Requests that wait because the
            client asked for it are not logged.
    """

    def __init__(
        self,
        served: Mapping[int, Served],
        long_work: LongWork,
        metering: Metering | None = None,
        *,
        slow: float = math.inf,
    ) -> None:
        self._served = served
        self._long_work = long_work
        self._metering = metering
        self._now = long_work.now
        self._slow = slow
        #: limits the large requests in progress: each needs tens of megabytes
        self._divided = asyncio.Semaphore(_MAX_DIVIDED)

    def serve(self, frame: Readable, client: Client) -> None:
        """Start a request. The reply goes to `client`, at once or when it is ready.

        Raises:
            ProtocolError: the frame is invalid, or this broker does not serve the API or version. The caller
                must close the connection.
        """
        began = self._now()
        metering = self._metering
        served = self._served.get(int.from_bytes(frame[:2]))
        if served is not None and served.direct is not None and (metering is None or metering.quotas.is_idle):
            try:
                outcome = served.direct(frame, client, UNRESTRICTED, began)
            except Exception as error:
                outcome = self._failed_directly(served, frame, client, error)
            if outcome is not None:
                self._take_outcome(served, frame, client, began, outcome)
                return
        try:
            header, request, count = parse_counted(frame, DIRECT_ELEMENTS)
        except TooManyElements:
            self._serve_large(frame, client, began)
            return
        except ProtocolError:
            unknown = _api_versions_of_unknown_version(frame)
            if unknown is None:
                raise
            client.reply(encode_response(unknown, self._unsupported_version()))
            return
        if served is None:
            raise ProtocolError(f"API key {header.api_key} is not served")
        api = served.api
        context = RequestContext(header, client)
        if metering is not None and not metering.quotas.is_idle:
            context.usage = metering.begin(api, header, client, len(frame), began)
        if count > api.large_from and (pieces := _pieces(api, request)) is not None:
            answering = self._answer_divided(served, header, context, request, pieces)
            task = asyncio.ensure_future(timed(answering, context.usage))
            self._park_large(served, client, task, began, header)
            return
        try:
            answer = served.handle(context, request)
        except Exception as error:
            answer = self._failure(api, request, error)
        self._answer_begun(served, client, began, header, context, request, answer)

    def _failed_directly(self, served: Served, frame: Readable, client: Client, error: Exception) -> Begun:
        header, request, _ = parse_counted(frame, DIRECT_ELEMENTS)
        return Begun(
            header, RequestContext(header, client), request, self._failure(served.api, request, error)
        )

    def _take_outcome(
        self,
        served: Served,
        frame: Readable,
        client: Client,
        began: float,
        outcome: bytes | Chunks | SecondPhase[Chunks] | LongPoll[Chunks] | Begun,
    ) -> None:
        """Send the reply of a `Direct` function, now or when it is ready, and record the duration.

        Args:
            served: the API of the request.
            frame: the request.
            client: the connection of the request.
            began: time at which the request arrived, in seconds, by the clock of `LongWork`.
            outcome: result of the `Direct` function: a reply, a future of a reply, or a request that a
                handler has begun.
        """
        if isinstance(outcome, Begun):
            self._answer_begun(served, client, began, *outcome)
            return
        if isinstance(outcome, PromptFuture):
            finish = partial(self._finish_direct, served, frame, client, began)
            beside = served.api.key if isinstance(outcome, SecondPhase) else NOTHING
            client.park(outcome, finish, served.api.cancel_on_disconnect, beside)
            return
        client.reply([outcome] if isinstance(outcome, bytes) else outcome)
        # `_took`, without the call
        seconds = self._now() - began
        durations = served.durations
        durations.counts[bisect_left(BOUNDS, seconds)] += 1
        durations.seconds += seconds
        if seconds >= self._slow:
            self._tell_slow(served.api, client, seconds, None)

    def _answer_begun(
        self,
        served: Served,
        client: Client,
        began: float,
        header: RequestHeader,
        context: RequestContext,
        request: Request,
        answer: MaybeAwaitable[Response | None],
    ) -> None:
        """Send the reply to a request, now or when the handler's result is ready, and record the duration.

        Args:
            served: the API of the request.
            client: the connection of the request.
            began: time at which the request arrived, in seconds, by the clock of `LongWork`.
            header: header of the request.
            context: context of the request.
            request: the request.
            answer: the handler's result: a response (None if the request gets none), or an awaitable of it.
        """
        api = served.api
        usage = context.usage  # the handler may have found that it is a broker's
        if answer is None or isinstance(answer, Response):
            response = answer if usage is None else usage.throttled(answer)
            if response is not None:
                if api.listing and count_along(response, api.listing) > DIRECT_ELEMENTS:
                    encoding = self._long_work.run(encode_response, header, response)
                    self._park_large(served, client, asyncio.ensure_future(encoding), began, header)
                    return
                client.reply(encode_response(header, response))
            # `_took`, without the call
            seconds = self._now() - began
            durations = served.durations
            durations.counts[bisect_left(BOUNDS, seconds)] += 1
            durations.seconds += seconds
            if seconds >= self._slow:
                self._tell_slow(api, client, seconds, header)
            return
        if usage is not None:
            usage.pause()
        if isinstance(answer, LongResponse):
            answering = self._answer_later(api, header, context, request, answer)
            task = asyncio.ensure_future(timed(answering, usage))
            self._park_large(served, client, task, began, header)
        else:
            client.park(
                answer if isinstance(answer, asyncio.Future) else asyncio.ensure_future(timed(answer, usage)),
                partial(self._finish, served, header, context, request, client, began),
                api.cancel_on_disconnect,
                header.api_key if _lets_others_begin(api, header, answer) else NOTHING,
            )

    async def answer(self, context: RequestContext, request: Request) -> Response:
        """Return the response to a request that this broker sends to itself.

        If the handler fails, the response has the error. Divide a large request into pieces.

        Raises:
            ProtocolError: this broker does not serve the API, or its response has no field for the error.
        """
        served = self._served.get(request.api_key)
        if served is None:
            raise ProtocolError(f"API key {request.api_key} is not served")
        pieces = None
        if elements(request) > served.api.large_from:
            pieces = await self._long_work.run(_pieces, served.api, request)
        if pieces is None:
            response = await self._answer(served, context, request)
        else:
            divide = partial(self._long_work.run, pieces.divide, request)
            response = await self._in_pieces(served, context, request, pieces, divide)
        if response is None:
            raise ProtocolError(f"{served.api.name} has no response")
        return response

    async def answer_frame(self, frame: Readable, connection: ClientConnection) -> Chunks:
        """Return the encoded response to a request inside an Envelope request, with its size in front.

        Raises:
            ProtocolError: the frame is invalid, this broker does not serve the API or version, or the request
                has no response.
        """
        try:
            header, request, count = parse_counted(frame, DIRECT_ELEMENTS)
        except TooManyElements:
            chunks = await self._decode_large(self._find(frame), frame, connection)
        else:
            served = self._find(frame)
            context = RequestContext(header, connection)
            pieces = _pieces(served.api, request) if count > served.api.large_from else None
            if pieces is not None:
                chunks = await self._answer_divided(served, header, context, request, pieces)
            else:
                response = await self._answer(served, context, request)
                chunks = None if response is None else encode_response(header, response)
        if chunks is None:
            raise ProtocolError("the request has no response")
        return chunks

    def _find(self, frame: Readable) -> Served:
        (key,) = _KEY.unpack_from(frame)
        served = self._served.get(key)
        if served is None:
            raise ProtocolError(f"API key {key} is not served")
        return served

    def _took(self, served: Served, client: Client, began: float, header: RequestHeader | None) -> None:
        """Record the duration of an answered request, and log it if it was slow.

        Do not log it if its API can hold responses back (`Api.is_held_back`).

        Args:
            served: the API of the request.
            client: the connection of the request.
            began: time at which the request arrived, in seconds, by the clock of `LongWork`.
            header: header of the request; None if it was not decoded.
        """
        seconds = self._now() - began
        served.durations.add(seconds)
        if seconds >= self._slow and not served.api.is_held_back:
            self._tell_slow(served.api, client, seconds, header)

    def _tell_slow(self, api: AnyApi, client: Client, seconds: float, header: RequestHeader | None) -> None:
        log.warning(
            "slow request: %s v%s of client %s from %s took %d ms",
            api.name,
            "?" if header is None else header.api_version,
            "?" if header is None else repr(header.client_id),
            client.client_host,
            1000 * seconds,
        )

    def _finish(
        self,
        served: Served,
        header: RequestHeader,
        context: RequestContext,
        request: Request,
        client: Client,
        began: float,
        done: asyncio.Future[Any],
    ) -> Chunks | None:
        self._took(served, client, began, header)
        try:
            error = done.exception()
            response = done.result() if error is None else self._failure(served.api, request, error)
            if context.usage is not None:
                response = context.usage.throttled(response)
            return None if response is None else encode_response(header, response)
        except ProtocolError as error:
            client.close(str(error))
            return None

    def _finish_direct(
        self, served: Served, frame: Readable, client: Client, began: float, done: asyncio.Future[Any]
    ) -> Chunks | None:
        self._took(served, client, began, None)
        try:
            error = done.exception()
            if error is None:
                chunks: Chunks = done.result()
                return chunks
            header, request, _ = parse_counted(frame, DIRECT_ELEMENTS)
            return encode_response(header, self._failure(served.api, request, error))
        except ProtocolError as error:
            client.close(str(error))
            return None

    def _unsupported_version(self) -> ApiVersionsResponse:
        """Return the response in v0 to an ApiVersions request of an unknown version."""
        api = self._served[ApiVersionsRequest.api_key].api
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[api.advertised()])

    # --- what has many elements ---

    def _serve_large(self, frame: Readable, client: Client, began: float) -> None:
        served = self._find(frame)
        task = asyncio.ensure_future(self._decode_large(served, frame, client, metered=client))
        self._park_large(served, client, task, began, None)

    def _park_large(
        self,
        served: Served,
        client: Client,
        task: asyncio.Future[Any],
        began: float,
        header: RequestHeader | None,
    ) -> None:
        finish = partial(self._finish_large, served, client, began, header)
        client.park(task, finish, served.api.cancel_on_disconnect)

    async def _decode_large(
        self, served: Served, frame: Readable, connection: ClientConnection, *, metered: Client | None = None
    ) -> Chunks | None:
        async with self._divided if served.api.pieces else nullcontext():
            header, request, count = await self._long_work.run(parse_counted, frame, MAX_ELEMENTS)
            context = RequestContext(header, connection)
            metering = self._metering
            if metered is not None and metering is not None and not metering.quotas.is_idle:
                context.usage = metering.begin(served.api, header, metered, len(frame))
            answering = self._answer_large(served, header, context, request, count)
            return await timed(answering, context.usage)

    async def _answer_large(
        self, served: Served, header: RequestHeader, context: RequestContext, request: Request, count: int
    ) -> Chunks | None:
        api = served.api
        pieces = await self._long_work.run(_pieces, api, request)
        if pieces is not None:
            divide = partial(self._long_work.run, pieces.divide, request)
            response = await self._in_pieces(served, context, request, pieces, divide)
        elif count > api.max_elements:
            response = await self._long_work.run(self._refusal, api, request)
        else:
            response = await self._answer(served, context, request)
        if context.usage is not None:
            response = context.usage.throttled(response)
        return None if response is None else await self._long_work.run(encode_response, header, response)

    async def _answer_divided(
        self, served: Served, header: RequestHeader, context: RequestContext, request: Request, pieces: Pieces
    ) -> Chunks | None:
        """Execute a request in pieces, and return the encoded response; None if the request gets no response.

        Between the pieces, the event loop can serve other requests. The request has at most `DIRECT_ELEMENTS`
        elements, so the event loop itself divides the request.
        """
        divide = partial(pieces.divide, request)
        response = await self._in_pieces(served, context, request, pieces, divide)
        if context.usage is not None:
            response = context.usage.throttled(response)
        if response is None:
            return None
        if has_more_elements(response, DIRECT_ELEMENTS):
            return await self._long_work.run(encode_response, header, response)
        return encode_response(header, response)

    async def _in_pieces(
        self,
        served: Served,
        context: RequestContext,
        request: Request,
        pieces: Pieces,
        divide: Callable[[], MaybeAwaitable[list[Piece]]],
    ) -> Response | None:
        api = served.api
        whole: Response | None = None
        part: Response | None
        try:
            divided = await resolve(divide())
        except KafkaError as error:
            return await self._long_work.run(self._failure, api, request, error)
        async for piece in self._long_work.slices(divided):
            if piece.is_too_large:
                part = await self._long_work.run(self._refusal, api, piece.request)
            else:
                part = await self._answer(served, context, piece.request)
            if whole is None:
                whole = part
            elif part is not None:
                pieces.join(whole, part, piece.continued)
        return whole

    async def _answer_later(
        self,
        api: AnyApi,
        header: RequestHeader,
        context: RequestContext,
        request: Request,
        answer: Awaitable[Response | None],
    ) -> Chunks | None:
        try:
            response = await answer
        except Exception as error:
            response = self._failure(api, request, error)
        if context.usage is not None:
            response = context.usage.throttled(response)
        return None if response is None else await self._long_work.run(encode_response, header, response)

    def _refusal(self, api: AnyApi, request: Request) -> Response:
        error = KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the arrays of this {api.name} have {elements(request)} elements, "
            f"{MAX_ITEM_ELEMENTS} are allowed",
        )
        return self._failure(api, request, error)

    async def _answer(self, served: Served, context: RequestContext, request: Request) -> Response | None:
        try:
            return await resolve(served.handle(context, request))
        except Exception as error:
            return self._failure(served.api, request, error)

    def _finish_large(
        self,
        served: Served,
        client: Client,
        began: float,
        header: RequestHeader | None,
        done: asyncio.Future[Any],
    ) -> Chunks | None:
        api = served.api
        self._took(served, client, began, header)
        error = done.exception()
        if error is None:
            chunks: Chunks | None = done.result()
            return chunks
        if not isinstance(error, ProtocolError):
            log.error("%s failed", api.name, exc_info=error)
        client.close(str(error) if isinstance(error, ProtocolError) else f"{api.name} failed")
        return None

    def _failure(self, api: AnyApi, request: Request, error: BaseException) -> Response:
        """Make the response for an error that a handler raised. Log the error if it is no KafkaError.

        Raises:
            ProtocolError: the response has no field for the error.
        """
        if not isinstance(error, KafkaError):
            # not what is in it: that may be records, or a password
            log.error("%s failed: %s", api.name, type(error).__name__, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            return api.on_error(request, error)
        except KafkaError:
            raise ProtocolError(f"{api.name} failed and has no room for the error {error}") from error


def _lets_others_begin(api: AnyApi, header: RequestHeader, answer: Awaitable[Any]) -> bool:
    """Whether more requests of the same API can begin while `answer` is awaited."""
    return isinstance(answer, SecondPhase) or api.order.is_of_brokers(header.api_version)


def _pieces(api: AnyApi, request: Request) -> Pieces | None:
    """Return the `Pieces` by which to divide a request; None if the request must not be divided.

    A request is not divided if it is small enough, or if its API declares no arrays by which to divide it.
    """
    for pieces in api.pieces:
        if pieces.apply_to(request):
            return pieces if pieces.count(request) > pieces.size else None
    return None
