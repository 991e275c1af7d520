"""`barnabas pipeline`: Spark pipelines that a file declares."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import NAME, SERVERS, example, json_option, parse_assignments
from barnabas.cli.output import print_json
from barnabas.cli.streams import is_terminal

if TYPE_CHECKING:
    from barnabas.pipelines.folder import Folder
    from barnabas.pipelines.status import PipelineStatus

_LOOK_S = 1.0


@click.group()
def pipeline() -> None:
    """Run Spark pipelines and show their status.

    A file in Python or SQL declares where rows come from, what is made of them and where they go:
    docs/use/pipelines.md shows how. Spark needs Java 17 or newer and the extra barnabas[spark].
    """


_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_parameters = click.option(
    "--set",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter of the file; may be repeated.",
)
_folder = click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
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
        "Ctrl-C or SIGTERM stops it when the batches under way are done; the next run goes on from there. A "
        "query that fails is started again, first after a second, later after up to a minute.",
    )
)
@_file
@click.option("--once", is_flag=True, help="Process what is there now, then end.")
@click.option(
    "--master", type=NAME, default="local[*]", show_default=True, help="Where Spark runs, as Spark names it."
)
@click.option(
    "--bootstrap-server",
    "-b",
    type=SERVERS,
    metavar="HOST:PORT",
    envvar="BARNABAS_BOOTSTRAP_SERVER",
    help="Brokers to connect to first; overrides the file's.  [default: the file's, or 127.0.0.1:9092]",
)
@click.option(
    "--conf",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of Spark; overrides the file's; may be repeated.",
)
@_parameters
@_folder
def run(
    file: Path,
    once: bool,
    master: str,
    bootstrap_server: str | None,
    settings: tuple[str, ...],
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
    )
    if is_terminal(sys.stderr):
        from barnabas.cli.pipeline_table import LiveTable

        with LiveTable(stderr=True) as table:
            run_pipeline(file, choices, Observer(table.say, table.show))
        return
    status = run_pipeline(file, choices, Observer(lambda words: click.echo(words, err=True)))
    for query in status.queries:
        read = "" if query.rows_read is None else f"{query.rows_read:,} rows read, "
        click.echo(f"{query.query} {query.state}: {read}{query.rows_written:,} rows written", err=True)


@pipeline.command(
    epilog=example(
        """
        barnabas pipeline status shop.py
        barnabas pipeline status shop.py --json | jq '.queries[] | {query, lag, last_error}'
        """,
        "On a terminal it stays up to date until Ctrl-C or until the pipeline ends. The numbers are of each "
        "query's last batch: LAG is how many records it had not read when it last looked, KEPT and SIZE are "
        "its state.",
    )
)
@_file
@_parameters
@_folder
@json_option
def status(file: Path, parameters: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Show the queries of the pipeline in FILE: rates, lag by partition, state, last error."""
    _require_spark()
    from barnabas.pipelines.folder import Folder
    from barnabas.pipelines.read import read_pipeline

    place = Folder.of(read_pipeline(file, parse_assignments(parameters, "--set")), folder)
    if as_json:
        print_json(asdict(_status_of(place)))
        return
    from barnabas.cli.pipeline_table import LiveTable, print_status

    found = _status_of(place)
    if not (is_terminal(sys.stdout) and place.in_use):
        print_status(found)
        return
    with LiveTable(stderr=False) as table:
        table.show(found)
        while place.in_use:
            time.sleep(_LOOK_S)
            table.show(_status_of(place))


def _status_of(folder: Folder) -> PipelineStatus:
    """Raises PipelineError when the pipeline has never run."""
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
        raise click.ClickException("Spark is not installed: pip install 'barnabas[spark]'")
