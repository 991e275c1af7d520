"""Produces thousands of records in one call, with ctypes and librdkafka's C interface.

confluent-kafka, which contains librdkafka, accepts records one by one. This costs more CPU time than
librdkafka's own work. Here a table of addresses and lengths (`MESSAGES`) passes a whole Arrow batch in one
call, ``rd_kafka_produce_batch``. This module uses names, structures and constants of librdkafka's public
header, rdkafka.h. New releases of librdkafka do not change them. Errors are raised as confluent-kafka's
KafkaException.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, KafkaException, cimpl

#: rd_kafka_message_t. `partition` -1 lets the partitioner choose; an address of 0 is NULL.
MESSAGES = np.dtype(
    {
        "names": ["err", "rkt", "partition", "payload", "len", "key", "key_len", "offset", "opaque"],
        "formats": ["i4", "u8", "i4", "u8", "u8", "u8", "u8", "i8", "u8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
        "itemsize": 72,
    }
)
MessageTable = npt.NDArray[np.void]

_PRODUCER = 0
_COPY, _PARTITION = 0x2, 0x8  # RD_KAFKA_MSG_F_*
_PURGE_ALL = 0x1 | 0x2  # what is queued, and what is under way
_V_END, _V_RKT, _V_PARTITION, _V_VALUE, _V_KEY, _V_MSGFLAGS, _V_HEADERS = 0, 2, 3, 4, 5, 7, 10
_TEXT = 512

#: Milliseconds of one wait in librdkafka. Between two waits, Python handles signals.
_PIECE_MS = 200

#: Milliseconds for which a flush checks each millisecond. librdkafka itself checks only every ten.
_SHORT_FLUSH_MS = 20


class _Message(Structure):
    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("opaque", c_void_p),
    )


class _TopicPartition(Structure):
    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_char_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


class _PartitionMetadata(Structure):
    _fields_ = (
        ("id", c_int32),
        ("err", c_int),
        ("leader", c_int32),
        ("replica_count", c_int),
        ("replicas", c_void_p),
        ("isr_count", c_int),
        ("isr", c_void_p),
    )


class _TopicMetadata(Structure):
    _fields_ = (
        ("topic", c_char_p),
        ("partition_count", c_int),
        ("partitions", POINTER(_PartitionMetadata)),
        ("err", c_int),
    )


class _Metadata(Structure):
    _fields_ = (
        ("broker_count", c_int),
        ("brokers", c_void_p),
        ("topic_count", c_int),
        ("topics", POINTER(_TopicMetadata)),
        ("broker_id", c_int32),
        ("broker_name", c_char_p),
    )


class _Memory(Structure):
    _fields_ = (("address", c_void_p), ("size", c_size_t))


class _Value(ctypes.Union):
    _fields_ = (
        ("i", c_int),
        ("i32", c_int32),
        ("address", c_void_p),
        ("memory", _Memory),
        ("padding", ctypes.c_char * 64),
    )


class _Argument(Structure):
    """The structure rd_kafka_vu_t: one argument of rd_kafka_produceva."""

    _fields_ = (("kind", c_int), ("value", _Value))


_OnDelivery = ctypes.CFUNCTYPE(None, c_void_p, POINTER(_Message), c_void_p)

# what the extension module is linked with is found through it, wherever it lies
_library = ctypes.CDLL(cimpl.__file__)


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_library, f"rd_kafka_{name}")
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


_conf_new = _function("conf_new", c_void_p)
_conf_set = _function("conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_destroy = _function("conf_destroy", None, c_void_p)
_conf_set_dr_msg_cb = _function("conf_set_dr_msg_cb", None, c_void_p, _OnDelivery)
_new = _function("new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
_destroy = _function("destroy", None, c_void_p)
_topic_new = _function("topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
_topic_name = _function("topic_name", c_char_p, c_void_p)
_topic_destroy = _function("topic_destroy", None, c_void_p)
_produce_batch = _function("produce_batch", c_int, c_void_p, c_int32, c_int, c_void_p, c_int)
_produceva = _function("produceva", c_void_p, c_void_p, POINTER(_Argument), c_size_t)
_headers_new = _function("headers_new", c_void_p, c_size_t)
_header_add = _function("header_add", c_int, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t)
_headers_destroy = _function("headers_destroy", None, c_void_p)
_poll = _function("poll", c_int, c_void_p, c_int)
_flush = _function("flush", c_int, c_void_p, c_int)
_purge = _function("purge", c_int, c_void_p, c_int)
_outq_len = _function("outq_len", c_int, c_void_p)
_fatal_error = _function("fatal_error", c_int, c_void_p, c_char_p, c_size_t)
_last_error = _function("last_error", c_int)
_metadata = _function("metadata", c_int, c_void_p, c_int, c_void_p, POINTER(POINTER(_Metadata)), c_int)
_metadata_destroy = _function("metadata_destroy", None, c_void_p)
_init_transactions = _function("init_transactions", c_void_p, c_void_p, c_int)
_begin_transaction = _function("begin_transaction", c_void_p, c_void_p)
_send_offsets = _function("send_offsets_to_transaction", c_void_p, c_void_p, c_void_p, c_void_p, c_int)
_commit_transaction = _function("commit_transaction", c_void_p, c_void_p, c_int)
_abort_transaction = _function("abort_transaction", c_void_p, c_void_p, c_int)
_group_new = _function("consumer_group_metadata_new", c_void_p, c_char_p)
_group_destroy = _function("consumer_group_metadata_destroy", None, c_void_p)
_list_new = _function("topic_partition_list_new", c_void_p, c_int)
_list_add = _function("topic_partition_list_add", POINTER(_TopicPartition), c_void_p, c_char_p, c_int32)
_list_destroy = _function("topic_partition_list_destroy", None, c_void_p)
_error_code = _function("error_code", c_int, c_void_p)
_error_string = _function("error_string", c_char_p, c_void_p)
_error_is_fatal = _function("error_is_fatal", c_int, c_void_p)
_error_is_retriable = _function("error_is_retriable", c_int, c_void_p)
_error_txn_requires_abort = _function("error_txn_requires_abort", c_int, c_void_p)
_error_destroy = _function("error_destroy", None, c_void_p)


class Failed(NamedTuple):
    """A record that was not written, and the reason (`error`).

    `partition` is -1 if librdkafka was to choose the partition. `key` and `value` are None for NULL.
    """

    error: KafkaError
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


class BatchProducer:
    """A producer that sends tables of records.

    `settings` are those of librdkafka. `poll` and `flush` call `on_failure` for each failed record.
    """

    def __init__(self, settings: Mapping[str, object], on_failure: Callable[[Failed], None]) -> None:
        """Create a producer. `poll` and `flush` call `on_failure` for each failed record.

        Raises KafkaException for a setting that librdkafka rejects.
        """
        text = ctypes.create_string_buffer(_TEXT)
        configuration = _conf_new()
        for name, value in {**settings, "delivery.report.only.error": True}.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            if _conf_set(configuration, name.encode(), shown.encode(), text, _TEXT) != 0:
                _conf_destroy(configuration)
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text.value.decode()))

        # kept, for librdkafka calls it as long as it lives
        self._on_delivery = _OnDelivery(lambda _, message, __: on_failure(_failed(message.contents)))
        _conf_set_dr_msg_cb(configuration, self._on_delivery)
        self._handle = _new(_PRODUCER, configuration, text, _TEXT)
        if not self._handle:
            _conf_destroy(configuration)
            raise KafkaException(KafkaError(_last_error(), text.value.decode()))
        self._topics: dict[str, int] = {}

    def produce(self, topic: str, messages: MessageTable) -> int | None:
        """Queue copies of all records in `messages`. If one is rejected, later records may still be queued.

        `messages` has one row of the type `MESSAGES` for each record. Return None if all records are queued.
        If not, return the row number of the first rejected record. The field `err` of this row then has the
        error code.

        Raises KafkaException if `topic` is not a valid name.
        """
        flags = _COPY | _PARTITION
        queued = _produce_batch(self._topic(topic), -1, flags, messages.ctypes.data, len(messages))
        return None if queued == len(messages) else int(np.flatnonzero(messages["err"])[0])

    def produce_with_headers(
        self, topic: str, message: np.void, headers: Iterable[tuple[str, bytes | None]]
    ) -> None:
        """Queue a copy of one record with headers, which `produce` does not support.

        `message` is a row of the type `MESSAGES`, and a header's value is None for NULL.

        Raises KafkaException if the record is rejected, or `topic` is not a valid name.
        """
        added = _headers_new(8)
        for name, value in headers:
            encoded = name.encode()
            _header_add(added, encoded, len(encoded), value, 0 if value is None else len(value))
        arguments = (_Argument * 6)(
            _Argument(_V_RKT, _Value(address=self._topic(topic))),
            _Argument(_V_PARTITION, _Value(i32=int(message["partition"]))),
            _Argument(_V_MSGFLAGS, _Value(i=_COPY)),
            _Argument(_V_VALUE, _Value(memory=_Memory(int(message["payload"]) or None, int(message["len"])))),
            _Argument(_V_KEY, _Value(memory=_Memory(int(message["key"]) or None, int(message["key_len"])))),
            _Argument(_V_HEADERS, _Value(address=added)),
        )
        if error := _produceva(self._handle, arguments, len(arguments)):
            _headers_destroy(added)  # it takes them only when it succeeds
            _raise(error)

    def __len__(self) -> int:
        """Return the number of records without an acknowledgement."""
        return int(_outq_len(self._handle))

    def poll(self, milliseconds: int) -> None:
        """Call `on_failure` for each record that has failed.

        If none has, wait up to `milliseconds` for the first.

        Raises KafkaException after a fatal error.
        """
        _poll(self._handle, milliseconds)
        self._check()

    def flush(self) -> None:
        """Wait until each record is acknowledged or has failed. Raises KafkaException after a fatal error."""
        for _ in range(_SHORT_FLUSH_MS):
            if _flush(self._handle, 1) == 0:
                break
        while _flush(self._handle, _PIECE_MS) != 0:
            self._check()
        self._check()

    def purge(self) -> None:
        """Drop the records without an acknowledgement.

        The next `poll` or `flush` passes them to `on_failure`.
        """
        _purge(self._handle, _PURGE_ALL)

    def find(self, topic: str, seconds: float) -> list[int]:
        """Return the numbers of a topic's partitions that have a leader; empty if there is no such topic.

        Raises KafkaException if no broker answers within `seconds`.
        """
        found = POINTER(_Metadata)()
        code = _metadata(self._handle, 0, self._topic(topic), ctypes.byref(found), int(seconds * 1000))
        if code != 0:
            raise KafkaException(KafkaError(code))
        try:
            (described,) = found.contents.topics[: found.contents.topic_count]
            return [each.id for each in described.partitions[: described.partition_count] if each.leader >= 0]
        finally:
            _metadata_destroy(found)

    def init_transactions(self, seconds: float) -> None:
        _raise(_init_transactions(self._handle, int(seconds * 1000)))

    def begin_transaction(self) -> None:
        _raise(_begin_transaction(self._handle))

    def send_offset(self, group: str, topic: str, offset: int, metadata: str, seconds: float) -> None:
        """Add an offset commit to the transaction: for `group` and partition 0 of `topic`.

        The broker stores `metadata` with a NUL at its end. Raises KafkaException if the commit is rejected,
        or takes longer than `seconds`.
        """
        offsets, members = _list_new(1), _group_new(group.encode())
        entry = _list_add(offsets, topic.encode(), 0).contents
        encoded = metadata.encode()
        entry.offset, entry.metadata = offset, encoded
        entry.metadata_size = len(encoded) + 1  # with the NUL by which librdkafka finds its end
        try:
            _raise(_send_offsets(self._handle, offsets, members, int(seconds * 1000)))
        finally:
            entry.metadata, entry.metadata_size = None, 0  # the text is Python's to free
            _list_destroy(offsets)
            _group_destroy(members)

    def commit_transaction(self, seconds: float) -> None:
        _raise(_commit_transaction(self._handle, int(seconds * 1000)))

    def abort_transaction(self, seconds: float) -> None:
        _raise(_abort_transaction(self._handle, int(seconds * 1000)))

    def close(self) -> None:
        """Stop threads and close connections. Records without an acknowledgement are lost."""
        for topic in self._topics.values():
            _topic_destroy(topic)
        _destroy(self._handle)

    def _topic(self, name: str) -> int:
        if "\0" in name:  # where C would take it to end
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        if name not in self._topics:
            topic = _topic_new(self._handle, name.encode(), None)
            if not topic:
                raise KafkaException(KafkaError(_last_error()))
            self._topics[name] = topic
        return self._topics[name]

    def _check(self) -> None:
        text = ctypes.create_string_buffer(_TEXT)
        if code := _fatal_error(self._handle, text, _TEXT):
            raise KafkaException(KafkaError(code, text.value.decode(), fatal=True))


def _failed(message: _Message) -> Failed:
    return Failed(
        KafkaError(message.err),
        _topic_name(message.rkt).decode(),
        message.partition,
        ctypes.string_at(message.key, message.key_len) if message.key else None,
        ctypes.string_at(message.payload, message.len) if message.payload else None,
    )


def _raise(error: int | None) -> None:
    """Raise a returned rd_kafka_error_t as KafkaException, and free its memory. Do nothing for NULL."""
    if not error:
        return
    found = KafkaError(
        _error_code(error),
        _error_string(error).decode(),
        fatal=bool(_error_is_fatal(error)),
        retriable=bool(_error_is_retriable(error)),
        txn_requires_abort=bool(_error_txn_requires_abort(error)),
    )
    _error_destroy(error)
    raise KafkaException(found)
