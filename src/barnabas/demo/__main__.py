"""``python -m barnabas.demo``: the steps in their order."""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import click
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape

from barnabas.demo import LOG_TOPICS, STATS_TOPIC, pipeline
from barnabas.demo.broker import DemoBroker
from barnabas.demo.bursts import find_bursts
from barnabas.demo.folder import prepare, shorten
from barnabas.demo.logs import by_topic, check_logs, find_logs
from barnabas.demo.progress import step
from barnabas.demo.report import create_topics, read_counts, reconcile
from barnabas.demo.shipping import Shipped, ship
from barnabas.demo.summary import Result, print_summary
from barnabas.demo.windows import choose_window, describe
from barnabas.errors import BarnabasError
from barnabas.spark.session import check_java, local_session, start_spark

_NAME = "barnabas demo"

#: How many of a topic's files are named on the terminal.
_NAMED = 4


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--folder", type=click.Path(path_type=Path), default=Path(".demo"), help="Where all of it goes."
)
def main(files: tuple[Path, ...], folder: Path) -> None:
    """Ship log FILES through Barnabas and Spark; without FILES, the logs found on this machine."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    console = Console()
    try:
        agree = run(console, files, folder)
    except BarnabasError as error:
        _give_up(console, str(error))
    except PySparkException as error:
        # Spark wraps what went wrong into pages: the last line of the cause that names an error says it
        lines = [line for line in str(error).splitlines() if "Error: " in line] or str(error).splitlines()
        _give_up(console, f"Spark failed: {lines[-1].strip()}; its log is {shorten(folder / 'spark.log')}")
    sys.exit(0 if agree else 1)


def _give_up(console: Console, why: str) -> NoReturn:
    console.print(f"[red]The demo cannot go on:[/] {escape(why)}", highlight=False, soft_wrap=True)
    sys.exit(1)


def run(console: Console, named: tuple[Path, ...], folder: Path) -> bool:
    """The whole demo; whether all totals agree.

    Raises:
        BarnabasError: something it needs is not there; the text says what and the cure.
    """
    began = time.monotonic()
    check_java()
    logs = by_topic(check_logs(named) if named else find_logs())
    folder = prepare(folder)
    with ThreadPoolExecutor(1) as beside, DemoBroker(folder / "broker", folder / "broker.log") as broker:
        # Spark takes longest to start, so it starts while the logs are shipped
        starting = beside.submit(start_spark, _NAME, folder / "spark", log=folder / "spark.log")
        with step(console, "Broker") as this:
            create_topics(broker.address)
            this.result = f"on {broker.address}, topics {', '.join((*LOG_TOPICS, STATS_TOPIC))}"
        shipped = _ship(console, broker.address, logs, folder)
        spark = _await_spark(console, starting, folder)
        try:
            result = _process(console, spark, broker.address, logs, shipped, folder, began)
        finally:
            spark.stop()
    print_summary(console, result, folder)
    return result.agree


def _ship(console: Console, address: str, logs: dict[str, list[Path]], folder: Path) -> dict[str, Shipped]:
    with step(console, "Shipping") as this:
        shipped = ship(address, logs, folder / "ship", this.at)
        records = sum(each.records for each in shipped.values())
        files = sum(each.files for each in shipped.values())
        this.result = f"{records:,} records from {files} log files"
    for topic, paths in logs.items():
        names = ", ".join(map(shorten, paths[:_NAMED])) or "no file"
        names += f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        console.print(f"      {topic:<12} {names}", highlight=False, soft_wrap=True)
    return shipped


def _await_spark(console: Console, starting: Future[SparkContext], folder: Path) -> SparkSession:
    with step(console, "Spark") as this:
        starting.result()
        spark = local_session(_NAME, folder / "spark")
        this.result = f"version {spark.version}"
    return spark


def _process(
    console: Console,
    spark: SparkSession,
    address: str,
    logs: dict[str, list[Path]],
    shipped: dict[str, Shipped],
    folder: Path,
    began: float,
) -> Result:
    window = choose_window(path for paths in logs.values() for path in paths)
    total = sum(each.records for each in shipped.values())
    parquet = folder / "records"
    with step(console, "Streams") as this:
        records = pipeline.read_logs(spark, address)
        queries = [
            pipeline.keep(records, parquet, folder / "checkpoints" / "keep"),
            pipeline.count(records, window, address, folder / "checkpoints" / "count"),
        ]
        pipeline.await_all(queries, lambda done: this.at(done, total * len(queries)))
        this.result = f"{total:,} records kept, and counted in windows of {describe(window)}"
    with step(console, "Bursts") as this:
        bursts = find_bursts(spark, parquet, window)
        this.result = f"{len(bursts)} found"
    with step(console, "Counts") as this:
        counts = read_counts(address)
        totals = reconcile(address, shipped, pipeline.count_stored(spark, parquet), counts)
        this.result = f"{len(counts):,} read back from {STATS_TOPIC} by a consumer group"
    return Result(totals, counts, bursts, window, time.monotonic() - began)


if __name__ == "__main__":
    main()
