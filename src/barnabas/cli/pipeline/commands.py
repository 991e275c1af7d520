"""`barnabas pipeline`: Spark pipelines that a file declares."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.base.installation import pip_install
from barnabas.cli.options import (
    FILE,
    FOLDER,
    NAME,
    SERVERS,
    assignments_option,
    bootstrap_option,
    example,
    json_option,
    parse_assignments,
)
from barnabas.cli.output import print_json, print_table
from barnabas.cli.streams import is_terminal

if TYPE_CHECKING:
    from barnabas.pipelines.folder import Folder
    from barnabas.pipelines.status import PipelineStatus

_LOOK_S = 1.0


@click.group()
def pipeline() -> None:
    """Run Spark pipelines and show their status.

    A file in Python or SQL declares the sources, the steps and the sinks: see docs/use/pipelines.md. Spark
    needs Java 17 or newer and the extra barnabas[spark].
    """


_file = click.argument("file", type=FILE)
_parameters = assignments_option("--set", to="parameters", help="A parameter of the file; may be repeated.")
_servers = click.option(
    "--bootstrap-server",
    "-b",
    type=SERVERS,
    metavar="HOST:PORT",
    envvar="BARNABAS_BOOTSTRAP_SERVER",
    help="Brokers to connect to first; overrides the file's.  [default: the file's, or 127.0.0.1:9092]",
)
_config = click.option(
    "--config",
    "--command-config",
    "config",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    envvar="BARNABAS_CONFIG",
    help="Client settings: Kafka's client.properties, or TOML; overrides the file's.",
)
_conf = assignments_option("--conf", help="A setting of Spark; overrides the file's; may be repeated.")
_folder = click.option(
    "--folder",
    metavar="DIR",
    type=FOLDER,
    help="The pipeline's own folder, with its checkpoints.  [default: .barnabas/NAME beside FILE]",
)


@pipeline.command(
    epilog=example(
        """
        barnabas pipeline run shop.py
        barnabas pipeline run shop.sql --once
        barnabas pipeline run report.sql --once --set day=2026-03-01
        barnabas pipeline run shop.py --master spark://host:7077 --conf spark.executor.memory=2g
        """,
        "After Ctrl-C or SIGTERM, the pipeline completes the running batches and stops. The next run "
        "continues after these batches. A failed query is started again, first after a second, later after "
        "up to a minute.",
    )
)
@_file
@click.option("--once", is_flag=True, help="Process the present records, then end.")
@click.option("--master", type=NAME, default="local[*]", show_default=True, help="The master URL of Spark.")
@_servers
@_config
@_conf
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve metrics to Prometheus at /metrics, and /healthz; port 0 chooses a free one.",
)
@_parameters
@_folder
def run(
    file: Path,
    once: bool,
    master: str,
    bootstrap_server: str | None,
    config: str | None,
    settings: tuple[str, ...],
    metrics: str | None,
    parameters: tuple[str, ...],
    folder: Path | None,
) -> None:
    """Run the pipeline that FILE declares, until it is stopped."""
    _require_spark()
    from barnabas.pipelines.run import Choices, Observer, run_pipeline

    choices = Choices(
        master,
        once,
        bootstrap_server or "",
        folder,
        parse_assignments(settings, "--conf"),
        parse_assignments(parameters, "--set"),
        config or "",
        metrics or "",
    )
    if is_terminal(sys.stderr):
        from barnabas.cli.pipeline.table import LiveTable

        with LiveTable(stderr=True) as table:
            run_pipeline(file, choices, Observer(table.say, table.show))
        return
    status = run_pipeline(file, choices, Observer(lambda words: click.echo(words, err=True)))
    for query in status.queries:
        read = "" if query.rows_read is None else f"{query.rows_read:,} rows read, "
        rejected = f", {query.rows_rejected:,} of them rejected" if query.rows_rejected else ""
        written = f"{query.rows_written:,} rows written{rejected}"
        click.echo(f"{query.query} {query.state}: {read}{written}", err=True)


@pipeline.command(
    epilog=example(
        """
        barnabas pipeline validate shop.py
        barnabas pipeline validate report.sql --set day=2026-03-01 --offline
        barnabas pipeline validate shop.py --conf spark.jars=/opt/drivers/mariadb.jar
        """,
        "The command starts Spark to check the queries, but Spark reads and writes no data. A registry gives "
        "the schemas of Avro.",
    )
)
@_file
@click.option("--offline", is_flag=True, help="Do not ask the brokers whether the topics exist.")
@_servers
@_config
@_conf
@_parameters
def validate(
    file: Path,
    offline: bool,
    bootstrap_server: str | None,
    config: str | None,
    settings: tuple[str, ...],
    parameters: tuple[str, ...],
) -> None:
    """Check the pipeline in FILE without running it."""
    _require_spark()
    from barnabas.pipelines.folder import Folder
    from barnabas.pipelines.run import Choices, run_of
    from barnabas.pipelines.validate import validate as validate_pipeline

    choices = Choices(bootstrap=bootstrap_server or "", config=config or "")
    queries = validate_pipeline(
        file,
        parse_assignments(parameters, "--set"),
        lambda pipeline: run_of(pipeline, Folder.of(pipeline, None), choices),
        offline=offline,
        spark=parse_assignments(settings, "--conf"),
    )
    click.echo(f"{file} is valid; its queries are {', '.join(queries)}")


@pipeline.command(
    epilog=example(
        """
        barnabas pipeline reset shop.py
        barnabas pipeline reset shop.py --query per_minute --execute
        """,
        "Without --execute the command only shows the checkpoints. Stop the pipeline first. The output of "
        "the sinks stays, and the next run writes it again.",
    )
)
@_file
@click.option("--query", "queries", metavar="NAME", multiple=True, help="Only this query; may be repeated.")
@click.option("--execute", is_flag=True, help="Remove the checkpoints.")
@_parameters
@_folder
def reset(
    file: Path, queries: tuple[str, ...], execute: bool, parameters: tuple[str, ...], folder: Path | None
) -> None:
    """Remove the checkpoints of the pipeline in FILE. The next run begins from the start."""
    _require_spark()
    from barnabas.cli.progress import human_bytes
    from barnabas.pipelines.folder import Folder
    from barnabas.pipelines.read import read_pipeline
    from barnabas.pipelines.reset import find_checkpoints, remove

    pipeline = read_pipeline(file, parse_assignments(parameters, "--set"))
    own_folder = Folder.of(pipeline, folder)
    found = find_checkpoints(pipeline, own_folder, queries)
    if not found:
        click.echo("there are no checkpoints: the next run begins at the beginning", err=True)
        return
    print_table(
        ["QUERY", "LAST BATCH", "SIZE", "CHECKPOINT"],
        [(each.query, each.batch, human_bytes(each.size), each.path) for each in found],
    )
    for each in found:
        click.echo(f"  {each.query}: {each.obstacle or each.consequence}")
    if not execute:
        click.echo("nothing has been changed: add --execute to do it", err=True)
        return
    with own_folder.held():
        remove(found)


@pipeline.command(
    epilog=example(
        """
        barnabas pipeline status shop.py
        barnabas pipeline status shop.py --json | jq '.queries[] | {query, lag, last_error}'
        """,
        "On a terminal the table stays up to date until Ctrl-C or until the pipeline ends. The numbers are "
        "of each query's last batch. LAG is the number of records that the query had not read yet. KEPT and "
        "SIZE are the rows and the bytes of its state. --check is for monitoring: the exit code is 0 only "
        "if the pipeline runs, no query has failed or waits for a restart, and there is no alert.",
    )
)
@_file
@click.option("--check", is_flag=True, help="Show it once; exit status 1 if something is wrong.")
@_parameters
@_folder
@json_option
def status(file: Path, check: bool, parameters: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Show rates, lag, state and last error of the pipeline in FILE."""
    _require_spark()
    from barnabas.pipelines.folder import Folder
    from barnabas.pipelines.read import read_pipeline

    own_folder = Folder.of(read_pipeline(file, parse_assignments(parameters, "--set")), folder)
    found = _status_of(own_folder)
    if as_json:
        print_json(asdict(found))
    if check:
        _check(found)
    if as_json:
        return
    from barnabas.cli.pipeline.table import LiveTable, print_status

    if check or not (is_terminal(sys.stdout) and own_folder.in_use):
        print_status(found)
        return
    with LiveTable(stderr=False) as table:
        table.show(found)
        while own_folder.in_use:
            time.sleep(_LOOK_S)
            table.show(_status_of(own_folder))


