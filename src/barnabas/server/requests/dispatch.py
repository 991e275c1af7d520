"""From a request's frame to its handler, and from what the handler answers to a reply."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias

from barnabas.answers import is_pending, settled
from barnabas.errors import ErrorCode, KafkaError, ProtocolError, TooManyElements
from barnabas.protocol.framing import RequestHeader, encode_response, parse_counted
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import Response
from barnabas.protocol.wire import MAX_ELEMENTS, Readable
from barnabas.server.requests.api import DIRECT_ELEMENTS, Api, Served
from barnabas.server.requests.context import Chunks, Client, RequestContext
from barnabas.server.requests.long_work import LongWork
from barnabas.server.requests.pieces import MAX_ITEM_ELEMENTS, Pieces, count_along, elements
from barnabas.text import logger_of, shown

log = logger_of(__name__)

AnyApi: TypeAlias = Api[Any, Any]

_MOST_DIVIDED = 4

_KEY = struct.Struct(">h")
_KEY_VERSION_CORRELATION = struct.Struct(">hhi")


def _api_versions_of_unknown_version(frame: Readable) -> RequestHeader | None:
    """The header to answer with, when that is what `frame` is.

    The client cannot know yet what this broker speaks: it is answered in v0, which everyone reads.
    """
    if len(frame) < _KEY_VERSION_CORRELATION.size:
        return None
    key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(frame)
    lowest, highest = ApiVersionsRequest.versions
    if key != ApiVersionsRequest.api_key or lowest <= version <= highest:
        return None
    return RequestHeader(key, 0, correlation_id, None)


class Dispatcher:
    """Serves the requests of every connection of a broker.

    Most are served at once, in the turn of the event loop in which they came. A request with many elements is
    decoded in a thread and divided into pieces. They are served one after another, with other connections'
    requests in between, and the answer is encoded in a thread. Its own connection waits meanwhile.
    """

    def __init__(self, served: Mapping[int, Served], long_work: LongWork) -> None:
        self._served = served
        self._long_work = long_work
        #: who may be decoded and divided at the same time: each holds tens of megabytes
        self._divided = asyncio.Semaphore(_MOST_DIVIDED)

    def serve(self, frame: Readable, client: Client) -> None:
        """Start a request; its reply goes to `client`, at once or when it is ready.

        Raises:
            ProtocolError: the frame is no request that this broker serves; the connection is to be closed.
        """
        try:
            header, request, count = parse_counted(frame, DIRECT_ELEMENTS)
        except TooManyElements:
            self._serve_large(frame, client)
            return
        except ProtocolError:
            unknown = _api_versions_of_unknown_version(frame)
            if unknown is None:
                raise
            client.reply(encode_response(unknown, self._unsupported_version()))
            return
        served = self._served.get(header.api_key)
        if served is None:
            raise ProtocolError(f"API key {header.api_key} is not served")
        api = served.api
        context = RequestContext(header, client)
        if count > api.large_from and _pieces(api, request) is not None:
            task = asyncio.ensure_future(self._answer_large(served, header, context, request, count))
            self._park_large(api, client, task)
            return
        try:
            answer = served.handle(context, request)
        except Exception as error:
            answer = self._failure(api, request, error)
        if not is_pending(answer):
            if answer is None:
                return
            if api.listing and count_along(answer, api.listing) > DIRECT_ELEMENTS:
                task = asyncio.ensure_future(self._long_work.run(encode_response, header, answer))
                self._park_large(api, client, task)
            else:
                client.reply(encode_response(header, answer))
        elif context.exclusive:
            task = asyncio.ensure_future(self._answer_later(api, header, request, answer))
            self._park_large(api, client, task)
        else:
            client.park(
                asyncio.ensure_future(answer),
                partial(self._finish, api, header, request, client),
                api.cancel_on_disconnect,
            )

    def _finish(
        self, api: AnyApi, header: RequestHeader, request: Any, client: Client, done: asyncio.Future[Any]
    ) -> Chunks | None:
        try:
            error = done.exception()
            response = done.result() if error is None else self._failure(api, request, error)
            return None if response is None else encode_response(header, response)
        except ProtocolError as error:
            client.close(str(error))
            return None

    def _unsupported_version(self) -> ApiVersionsResponse:
        """The answer, in v0, to an ApiVersions of a version that is not served: the versions that are."""
        api = self._served[ApiVersionsRequest.api_key].api
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[api.advertised()])

    # --- what has many elements ---

    def _serve_large(self, frame: Readable, client: Client) -> None:
        (key,) = _KEY.unpack_from(frame)
        served = self._served.get(key)
        if served is None:
            raise ProtocolError(f"API key {key} is not served")
        self._park_large(served.api, client, asyncio.ensure_future(self._decode_large(served, frame, client)))

    def _park_large(self, api: AnyApi, client: Client, task: asyncio.Future[Any]) -> None:
        client.park(task, partial(self._finish_large, api, client), api.cancel_on_disconnect, exclusive=True)

    async def _decode_large(self, served: Served, frame: Readable, client: Client) -> Chunks | None:
        async with self._divided if served.api.pieces else nullcontext():
            header, request, count = await self._long_work.run(parse_counted, frame, MAX_ELEMENTS)
            return await self._answer_large(served, header, RequestContext(header, client), request, count)

    async def _answer_large(
        self, served: Served, header: RequestHeader, context: RequestContext, request: Any, count: int
    ) -> Chunks | None:
        api = served.api
        pieces = await self._long_work.run(_pieces, api, request)
        if pieces is not None:
            response = await self._in_pieces(served, context, request, pieces)
        elif count > api.most_elements:
            response = await self._long_work.run(self._refusal, api, request)
        else:
            response = await self._answer(served, context, request)
        return None if response is None else await self._long_work.run(encode_response, header, response)

    async def _in_pieces(
        self, served: Served, context: RequestContext, request: Any, pieces: Pieces
    ) -> Response | None:
        api = served.api
        whole: Response | None = None
        part: Response | None
        try:
            divided = await self._long_work.run(pieces.divide, request)
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
        self, api: AnyApi, header: RequestHeader, request: Any, answer: Awaitable[Response | None]
    ) -> Chunks | None:
        try:
            response = await answer
        except Exception as error:
            response = self._failure(api, request, error)
        return None if response is None else await self._long_work.run(encode_response, header, response)

    def _refusal(self, api: AnyApi, request: Any) -> Response:
        error = KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the arrays of this {api.name} have {elements(request)} elements, "
            f"{MAX_ITEM_ELEMENTS} are allowed",
        )
        return self._failure(api, request, error)

    async def _answer(self, served: Served, context: RequestContext, request: Any) -> Response | None:
        try:
            return await settled(served.handle(context, request))
        except Exception as error:
            return self._failure(served.api, request, error)

    def _finish_large(self, api: AnyApi, client: Client, done: asyncio.Future[Any]) -> Chunks | None:
        error = done.exception()
        if error is None:
            chunks: Chunks | None = done.result()
            return chunks
        if not isinstance(error, ProtocolError):
            log.error("%s failed", api.name, exc_info=error)
        client.close(str(error) if isinstance(error, ProtocolError) else f"{api.name} failed")
        return None

    def _failure(self, api: AnyApi, request: Any, error: BaseException) -> Response:
        """The response for an error that escaped the handler; it has failed this request alone."""
        if not isinstance(error, KafkaError):
            log.error("%s failed: %s", api.name, shown(repr(request)), exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            return api.on_error(request, error)
        except KafkaError:
            raise ProtocolError(f"{api.name} failed and has no room for the error {error}") from error


def _pieces(api: AnyApi, request: Any) -> Pieces | None:
    """How to divide a request; None when it is not to be divided."""
    for pieces in api.pieces:
        if pieces.apply_to(request):
            return pieces if pieces.count(request) > pieces.size else None
    return None
