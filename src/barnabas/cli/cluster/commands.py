"""`barnabas cluster`: run a cluster on this machine, and keep the metadata of any cluster safe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.base.errors import ConfigError
from barnabas.cli.address import parse_address
from barnabas.cli.cluster.control import ask
from barnabas.cli.cluster.folder import ClusterFolder
from barnabas.cli.complete import broker_settings
from barnabas.cli.options import (
    BROKER,
    EXISTING_FOLDER,
    FILE,
    FOLDER,
    Whole,
    assignments_option,
    console_option,
    example,
    json_option,
    parse_assignments,
)
from barnabas.cli.output import Columns, print_json, print_rows
from barnabas.cli.secured_data import is_of_secured_data, refuse_to_open

if TYPE_CHECKING:
    from barnabas.broker.metadata.store import MetadataStore
    from barnabas.cli.cluster.run import Beside
    from barnabas.cli.secure import SecuredCluster

#: seconds
_PATIENCE = 18.0
#: seconds for a command to a running cluster: a broker may have to recover its logs
_CHANGE = 180.0
_STATUS = 10.0
_CONNECTING = 5.0

_data_option = click.option(
    "--data",
    type=FOLDER,
    metavar="DIR",
    default=Path("barnabas-cluster"),
    show_default=True,
    help="The folder of the cluster.",
)
#: settings that a cluster's brokers cannot share, and the option in their place
_OF_EACH_BROKER = {
    "node.id": None,
    "log.dirs": "--data",
    "listeners": "--listen",
    "advertised.listeners": None,
    "broker.rack": "--racks",
    "zookeeper.connect": "--zookeeper",
    "barnabas.metrics.listener": "--metrics",
}
_broker_argument = click.argument("broker", metavar="N", type=BROKER)
_zookeeper_option = click.option(
    "--zookeeper",
    "address",
    metavar="HOST:PORT,.../CHROOT",
    help="The ZooKeeper servers, and the node of the cluster.",
)
_store_option = click.option(
    "--data",
    "directories",
    multiple=True,
    metavar="DIR",
    type=FOLDER,
    help="For a broker without ZooKeeper: each directory of its log.dirs, in their order.",
)


@click.group()
def cluster() -> None:
    """Run several brokers as one cluster on this machine, and move a broker to a cluster."""


@cluster.command(
    epilog=example(
        """
        barnabas cluster start
        barnabas cluster start --brokers 5 --racks a,a,b,b,c --data /var/lib/barnabas
        barnabas cluster start --console
        barnabas cluster start --metrics 127.0.0.1:9404
        barnabas cluster start --zookeeper zk1:2181,zk2:2181/test --listen 127.0.0.1:0
        barnabas cluster start --secure
        """,
        "Each broker is a process of its own. Without --zookeeper a real ZooKeeper runs beside them, from "
        "PySpark's jars; it needs Java. When all brokers serve, the command prints one line to stdout: "
        "`ready 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094`. Everything else goes to stderr, and the "
        "brokers' logs into the folder. Ctrl-C or SIGTERM stops the brokers one after the other, then "
        "ZooKeeper. A later start in the same folder continues with its brokers and its data.",
    )
)
@click.option(
    "--brokers",
    type=Whole(1, 100),
    help="The number of brokers.  [default: 3, or as many as the folder has]",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    help="The ZooKeeper to use.  [default: a ZooKeeper that this command starts]",
)
@_data_option
@click.option("--racks", metavar="A,B,...", help="The rack of each broker, separated by commas.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="The address of broker 1. The other brokers use the ports that follow. With port 0, each broker "
    "uses a free port.  [default: 127.0.0.1:9092]",
)
@assignments_option(
    "--set",
    complete=broker_settings,
    help="A setting of every broker, as in Kafka's server.properties; may be repeated. Other users of this "
    "machine can see it: write secrets into the file of --config.",
)
@click.option(
    "--config",
    type=FILE,
    help="A file of settings of every broker: TOML, or Kafka's own server.properties. --set overrides it.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="The address at which broker 1 serves metrics and health. The other brokers use the ports that "
    "follow. With port 0, each broker uses a free port. `cluster status --json` has the URLs.",
)
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="Secure the connections of clients and between brokers (see `barnabas start --secure`).",
)
@console_option
def start(
    brokers: int | None,
    zookeeper: str | None,
    data: Path,
    racks: str | None,
    listen: str | None,
    settings: tuple[str, ...],
    config: Path | None,
    metrics: str | None,
    is_secure: bool,
    console: str | None,
) -> None:
    """Run a cluster on this machine until Ctrl-C.

    Topics have three replicas by default, of which two must be in sync for acks=all. The cluster detects a
    dead broker after six seconds. --set changes these values.
    """
    from barnabas.broker.config import BrokerConfig
    from barnabas.broker.config.broker import replicated_settings
    from barnabas.broker.metadata.zookeeper.address import parse_address as parse_zookeeper
    from barnabas.cli.cluster.planning import plan
    from barnabas.cli.cluster.run import ClusterRunner, run
    from barnabas.cli.cluster.store import ClusterStore, GivenZooKeeper, OwnZooKeeper

    given = _settings_of_all(settings, config)
    if zookeeper is not None:
        zookeeper = str(parse_zookeeper(zookeeper, "--zookeeper"))
    host, port = "127.0.0.1", None
    if listen is not None:
        host, port = parse_address(listen, "--listen", "127.0.0.1:9092", default_host=host)
    folder = ClusterFolder(data)
    layout = plan(folder, brokers, host, port, zookeeper, racks.split(",") if racks else ())
    folder = ClusterFolder(data, *map(Path, layout.more_log_dirs))
    values = {
        **replicated_settings(len(layout.addresses)),
        "zookeeper.session.timeout.ms": "6000",  # a dead broker is noticed soon
        **given,
    }
    common = BrokerConfig.from_text({**values, "zookeeper.connect": "127.0.0.1:2181"})
    address = None
    if metrics is not None:
        address = parse_address(metrics, "--metrics", "127.0.0.1:9404", default_host="127.0.0.1")
    secured = None
    if is_secure:
        from barnabas.cli.secure import secure_cluster

        secured = secure_cluster(folder.secure, layout.addresses.values(), folder.data_of(1), values)
    else:
        refuse_to_open([folder.secure], common)
    store: ClusterStore
    if layout.is_own_zookeeper:
        store = OwnZooKeeper(folder, layout, is_secured=is_secure)
    else:
        store = GivenZooKeeper(str(layout.zookeeper))
    beside = _console_beside(console, secured)
    run(
        ClusterRunner(
            folder, layout, store, values, lambda words: click.echo(words, err=True), address, secured, beside
        )
    )


def _console_beside(console: str | None, secured: SecuredCluster | None) -> Beside:
    """Return the argument `beside` of `ClusterRunner`: a function that runs the console beside the brokers.

    If `console` is None, the function starts nothing.

    Args:
        console: HOST:PORT of the console; None for no console.
        secured: certificates and passwords for the console's login; None without `--secure`.

    Raises:
        click.UsageError: `console` is not an address.
        ConfigError: the console is not installed.
    """
    if console is None:
        return lambda servers, metrics: nullcontext()
    from barnabas.cli.console import require_console
    from barnabas.cli.console_process import running_console

    listen = str(parse_address(console, "--console", "127.0.0.1:8080", default_host="127.0.0.1"))
    require_console()

    def beside(servers: str, metrics: Sequence[str]) -> AbstractContextManager[None]:
        login = () if secured is None else secured.login_options(servers)
        return running_console(listen, servers, login, metrics=metrics)

    return beside


def _settings_of_all(settings: tuple[str, ...], file: Path | None) -> dict[str, str]:
    """Return the settings of every broker: the settings in `file`, overridden by the settings from --set.

    Raises:
        ConfigError: the file cannot be read, or it has a setting that `cluster start` itself sets for each
            broker. Or --set names such a setting.
    """
    from barnabas.broker.config import BrokerConfig
    from barnabas.broker.config.files import read_settings

    given = {} if file is None else read_settings(file)
    for name, value in parse_assignments(settings, "--set").items():
        given[BrokerConfig.spellings.get(name, name)] = value
    for name, instead in _OF_EACH_BROKER.items():
        if name in given:
            raise ConfigError(
                f"{name} is not allowed: `cluster start` gives each broker its own; remove it"
                + (f", and use {instead}" if instead else "")
            )
    return given


@cluster.command(
    epilog=example("barnabas cluster status\nbarnabas cluster status --data /var/lib/barnabas --json")
)
@_data_option
@json_option
def status(data: Path, as_json: bool) -> None:
    """Show the brokers, the controller, ZooKeeper and the number of under-replicated partitions."""
    from barnabas.cli.cluster.status import partitions_of, zookeeper_answers

    folder = ClusterFolder(data)
    found = ask(folder, "status", timeout=_STATUS)
    running = [broker["address"] for broker in found["brokers"] if broker["state"] == "running"]
    found |= partitions_of(running, folder.secure if found.get("is_secure") else None)
    zookeeper = found["zookeeper"]
    found["zookeeper_answers"] = None if zookeeper is None else zookeeper_answers(zookeeper)
    leaders = found.pop("leaders")
    for broker in found["brokers"]:
        broker["is_controller"] = broker["id"] == found["controller"]
        broker["leads"] = None if found["partitions"] is None else leaders.get(broker["id"], 0)
    if as_json:
        print_json(found)
    else:
        _print_status(found)


def _print_status(found: Mapping[str, Any]) -> None:
    columns: Columns = {
        "BROKER": "id",
        **{name.upper(): name for name in ("address", "rack", "state", "process", "leads")},
        "CONTROLLER": lambda broker: "yes" if broker["is_controller"] else None,
    }
    print_rows(columns, found["brokers"])
    click.echo("")
    if found["zookeeper"] is not None:
        click.echo(f"ZooKeeper         {found['zookeeper']}, {_zookeeper_state(found)}")
    if found["partitions"] is None:
        click.echo("Partitions        not known: no broker answers")
        return
    unnoticed = [
        str(broker["id"])
        for broker in found["brokers"]
        if broker["state"] != "running" and (broker["leads"] or broker["is_controller"])
    ]
    if unnoticed:
        click.echo(f"Not missed yet    {', '.join(unnoticed)}: the others notice when its session ends")
    click.echo(f"Partitions        {found['partitions']}")
    for words, names in (
        ("Under-replicated", found["under_replicated"]),
        ("Without a leader", found["without_leader"]),
    ):
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        click.echo(f"{words}  {f'{len(names)}: {shown}' if names else '0'}")


def _zookeeper_state(found: Mapping[str, Any]) -> str:
    process = found["zookeeper_process"]
    answers = "answers" if found["zookeeper_answers"] else "does not answer"
    return f"{answers} (process {process})" if process is not None else answers


@cluster.command(epilog=example("barnabas cluster stop 2\nbarnabas cluster stop --data /var/lib/barnabas"))
@click.argument("broker", metavar="[N]", type=BROKER, required=False)
@_data_option
def stop(broker: int | None, data: Path) -> None:
    """Stop broker N cleanly, or the whole cluster. A broker moves its leaders away first."""
    _change("stop", broker, data, "The cluster stops" if broker is None else f"Stopped broker {broker}")


@cluster.command(epilog=example("barnabas cluster kill 2"))
@_broker_argument
@_data_option
def kill(broker: int, data: Path) -> None:
    """Kill broker N, as a crash would end it (SIGKILL)."""
    _change("kill", broker, data, f"Killed broker {broker}")


@cluster.command(epilog=example("barnabas cluster pause 2"))
@_broker_argument
@_data_option
def pause(broker: int, data: Path) -> None:
    """Pause broker N; its connections stay open (SIGSTOP)."""
    _change("pause", broker, data, f"Paused broker {broker}")


@cluster.command(epilog=example("barnabas cluster resume 2"))
@_broker_argument
@_data_option
def resume(broker: int, data: Path) -> None:
    """Resume the paused broker N (SIGCONT)."""
    _change("resume", broker, data, f"Broker {broker} goes on")


@cluster.command(epilog=example("barnabas cluster restart 2"))
@_broker_argument
@_data_option
def restart(broker: int, data: Path) -> None:
    """Start broker N again with its data. A running broker is first stopped cleanly."""
    _change("restart", broker, data, f"Broker {broker} serves again")


def _change(word: str, broker: int | None, data: Path, done: str) -> None:
    ask(ClusterFolder(data), word, broker, timeout=_CHANGE)
    click.echo(done)


@cluster.command(
    "import",
    epilog=example(
        """
        barnabas cluster import barnabas-data --zookeeper zk1:2181,zk2:2181/prod
        barnabas start --set zookeeper.connect=zk1:2181,zk2:2181/prod
        """,
        "Stop the broker first. Name every directory of the setting log.dirs, in the same order. Records "
        "stay where they are; metadata-1.journal and its copy get the suffix .imported. You can repeat an "
        "interrupted import.",
    ),
)
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    metavar="DIR...",
    type=EXISTING_FOLDER,
)
@click.option(
    "--zookeeper",
    "address",
    required=True,
    metavar="HOST:PORT,.../CHROOT",
    help="The ZooKeeper servers, and the node for the cluster.",
)
def import_(directories: tuple[Path, ...], address: str) -> None:
    """Move the metadata of a broker that runs alone to ZooKeeper."""
    cluster_id = asyncio.run(_import([str(directory) for directory in directories], address))
    click.echo(f"Imported the metadata of cluster {cluster_id} to {address}")
    folder = ClusterFolder(directories[0])
    is_secured = is_of_secured_data(folder.secure)
    secure = " --secure" if is_secured else ""
    if folder.layout() is not None:
        start = f"barnabas cluster start --data {folder.path} --zookeeper {address}{secure}"
        click.echo(f"Start the brokers with `{start}`")
        return
    click.echo(f"Start the broker with{secure} --set zookeeper.connect={address}")
    if is_secured:
        click.echo(
            "In a cluster, brokers log in to each other: also set sasl.jaas.config, this user in "
            f"super.users, and ssl.truststore.location={folder.secure / 'ca.pem'}"
        )


@cluster.command(
    epilog=example(
        """
        barnabas cluster backup shop.backup --zookeeper zk1:2181,zk2:2181/prod
        barnabas cluster backup shop.backup --data barnabas-data
        """,
        "The file has topics with their ids and replicas, settings, users and features, but no records. A "
        "cluster can run during the backup; a broker that runs alone (--data) must be stopped.",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_zookeeper_option
@_store_option
def backup(file: Path, address: str | None, directories: tuple[Path, ...]) -> None:
    """Write a cluster's metadata to FILE."""
    from barnabas.base.environment.filesystem import replace_file
    from barnabas.base.environment.os_filesystem import OsFileSystem
    from barnabas.broker.metadata.backup import back_up, encode

    now_ms = round(time.time() * 1000)
    taken = asyncio.run(_with_store(address, directories, False, lambda store: back_up(store, now_ms)))
    replace_file(OsFileSystem(), str(file.absolute()), b"".join(encode(taken)))
    click.echo(f"Wrote {len(taken.topics)} topics of cluster {taken.cluster_id} to {file}")