@pipeline.command(
    "list",
    epilog=example(
        """
        barnabas pipeline list
        barnabas pipeline list shop --bootstrap-server kafka1:9092
        """,
        "Pipelines with the option status_topic write their status to a topic. A pipeline that should run "
        "and has written nothing for 15 seconds is silent. With NAME, the command shows everything about "
        "that pipeline.",
    ),
)
@click.argument("name", required=False)
@click.option(
    "--topic",
    type=NAME,
    default="barnabas-pipelines",
    show_default=True,
    help="The topic to which pipelines report.",
)
@json_option
@bootstrap_option
def list_pipelines(name: str | None, topic: str, as_json: bool, bootstrap_server: str) -> None:
    """List the pipelines that report to a topic of the cluster. They may run on any machine."""
    _require_spark()
    from barnabas.client.reach import require_broker
    from barnabas.pipelines.status_topic import read_statuses

    require_broker(bootstrap_server)
    settings = getattr(bootstrap_server, "settings", {})
    found = read_statuses(topic, {**settings, "bootstrap.servers": str(bootstrap_server)})
    if name is not None:
        found = [status for status in found if status.pipeline == name]
        if not found:
            raise click.ClickException(f"topic {topic} has no status of a pipeline {name}")
    if as_json:
        print_json([asdict(status) for status in found])
    elif name is not None:
        from barnabas.cli.pipeline.table import print_status

        print_status(found[0])
    elif not found:
        click.echo("no pipelines", err=True)
    else:
        print_table(["PIPELINE", "STATE", "HOST", "QUERIES", "LAG", "ALERTS", "UPDATED"], map(_line, found))


