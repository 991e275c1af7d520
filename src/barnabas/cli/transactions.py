"""`barnabas transactions`: list and describe transactions, and abort those that hang (KIP-664)."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.cli.complete import topic_names
from barnabas.cli.options import (
    DURATION,
    NAME,
    OFFSET,
    PARTITION,
    AnyCase,
    bootstrap_option,
    example,
    json_option,
)
from barnabas.cli.output import Columns, print_json, print_listing, print_table
from barnabas.cli.streams import report

if TYPE_CHECKING:
    from barnabas.base.types import TopicPartition
    from barnabas.client.transactions import Transactions

_MINUTE_MS = 60_000
#: a producer's longest timeout without transaction.max.timeout.ms
_DEFAULT_MINUTES = 15

_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


@click.group()
def transactions() -> None:
    """Transactions: list, describe, find hanging ones and abort them."""


@transactions.command(
    "list",
    epilog=example(
        """
        barnabas transactions list
        barnabas transactions list --state Ongoing --longer-than 60
        barnabas transactions list --pattern 'billing-.*' --json
        """
    ),
)
@click.option(
    "--state",
    "states",
    type=AnyCase(_STATES),
    metavar="STATE",
    multiple=True,
    help="Only in this state; may be repeated: " + ", ".join(_STATES) + ".",
)
@click.option(
    "--producer-id",
    "producer_ids",
    metavar="ID",
    type=OFFSET,
    multiple=True,
    help="Only of this producer; may be repeated.",
)
@click.option("--longer-than", type=DURATION, help="Only transactions that have been open for longer.")
@click.option(
    "--pattern", metavar="REGEX", help="Only transactional ids that match this from beginning to end."
)
@json_option
@bootstrap_option
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: float | None,
    pattern: str | None,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """List the transactional ids of the cluster and their states."""
    with _connect(bootstrap_server) as cluster:
        listings = cluster.listings(
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=-1 if longer_than is None else int(longer_than * 1000),
            pattern=pattern,
        )
    keys = ("transactional_id", "coordinator", "producer_id", "state")
    rows = [{key: getattr(item, key) for key in keys} for item in listings]
    columns = {key.upper().replace("_", "-"): key for key in keys}
    print_listing(columns, rows, as_json=as_json, empty="no transactions")


@transactions.command(epilog=example("barnabas transactions describe billing-1"))
@click.argument("transactional_id", type=NAME)
@json_option
@bootstrap_option
def describe(transactional_id: str, as_json: bool, bootstrap_server: str) -> None:
    """Show the transaction of TRANSACTIONAL_ID."""
    with _connect(bootstrap_server) as cluster:
        found = cluster.describe(transactional_id)
    # The clock of this machine may be behind the coordinator's.
    age = None if found.started_ms is None else max(0, int(time.time() * 1000) - found.started_ms)
    is_open = found.state == "Ongoing"
    if as_json:
        print_json(
            {
                "transactional_id": transactional_id,
                "coordinator": found.coordinator,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "state": found.state,
                "timeout_ms": found.timeout_ms,
                "started_ms": found.started_ms,
                "open_for_ms": age if is_open else None,
                "partitions": [partition._asdict() for partition in found.partitions],
            }
        )
        return
    click.echo(
        f"transactional id {transactional_id} is {found.state}"
        + (f" for {(age or 0) / 1000:.0f} s" if is_open else "")
        + f", coordinated by broker {found.coordinator}"
    )
    print_table(
        ["PRODUCER-ID", "EPOCH", "TIMEOUT-MS", "PARTITIONS"],
        [
            (
                found.producer_id,
                found.producer_epoch,
                found.timeout_ms,
                ",".join(map(str, found.partitions)) or None,
            )
        ],
    )


_minutes_option = click.option(
    "--max-transaction-timeout",
    "minutes",
    metavar="MINUTES",
    type=DURATION,
    default=_DEFAULT_MINUTES,
    show_default=True,
    help="transaction.max.timeout.ms of the brokers: an older transaction hangs.",
)


@transactions.command(
    "find-hanging",
    epilog=example(
        """
        barnabas transactions find-hanging
        barnabas transactions find-hanging --topic orders --json
        """,
        "A transaction hangs when it is open in a partition and no coordinator will end it: its last record "
        "is older than the longest timeout of a transaction, and its coordinator does not know it. "
        "Consumers with isolation.level=read_committed wait for it forever.",
    ),
)
@click.option("--topic", type=NAME, shell_complete=topic_names, help="Only this topic.  [default: all]")
@click.option("--partition", type=PARTITION, help="Only this partition.")
@_minutes_option
@json_option
@bootstrap_option
def find_hanging(
    topic: str | None, partition: int | None, minutes: float, as_json: bool, bootstrap_server: str
) -> None:
    """Find transactions that will stay open. The exit code is 1 if there are any."""
    with _connect(bootstrap_server) as cluster:
        hanging = cluster.hanging(
            _partitions(cluster, topic, partition),
            longer_than_ms=int(minutes * _MINUTE_MS),
            now_ms=int(time.time() * 1000),
        )
    rows = [
        {
            **producer.partition._asdict(),
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "start_offset": producer.transaction_start,
            "last_timestamp_ms": producer.last_timestamp_ms,
        }
        for producer in hanging
    ]
    columns: Columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "PRODUCER-ID": "producer_id",
        "EPOCH": "producer_epoch",
        "COORDINATOR-EPOCH": "coordinator_epoch",
        "START-OFFSET": "start_offset",
        "SILENT-MS": lambda row: int(time.time() * 1000) - row["last_timestamp_ms"],
    }
    with suppress(BrokenPipeError):  # the exit code reports them, even without a reader of the table
        print_listing(columns, rows, as_json=as_json, empty="no transaction hangs")
    if hanging:
        raise SystemExit(1)


@transactions.command(
    epilog=example(
        """
        barnabas transactions find-hanging
        barnabas transactions abort --topic orders --partition 2 --start-offset 4711
        """,
        "Use this only for a hanging transaction. Without --force, the command does not abort a "
        "transaction that its producer or coordinator will still end.",
    )
)
@click.option(
    "--topic", type=NAME, required=True, shell_complete=topic_names, help="The topic of the transaction."
)
@click.option("--partition", type=PARTITION, required=True, help="The partition of the topic.")
@click.option(
    "--start-offset",
    metavar="OFFSET",
    type=OFFSET,
    required=True,
    help="The transaction's first offset, as find-hanging shows it.",
)
@click.option("--force", is_flag=True, help="Abort the transaction even if it does not hang.")
@_minutes_option
@bootstrap_option
def abort(
    topic: str, partition: int, start_offset: int, force: bool, minutes: float, bootstrap_server: str
) -> None:
    """Abort a transaction that begins at an offset of a partition."""
    from barnabas.base.types import TopicPartition

    where = TopicPartition(topic, partition)
    with _connect(bootstrap_server) as cluster:
        found = [p for p in cluster.producers([where]) if p.transaction_start == start_offset]
        if not found:
            raise click.ClickException(f"no transaction that is open in {where} begins at {start_offset}")
        if not force and not cluster.hanging(
            [where], longer_than_ms=int(minutes * _MINUTE_MS), now_ms=int(time.time() * 1000)
        ):
            raise click.ClickException(
                f"the transaction at {start_offset} in {where} does not hang: its coordinator will end it "
                "(--force aborts it all the same)"
            )
        cluster.abort(found[0])
    report(f"aborted the transaction of producer {found[0].producer_id} at {start_offset} in {where}")


def _connect(bootstrap_server: str) -> Transactions:
    from barnabas.client.transactions import Transactions

    return Transactions(bootstrap_server)


def _partitions(cluster: Transactions, topic: str | None, partition: int | None) -> list[TopicPartition]:
    if topic is None and partition is not None:
        raise click.UsageError("--partition needs --topic")
    found = cluster.partitions([topic] if topic is not None else [])
    chosen = [p for p in found if partition is None or p.partition == partition]
    if topic is not None and not chosen:
        missing = f"topic {topic}" if not found else f"partition {partition} of topic {topic}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {missing}")
    return chosen
