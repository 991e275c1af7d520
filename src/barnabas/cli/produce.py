"""`barnabas produce`: sends records from stdin or a file to a topic."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.complete import topic_names
from barnabas.cli.input_records import InputForm, read_records
from barnabas.cli.options import (
    FILE,
    NAME,
    PARTITION,
    assignments_option,
    bootstrap_option,
    example,
    parse_assignments,
    parse_pairs,
)
from barnabas.cli.progress import Counter, is_file
from barnabas.cli.schema_options import Schemas, schema_options
from barnabas.cli.streams import InputError, is_terminal, report, stdin_bytes

if TYPE_CHECKING:
    from barnabas.client import Record

#: bytes; librdkafka's default for message.max.bytes and batch.size
_USUAL_LIMIT = 1_000_000
#: bytes; records that compression may bring below the topic's limit. A request of more than 100 MiB
#: (socket.request.max.bytes) is refused by the broker, which closes the connection.
_COMPRESSIBLE_LIMIT = 100_000_000
#: bytes around a record that is alone in its batch: the batch's header, and lengths
_FRAMING = 100

_OWN_OPTIONS = {
    "bootstrap.servers": "--bootstrap-server",
    "metadata.broker.list": "--bootstrap-server",
    "group.id": "--group",
}


class _Common(NamedTuple):
    """The options of the command that apply to every record."""

    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None
    keep_partitions: bool
    reported: bool


class _Limit(NamedTuple):
    """The maximum size of a record in bytes, and the sentence that tells the user how to raise it."""

    size: int
    hint: str


@click.command(
    epilog=example(
        """
        echo hello | barnabas produce orders
        barnabas produce orders --file orders.txt --key-separator :
        barnabas produce orders --key customer-7 -H trace=abc < order.json
        barnabas consume orders --json --until-end | barnabas produce copy --json
        barnabas produce pictures --raw < cat.png
        barnabas produce orders --registry http://127.0.0.1:8081 --value-schema orders-value < orders.jsonl
        """,
        "Each line is a record, without the LF or CRLF that ends it. With --json each line is an object: "
        '{"value": "v", "key": "k", "headers": [["h", "v"]], "timestamp": 1767225600000, "partition": 0}. '
        'Only "value" is required; bytes that are not UTF-8 are {"base64": "..."}. The partitioner chooses '
        'the partition by the key. With --keep-partitions, "partition" in the object names the partition '
        "instead. With --raw all the input is one record. With --value-schema the values are JSON, and the "
        "registered schema (Avro, JSON Schema or Protobuf) encodes them. --key-schema does the same for "
        "keys. SCHEMA is an id, SUBJECT/VERSION, or SUBJECT for its latest version. The producer is "
        "idempotent. The exit code is 0 only when all records are acknowledged.",
    )
)
@click.argument("topic", type=NAME, shell_complete=topic_names)
@click.option("--file", "-f", type=FILE, help="Read this file instead of stdin.")
@click.option("--key", "-k", metavar="KEY", help="The key of every record.")
@click.option(
    "--key-separator",
    "-K",
    metavar="TEXT",
    help="The text between key and value of each line. A line without it has no key.",
)
@assignments_option("--header", "-H", to="headers", help="A header; may be repeated.")
@click.option("--partition", "-p", type=PARTITION, help="Send all to this partition.")
@click.option(
    "--json", "as_json", is_flag=True, help="Lines are JSON objects, as `consume --json` prints them."
)
@click.option(
    "--keep-partitions",
    is_flag=True,
    help='With --json: send each record to its "partition". The topic needs as many partitions as the '
    "source of the records.",
)
@click.option("--raw", is_flag=True, help="All the input is one record.")
@click.option("--null-as", metavar="TEXT", help="A value that is this text is sent as null (a tombstone).")
@schema_options
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="The compression codec of batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="The replicas that must have a record before it counts as sent: none, the leader, all in sync.",
)
@assignments_option("--set", help="A librdkafka setting; may be repeated.")
@click.option("--report", "reported", is_flag=True, help="Print topic, partition and offset of each record.")
@bootstrap_option
def produce(
    topic: str,
    file: Path | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    as_json: bool,
    keep_partitions: bool,
    raw: bool,
    null_as: str | None,
    compression: str,
    acks: str,
    settings: tuple[str, ...],
    reported: bool,
    bootstrap_server: str,
    **schema: Any,
) -> None:
    """Send the lines of stdin, or of a file, to TOPIC."""
    if as_json + raw + (key_separator is not None) > 1:
        raise click.UsageError("choose one of --json, --raw and --key-separator")
    if key is not None and key_separator is not None:
        raise click.UsageError(
            "choose --key (one key for all records) or --key-separator (keys from the input)"
        )
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    if null_as is not None and as_json:
        raise click.UsageError('--null-as is for lines of text: with --json write {"value": null}')
    if keep_partitions and not as_json:
        raise click.UsageError("--keep-partitions needs --json: only there a record names its partition")
    if keep_partitions and partition is not None:
        raise click.UsageError("choose --partition or --keep-partitions")
    if acks == "0" and reported:
        raise click.UsageError("--report needs --acks 1 or all: with 0 no offset is known")
    schemas = Schemas(**schema)
    schemas.check(has_keys=as_json or key is not None or key_separator is not None)
    librdkafka = {
        "compression.type": compression,
        "acks": acks,
        "linger.ms": "5",
        **librdkafka_options(settings),
    }
    # Arguments may have any bytes.
    form = InputForm(
        as_json,
        raw,
        os.fsencode(key_separator) if key_separator is not None else None,
        os.fsencode(null_as) if null_as is not None else None,
    )
    common = _Common(
        os.fsencode(key) if key is not None else None,
        tuple((name, os.fsencode(value)) for name, value in parse_pairs(headers, "--header")),
        partition,
        keep_partitions,
        reported,
    )
    with nullcontext(stdin_bytes()) if file is None else file.open("rb") as stream:
        _produce(bootstrap_server, topic, librdkafka, stream, form, schemas, common, str(file or "stdin"))


def _produce(
    servers: str,
    topic: str,
    librdkafka: dict[str, str],
    stream: IO[bytes],
    form: InputForm,
    schemas: Schemas,
    common: _Common,
    name: str,
) -> None:
    from barnabas.base.errors import ErrorCode, KafkaError
    from barnabas.client import Producer
    from barnabas.client.reach import require_broker
    from barnabas.client.servers import servers_of

    servers = servers_of(servers, librdkafka)
    form = schemas.add_to(form, servers)
    common_key = form.key.encode_text(common.key) if form.key and common.key is not None else common.key
    require_broker(servers)
    partitions = Producer(servers, **librdkafka).ensure_topic(topic)
    if common.partition is not None:
        _require_partition(topic, common.partition, partitions, "there is no")
    limit = _limit(servers, topic, librdkafka)
    if stream.isatty():
        click.echo("one record a line; Ctrl-D ends", err=True)
    shown = is_terminal(sys.stderr) and is_file(stream) and not common.reported
    on_delivery = _print_place if common.reported else None
    try:
        with (
            Counter("sent", shown=shown, total_bytes=_size(stream)) as counter,
            Producer(servers, **librdkafka) as producer,
        ):
            for source, record in read_records(stream, form, limit.size, name):
                if common.keep_partitions and record.partition is not None:
                    _require_partition(topic, record.partition, partitions, f"{source} is for")
                value = record.value
                key = common_key if common_key is not None else record.key
                headers = [*common.headers, *record.headers]
                _require_size(source, value, key, headers, limit)
                producer.send(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    partition=record.partition if common.keep_partitions else common.partition,
                    timestamp_ms=record.timestamp_ms,
                    on_delivery=on_delivery,
                    about=source,
                )
                counter.add(1, len(record.value or b"") + 1)
    except KafkaError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE:
            raise
        raise KafkaError(error.code, f"{error.message} {limit.hint}") from None


def librdkafka_options(settings: tuple[str, ...]) -> dict[str, str]:
    """Return the librdkafka settings in the values of --set.

    Raises:
        click.UsageError: the command has an option of its own for a setting, or a setting occurs twice.
    """
    values = parse_assignments(settings, "--set")
    for name, option in _OWN_OPTIONS.items():
        if name in values:
            raise click.UsageError(f"--set {name}: use {option}")
    return values


def _limit(bootstrap_server: str, topic: str, librdkafka: dict[str, str]) -> _Limit:
    """Return the size limit of a record, and put `message.max.bytes` and `batch.size` into `librdkafka`.

    These settings are necessary because librdkafka does not know the topic's limit. Without them, librdkafka
    could send batches of small records that the topic refuses.

    - If `librdkafka` has `message.max.bytes` already, this is the limit, and the dict does not change.
    - If the topic's `max.message.bytes` is unknown, the limit is the usual one, and the dict does not change.
    """
    ours = librdkafka.get("message.max.bytes")
    if ours is not None:
        size = int(ours) if ours.isdecimal() else _USUAL_LIMIT
        return _Limit(size, "Raise it by --set message.max.bytes=N.")
    topic_limit = _topic_limit(bootstrap_server, topic)
    if topic_limit is None:
        return _Limit(_USUAL_LIMIT, "Raise it by --set message.max.bytes=N.")
    compressed = librdkafka["compression.type"] != "none"
    size = max(_COMPRESSIBLE_LIMIT, topic_limit) if compressed else topic_limit
    librdkafka.setdefault("batch.size", str(min(topic_limit, _USUAL_LIMIT)))
    librdkafka["message.max.bytes"] = str(min(max(size, _USUAL_LIMIT), 1_000_000_000))
    return _Limit(
        size - _FRAMING if size > _FRAMING else size,
        f"The topic's max.message.bytes is {topic_limit:,}: raise it by `barnabas configs alter "
        f"--topic {topic} --set max.message.bytes=N`.",
    )


def _topic_limit(bootstrap_server: str, topic: str) -> int | None:
    """Return the topic's max.message.bytes; None if the broker does not report it."""
    from barnabas.base.errors import BarnabasError
    from barnabas.client import Admin

    try:
        values = {value.name: value.value for value in Admin(bootstrap_server).configs("topic", topic)}
        return int(values["max.message.bytes"] or 0) or None
    except (BarnabasError, KeyError, ValueError):
        return None


def _require_size(
    source: str,
    value: bytes | None,
    key: bytes | None,
    headers: list[tuple[str, bytes | None]],
    limit: _Limit,
) -> None:
    size = len(value or b"") + len(key or b"")
    if headers:
        size += sum(len(name) + len(data or b"") for name, data in headers)
    if size > limit.size:
        raise InputError(
            f"{source} is a record of {size:,} bytes, and {limit.size:,} is the limit. {limit.hint}"
        )


def _require_partition(topic: str, partition: int, partitions: int, words: str) -> None:
    if partition >= partitions:
        only = "partition 0 only" if partitions == 1 else f"partitions 0 to {partitions - 1}"
        raise InputError(f"{words} partition {partition}: {topic} has {only}")


def _print_place(record: Record) -> None:
    report(f"{record.topic}\t{record.partition}\t{record.offset}")


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size if is_file(stream) else 0