def _line(status: PipelineStatus) -> tuple[object, ...]:
    lags = [query.lag for query in status.queries if query.lag is not None]
    return (
        status.pipeline,
        status.state,
        status.host or None,
        len(status.queries),
        f"{sum(lags):,}" if lags else None,
        len(status.alerts),
        status.updated,
    )


def _check(found: PipelineStatus) -> None:
    """Raise click.ClickException (exit code 1) if a pipeline has a problem. The message has all problems.

    Problems are a pipeline that does not run, a query that has failed or waits for a restart, and alerts.
    """
    wrong = [] if found.state in ("running", "stopping") else [f"the pipeline is {found.state}"]
    wrong += [
        f"{each.query} is {each.state}" for each in found.queries if each.state in ("failed", "waiting")
    ]
    if wrong + found.alerts:
        raise click.ClickException("; ".join(wrong + found.alerts))


def _status_of(folder: Folder) -> PipelineStatus:
    """Return the status of the pipeline in `folder`. Raises PipelineError if it has never run."""
    from barnabas.pipelines.errors import PipelineError
    from barnabas.pipelines.status import PipelineStatus

    # the lock is looked at first: a pipeline that ends in between has then written its last status
    running = folder.in_use
    found = PipelineStatus.read(folder.status)
    if found is None:
        begins = "it is just starting" if running else "it has not run yet"
        raise PipelineError(f"{folder.path} has no status: {begins}")
    if not running and found.state in ("running", "stopping"):
        found.state = "killed"
    return found


def _require_spark() -> None:
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        raise click.ClickException(f"Spark is not installed: {pip_install('spark')}")
