"""From a request's frame to its handler, and from what the handler answers to a reply."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.framing import RequestHeader, encode_response, parse_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire import Readable
from barnabas.server.context import RequestContext
from barnabas.server.handlers import Api
from barnabas.server.handlers.api_versions import unsupported_version
from barnabas.server.outbox import Chunks
from barnabas.server.session import Session

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

log = logging.getLogger(__name__)


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
    """Serves the requests of every connection of a broker."""

    def __init__(self, broker: Broker, apis: Mapping[int, Api]) -> None:
        self._broker = broker
        self._apis = apis

    def serve(self, frame: Readable, session: Session) -> None:
        """Start a request; its reply goes to `session`, at once or when it is ready.

        Raises:
            ProtocolError: the frame is no request that this broker serves; the connection is to be closed.
        """
        try:
            header, request = parse_request(frame)
        except ProtocolError:
            unknown = _api_versions_of_unknown_version(frame)
            if unknown is None:
                raise
            session.reply(encode_response(unknown, unsupported_version()))
            return
        api = self._apis.get(header.api_key)
        if api is None:
            raise ProtocolError(f"API key {header.api_key} is not served")
        context = RequestContext(header, session)
        try:
            answer = api.handle(self._broker, context, request)
        except Exception as error:
            answer = self._failure(api, request, error)
        if type(answer) is api.response:
            session.reply(encode_response(header, answer))
        elif answer is not None:
            session.park(
                asyncio.ensure_future(answer),
                partial(self._finish, api, header, request, session),
                api.cancel_on_disconnect,
            )

    def _finish(
        self, api: Api, header: RequestHeader, request: Any, session: Session, done: asyncio.Future[Any]
    ) -> Chunks | None:
        try:
            error = done.exception()
            response = done.result() if error is None else self._failure(api, request, error)
            return None if response is None else encode_response(header, response)
        except ProtocolError as error:
            session.close(str(error))
            return None

    def _failure(self, api: Api, request: Any, error: BaseException) -> Any:
        """The response for an error that escaped the handler; it has failed this request alone."""
        if not isinstance(error, KafkaError):
            log.error("%s failed: %r", api.name, request, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            return api.on_error(request, error)
        except KafkaError:
            raise ProtocolError(f"{api.name} failed and has no room for the error {error}") from error
