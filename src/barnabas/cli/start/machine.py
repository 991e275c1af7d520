"""`barnabas start --brokers`: runs several brokers on this machine as a cluster without ZooKeeper.

Each broker is a process of its own. This process supervises them, and serves the embedded metadata store.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from barnabas.base.environment.machine import machine_name
from barnabas.base.errors import ConfigError
from barnabas.base.system.limits import cores
from barnabas.base.system.orphans import environment_that_ends
from barnabas.base.system.sockets import has_local_sockets
from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.broker import replicated_settings
from barnabas.broker.metadata.server.thread import remove_dead_socket
from barnabas.broker.server.network.endpoint import Endpoint, advertised_endpoints, bound_endpoints
from barnabas.cli.address import Address, parse_address
from barnabas.cli.cluster import conversion
from barnabas.cli.cluster.folder import ClusterFolder, ClusterFolderError, Layout, ids_of
from barnabas.cli.cluster.run import Beside, ClusterRunner, Launch
from barnabas.cli.cluster.run import run as run_cluster
from barnabas.cli.cluster.store import ServedStore
from barnabas.cli.secure import SecuredCluster, secure_cluster

log = logging.getLogger(__name__)

#: the most brokers that ``--brokers auto`` starts
_MAX_OF_CORES = 16
#: seconds to wait for the end of brokers whose supervisor was killed just before
_LAST_BREATH = 10.0
AUTO = "auto"
#: settings that this command makes for each broker
_OF_EACH = ("node.id", "metadata.store")


@dataclass(frozen=True, slots=True)
class Services:
    """Addresses of a registry and a console beside the brokers; None for a service that is not requested."""

    registry: str | None = None
    console: str | None = None


def log_dirs_of(values: Mapping[str, str], *, are_named: bool) -> ClusterFolder:
    """Return the cluster's folder, from ``log.dirs`` in `values`; ConfigError if a setting is wrong.

    The folder of an existing cluster is the log directory with its layout. Otherwise it is the first one.

    Args:
        values: settings of the brokers.
        are_named: whether the user has set ``log.dirs``. If False, the result also has the other log
            directories of an existing cluster.
    """
    folders = [ClusterFolder(Path(each)) for each in BrokerConfig.from_text(values).log_dirs]
    folders.sort(key=lambda folder: folder.layout() is None)
    paths = [folder.path for folder in folders]
    if not are_named and (layout := folders[0].layout()) is not None:
        paths += map(Path, layout.more_log_dirs)
    return ClusterFolder(*paths)


def brokers_of(folder: ClusterFolder) -> Layout | None:
    """Return the brokers whose data is in the folder; None if there is at most one.

    Raises:
        ClusterFolderError: the folder has a cluster that `barnabas cluster start` runs.
    """
    layout = folder.layout()
    if layout is not None and not layout.is_embedded:
        raise ClusterFolderError(
            f"{folder.path} has a cluster of `barnabas cluster start`: start it by that command, or choose "
            "another folder by --data"
        )
    return layout


def count_of(asked: str | None, layout: Layout | None) -> int:
    """Return the number of brokers to run.

    Args:
        asked: value of --brokers.

            - A number: that many.
            - "auto": one for each core, up to 16, but not fewer than the brokers that exist.
            - None (no option): as many as exist, at least one.
        layout: the brokers that exist; None if at most one exists.
    """
    there = 1 if layout is None else len(layout.addresses)
    if asked is None:
        return there
    return max(there, min(_MAX_OF_CORES, cores())) if asked == AUTO else int(asked)


def make_lone(folder: ClusterFolder, layout: Layout) -> int:
    """Keep only the broker with the lowest id, and remove the others from the cluster. Return the id.

    The broker can then run alone. The other brokers must not have a replica of any partition.

    Raises:
        ClusterFolderError: another broker has a partition, or the folder is in use.
        StoreUnavailableError: the metadata cannot be read.
    """
    broker, *others = sorted(layout.addresses)
    with folder.held():
        conversion.require_drained(folder, others, [broker])
        conversion.make_lone(folder, broker, others)
    log.info("broker %d runs alone from now on", broker)
    return broker


def run(
    folder: ClusterFolder,
    count: int,
    values: Mapping[str, str],
    options: Sequence[str],
    services: Services,
    *,
    is_secure: bool,
) -> None:
    """Run `count` brokers until a signal.

    Args:
        folder: folder for the brokers' data.
        values: settings of all brokers, as for a single broker.
        options: more options of `barnabas start`, for each broker.
        services: services to run beside the brokers.
        is_secure: whether to set up TLS and logins.

    Raises:
        ConfigError: a setting is not allowed with several brokers.
        ClusterFolderError: the folder is in use, or a broker to be removed has partitions.
        StoreUnavailableError: the metadata cannot be used.
        ClusterStartError: a broker did not start.
    """
    if not has_local_sockets():
        raise ConfigError(
            "--brokers needs Unix sockets, which this system lacks: use `barnabas cluster start`"
        )
    bound, advertised = _listener(values)
    layout = _planned(folder, count, bound, "listeners" in values)
    settings = _settings(values, count)
    metrics = settings.pop("barnabas.metrics.listener", None)
    secured = _secured(folder, bound, advertised, settings) if is_secure else None
    key = None if secured is None else str(secured.folder.pem("server"))
    beside = _beside(services, secured, key)
    runner: ClusterRunner
    store = ServedStore(
        folder, lambda: conversion.check_new(folder), on_failure=lambda error: runner.failed(error)
    )

    def prepare() -> None:
        folder.await_free(_LAST_BREATH)
        for address in folder.stores():  # of a supervisor that was killed
            remove_dead_socket(address)
        folder.store_layout(layout)  # first: from now on no lone broker may start there
        lone = conversion.lone_broker_of(folder, 1)
        if lone is not None:
            conversion.make_member(folder, lone)

    runner = ClusterRunner(
        folder,
        layout,
        store,
        settings,
        partial(click.echo, err=True),
        None if metrics is None else parse_address(metrics, "barnabas.metrics.listener", "127.0.0.1:9404"),
        secured,
        beside,
        Launch(
            options,
            environment_that_ends(),
            has_own_log=False,
            is_supervised=True,
            advertise=advertised,
            protocol=bound.name,
        ),
        prepare,
    )
    run_cluster(runner)


def _listener(values: Mapping[str, str]) -> tuple[Endpoint, Address | None]:
    """Return the listener of broker 1, and the advertised address; None if `values` do not set one.

    Raises:
        ConfigError: the settings are invalid, or have several listeners.
    """
    config = BrokerConfig.from_text(values)
    bound = bound_endpoints(config)
    if len(bound) > 1:
        raise ConfigError(
            "listeners has several addresses: with --brokers each broker has one; name one, whose port is "
            "that of broker 1"
        )
    if not config.advertised_listeners:
        return bound[0], None
    (advertised,) = advertised_endpoints(config, bound, machine_name)
    own_port = config.advertised_listeners[0].endswith(":0")
    host, _, _ = advertised.address.rpartition(":")
    return bound[0], Address(host, 0 if own_port else advertised.port)


def _planned(folder: ClusterFolder, count: int, bound: Endpoint, is_given: bool) -> Layout:
    """Return the brokers to run.

    If they are fewer than the existing ones, remove the others from the metadata.

    Args:
        count: number of brokers to run.
        bound: listener of broker 1; new brokers use the ports that follow.
        is_given: whether the user gave the listener. If not, existing brokers keep their addresses.

    Raises:
        ClusterFolderError: the folder is in use, it has a cluster that `barnabas cluster start` runs, or a
            broker to be removed has partitions.
        StoreUnavailableError: the metadata cannot be read.
    """
    before = brokers_of(folder)
    lone = conversion.lone_broker_of(folder, 1) if before is None else None
    there = before.addresses.keys() if before is not None else {1 if lone is None else lone}
    ids = ids_of(there, count)
    gone = sorted(there - set(ids))
    if gone:
        with folder.held():
            conversion.require_drained(folder, gone, ids)
            conversion.retire(folder, gone)
    host, _, _ = bound.address.rpartition(":")
    known = {} if before is None or is_given else before.addresses
    addresses = {}
    taken = [int(address.rpartition(":")[2]) for address in known.values()]
    port = max(taken, default=bound.port - 1 if bound.port else 0)
    for broker in ids:
        if broker not in known:
            port += 1 if port or bound.port else 0
        addresses[broker] = known.get(broker, f"{host}:{port}")
    more = [str(path.absolute()) for path in folder.log_dirs[1:]]
    return Layout(addresses, is_own_zookeeper=False, is_embedded=True, more_log_dirs=more)


def _settings(values: Mapping[str, str], count: int) -> dict[str, str]:
    """Return the settings that all of `count` brokers share.

    The replication factor of internal topics is the smallest of three numbers: the default.replication.factor
    of `values` (1 if it is not set), `count`, and 3. Settings of internal topics in `values` override it.

    Raises:
        ConfigError: `values` have a setting that this command itself sets for each broker.
    """
    for name in values:
        if name in _OF_EACH or (name.startswith("zookeeper.") and "timeout" not in name):
            raise ConfigError(
                f"{name} is not allowed with --brokers: this command gives the brokers their ids and their "
                "metadata store; remove it"
            )
    asked = values.get("default.replication.factor", "1")
    replicas = min(int(asked), count) if asked.isdecimal() else 1
    shared = {**replicated_settings(max(1, replicas)), "broker.rack": machine_name(), **values}
    for name in ("listeners", "advertised.listeners", "log.dirs"):
        shared.pop(name, None)
    return shared


def _secured(
    folder: ClusterFolder, bound: Endpoint, advertised: Address | None, settings: Mapping[str, str]
) -> SecuredCluster:
    hosts = [bound.address] if not bound.is_every_interface else []
    if advertised is not None:
        hosts.append(str(advertised))
    elif bound.is_every_interface:
        hosts.append(f"{machine_name()}:0")
    return secure_cluster(folder.secure, hosts, folder.data_of(1), settings)


def _beside(services: Services, secured: SecuredCluster | None, key: str | None) -> Beside:
    """Return a function that runs the services beside brokers, as a context manager.

    The function gets the brokers' addresses (HOST:PORT,...) and the URLs of their metrics. The address of the
    registry is bound now. `key` is the PEM file with which the registry of a secured cluster serves HTTPS;
    None for HTTP.

    Raises:
        ConfigError: the registry's address is in use, or the packages of a service are not installed.
    """
    registry: Any = None
    if services.registry is not None:
        from barnabas.cli.start.registry import registry_at

        registry = registry_at(services.registry, str if secured is None else secured.servers, key)
    if services.console is not None:
        from barnabas.cli.console import require_console

        require_console()

    @contextmanager
    def run(servers: str, metrics: Sequence[str]) -> Iterator[None]:
        with ExitStack() as exits:
            if registry is not None:
                exits.enter_context(registry(servers))
            if services.console is not None:
                from barnabas.cli.console_process import running_console

                login: Collection[str] = () if secured is None else secured.login_options(servers)
                console = running_console(services.console, servers, [*login], services.registry, metrics)
                exits.enter_context(console)
            yield

    return run
