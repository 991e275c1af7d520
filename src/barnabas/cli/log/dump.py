"""Reads all kinds of files in a partition's directory, for output in the format of DumpLogSegments."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.base.errors import KafkaError
from barnabas.base.types import Buffer
from barnabas.broker.storage.epochs import LeaderEpochs
from barnabas.broker.storage.index import OffsetIndex, TimeIndex
from barnabas.broker.storage.producer_snapshot import decode_snapshot
from barnabas.broker.storage.transaction_index import ENTRY as TRANSACTION_ENTRY
from barnabas.cli.log.records import Decoder, decoder_for, record_fields, record_text
from barnabas.kafka.records import BatchHeader, Compression, batch_records, check_crc, parse_header
from barnabas.kafka.records.batch import DELETE_HORIZON_FLAG, HEADER_SIZE


class Entry(NamedTuple):
    """One entry of a file, such as a batch: as text and as fields. `damage` is None if it has no problem."""

    text: str
    fields: dict[str, Any]
    damage: str | None = None


def files_of(path: Path) -> list[Path]:
    """Return the file itself, or every file of a partition's directory that can be dumped."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if _dumper(file) is not None)


def dump_file(path: Path, *, records: bool, from_offset: int) -> Iterator[Entry]:
    """Yield the entries of one file.

    If the file is not of a known kind, the only entry says so in `damage`. If a part of a known file is
    damaged, the entry of this part says so in `damage`.

    Args:
        records: whether to include the records of each batch of a .log file.
        from_offset: batches of a .log file that end before this offset are left out.

    Raises:
        OSError: the file cannot be read.
    """
    dumper = _dumper(path)
    if dumper is None:
        yield Entry(
            "",
            {},
            "not a file of a log: an offset with .log, .index, .timeindex, .txnindex or .snapshot, or "
            "leader-epoch-checkpoint",
        )
    elif dumper is _dump_log:
        yield from _dump_log(path, decoder_for(path.absolute().parent.name) if records else None, from_offset)
    else:
        yield from dumper(path)


def _dumper(path: Path) -> Callable[..., Iterator[Entry]] | None:
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    # The name is the offset at which the file begins.
    return _BY_SUFFIX.get(path.suffix) if path.stem.isascii() and path.stem.isdecimal() else None


def _dump_log(path: Path, decoder: Decoder | None, from_offset: int) -> Iterator[Entry]:
    with _contents(path) as data:
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = parse_header(data, position)
            if header.size < HEADER_SIZE or position + header.size > len(data):
                break
            if header.last_offset >= from_offset:
                yield _batch(header, position, data, decoder)
            position += header.size
        if position < len(data):
            left = len(data) - position
            yield Entry(
                f"{left} bytes from position {position} on are not a whole batch",
                {"position": position, "bytes": left},
                "torn end",
            )


def _batch(header: BatchHeader, position: int, data: Buffer, decoder: Decoder | None) -> Entry:
    damage = None
    try:
        check_crc(header, data, position)
    except KafkaError as error:
        damage = error.message
    horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_FLAG else None
    compression = Compression(header.compression).name.lower() if header.compression < 5 else "unknown"
    fields: dict[str, Any] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": horizon,
        "position": position,
        "timestampType": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "timestamp": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": compression,
        "crc": header.crc,
        "isvalid": damage is None,
    }
    lines = [_batch_text(fields)]
    if decoder is not None and damage is None:
        try:
            decoded = list(batch_records(header, memoryview(data)[position : position + header.size]))
        except KafkaError as error:
            damage = error.message
        else:
            lines += [record_text(record, header, decoder) for record in decoded]
            fields["records"] = [record_fields(record, header, decoder) for record in decoded]
    return Entry("\n".join(lines), fields, damage)


def _batch_text(fields: dict[str, Any]) -> str:
    horizon = fields["deleteHorizonMs"]
    shown = {
        **fields,
        "deleteHorizonMs": _optional(-1 if horizon is None else horizon),
        fields["timestampType"]: fields["timestamp"],
    }
    order = [*fields]
    order[order.index("timestampType")] = fields["timestampType"]
    order.remove("timestamp")
    return _text({name: shown[name] for name in order})


def _dump_offset_index(path: Path) -> Iterator[Entry]:
    base = int(path.stem)
    for relative, position in _pairs(path, OffsetIndex.ENTRY):
        fields = {"offset": base + relative, "position": position}
        yield Entry(_text(fields), fields)


def _dump_time_index(path: Path) -> Iterator[Entry]:
    base = int(path.stem)
    for timestamp, relative in _pairs(path, TimeIndex.ENTRY):
        fields = {"timestamp": timestamp, "offset": base + relative}
        yield Entry(_text(fields), fields)


def _dump_transaction_index(path: Path) -> Iterator[Entry]:
    with _contents(path) as data:
        whole = len(data) - len(data) % TRANSACTION_ENTRY.size
        for version, *aborted in TRANSACTION_ENTRY.iter_unpack(data[:whole]):
            names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
            fields = {"version": version, **dict(zip(names, aborted, strict=True))}
            yield Entry(_text(fields), fields)


def _dump_snapshot(path: Path) -> Iterator[Entry]:
    try:
        producers = decode_snapshot(path.read_bytes())
    except ValueError as error:
        yield Entry(str(error), {}, str(error))
        return
    for producer in producers:
        fields: dict[str, Any] = {
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": None if producer.transaction_start < 0 else producer.transaction_start,
            "lastTimestamp": producer.last_timestamp,
        }
        if producer.batches:
            last = producer.batches[-1]
            fields |= {
                "firstSequence": last.base_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.offset_delta,
                "timestamp": last.timestamp,
            }
        yield Entry(_text(fields | {"currentTxnFirstOffset": _optional(producer.transaction_start)}), fields)


def _dump_epochs(path: Path) -> Iterator[Entry]:
    try:
        entries = LeaderEpochs.decode(path.read_bytes()).entries
    except ValueError as error:
        yield Entry(str(error), {}, str(error))
        return
    for entry in entries:
        fields = {"epoch": entry.epoch, "startOffset": entry.start_offset}
        yield Entry(_text(fields), fields)


def _pairs(path: Path, layout: Any) -> Iterator[tuple[int, int]]:
    """Yield the two numbers of each entry of an .index or .timeindex file, whose format is `layout`.

    They are (relative offset, position) in an .index, and (timestamp, relative offset) in a .timeindex.

    The first number rises from entry to entry. While a broker runs, zeros follow the last entry: the function
    stops at the first entry whose first number does not rise.
    """
    with _contents(path) as data:
        previous = -1
        for number in range(len(data) // layout.size):
            first, second = layout.unpack_from(data, number * layout.size)
            if first <= previous and number:
                return
            previous = first
            yield first, second


@contextmanager
def _contents(path: Path) -> Iterator[Buffer]:
    """Return the file's bytes. They are mapped, because a segment may have a gigabyte."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield view


def _text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}: {_value(value)}" for name, value in fields.items())


def _optional(value: int) -> str:
    """Return a number as Java prints an OptionalLong. A negative number means that there is none."""
    return "OptionalLong.empty" if value < 0 else f"OptionalLong[{value}]"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_BY_SUFFIX: dict[str, Callable[..., Iterator[Entry]]] = {
    ".log": _dump_log,
    ".index": _dump_offset_index,
    ".timeindex": _dump_time_index,
    ".txnindex": _dump_transaction_index,
    ".snapshot": _dump_snapshot,
}
_BY_NAME: dict[str, Callable[..., Iterator[Entry]]] = {"leader-epoch-checkpoint": _dump_epochs}
