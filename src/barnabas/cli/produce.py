"""`barnabas produce`: from stdin or a file into a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import click

from barnabas.cli.complete import topic_names
from barnabas.cli.options import bootstrap_option, example, parse_assignments
from barnabas.cli.progress import Counter, is_file
from barnabas.cli.record_format import Outgoing, from_json
from barnabas.cli.streams import InputError, stdin_bytes

if TYPE_CHECKING:
    from barnabas.client import Record


@click.command(
    epilog=example(
        """
        echo hello | barnabas produce orders
        barnabas produce orders --file orders.txt --key-separator :
        barnabas produce orders --key customer-7 -H trace=abc < order.json
        barnabas consume orders --json --until-end | barnabas produce copy --json
        barnabas produce pictures --raw < cat.png
        """,
        "Each line is a record; with --json each line is an object with value and, if you like, key, "
        "headers, "
        "partition and timestamp; with --raw all the input is one record. Records are sent idempotently, "
        "and the "
        "command ends with 0 only when all of them are acknowledged.",
    )
)
@click.argument("topic", shell_complete=topic_names)
@click.option("--file", "-f", type=click.File("rb"), help="Read this file instead of stdin.")
@click.option("--key", "-k", metavar="KEY", help="The key of every record.")
@click.option(
    "--key-separator",
    "-K",
    metavar="TEXT",
    help="Each line is KEY, this, VALUE; a line without it has no key.",
)
@click.option(
    "--header", "-H", "headers", metavar="NAME=VALUE", multiple=True, help="A header; may be repeated."
)
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), metavar="N", help="Send all to this partition."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Lines are JSON objects, as `consume --json` prints them."
)
@click.option("--raw", is_flag=True, help="All the input is one record.")
@click.option("--null-as", metavar="TEXT", help="A value that is this text is sent as null (a tombstone).")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    help="How batches are compressed.",
)
@click.option(
    "--acks", type=click.Choice(["0", "1", "all"]), default="all", help="Whose acknowledgement counts."
)
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A librdkafka setting; may be repeated."
)
@click.option("--report", is_flag=True, help="Print topic, partition and offset of each record.")
@bootstrap_option
def produce(
    topic: str,
    file: IO[bytes] | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    as_json: bool,
    raw: bool,
    null_as: str | None,
    compression: str,
    acks: str,
    settings: tuple[str, ...],
    report: bool,
    bootstrap_server: str,
) -> None:
    """Send the lines of stdin, or of a file, to TOPIC."""
    if as_json + raw + (key_separator is not None) > 1:
        raise click.UsageError("--json, --raw and --key-separator are ways to read the input: take one")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key gives every record its key, --key-separator reads keys: take one")
    librdkafka = {"linger.ms": "5", **parse_assignments(settings, "--set")}
    stream = file if file is not None else stdin_bytes()
    common = tuple((name, value.encode()) for name, value in parse_assignments(headers, "--header").items())
    null = null_as.encode() if null_as is not None else None

    from barnabas.client import Producer
    from barnabas.client.reach import require_broker

    require_broker(bootstrap_server)
    if stream.isatty():
        click.echo("one record a line; Ctrl-D ends", err=True)
    shown = sys.stderr.isatty() and is_file(stream) and not report
    with (
        Counter("sent", shown=shown, total_bytes=_size(stream)) as counter,
        Producer(bootstrap_server, compression_type=compression, acks=acks, **librdkafka) as producer,
    ):
        producer.ensure_topic(topic)
        for record in _read(stream, as_json=as_json, raw=raw, separator=key_separator):
            producer.send(
                topic,
                None if record.value == null else record.value,
                key=key if key is not None else record.key,
                headers=[*common, *record.headers],
                partition=partition if partition is not None else record.partition,
                timestamp_ms=record.timestamp_ms,
                on_delivery=_print_place if report else None,
            )
            counter.add(1, len(record.value or b"") + 1)


def _read(stream: IO[bytes], *, as_json: bool, raw: bool, separator: str | None) -> Iterator[Outgoing]:
    if raw:
        yield Outgoing(stream.read())
        return
    split = separator.encode() if separator else None
    for number, line in enumerate(stream, 1):
        text = line.rstrip(b"\n").removesuffix(b"\r")
        if as_json:
            if text.strip():
                try:
                    yield from_json(text)
                except ValueError as error:
                    raise InputError(f"line {number} is {error}") from None
        elif split is not None and split in text:
            key, _, value = text.partition(split)
            yield Outgoing(value, key)
        else:
            yield Outgoing(text)


def _print_place(record: Record) -> None:
    click.echo(f"{record.topic}\t{record.partition}\t{record.offset}")


def _size(stream: IO[bytes]) -> int:
    import os

    return os.fstat(stream.fileno()).st_size if is_file(stream) else 0
