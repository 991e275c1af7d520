"""`barnabas cluster`: what concerns the brokers of a cluster together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from barnabas.cli.options import example

#: seconds
_PATIENCE = 18.0


@click.group()
def cluster() -> None:
    """Move a broker to a cluster."""


@cluster.command(
    "import",
    epilog=example(
        """
        barnabas cluster import barnabas-data --zookeeper zk1:2181,zk2:2181/prod
        barnabas start --set zookeeper.connect=zk1:2181,zk2:2181/prod
        """,
        "The broker must be stopped. Name every directory of log.dirs, in its order. Records stay where they "
        "are; metadata-1.journal and its copy get the suffix .imported. An import that was interrupted can "
        "be repeated.",
    ),
)
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    metavar="DIR...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--zookeeper",
    "address",
    required=True,
    metavar="HOST:PORT,.../CHROOT",
    help="The ZooKeeper servers, and the node below which the cluster is to live.",
)
def import_(directories: tuple[Path, ...], address: str) -> None:
    """Move the metadata of a broker that runs alone to ZooKeeper."""
    cluster_id = asyncio.run(_import([str(directory) for directory in directories], address))
    click.echo(f"Imported the metadata of cluster {cluster_id} to {address}")
    click.echo(f"Start the broker with --set zookeeper.connect={address}")


async def _import(folders: list[str], address: str) -> str:
    from barnabas.environment.environment import Environment
    from barnabas.metadata.importing import check_embedded, import_embedded
    from barnabas.metadata.zookeeper.address import parse_address
    from barnabas.metadata.zookeeper.store import ZooKeeperStore

    environment = Environment.of_system()
    where = parse_address(address, "--zookeeper")
    check_embedded(environment.filesystem, folders)
    store = await ZooKeeperStore.open(where, session_timeout=_PATIENCE)
    try:
        return await import_embedded(environment, folders, store)
    finally:
        await store.close()
