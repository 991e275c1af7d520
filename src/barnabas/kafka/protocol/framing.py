"""Frames and headers of requests and responses, for servers and clients.

A frame is an int32 with the size of the rest, then a header and a message. A request header has version 2 if
the request's version is flexible, else 1. A response header has version 1 or 0 respectively. The response
header of ApiVersions always has version 0.
"""

from struct import Struct, error
from typing import NamedTuple, TypeVar

from barnabas.base.errors import ProtocolError, TooManyElements
from barnabas.base.types import Chunk
from barnabas.kafka.protocol import codec
from barnabas.kafka.protocol.decoder import Decoder
from barnabas.kafka.protocol.encoder import Encoder
from barnabas.kafka.protocol.large_frame import LARGE, LargeFrame
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.registry import request_class, response_class
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.protocol.wire import MAX_ELEMENTS, Readable, skip_tags

R = TypeVar("R", bound=Response)

_SIZE = Struct(">i")
_REQUEST_HEADER = Struct(">hhih")
_RESPONSE_HEADER = Struct(">ii")


class RequestHeader(NamedTuple):
    """The header of every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


#: makes a header of its fields; calling its class takes three times as long
_header = tuple.__new__


class FrameDecoder:
    """Splits the stream of one connection into frames. Pass each piece of the stream to `feed`.

    The decoder buffers at most one incomplete frame. The buffer of a small frame has the size of the received
    bytes. If more than 128 KiB of a frame are missing, its buffer is a `LargeFrame`. Such a buffer has at
    most four times the size of the received bytes, or 512 KiB if that is more.

    Args:
        max_size: largest size of a frame, in bytes. The size of a larger frame is refused (`refused`).
    """

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size  # in bytes, without the size itself: socket.request.max.bytes
        self._partial = bytearray()
        self._missing = 0  # bytes until `_partial` is whole; 0 while its size is not known
        #: an incomplete large frame; the caller that takes it receives its remaining bytes
        self.large: LargeFrame | None = None
        #: why the rest of the stream is unreadable; None if it is readable
        self.refused: str | None = None

    def feed(self, data: bytes) -> list[Readable]:
        """Return the frames that `data` completes, without their sizes.

        If a size is negative or above `max_size`, the rest of the stream is unreadable. Then set `refused`,
        and return an empty frame in its place, after the frames before it. So the caller can serve them
        before it closes the connection. Discard all later data.
        """
        if self.refused is not None:
            return []
        start, end = 0, len(data)
        frames: list[Readable] = []
        if not self._missing and not self._partial and self.large is None:  # whole frames, as nearly always
            max_size = self.max_size
            while end - start >= 4:
                size: int = _SIZE.unpack_from(data, start)[0]
                stop = start + 4 + size
                if stop > end or not 0 <= size <= max_size:
                    break
                frames.append(data[start + 4 : stop])
                start = stop
        if start == end:
            return frames
        try:
            self._take(data, start, frames)
        except ProtocolError as error:
            self.refused = str(error)
            frames.append(b"")
        return frames

    def _take(self, data: bytes, start: int, frames: list[Readable]) -> None:
        """Append to `frames` what `data` completes from `start` on. Raise ProtocolError for a wrong size."""
        end = len(data)
        while start < end:
            if self.large is not None:
                taken = data[start : start + self.large.missing]
                start += len(taken)
                whole = self.large.append(taken)
                if whole is not None:
                    self.large = None
                    frames.append(whole)
            elif self._missing:
                taken = data[start : start + self._missing]
                self._partial += taken
                self._missing -= len(taken)
                start += len(taken)
                if not self._missing:
                    frames.append(self._partial)
                    self._partial = bytearray()
            elif not self._partial and end - start >= 4:
                size = self._size(data, start)
                start += 4
                if end - start >= size:
                    frames.append(data[start : start + size])
                    start += size
                elif size - (end - start) > LARGE:
                    self.large = LargeFrame(size, memoryview(data)[start:])
                    start = end
                else:
                    self._missing = size
            else:
                taken = data[start : start + 4 - len(self._partial)]
                self._partial += taken
                start += len(taken)
                if len(self._partial) == 4:
                    size = self._size(self._partial, 0)
                    self._partial = bytearray()
                    if size > LARGE:
                        self.large = LargeFrame(size, b"")
                    elif size:
                        self._missing = size
                    else:
                        frames.append(b"")

    @property
    def pending(self) -> int:
        """Return the number of buffered bytes of an incomplete frame."""
        return len(self._partial) + (self.large.filled if self.large is not None else 0)

    def clear(self) -> None:
        """Discard the received bytes of an incomplete frame."""
        self._partial = bytearray()
        self._missing = 0
        self.large = None

    def _size(self, data: Readable, position: int) -> int:
        size: int = _SIZE.unpack_from(data, position)[0]
        if not 0 <= size <= self.max_size:
            start = bytes(data[position : position + 4])
            raise ProtocolError(
                _other_protocol(start) or f"a frame of {size} bytes; 0 to {self.max_size} are allowed"
            )
        return size


_HTTP = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TLS_HANDSHAKE = b"\x16\x03"


def _other_protocol(start: bytes) -> str | None:
    """Return an error text if a client's first four bytes look like HTTP or TLS; None if not."""
    if start in _HTTP:
        return "it sent an HTTP request, and this port speaks the Kafka protocol"
    if start.startswith(_TLS_HANDSHAKE):
        return "it began a TLS handshake, and this listener is PLAINTEXT: set security.protocol=PLAINTEXT"
    return None


SMALL_FRAME = 2048
"""The elements of a request are not counted if its frame has at most this many bytes: they must be few."""


