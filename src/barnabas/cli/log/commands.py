"""`barnabas log`: read, check and repair log directories without a broker."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.options import EXISTING_FOLDER, OFFSET, example
from barnabas.cli.output import print_json_line, snake_case


class DamagedLog(BarnabasError):
    """At least one file is damaged."""


@click.group()
def log() -> None:
    """Read, check and repair a broker's files."""


@log.command(
    epilog=example(
        """
        barnabas log dump barnabas-data/orders-0
        barnabas log dump barnabas-data/orders-0/00000000000000000000.log --records
        barnabas log dump barnabas-data/__consumer_offsets-3 --records --json | jq .records
        barnabas log dump barnabas-data/__transaction_state-17 --records
        """,
        "The command reads the files of Barnabas and of Apache Kafka, which have the same format. It prints "
        "them as Kafka's DumpLogSegments does. You can use it while the broker runs. The exit code is 1 "
        "when a CRC does not match or bytes are left over.",
    )
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True, path_type=Path)
)
@click.option("--records", is_flag=True, help="Print every record, not only the batches' headers.")
@click.option("--from-offset", type=OFFSET, default=0, help="Skip batches before this offset.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each batch or entry.")
def dump(paths: tuple[Path, ...], records: bool, from_offset: int, as_json: bool) -> None:
    """Print .log files, indexes, snapshots and checkpoints.

    A partition's directory means all its files. Records of __consumer_offsets, __transaction_state and
    __share_group_state are decoded.
    """
    from barnabas.cli.log.dump import dump_file, files_of

    files: list[Path] = []
    for given in paths:
        found = files_of(given)
        if not found:
            raise click.UsageError(f"{given} contains no log file: name the folder of a partition")
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


_DIRECTORIES = click.argument(
    "directories",
    nargs=-1,
    required=True,
    metavar="DIR...",
    type=EXISTING_FOLDER,
)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Print the steps without doing them.")
_steps_as_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object a line: one for a step."
)


@log.command(
    epilog=example(
        """
        barnabas log check barnabas-data
        barnabas log check /disk1/barnabas /disk2/barnabas
        barnabas log check barnabas-data --json | jq 'select(.state != "whole")'
        """,
        "Name every directory of the setting log.dirs, in the same order. The command reads every batch and "
        "checks its CRC. It changes nothing. The exit code is 1 when something is damaged, missing or "
        "unknown.",
    )
)
@_DIRECTORIES
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object a line: one for a file or partition."
)
def check(directories: tuple[Path, ...], as_json: bool) -> None:
    """Check a stopped broker's data, file by file."""
    from barnabas.cli.log.check import check_directories

    damaged = 0
    found = check_directories([path.absolute() for path in directories])
    for finding in found.all_findings():
        damaged += finding.is_damage
        with suppress(BrokenPipeError):  # the exit code reports them, even without a reader of the findings
            if as_json:
                print_json_line(finding.fields())
            else:
                click.echo(finding.text())
    if damaged and found.is_clustered:
        raise DamagedLog(
            f"{damaged} findings; `barnabas log discard` moves a damaged replica aside, and the broker "
            "copies it again from the partition's leader; if there is no other replica, `barnabas log "
            "repair --dry-run` shows which records can be saved"
        )
    if damaged:
        raise DamagedLog(f"{damaged} findings; `barnabas log repair --dry-run` shows what can be repaired")


@log.command(
    epilog=example(
        """
        barnabas log repair barnabas-data --dry-run
        barnabas log repair /disk1/barnabas /disk2/barnabas
        """,
        "Name every directory of the setting log.dirs, in the same order. If you can, make a copy of these "
        "directories first. The command "
        "moves damaged files into a folder damaged.TIME of their directory and deletes none. Lost offsets "
        "stay unused, so that no two records have the same offset. If no copy of the metadata is complete, "
        "the command restores topics, their ids and partitions from the partitions' folders, without their "
        "settings. In a cluster, use `log discard` if another broker has the records. The broker copies a "
        "repaired replica again from the partition's leader. A repaired replica leads only after `topics "
        "elect --unclean`.",
    )
)
@_DIRECTORIES
@_dry_run_option
@_steps_as_json_option
def repair(directories: tuple[Path, ...], dry_run: bool, as_json: bool) -> None:
    """Repair a stopped broker's data so that it can be served again."""
    from barnabas.cli.log.check import check_directories
    from barnabas.cli.log.repair import Repair

    unheard: list[OSError] = []

    def say(step: str) -> None:
        try:
            if as_json:
                print_json_line({"step": step, "dry_run": dry_run})
            else:
                click.echo(step)
        except OSError as error:  # of stdout: no reason to leave the data half repaired
            unheard.append(error)

    found = check_directories([path.absolute() for path in directories])
    if not Repair(found, say, dry_run=dry_run).run():
        say("nothing to repair")
    if unheard:
        raise unheard[0]


@log.command(
    epilog=example(
        """
        barnabas log discard orders-0 barnabas-data --dry-run
        barnabas log discard orders-0 /disk1/barnabas /disk2/barnabas
        """,
        "Use this command for a stopped broker of a cluster, if other brokers have the records. Name every "
        "directory of the setting log.dirs. The command moves the replica's files into a folder "
        "damaged.TIME of their directory and deletes none. When the broker runs again, it copies the "
        "partition from the leader. The replica is in sync when it has everything. If no other replica was "
        "in sync, the partition has no leader until `topics elect orders:0 --unclean` accepts the loss.",
    )
)
@click.argument("partition", metavar="TOPIC-PARTITION")
@_DIRECTORIES
@_dry_run_option
@_steps_as_json_option
def discard(partition: str, directories: tuple[Path, ...], dry_run: bool, as_json: bool) -> None:
    """Discard a replica: its broker copies it again from the leader."""
    from barnabas.base.environment.clock import SystemClock
    from barnabas.base.environment.os_filesystem import OsFileSystem
    from barnabas.base.types import TopicPartition
    from barnabas.broker.logs.discarding import discard_replica, find_replica
    from barnabas.broker.metadata.folders import belong_to_cluster
    from barnabas.cli.log.check import PARTITION_FOLDER, check_not_in_use

    if (match := PARTITION_FOLDER.fullmatch(partition)) is None:
        raise click.UsageError(f"{partition!r} is not a partition: write TOPIC-PARTITION, like orders-0")
    topic_partition = TopicPartition(match["topic"], int(match["partition"]))
    paths = [path.absolute() for path in directories]
    for path in paths:
        check_not_in_use(path)
    fs, folders = OsFileSystem(), [str(path) for path in paths]
    if not belong_to_cluster(fs, folders):
        raise click.ClickException(
            f"{', '.join(folders)} belongs to a broker that runs alone: no other broker has {partition}. "
            "`barnabas log repair` keeps its complete batches"
        )
    found = find_replica(fs, folders, topic_partition)
    if not found:
        raise click.ClickException(f"{partition} is not in {', '.join(folders)}: name all of log.dirs")

    def say(step: str) -> None:
        with suppress(OSError):  # of stdout: no reason to leave it half done
            if as_json:
                print_json_line({"step": step, "dry_run": dry_run})
            else:
                click.echo(step)

    discard_replica(fs, found, topic_partition, f"damaged.{SystemClock().now_ms()}", say, dry_run=dry_run)
