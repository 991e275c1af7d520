"""`barnabas ship`: sends log files to a topic, each record once."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.complete import topic_names
from barnabas.cli.options import FOLDER, NAME, bootstrap_option, example, require_unique
from barnabas.cli.output import print_json
from barnabas.cli.progress import human_bytes
from barnabas.cli.streams import is_terminal

if TYPE_CHECKING:
    from barnabas.cli.ship.progress import ProgressBar
    from barnabas.client.ship import Progress, Shipper


@click.command(
    epilog=example(
        """
        barnabas ship /var/log/syslog /var/log/nginx/access.log --topic logs
        barnabas ship app.log --topic appLogs --once
        barnabas ship app.log.2 app.log.1 app.log --topic appLogs --source app
        barnabas consume logs --from-beginning | jq 'select(.level == "ERROR")'
        """,
        "A record is JSON: source, level, message, timestamp and the other fields of the line. A stack trace "
        "is one record. The key is the source, so a file's records keep their order. The command follows "
        "rotation by rename, or by copy and truncate. After a stop or a crash it continues after the last "
        "record in the topic: no line is lost or sent twice.",
    )
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, dir_okay=False)
)
@click.option(
    "--topic",
    "-t",
    required=True,
    type=NAME,
    shell_complete=topic_names,
    help="The topic that gets the records.",
)
@click.option("--once", is_flag=True, help="End at the end of the files instead of following them.")
@click.option(
    "--source",
    type=NAME,
    help="The source in the records: one file with its rotations.  [default: the file's path]",
)
@click.option(
    "--state",
    metavar="DIR",
    type=FOLDER,
    help="The folder that keeps the positions in the files.  [default: ~/.local/state/barnabas/ship]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the totals as JSON at the end.")
@bootstrap_option
def ship(
    files: tuple[Path, ...],
    topic: str,
    once: bool,
    source: str | None,
    state: Path | None,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Ship log files into a topic, following them as they grow."""
    from barnabas.client.reach import require_broker
    from barnabas.client.ship import Shipper

    require_unique(map(str, files), "the command names")
    if source is not None:
        _require_one_family(files)
    require_broker(bootstrap_server)
    bar = _progress_bar()
    shipper = Shipper(
        bootstrap_server,
        topic,
        dict.fromkeys(files, source) if source is not None else files,
        follow=not once,
        state_dir=state,
        on_progress=bar.update if bar is not None else None,
    )
    _stop_on_signals(shipper)
    if bar is not None:
        with bar:
            progress = shipper.run()
    else:
        progress = shipper.run()
    _report(progress, as_json)


def _stop_on_signals(shipper: Shipper) -> None:
    def stop(number: int, frame: object) -> None:
        shipper.stop()
        signal.signal(number, signal.SIG_DFL)  # a second signal ends it at once; nothing is lost by that

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _require_one_family(files: tuple[Path, ...]) -> None:
    from barnabas.client.tail import is_rotated_name

    base = min(files, key=lambda path: len(path.name))
    others = [path for path in files if path != base and not is_rotated_name(path, base)]
    if others:
        raise click.UsageError(
            f"--source names one file with its rotations, and {others[0]} is no rotation of {base}: ship "
            "it by a command of its own"
        )


def _progress_bar() -> ProgressBar | None:
    if not is_terminal(sys.stderr):
        return None
    from barnabas.cli.ship.progress import ProgressBar

    return ProgressBar()


def _report(progress: Progress, as_json: bool) -> None:
    for warning in progress.warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(
            {
                "files": progress.files,
                "lines": progress.lines,
                "records": progress.acknowledged,
                "records_before": progress.found,
                "bytes": progress.bytes_read,
                "warnings": progress.warnings,
            }
        )
        return
    before = f" ({progress.found:,} were there from before)" if progress.found else ""
    click.echo(
        f"shipped {progress.acknowledged:,} records of {progress.lines:,} lines, "
        f"{human_bytes(progress.bytes_read)}, from {progress.files} files{before}",
        err=True,
    )
