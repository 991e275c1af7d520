"""`barnabas start`: runs a broker in the foreground."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.text import quoted
from barnabas.broker.config import BrokerConfig
from barnabas.cli.address import Address, parse_address
from barnabas.cli.complete import broker_settings
from barnabas.cli.logging_output import log_to_stderr
from barnabas.cli.options import (
    BROKER,
    BROKERS,
    FILE,
    FOLDER,
    INT32,
    assignments_option,
    console_option,
    example,
    log_options,
    parse_assignments,
)
from barnabas.cli.secured_data import refuse_to_open
from barnabas.cli.streams import report

if TYPE_CHECKING:
    from barnabas.broker.server.broker import Broker
    from barnabas.broker.server.run import Companion

log = logging.getLogger(__name__)


@click.command(
    epilog=example(
        """
        barnabas start
        barnabas start --data /var/lib/barnabas --listen 0.0.0.0:9092
        barnabas start --listen 0.0.0.0:9092 --advertise broker-1.example.org
        barnabas start --set num.partitions=3 --set log.retention.hours=24
        barnabas start --config server.properties
        barnabas start --registry 127.0.0.1:8081
        barnabas start --console
        barnabas start --secure
        barnabas start --metrics 127.0.0.1:9404
        barnabas start --brokers auto
        """,
        "The broker writes one line to stdout when it serves: `ready 127.0.0.1:9092`, or "
        "`ready 0.0.0.0:9092 advertised broker-1.example.org:9092` if it advertises another address. "
        "Everything else goes to stderr. Ctrl-C or SIGTERM stops the broker cleanly. With --brokers the line "
        "has all addresses, separated by commas.",
    )
)
@click.option(
    "--brokers",
    type=BROKERS,
    metavar="N|auto",
    help="Run N brokers as one cluster, each in its own process; auto runs one for each core, up to 16. "
    "Brokers after the first listen on the ports that follow.  [default: 1, or as many as the folder has]",
)
@click.option(
    "--data",
    metavar="DIR",
    type=FOLDER,
    help="The folder for the data, created if it is missing.  [default: barnabas-data]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="The address to listen on; 0.0.0.0 is every interface, port 0 a free port.  "
    "[default: 127.0.0.1:9092]",
)
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="The address that the broker tells clients to connect to.  [default: as --listen; for 0.0.0.0 and "
    "[::] this machine's name]",
)
@assignments_option(
    "--set",
    complete=broker_settings,
    help="A broker setting, as in Kafka's server.properties; may be repeated.",
)
@click.option(
    "--config",
    type=FILE,
    help="A file of settings: TOML, or Kafka's own server.properties. --set overrides it.",
)
@click.option(
    "--registry",
    metavar="HOST:PORT",
    is_flag=False,
    flag_value="127.0.0.1:8081",
    help="Also run a schema registry at this address, by default 127.0.0.1:8081 (see `barnabas registry`). "
    "Its URL is a second line on stdout.",
)
@console_option
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="Use TLS, require a login, and deny everyone except admin until an ACL allows access. The first "
    "start makes the certificates and the admin's password, in the folder secure of the data.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Also serve metrics for Prometheus and health checks at this address (/metrics, /healthz, /readyz). "
    "The URL is a further line on stdout.",
)
@click.option(
    "--log-slow-requests",
    type=INT32,
    metavar="MS",
    help="Log each request that takes at least this time in ms: its API, client and duration, but not its "
    "contents.",
)
@click.option("--member", type=BROKER, hidden=True, help="One of several: end when stdin does.")
@log_options
def start(
    brokers: str | None,
    data: Path | None,
    listen: str | None,
    advertise: str | None,
    settings: tuple[str, ...],
    config: Path | None,
    registry: str | None,
    console: str | None,
    is_secure: bool,
    metrics: str | None,
    log_slow_requests: int | None,
    member: int | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run a broker, or several, until Ctrl-C or SIGTERM.

    It needs no other service: the metadata of the cluster is in the same folder as the data.
    """
    log_to_stderr(log_level, log_format, member)
    values = _read_values(data, listen, advertise, settings, config, is_secure)
    if metrics is not None:
        address = parse_address(metrics, "--metrics", "127.0.0.1:9404", default_host="127.0.0.1")
        values["barnabas.metrics.listener"] = str(address)
    if log_slow_requests is not None:
        values["barnabas.slow.request.ms"] = str(log_slow_requests)
    own: dict[str, Address] = {}
    if console is not None:
        own["--console"] = parse_address(console, "--console", "127.0.0.1:8080", default_host="127.0.0.1")
    if registry is not None:
        own["--registry"] = parse_address(registry, "--registry", "127.0.0.1:8081", default_host="127.0.0.1")
    if member is None and (brokers is not None or _may_be_shared(values)):
        from barnabas.cli.start import machine

        are_named = data is None and "log.dirs" in values
        folder = machine.log_dirs_of(values, are_named=are_named)
        layout = machine.brokers_of(folder)
        count = machine.count_of(brokers, layout)
        if count > 1:
            common = BrokerConfig.from_text(values)
            _refuse_shared_address(common, own)
            if not is_secure:
                refuse_to_open([folder.secure], common)
            _warn_of_too_few(count, common)
            options = ["--log-level", log_level, "--log-format", log_format]
            services = machine.Services(registry, console)
            machine.run(folder, count, values, options, services, is_secure=is_secure)
            return
        if layout is not None:
            values.setdefault("node.id", str(machine.make_lone(folder, layout)))
            values["log.dirs"] = ",".join(map(str, folder.log_dirs))
            if len(folder.log_dirs) > 1 and not are_named:
                click.echo(
                    f"from now on, start the broker with --set log.dirs={values['log.dirs']}", err=True
                )
    secured = None
    if is_secure:
        from barnabas.cli.secure import secure

        secured = secure(values)
    broker_config = BrokerConfig.from_text(values)
    _refuse_shared_address(broker_config, own)
    if not is_secure:
        refuse_to_open((Path(folder) / "secure" for folder in broker_config.log_dirs), broker_config)
    if member is None and broker_config.zookeeper_connect is None:
        _warn_of_too_few(1, broker_config)
    gc.disable()  # what is imported stays
    try:
        from barnabas.broker.server.run import run
    finally:
        gc.enable()

    def announce(broker: Broker) -> None:
        if member is None:
            click.echo(_summary(broker, broker_config), err=True)
        else:
            from barnabas.base.system.signals import stop_with_stdin

            stop_with_stdin()
        if secured is not None:
            click.echo(secured.announce(broker.address), err=True)
        bound, advertised = broker.bound[0].address, broker.advertised[0].address
        with suppress(OSError):  # it has no reader: the broker serves all the same
            report(f"ready {bound}" if bound == advertised else f"ready {bound} advertised {advertised}")
            if broker.monitor is not None:
                report(f"metrics {broker.monitor.responder.url}/metrics")

    companions = []
    if registry is not None:
        from barnabas.cli.start.registry import beside_broker

        if secured is None:
            companions.append(beside_broker(registry, str))
        else:
            companions.append(beside_broker(registry, secured.servers, values["ssl.keystore.location"]))
    if console is not None:
        from barnabas.cli.start import console as console_process

        login = secured.login_options if secured is not None else lambda servers: ()
        companions.append(console_process.beside_broker(console, login, registry))
    with _told_in_one_line():
        run(broker_config, announce, _all(companions), secured.users if secured is not None else {})


