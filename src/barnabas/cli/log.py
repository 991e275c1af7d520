"""`barnabas log`: what lies in segment and index files, read without a broker."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.cli.options import OFFSET, example
from barnabas.cli.output import print_json_line, snake_case
from barnabas.errors import BarnabasError


class DamagedLog(BarnabasError):
    """At least one file holds what a broker would not have written."""


@click.group()
def log() -> None:
    """Look into segment files without a broker."""


@log.command(
    epilog=example(
        """
        barnabas log dump barnabas-data/orders-0
        barnabas log dump barnabas-data/orders-0/00000000000000000000.log --records
        barnabas log dump barnabas-data/__consumer_offsets-3 --records --json | jq .records
        barnabas log dump barnabas-data/__transaction_state-17 --records
        """,
        "Reads Barnabas's files and Apache Kafka's, which are the same, and prints them as Kafka's "
        "DumpLogSegments "
        "does. Safe beside a running broker. The exit code is 1 when a CRC does not match or bytes are "
        "left over.",
    )
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True, path_type=Path)
)
@click.option("--records", is_flag=True, help="Print every record, not only the batches' headers.")
@click.option(
    "--from-offset", metavar="N", type=OFFSET, default=0, help="Leave out batches before this offset."
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each batch or entry.")
def dump(paths: tuple[Path, ...], records: bool, from_offset: int, as_json: bool) -> None:
    """Print the batches of .log files, the entries of indexes, snapshots and checkpoints.

    A partition's directory stands for all its files. Records of __consumer_offsets and
    __transaction_state are decoded.
    """
    from barnabas.cli.log_files import dump_file, files_of

    files: list[Path] = []
    for given in paths:
        found = files_of(given)
        if not found:
            raise click.UsageError(f"{given} holds no file of a log: name the folder of a partition")
        files += found
    damaged: dict[Path, str] = {}
    for path in files:
        if not as_json:
            click.echo(f"Dumping {path}")
        for entry in dump_file(path, records=records, from_offset=from_offset):
            if entry.damage is not None:
                damaged.setdefault(path, entry.damage)
            if as_json:
                print_json_line(snake_case({"file": str(path), **entry.fields}))
            else:
                click.echo(entry.text)
    if damaged:
        raise DamagedLog("; ".join(f"{path}: {damage}" for path, damage in damaged.items()))