@cluster.command(
    epilog=example(
        """
        barnabas cluster restore shop.backup --zookeeper zk1:2181,zk2:2181/prod
        barnabas cluster restore broker-1 broker-2 broker-3 --zookeeper zk1:2181/prod
        barnabas cluster restore shop.backup --data barnabas-data
        """,
        "Each SOURCE is a file of `cluster backup`, or a log directory: every broker of a cluster keeps "
        "such a file there. The command uses the latest one. All brokers must be stopped, and the node in "
        "ZooKeeper must not have a cluster with topics. Records stay where they are. When the brokers run "
        "again, the replica with the longest log leads each partition.",
    )
)
@click.argument(
    "sources", metavar="SOURCE...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@_zookeeper_option
@_store_option
def restore(sources: tuple[Path, ...], address: str | None, directories: tuple[Path, ...]) -> None:
    """Rebuild a cluster's lost metadata."""
    from barnabas.base.environment.os_filesystem import OsFileSystem
    from barnabas.broker.metadata.backup import BackupError, read_backup
    from barnabas.broker.metadata.backup import restore as restored
    from barnabas.broker.metadata.folders import leave_cluster

    found = []
    for source in sources:
        try:
            found.append((source, read_backup(OsFileSystem(), str(source.absolute()))))
        except (BackupError, OSError) as error:
            raise click.ClickException(f"{source}: {error}") from error
    source, chosen = max(found, key=lambda item: item[1].age)
    for other, each in found:
        if each.cluster_id != chosen.cluster_id:
            raise click.ClickException(f"{other} and {source} belong to two different clusters")
        when = datetime.fromtimestamp(each.taken_ms / 1000, UTC).isoformat(timespec="seconds")
        gone = sorted(set(each.topics) - set(chosen.topics))
        more = f", not in the latest: {', '.join(gone[:5])}{', ...' if gone[5:] else ''}" if gone else ""
        click.echo(f"{other}: {when}, {len(each.topics)} topics{more}", err=True)
    asyncio.run(_with_store(address, directories, True, lambda store: restored(chosen, store)))
    leave_cluster(OsFileSystem(), [str(directory.absolute()) for directory in directories])
    click.echo(f"Restored {len(chosen.topics)} topics of cluster {chosen.cluster_id} from {source}")


def _require_zookeeper(servers: Sequence[str]) -> None:
    """Raise click.ClickException, with the reasons, if none of the servers accepts a connection."""
    from barnabas.cli.cluster.status import connection_error

    reasons = []
    for server in servers:
        error = connection_error(server, _CONNECTING)
        if error is None:
            return
        reasons.append(f"{server[:100]} ({error})")
    raise click.ClickException(f"no ZooKeeper answers: {', '.join(reasons[:5])}")


T = TypeVar("T")


async def _with_store(
    address: str | None,
    directories: Sequence[Path],
    may_be_new: bool,
    work: Callable[[MetadataStore], Awaitable[T]],
) -> T:
    """Open the store that the options name, run `work` on it, and return the result.

    Args:
        address: address of ZooKeeper; None for an embedded store in `directories`.
        directories: log directories with an embedded store; empty for ZooKeeper.
        may_be_new: whether an embedded store is created if it does not exist.
        work: awaited with the open store.

    Raises:
        click.UsageError: both or neither of `address` and `directories` are given.
        click.ClickException: ZooKeeper accepts no connection.
        StoreUnavailableError: the store cannot be opened.
    """
    from barnabas.base.environment.environment import Environment
    from barnabas.broker.metadata.embedded import EmbeddedStore
    from barnabas.broker.metadata.importing import check_embedded
    from barnabas.broker.metadata.zookeeper.address import parse_address
    from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore

    if (address is None) == (not directories):
        raise click.UsageError("give --zookeeper, or --data for a broker without one")
    store: MetadataStore
    if address is not None:
        where = parse_address(address, "--zookeeper")
        _require_zookeeper(where.servers)
        store = await ZooKeeperStore.open(where, session_timeout=_PATIENCE)
    else:
        environment = Environment.of_system()
        folders = [str(directory.absolute()) for directory in directories]

        def check() -> None:
            if not may_be_new:
                check_embedded(environment.filesystem, folders)

        store = await EmbeddedStore.open(environment, *folders, before_new=check)
    try:
        return await work(store)
    finally:
        await store.close()


async def _import(folders: list[str], address: str) -> str:
    from barnabas.base.environment.environment import Environment
    from barnabas.broker.metadata.importing import check_embedded, check_lone, import_embedded
    from barnabas.broker.metadata.zookeeper.address import parse_address
    from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore

    environment = Environment.of_system()
    where = parse_address(address, "--zookeeper")
    check_embedded(environment.filesystem, folders)
    check_lone(environment.filesystem, folders)
    _require_zookeeper(where.servers)
    store = await ZooKeeperStore.open(where, session_timeout=_PATIENCE)
    try:
        return await import_embedded(environment, folders, store)
    finally:
        await store.close()