def _may_be_shared(values: Mapping[str, str]) -> bool:
    """Whether a log directory may have the data of several brokers: it contains the file cluster.json."""
    with suppress(OSError, ValueError):  # an impossible path: the broker reports it
        return any((Path(each) / "cluster.json").exists() for each in BrokerConfig.from_text(values).log_dirs)
    return False


def _warn_of_too_few(brokers: int, broker_config: BrokerConfig) -> None:
    """Warn if `brokers`, the number of brokers, is below the default replication factor.

    As in Kafka, the setting stays, and the broker rejects topics that are created with the default.
    """
    factor = broker_config.default_replication_factor
    if factor > brokers:
        log.warning(
            "default.replication.factor=%d needs %d brokers, but this cluster has %d: it rejects new topics "
            "that do not set a lower replication factor",
            factor,
            factor,
            brokers,
        )


def _refuse_shared_address(config: BrokerConfig, own: Mapping[str, Address]) -> None:
    """Raise UsageError if the address of an option in `own` is also the address of a listener or option."""
    taken = {listener.partition("://")[2]: f"the listener {listener}" for listener in config.listeners}
    for option, address in own.items():
        if address.port and (other := taken.setdefault(str(address), option)) != option:
            raise click.UsageError(f"{option} {address}: {other} has this address, too; choose another port")


