"""``python -m demo``: runs the steps in order."""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import click
from pyspark import SparkContext
from pyspark.errors import PySparkException
from rich.console import Console
from rich.markup import escape

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.folder import Folder
from barnabas.pipelines.run import Choices, Observer, run_pipeline
from barnabas.pipelines.session import TRUSTING_JVM
from barnabas.pipelines.status import PipelineStatus
from barnabas.spark.session import FORKED, check_java, start_spark
from demo import LOG_TOPICS, PIPELINE, STATS_TOPIC
from demo.broker import DemoBroker
from demo.bursts import find_bursts
from demo.failover import Pulse
from demo.folder import prepare, shorten
from demo.logs import by_topic, check_logs, find_logs
from demo.progress import step
from demo.report import count_stored, create_topics, read_counts, reconcile, stored_records
from demo.shipping import Shipped, ship
from demo.summary import Result, print_summary
from demo.windows import choose_window, describe

_NAME = "barnabas demo"
_CORES = 2

#: For a few thousand records to compile a stage costs more than it saves.
_SPARK = {"spark.sql.codegen.wholeStage": "false"}

#: How many of a topic's files are named on the terminal.
_NAMED = 4


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    default=1,
    help="How many; of several that form a cluster one is killed half way.",
)
@click.option(
    "--folder", type=click.Path(path_type=Path), default=Path(".demo"), help="Where all of it goes."
)
def main(files: tuple[Path, ...], brokers: int, folder: Path) -> None:
    """Ship log FILES through Barnabas and Spark; without FILES, the logs found on this machine."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    console = Console()
    try:
        agree = run(console, files, folder, brokers)
    except BarnabasError as error:
        _give_up(console, str(error))
    except PySparkException as error:
        # Spark wraps what went wrong into pages: the last line of the cause that names an error says it
        lines = [line for line in str(error).splitlines() if "Error: " in line] or str(error).splitlines()
        _give_up(console, f"Spark failed: {lines[-1].strip()}; its log is {shorten(Folder(folder).log)}")
    sys.exit(0 if agree else 1)


def _give_up(console: Console, why: str) -> NoReturn:
    console.print(f"[red]The demo cannot go on:[/] {escape(why)}", highlight=False, soft_wrap=True)
    sys.exit(1)


def run(console: Console, named: tuple[Path, ...], folder: Path, brokers: int = 1) -> bool:
    """Run the whole demo. Return whether all totals agree.

    Raises:
        BarnabasError: something that the demo needs is missing; the text has a hint.
    """
    began = time.monotonic()
    check_java()
    logs = by_topic(check_logs(named) if named else find_logs())
    window = choose_window(path for paths in logs.values() for path in paths)
    folder = prepare(folder)
    failover = None
    with (
        ThreadPoolExecutor(1) as beside,
        DemoBroker(folder / "broker", folder / "broker.log", brokers) as broker,
        ExitStack() as watching,
    ):
        # Spark takes longest to start, so it starts while the logs are shipped
        starting = beside.submit(
            start_spark,
            _NAME,
            folder / "spark",
            cores=_CORES,
            log=Folder(folder).log,
            java_options=TRUSTING_JVM,
            more=FORKED,
        )
        with step(console, "Broker") as this:
            create_topics(broker.address)
            this.result = f"on {broker.address}, topics {', '.join((*LOG_TOPICS, STATS_TOPIC))}"
        pulse = watching.enter_context(Pulse(broker.address, broker.kill)) if brokers > 1 else None
        shipped = _ship(console, broker.address, logs, folder, pulse)
        _await_spark(console, starting)
        _process(console, broker.address, shipped, window, folder)
        with step(console, "Counts") as this:
            counts = read_counts(broker.address)
            records = stored_records(folder / "records")
            totals = reconcile(broker.address, shipped, count_stored(records), counts)
            this.result = f"{len(counts):,} read back from {STATS_TOPIC} by a consumer group"
        if pulse is not None:
            failover = pulse.result()
    with step(console, "Bursts") as this:
        bursts = find_bursts(counts, records, window)
        this.result = f"{len(bursts)} found"
    result = Result(totals, counts, bursts, window, time.monotonic() - began, failover)
    print_summary(console, result, folder)
    return result.agree


def _ship(
    console: Console, address: str, logs: dict[str, list[Path]], folder: Path, pulse: Pulse | None
) -> dict[str, Shipped]:
    """Ship the logs. With `pulse`, kill a broker after half of them."""
    with step(console, "Shipping") as this:

        def at(done: int, total: int) -> None:
            this.at(done, total)
            if pulse is not None and 2 * done >= total:
                pulse.kill_a_leader(LOG_TOPICS[0])

        shipped = ship(address, logs, folder / "ship", at)
        if pulse is not None:  # logs may be empty: nothing was half way
            pulse.kill_a_leader(LOG_TOPICS[0])
        records = sum(each.records for each in shipped.values())
        files = sum(each.files for each in shipped.values())
        this.result = f"{records:,} records from {files} log files"
    for topic, paths in logs.items():
        names = ", ".join(map(shorten, paths[:_NAMED])) or "no file"
        names += f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        console.print(f"      {topic:<12} {names}", highlight=False, soft_wrap=True)
    return shipped


def _await_spark(console: Console, starting: Future[SparkContext]) -> None:
    with step(console, "Spark") as this:
        this.result = f"version {starting.result().version}"


def _process(
    console: Console, address: str, shipped: dict[str, Shipped], window: timedelta, folder: Path
) -> None:
    """Run the pipeline on the installed Spark, until it has read all shipped records."""
    total = sum(each.records for each in shipped.values())
    choices = Choices(
        master=f"local[{_CORES}]",
        once=True,
        bootstrap=address,
        folder=folder,
        spark=_SPARK,
        parameters={"window": describe(window), "records": str(folder / "records")},
    )
    with step(console, "Pipeline") as this:

        def show(status: PipelineStatus) -> None:
            this.at(sum(query.rows_read or 0 for query in status.queries), total * len(status.queries))

        status = run_pipeline(PIPELINE, choices, Observer(lambda words: None, show))
        if status.state != "done":  # by Ctrl-C
            raise click.Abort
        this.result = f"{total:,} records kept, and counted in windows of {describe(window)}"


if __name__ == "__main__":
    main()