def parse_request(frame: Readable) -> tuple[RequestHeader, Request]:
    """Return the header and the message of a request frame.

    Raises ProtocolError if the frame is not exactly one request of a known API and version. Raises
    TooManyElements if the arrays of a large request have more than `MAX_ELEMENTS` elements.
    """
    header, message, _ = parse_counted(frame, MAX_ELEMENTS)
    return header, message


def parse_counted(frame: Readable, max_elements: int) -> tuple[RequestHeader, Request, int]:
    """Return the header and the message of a request frame, and the number of the message's elements.

    The elements of all arrays and the tagged fields count. In a frame of at most `SMALL_FRAME` bytes, they
    are not counted: the number is 0.

    Raises:
        ProtocolError: the frame is not exactly one request of a known API and version.
        TooManyElements: the message has more than `max_elements` elements.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        decode, is_flexible = _readers.get((api_key, version)) or _reader(api_key, version)
        position = _REQUEST_HEADER.size
        client_id = None
        if length >= 0:
            client_id = frame[position : position + length].decode("utf-8", "replace")
            position += length
        if is_flexible:
            position = skip_tags(frame, position) if frame[position] else position + 1
    except (error, IndexError):
        raise ProtocolError(f"a request of {len(frame)} bytes has no whole header") from None
    header = _header(RequestHeader, (api_key, version, correlation_id, client_id))
    try:
        if len(frame) <= SMALL_FRAME:
            return header, decode(frame, position), 0
        decode_counted = codec.counting_decoder(request_class(api_key), version)
        message, count = decode_counted(frame, position, max_elements)
    except TooManyElements:
        name = request_class(api_key).api_name
        raise TooManyElements(
            f"{name} v{version} has more than {max_elements} elements in its arrays"
        ) from None
    except (error, IndexError):
        raise codec.cut_short(request_class(api_key), version, frame) from None
    return header, message, count


_readers: dict[tuple[int, int], tuple[Decoder, bool]] = {}


def _reader(api_key: int, version: int) -> tuple[Decoder, bool]:
    """Return the decoder of a request, and whether its header ends with tagged fields.

    Raises ProtocolError for an unknown API or version.
    """
    cls = request_class(api_key)
    if not cls.versions[0] <= version <= cls.versions[1]:
        raise ProtocolError(f"{cls.api_name} has no version {version}")
    reader = _readers[api_key, version] = codec.decoder(cls, version), version >= cls.flexible_from
    return reader


def encode_response(header: RequestHeader, response: Response) -> list[Chunk]:
    """Return the frame that answers a request, as chunks to send one after another.

    Raises ProtocolError if a value does not fit its field, or a field that does not allow null is None.
    """
    _, version, correlation_id, _ = header
    cls = type(response)
    encode, header_size = _writers.get((cls, version)) or _writer(cls, version)
    out = bytearray(header_size)
    try:
        chunks = encode(response, out)
    except error as cause:
        raise codec.unfit(cls, version, cause) from cause
    size = len(out) if len(chunks) == 1 else sum(map(len, chunks))
    _RESPONSE_HEADER.pack_into(out, 0, size - 4, correlation_id)
    return chunks


_writers: dict[tuple[type[Response], int], tuple[Encoder, int]] = {}


def _writer(cls: type[Response], version: int) -> tuple[Encoder, int]:
    """Return the encoder of a response, and the number of bytes before its message: size field and header."""
    # The section of tagged fields is empty: one zero byte.
    writer = _writers[cls, version] = codec.encoder(cls, version), 8 + _has_tags(cls, version)
    return writer


def _has_tags(cls: type[Response], version: int) -> bool:
    """Whether a response header ends with tagged fields.

    The header of an ApiVersions response never has them, because every client must be able to read it.
    """
    return version >= cls.flexible_from and cls.api_key != ApiVersionsRequest.api_key


def encode_request(header: RequestHeader, request: Request) -> list[Chunk]:
    """Return the frame of a request, as chunks to send one after another.

    The class of `request` determines the API key: the `api_key` of `header` is ignored. Raises ProtocolError
    if a value does not fit its field, or the request does not have the version in `header`.
    """
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    out = bytearray(4)
    out += (
        _REQUEST_HEADER.pack(request.api_key, header.api_version, header.correlation_id, length) + client_id
    )
    if header.api_version >= request.flexible_from:
        out.append(0)  # no tagged fields
    chunks = codec.encode_chunks(request, header.api_version, out)
    _SIZE.pack_into(out, 0, sum(map(len, chunks)) - 4)
    return chunks


def response_correlation_id(frame: Readable) -> int:
    """Return the correlation id of the request that a response frame answers.

    Raises ProtocolError if the frame has fewer than four bytes.
    """
    try:
        correlation_id: int = _SIZE.unpack_from(frame)[0]
    except error:
        raise ProtocolError(f"a response of {len(frame)} bytes has no whole header") from None
    return correlation_id


def parse_response(header: RequestHeader, frame: Readable) -> Response:
    """Return the message of a response frame, given the header of the request that it answers.

    Raises ProtocolError if the frame is not exactly one response to that request.
    """
    correlation_id = response_correlation_id(frame)
    if correlation_id != header.correlation_id:
        raise ProtocolError(f"a response to request {correlation_id} instead of {header.correlation_id}")
    cls = response_class(header.api_key)
    position = _SIZE.size
    try:
        if _has_tags(cls, header.api_version):
            position = skip_tags(frame, position)
    except IndexError:
        raise ProtocolError(f"a response of {len(frame)} bytes has no whole header") from None
    return codec.decode(cls, header.api_version, frame, position)