def _all(companions: Sequence[Companion]) -> Companion:
    """Return one `Companion` that runs all `companions`, the services beside the broker.

    It starts them in their order, and stops them in reverse.
    """

    @contextmanager
    def run(broker: Broker) -> Iterator[None]:
        with ExitStack() as exits:
            for companion in companions:
                exits.enter_context(companion(broker))
            yield

    return run


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Turn an unexpected error into a click.ClickException, so that the command ends with one line.

    With --log-level debug, the traceback is logged.
    """
    try:
        yield
    except (BarnabasError, OSError, click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        log.debug("the broker ends", exc_info=True)
        raise click.ClickException(
            f"the broker ends because of a bug: {type(error).__name__}: {quoted(str(error))}; "
            "--log-level debug shows where, please report it"
        ) from error


def _summary(broker: Broker, config: BrokerConfig) -> str:
    """Return the lines for a user at a terminal, for a broker that serves."""
    folders = ", ".join(str(Path(folder).absolute()) for folder in config.log_dirs)
    lines = [f"broker {broker.node_id} of cluster {broker.cluster_id}"]
    for bound, advertised in zip(broker.bound, broker.advertised, strict=True):
        lines.append(f"  listens on  {bound.address}")
        if advertised.address != bound.address:
            given = any(item.upper().startswith(f"{bound.name}://") for item in config.advertised_listeners)
            how = "" if given else " (this machine's name; --advertise sets another)"
            lines.append(f"  clients use {advertised.address}{how}")
    if broker.monitor is not None:
        lines.append(f"  metrics     {broker.monitor.responder.url}/metrics")
    return "\n".join((*lines, f"  keeps data  {folders}", "  stop with   Ctrl-C"))


def _read_values(
    data: Path | None,
    listen: str | None,
    advertise: str | None,
    settings: tuple[str, ...],
    file: Path | None,
    is_secure: bool,
) -> dict[str, str]:
    """Return the settings of the options. Options such as --listen override --set, which overrides the file.

    Raises:
        click.UsageError: an address is invalid, or the options contradict each other.
        ConfigError: the file cannot be read.
    """
    values: dict[str, str] = {}
    if file is not None:
        from barnabas.broker.config.files import read_settings

        values.update(read_settings(file))
        if listen is not None:
            values.pop("advertised.listeners", None)  # of the listeners that --listen replaces
    assigned = parse_assignments(settings, "--set").items()
    given = {BrokerConfig.spellings.get(name, name): value for name, value in assigned}
    values.update(given)
    if data is not None:
        if "log.dirs" in given:
            raise click.UsageError("several folders: use --set log.dirs=DIR,DIR without --data")
        values["log.dirs"] = str(data)
    if listen is not None:
        address = parse_address(listen, "--listen", "127.0.0.1:9092 or [::1]:9092", default_host="127.0.0.1")
        values["listeners"] = f"{'SASL_SSL' if is_secure else 'PLAINTEXT'}://{address}"
    elif is_secure:
        if "listeners" in values:
            raise click.UsageError("--secure makes the listener: use --listen, and leave listeners out")
        values["listeners"] = "SASL_SSL://127.0.0.1:9092"
    if advertise is not None:
        address = parse_address(advertise, "--advertise", "broker-1.example.org:9092", default_port=0)
        values["advertised.listeners"] = f"{_only_listener(values)}://{address}"
    return values


def _only_listener(values: Mapping[str, str]) -> str:
    """Return the name of the only listener, for --advertise. Raises click.UsageError if there are more."""
    listeners = [item.strip() for item in values.get("listeners", "PLAINTEXT://").split(",")]
    if len(listeners) > 1:
        raise click.UsageError(
            "--advertise cannot tell which of several listeners it is for: "
            "use --set advertised.listeners=NAME://HOST:PORT,..."
        )
    return listeners[0].partition("://")[0]
