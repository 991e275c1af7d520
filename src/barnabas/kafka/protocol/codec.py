"""Encodes and decodes messages with compiled codecs.

Code outside this package calls these functions, not the compilers. The module `framing` does the same for
whole frames, with their headers.

A codec is compiled at the first use of a (message, version), in about a millisecond. Fields that a version
lacks are left out when encoding and hold their defaults after decoding.
"""

import struct
from typing import TypeVar

from barnabas.base.errors import ProtocolError
from barnabas.base.types import Buffer, Chunk
from barnabas.kafka.protocol.decoder import (
    CountingDecoder,
    Decoder,
    compile_counting_decoder,
    compile_decoder,
)
from barnabas.kafka.protocol.encoder import (
    Encoder,
    ItemsEncoder,
    compile_encoder,
    compile_items_encoder,
)
from barnabas.kafka.protocol.schema import Message, Struct

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_counting_decoders: dict[tuple[type[Message], int], CountingDecoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_items_encoders: dict[tuple[type[Message], type[Struct], int], ItemsEncoder] = {}


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """Return the message that fills `buffer` from `position` to its end.

    Fields with record batches are memoryviews of `buffer`. If `buffer` itself is a memoryview, they are
    memoryviews of a copy. The values of all other fields are copies.

    Raises ProtocolError if the bytes are not exactly one valid message, or if the message does not have that
    version.
    """
    if isinstance(buffer, memoryview):
        buffer = bytes(buffer)
    try:
        message: M = decoder(cls, version)(buffer, position)
    except (struct.error, IndexError):
        raise cut_short(cls, version, buffer) from None
    return message


def decoder(cls: type[Message], version: int) -> Decoder:
    """Return the decoder of a message: ``decoder(cls, version)(buffer, position)``.

    The decoder raises `struct.error` or IndexError if the buffer ends too soon. It raises ProtocolError if
    the bytes are not exactly one valid message. This function raises ProtocolError if the message does not
    have the version.
    """
    return _decoders.get((cls, version)) or _decoder(cls, version)


def counting_decoder(cls: type[Message], version: int) -> CountingDecoder:
    """Return a decoder that counts elements, for a message that may be large.

    ``counting_decoder(cls, version)(buffer, position, max_elements)`` returns the message and its number of
    elements. It raises the same errors as a `decoder`, and TooManyElements if there are more than
    `max_elements` elements.
    """
    known = _counting_decoders.get((cls, version))
    if known is None:
        _check_version(cls, version)
        known = _counting_decoders[cls, version] = compile_counting_decoder(cls, version)
    return known


def encoder(cls: type[Message], version: int) -> Encoder:
    """Return the encoder of a message.

    ``encoder(cls, version)(message, out)`` appends to the bytearray `out`, and returns the buffers to send,
    in order.

    The encoder raises `struct.error` if a number does not fit its field. It raises ProtocolError if a string
    is too long, or if a field is None and does not allow null.
    """
    return _encoders.get((cls, version)) or _encoder(cls, version)


def items_encoder(cls: type[Message], items: type[Struct], version: int) -> ItemsEncoder:
    """Return the encoder of array elements: ``items_encoder(...)(structs, out)`` appends to `out`.

    `items` is the class of the elements of an array in the message `cls`. The array's length is not encoded.
    The encoded bytes can be the content of an `EncodedItems`.
    """
    known = _items_encoders.get((cls, items, version))
    if known is None:
        _check_version(cls, version)
        known = _items_encoders[cls, items, version] = compile_items_encoder(cls, items, version)
    return known


def unfit(cls: type[Message], version: int, cause: struct.error) -> ProtocolError:
    """Return the error for a value that does not fit the wire type of its field."""
    return ProtocolError(f"{cls.__name__} v{version} cannot be encoded: {cause}")


def cut_short(cls: type[Message], version: int, buffer: Buffer) -> ProtocolError:
    """Return the error for a buffer that ends inside a message."""
    return ProtocolError(f"{cls.__name__} v{version} is cut short at {len(buffer)} bytes")


def encode_chunks(message: Message, version: int, out: bytearray | None = None) -> list[Chunk]:
    """Return the message as a list of buffers to send in order.

    If `out` is given, the message is appended to it, and `out` is the first buffer. Large record batches
    become buffers of their own, without a copy.

    Raises ProtocolError if a value does not fit its field, or the message does not have that version. None
    does not fit a field that does not allow null.
    """
    cls = type(message)
    try:
        return encoder(cls, version)(message, bytearray() if out is None else out)
    except struct.error as error:
        raise unfit(cls, version, error) from error


def encode(message: Message, version: int, prefix: bytes = b"") -> bytes:
    """Return `prefix` and the message as one buffer.

    Raises ProtocolError if a value does not fit its field, or the message does not have that version.
    """
    cls = type(message)
    try:
        # As `encode_chunks`, without its calls: the coordinators encode each record in this way.
        chunks = (_encoders.get((cls, version)) or _encoder(cls, version))(message, bytearray(prefix))
    except struct.error as error:
        raise unfit(cls, version, error) from error
    return bytes(chunks[0]) if len(chunks) == 1 else b"".join(map(bytes, chunks))


def _decoder(cls: type[Message], version: int) -> Decoder:
    _check_version(cls, version)
    decoder = _decoders[cls, version] = compile_decoder(cls, version)
    return decoder


def _encoder(cls: type[Message], version: int) -> Encoder:
    _check_version(cls, version)
    encoder = _encoders[cls, version] = compile_encoder(cls, version)
    return encoder


def _check_version(cls: type[Message], version: int) -> None:
    lowest, highest = cls.versions
    if not lowest <= version <= highest:
        raise ProtocolError(f"{cls.__name__} has versions {lowest} to {highest}, not {version}")
