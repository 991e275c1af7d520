"""`barnabas start`: a broker in the foreground."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.address import parse_address
from barnabas.cli.complete import broker_settings
from barnabas.cli.options import example, log_level_option, log_to_stderr, parse_assignments
from barnabas.cli.streams import report
from barnabas.config import BrokerConfig
from barnabas.config.setting import shown
from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

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
        """,
        "The broker writes one line to stdout when it serves: `ready 127.0.0.1:9092`, or "
        "`ready 0.0.0.0:9092 advertised broker-1.example.org:9092` where clients are told another address. "
        "Everything else goes to stderr. Ctrl-C or SIGTERM stops the broker cleanly.",
    )
)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the data, created if it is missing.  [default: barnabas-data]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where to listen; 0.0.0.0 is every interface, port 0 a free port.  [default: 127.0.0.1:9092]",
)
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="The address that clients are told to connect to.  [default: as --listen; for 0.0.0.0 and [::] "
    "this machine's name]",
)
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=broker_settings,
    help="A broker setting, as in Kafka's server.properties; may be repeated.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of settings: TOML, or Kafka's own server.properties. --set overrides it.",
)
@click.option(
    "--registry",
    metavar="HOST:PORT",
    help="Also run a schema registry there (see `barnabas registry`); its URL is a second line on stdout.",
)
@log_level_option
def start(
    data: Path | None,
    listen: str | None,
    advertise: str | None,
    settings: tuple[str, ...],
    config: Path | None,
    registry: str | None,
    log_level: str,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    It needs nothing else on the machine: the cluster's metadata lies beside the data.
    """
    log_to_stderr(log_level)
    broker_config = _read_config(data, listen, advertise, settings, config)
    if registry is not None:
        parse_address(registry, "--registry", "127.0.0.1:8081", default_host="127.0.0.1")
    gc.disable()  # what is imported stays
    try:
        from barnabas.server.run import run
    finally:
        gc.enable()

    def announce(broker: Broker) -> None:
        click.echo(_summary(broker, broker_config), err=True)
        bound, told = broker.bound[0].address, broker.advertised[0].address
        with suppress(OSError):  # nobody reads it: the broker serves all the same
            report(f"ready {bound}" if bound == told else f"ready {bound} advertised {told}")

    companion = None
    if registry is not None:
        from barnabas.cli.start_registry import beside_broker

        companion = beside_broker(registry)
    with _told_in_one_line():
        run(broker_config, announce, companion)


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """What else goes wrong is a bug: it ends the command in one line, and --log-level debug shows where."""
    try:
        yield
    except (BarnabasError, OSError, click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        log.debug("the broker ends", exc_info=True)
        raise click.ClickException(
            f"the broker ends because of a bug: {type(error).__name__}: {shown(str(error))}; "
            "--log-level debug shows where, please report it"
        ) from error


def _summary(broker: Broker, config: BrokerConfig) -> str:
    """What somebody at a terminal wants to know of a broker that serves."""
    folders = ", ".join(str(Path(folder).absolute()) for folder in config.log_dirs)
    lines = [f"broker {broker.node_id} of cluster {broker.cluster_id}"]
    for bound, told in zip(broker.bound, broker.advertised, strict=True):
        lines.append(f"  listens on  {bound.address}")
        if told.address != bound.address:
            given = any(item.upper().startswith(f"{bound.name}://") for item in config.advertised_listeners)
            how = "" if given else " (this machine's name; --advertise sets another)"
            lines.append(f"  clients use {told.address}{how}")
    return "\n".join((*lines, f"  keeps data  {folders}", "  stop with   Ctrl-C"))


def _read_config(
    data: Path | None,
    listen: str | None,
    advertise: str | None,
    settings: tuple[str, ...],
    file: Path | None,
) -> BrokerConfig:
    """The options' settings: they override --set, which overrides the file."""
    values: dict[str, str] = {}
    if file is not None:
        from barnabas.config.files import read_settings

        values.update(read_settings(file))
        if listen is not None:
            values.pop("advertised.listeners", None)  # it tells where the file's own listeners are
    for name, value in parse_assignments(settings, "--set").items():
        values[BrokerConfig.spellings.get(name, name)] = value
    if data is not None:
        values["log.dirs"] = str(data)
    if listen is not None:
        address = parse_address(listen, "--listen", "127.0.0.1:9092 or [::1]:9092", default_host="127.0.0.1")
        values["listeners"] = f"PLAINTEXT://{address}"
    if advertise is not None:
        address = parse_address(advertise, "--advertise", "broker-1.example.org:9092", default_port=0)
        values["advertised.listeners"] = f"{_only_listener(values)}://{address}"
    return BrokerConfig.from_text(values)


def _only_listener(values: Mapping[str, str]) -> str:
    """The name of the listener that --advertise is about."""
    listeners = [item.strip() for item in values.get("listeners", "PLAINTEXT://").split(",")]
    if len(listeners) > 1:
        raise click.UsageError(
            "--advertise cannot tell which of several listeners it is for: "
            "use --set advertised.listeners=NAME://HOST:PORT,..."
        )
    return listeners[0].partition("://")[0]
