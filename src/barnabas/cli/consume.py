"""`barnabas consume`: prints the records of topics on stdout."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, TypeVar

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.complete import group_names, topic_names
from barnabas.cli.offset_targets import parse_time, time_before_now
from barnabas.cli.options import (
    DURATION,
    INT64,
    NAME,
    REGEX,
    Whole,
    assignments_option,
    bootstrap_option,
    example,
    names_argument,
    require_unique,
)
from barnabas.cli.produce import librdkafka_options
from barnabas.cli.progress import Counter, is_file
from barnabas.cli.record_format import Template, to_json
from barnabas.cli.streams import is_terminal, stdout_bytes, stdout_has_reader

if TYPE_CHECKING:
    from barnabas.base.types import TopicPartition
    from barnabas.client import Consumer, Job, Record

R = TypeVar("R", bound="Record")


class TimedOut(BarnabasError):
    """No record arrived for --timeout, before --max-messages records were printed."""


class OffsetAbsent(BarnabasError):
    """No partition has the requested offset."""


@click.command(
    epilog=example(
        r"""
        barnabas consume orders --from-beginning
        barnabas consume orders --until-end --with-keys
        barnabas consume orders --group billing --from-beginning
        barnabas consume orders --share workers --reject '^bad' --format '{attempt} {value}\n'
        barnabas consume orders --partition 0 --offset 42 --max-messages 1
        barnabas consume orders --offset -10 --until-end
        barnabas consume orders --since 10m --json | jq .value
        barnabas consume orders --format '{time} {partition}@{offset} {key}: {value}\n'
        """,
        "Without --group every partition is read, and no offsets are committed. With --group reading begins "
        "at the group's committed offsets, and the offsets of printed records are committed. With --share "
        "each record goes to one member of the group. A printed record is accepted, unless its value matches "
        "--reject (the group does not get it again) or --release (the group gets it again).",
    )
)
@names_argument("TOPIC...", topic_names, "topics")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Begin at the first record; with --group, only in partitions without a committed offset.",
)
@click.option(
    "--group",
    "-g",
    metavar="GROUP",
    type=NAME,
    shell_complete=group_names,
    help="Read as a member of this group.",
)
@click.option("--share", metavar="GROUP", type=NAME, help="Read as a member of this share group, a queue.")
@click.option("--reject", type=REGEX, help="With --share: reject records whose value matches.")
@click.option("--release", type=REGEX, help="With --share: release records whose value matches.")
@click.option("--partition", "-p", "partitions", metavar="N[,N...]", help="Only these partitions.")
@click.option(
    "--offset",
    "-o",
    type=INT64,
    help="Begin at offset N, or -N records before the end of each partition.",
)
@click.option("--since", metavar="WHEN", help="Begin at a time: 10m, 2h, 1d ago, or 2026-01-31T12:00.")
@click.option("--max-messages", "-n", type=Whole(min=1), help="End after N records.")
@click.option("--until-end", "-e", is_flag=True, help="End at the current end of the topic.")
@click.option("--timeout", type=DURATION, help="End when no record has arrived for this long.")
@click.option("--with-keys", is_flag=True, help="Print the key and a tab before each value.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print each record, with all its fields, as a line of JSON."
)
@click.option("--raw", is_flag=True, help="Print only the bytes of the values, without separators.")
@click.option(
    "--format",
    "template",
    metavar="TEMPLATE",
    help="Fields: {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers}, with --share "
    "{attempt}, and \\n \\t.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="read_uncommitted also prints records of open and aborted transactions.",
)
@assignments_option("--set", help="A librdkafka setting; may be repeated.")
@bootstrap_option
def consume(
    topics: tuple[str, ...],
    from_beginning: bool,
    group: str | None,
    share: str | None,
    reject: re.Pattern[str] | None,
    release: re.Pattern[str] | None,
    partitions: str | None,
    offset: int | None,
    since: str | None,
    max_messages: int | None,
    until_end: bool,
    timeout: float | None,
    with_keys: bool,
    as_json: bool,
    raw: bool,
    template: str | None,
    isolation: str,
    settings: tuple[str, ...],
    bootstrap_server: str,
) -> None:
    """Print the records of topics as they come, until Ctrl-C.

    Without --from-beginning, --offset, --since or --until-end only new records are printed.
    """
    if with_keys + as_json + raw + (template is not None) > 1:
        raise click.UsageError("choose one of --with-keys, --json, --raw and --format")
    if from_beginning + (offset is not None) + (since is not None) > 1:
        raise click.UsageError("choose one of --from-beginning, --offset and --since")
    if group is not None and (partitions is not None or offset is not None or since is not None):
        raise click.UsageError(
            "a group decides itself where to begin: leave out --partition, --offset and --since, or move "
            "it with `barnabas groups reset-offsets`"
        )
    if group is not None and until_end:
        raise click.UsageError("--until-end cannot be used with --group: use --timeout instead")
    if share is not None:
        others = (group, partitions, offset, since)
        if from_beginning or until_end or any(option is not None for option in others):
            raise click.UsageError(
                "a share group decides itself which records it reads: leave out --group, --partition, "
                "--offset, --since, --from-beginning and --until-end, or set share.auto.offset.reset of the "
                "group by `barnabas configs alter --group`"
            )
    elif reject is not None or release is not None:
        raise click.UsageError("--reject and --release are for members of a share group: add --share GROUP")
    form = Template(template) if template is not None else None
    chosen = _numbers(partitions)
    since_ms = _since(since)
    options = librdkafka_options(settings)
    printer = _Printer(stdout_bytes(), with_keys, as_json, raw, form)

    from barnabas.client import Consumer, Worker
    from barnabas.client.reach import require_broker
    from barnabas.client.servers import servers_of

    servers = servers_of(bootstrap_server, options)
    require_broker(servers)
    shown = is_terminal(sys.stderr) and is_file(sys.stdout)
    if share is not None:
        with (
            Worker(servers, *topics, group=share, **{"max.poll.records": 500, **options}) as worker,
            Counter("read", shown=shown) as counter,
        ):
            finish = partial(_acknowledge, reject, release)
            _print(_take_one_by_one(worker.poll), printer, counter, max_messages, timeout, finish)
        return
    librdkafka = {"isolation.level": isolation, **options}
    start = "earliest" if from_beginning or until_end else "latest"
    with Consumer(servers, group=group, start=start, **librdkafka) as consumer:
        existing = consumer.partitions(*topics)  # also says when there is no such topic
        if group is not None:
            consumer.subscribe(*topics)
            batches = _take_one_by_one(consumer.poll)
        else:
            if chosen is not None:
                existing = _chosen(existing, chosen)
            batches = _read(consumer, existing, start, offset, since_ms, until_end)
        with Counter("read", shown=shown) as counter:
            _print(batches, printer, counter, max_messages, timeout)


def _read(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    start: str,
    offset: int | None,
    since_ms: int | None,
    until_end: bool,
) -> Iterator[list[Record]]:
    """Yield batches of the partitions' records; an empty batch if no record arrives within 0.2 seconds.

    The batches never end, unless `until_end` is true.

    Args:
        consumer: the consumer, to which this function assigns the partitions.
        partitions: the partitions to read.
        start: "earliest" or "latest": where to begin if `since_ms` and `offset` are None.
        offset: the first offset to read of each partition. A negative number counts from the end: -10 means
            the last ten offsets. If a partition does not have the offset, reading begins at the nearest one.
            It is not used if `since_ms` is given.
        since_ms: time in milliseconds since 1970 of the first record to read. In a partition without such a
            record, reading begins at the high watermark.
        until_end: end at the high watermarks that the partitions have now.

    Raises:
        OffsetAbsent: `offset` is above the end offset of every partition.
        KafkaError, ClientError: the broker answered with an error, or librdkafka reports one.
    """
    marks = {partition: consumer.watermarks(partition) for partition in partitions}
    if since_ms is not None:
        found = consumer.offsets_for_time(partitions, since_ms)
        starts = {each: marks[each][1] if found[each] < 0 else found[each] for each in partitions}
    elif offset is not None:
        starts = _starts(offset, marks)
    else:
        starts = {partition: low if start == "earliest" else high for partition, (low, high) in marks.items()}
    if until_end:
        ends = {partition: high for partition, (_, high) in marks.items() if starts[partition] < high}
        consumer.assign({partition: starts[partition] for partition in ends})
        yield from consumer.read_until(ends)
    else:
        consumer.assign(starts)
        while True:
            yield consumer.read_batch(0.2)


def _starts(offset: int, marks: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    """Return each partition's first offset to read, for the value of --offset.

    A negative `offset` counts from the end of each partition, but reading never begins before its first
    offset. If any other `offset` is before a partition's first offset or beyond its end, reading begins at
    the nearer of these two. Then a line on stderr says so.

    Args:
        marks: the first and the end offset of each partition.

    Raises:
        OffsetAbsent: `offset` is above the end offset of every partition.
    """
    if offset < 0:
        return {partition: max(high + offset, low) for partition, (low, high) in marks.items()}
    if all(offset > high for _, high in marks.values()):
        ends = ", ".join(f"{partition} ends at {high}" for partition, (_, high) in marks.items())
        raise OffsetAbsent(f"--offset {offset} is beyond the end: {ends}")
    for partition, (low, high) in marks.items():
        if offset > high:
            click.echo(f"{partition} ends at {high}: it is read from there, not from {offset}", err=True)
        elif offset < low:
            click.echo(f"{partition} begins at {low}: earlier records have been deleted", err=True)
    return {partition: min(max(offset, low), high) for partition, (low, high) in marks.items()}


def _chosen(partitions: Sequence[TopicPartition], chosen: set[int]) -> list[TopicPartition]:
    absent = sorted(chosen - {each.partition for each in partitions})
    if absent:
        last = max(each.partition for each in partitions)
        raise click.UsageError(f"--partition {absent[0]}: there is no such partition, the last one is {last}")
    return [each for each in partitions if each.partition in chosen]


def _take_one_by_one(poll: Callable[[float], R | None]) -> Iterator[list[R]]:
    """Yield the records of a group one by one, each in a list. If none arrives in 0.2 s, yield an empty list.

    The iteration never ends. The caller must print a record before the next iteration, because this marks the
    record as processed.

    Args:
        poll: called with a time limit in seconds; returns the next record, or None if there is none.
    """
    while True:
        record = poll(0.2)
        yield [record] if record is not None else []


def _acknowledge(reject: re.Pattern[str] | None, release: re.Pattern[str] | None, job: Job) -> None:
    """Reject a share group's record whose value matches `reject`; else release one that matches `release`.

    The `Worker` accepts all other records when it takes the next record.
    """
    text = job.text or ""
    if reject is not None and reject.search(text):
        job.reject()
    elif release is not None and release.search(text):
        job.release()


def _print(
    batches: Iterator[list[R]],
    printer: _Printer,
    counter: Counter,
    max_messages: int | None,
    timeout: float | None,
    finish: Callable[[R], None] | None = None,
) -> None:
    """Write batches of records to stdout.

    The function returns after `max_messages` records, at the end of `batches`, or if no program reads stdout
    any more. Without `max_messages`, it also returns after `timeout` seconds without a record.

    Args:
        batches: yields lists of records; an empty list means that no record came for a moment.
        printer: writes a record in the requested format.
        counter: counts the records and their bytes, for the progress display.
        max_messages: the most records to write; None for no limit.
        timeout: the longest time without a record, in seconds; None for no limit.
        finish: called with each record after its batch is written.

    Raises:
        TimedOut: no record came for `timeout` seconds, and fewer than `max_messages` were printed.
    """
    heard = time.monotonic()
    for batch in batches:
        if max_messages is not None:
            batch = batch[: max_messages - counter.records]
        if batch:
            heard = time.monotonic()
            for record in batch:
                printer.write(record)
            counter.add(len(batch), sum(len(record.value or b"") for record in batch))
            printer.flush()  # before the next is taken, which commits these
            if finish is not None:
                for record in batch:
                    finish(record)
        elif not stdout_has_reader():
            break  # `| head` must not wait for a record that it does not read
        if counter.records == max_messages:
            break
        if timeout is not None and time.monotonic() - heard >= timeout:
            if max_messages is not None:
                raise TimedOut(
                    f"only {counter.records} of {max_messages} records came: nothing for {timeout:g} s"
                )
            break


class _Printer:
    """Writes records to stdout in the requested format."""

    def __init__(
        self, out: IO[bytes], with_keys: bool, as_json: bool, raw: bool, template: Template | None
    ) -> None:
        self._with_keys = with_keys
        self._as_json = as_json
        self._raw = raw
        self._template = template
        self._out = out

    def flush(self) -> None:
        self._out.flush()

    def write(self, record: Record) -> None:
        if self._as_json:
            self._out.write(to_json(record).encode() + b"\n")
        elif self._template is not None:
            self._out.write(self._template.fill(record).encode("utf-8", "surrogateescape"))
        elif self._raw:
            self._out.write(record.value or b"")
        elif self._with_keys:
            self._out.write((record.key or b"") + b"\t" + (record.value or b"") + b"\n")
        else:
            self._out.write((record.value or b"") + b"\n")


def _numbers(text: str | None) -> set[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise click.UsageError(f"--partition {text}: write numbers from 0 on, for example 0,2")
    require_unique(map(str, numbers), "--partition names")
    return set(numbers)


def _since(text: str | None) -> int | None:
    if text is None:
        return None
    if re.fullmatch(r"\d+[a-zA-Z]+", text):
        return time_before_now(text, "--since")
    return parse_time(text, "--since")
