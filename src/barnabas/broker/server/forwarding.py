"""Forwards requests for the controller, which clients can send to any broker (KIP-590)."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError, ProtocolError, error_code
from barnabas.base.types import BrokerId, Buffer
from barnabas.broker.awaitables import resolve
from barnabas.broker.interbroker import ChannelError
from barnabas.broker.logins.delegation_tokens import TokenPrincipal
from barnabas.broker.metadata import ClusterImage, ImageDelta, MetadataLoader
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.server.requests.api import Api, Served
from barnabas.broker.server.requests.context import ClientConnection, RequestContext
from barnabas.broker.server.to_controller import ToController
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.kafka.protocol.records.principal import DefaultPrincipalData
from barnabas.kafka.protocol.schema import Request, Response, Struct
from barnabas.kafka.security.principal import ANONYMOUS, Principal

#: seconds before the next attempt, after a broker was not the controller
_RETRY = 0.1
#: time limit for this broker's image to contain the controller's result, in seconds
_SEEN_WITHIN = 5.0


class Forwarding:
    """Sends requests to the controller, and answers clients when this broker's image shows the result.

    A broker that is not the controller rejects the request without any change. Then this class sends the
    request to the next controller, until the request's timeout. If a response is lost, the class does not
    send the request again, because the controller may have executed it.

    Args:
        view: settings of this broker, and its image (copy) of the cluster's metadata.
        to_controller: sends requests to the controller.
        loader: updates this broker's image.
        connection: represents the client in requests that this broker itself sends (`send`), because no
            client's connection exists then.
    """

    def __init__(
        self,
        view: BrokerView,
        to_controller: ToController,
        loader: MetadataLoader,
        connection: ClientConnection,
    ) -> None:
        self._view = view
        self._to_controller = to_controller
        self._loader = loader
        self._connection = connection
        self._changed = asyncio.Event()
        #: APIs that this broker serves if it is the controller, by API key
        self.local: dict[int, Served] = {}

    def forwarded(self, served: Served) -> Served:
        """Wrap an API so that the active controller answers its requests.

        If this broker is the controller, `served` answers them here.
        """
        self.local[served.api.key] = served
        return Served(served.api, partial(self._forward, served))

    def follow(self, delta: ImageDelta) -> None:
        """Retry the waiting requests at once if the cluster has another controller after `delta`."""
        if delta.before.controller_id != delta.after.controller_id:
            self._changed.set()
            self._changed = asyncio.Event()

    async def send(self, request: Request, *, timeout_s: float) -> Any:
        """Send one of this broker's own requests to the controller, and return its response.

        Raises:
            KafkaError: NOT_CONTROLLER, no controller was found within `timeout_s` seconds.
                REQUEST_TIMED_OUT, the response is lost, and the controller may have executed the request.
                Or another error of the controller.
        """
        header = RequestHeader(request.api_key, request.versions[1], 0, f"broker-{self._view.node_id}")
        context = RequestContext(header, self._connection)
        return await self._answer(self.local[request.api_key], context, request, timeout_s)

    async def _forward(self, served: Served, context: RequestContext, request: Request) -> Response:
        timeout_ms = getattr(request, "timeout_ms", 0)
        if timeout_ms <= 0:
            timeout_ms = self._view.config.request_timeout_ms
        return await self._answer(served, context, request, timeout_ms / 1000)

    async def _answer(
        self, served: Served, context: RequestContext, request: Request, timeout_s: float
    ) -> Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            asked, changed = self._to_controller.controller_id, self._changed
            response = await self._ask(asked, served, context, request, deadline - loop.time())
            if response is not None:
                return response
            left = deadline - loop.time()
            if left <= 0:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller was found in time: try again")
            try:
                async with asyncio.timeout(min(_RETRY, left)):
                    await changed.wait()
            except TimeoutError:
                pass

    async def _ask(
        self,
        controller: BrokerId,
        served: Served,
        context: RequestContext,
        request: Request,
        timeout_s: float,
    ) -> Response | None:
        """Send a request to the broker `controller`, and return the response.

        Return None if the broker `controller` is not the controller, or cannot be reached. If `controller` is
        this broker, execute the request with `served`. If not, return the response only when this broker's
        image contains the result of the request, or after 5 seconds at most (`_see_result`).

        Args:
            controller: id of the broker that is possibly the controller.
            served: the API of the request, as this broker serves it.
            context: context of the client's request.
            request: the request.
            timeout_s: longest wait for the other broker, in seconds.

        Raises:
            KafkaError: REQUEST_TIMED_OUT, the response is lost, and the controller may have executed the
                request; or another error of the request.
        """
        is_local = controller == self._view.node_id
        try:
            if is_local:
                response = await resolve(served.handle(context, request))
                assert response is not None
            else:
                response = await self._ask_remote(served.api, context, request, timeout_s)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return None
        except ChannelError as error:
            if error.may_have_been_carried_out:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"there is no answer: {error}") from error
            return None
        if was_not_controller(response):
            return None
        if not is_local:
            await self._see_result()
        return response

    async def _ask_remote(
        self, api: Api[Any], context: RequestContext, request: Request, timeout_s: float
    ) -> Response:
        """Send a client's request to the controller in an Envelope, and return the controller's response.

        Args:
            api: the API of the request.
            context: context of the request, with the client's principal and address.
            request: the request.
            timeout_s: longest wait for the response, in seconds.

        Raises:
            KafkaError: the controller rejects the envelope, or there is no controller now (NOT_CONTROLLER).
            ChannelError: the controller cannot be reached, or does not respond.
        """
        header = RequestHeader(api.key, context.api_version, 0, context.client_id)
        frame = b"".join(map(bytes, encode_request(header, request)))[4:]
        envelope = EnvelopeRequest(
            request_data=frame,
            request_principal=encode_principal(context.connection.principal),
            client_host_address=_packed(context.connection),
        )
        answer: EnvelopeResponse = await self._to_controller.send(
            envelope, timeout_s=timeout_s, purpose="forwarding"
        )
        if answer.error_code or answer.response_data is None:
            raise KafkaError(error_code(answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR))
        return parse_response(header, answer.response_data)

    async def _see_result(self) -> ClusterImage:
        """Wait for a metadata image that contains the controller's result, and return the image.

        If the metadata store cannot be reached, or after 5 seconds, return the present image.
        """
        try:
            async with asyncio.timeout(_SEEN_WITHIN):
                return await self._loader.synced()
        except (StoreError, TimeoutError):
            return self._loader.image


def was_not_controller(response: Struct) -> bool:
    """Whether a response has NOT_CONTROLLER as the error of the whole request, or of every item."""
    if getattr(response, "error_code", None) == ErrorCode.NOT_CONTROLLER:
        return True
    codes = set(_item_codes(response))
    return codes == {ErrorCode.NOT_CONTROLLER}


def _item_codes(struct: Struct) -> Iterator[int]:
    for field in struct.__fields__:
        value = getattr(struct, field.name)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, Struct):
                code = getattr(item, "error_code", None)
                if code is None:
                    yield from _item_codes(item)
                else:
                    yield code


def _packed(connection: ClientConnection) -> bytes:
    try:
        return ipaddress.ip_address(connection.client_host).packed
    except ValueError:  # a host of a simulation
        return b""


_VERSION = struct.Struct(">h")


def encode_principal(principal: Principal) -> bytes:
    """Return a principal in the encoding that an Envelope request uses."""
    data = DefaultPrincipalData(
        type=principal.kind, name=principal.name, token_authenticated=isinstance(principal, TokenPrincipal)
    )
    return _VERSION.pack(0) + encode(data, 0)


def decode_principal(data: Buffer | None) -> Principal:
    """Return the principal that an Envelope request contains; ANONYMOUS if `data` is None.

    Raises:
        ProtocolError: the bytes are not a valid principal.
    """
    if data is None:
        return ANONYMOUS
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a principal of {len(data)} bytes")
    (version,) = _VERSION.unpack_from(data)
    found = decode(DefaultPrincipalData, version, data, _VERSION.size)
    kind = TokenPrincipal if found.token_authenticated else Principal
    return kind(found.name, found.type)
