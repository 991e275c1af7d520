"""`barnabas start`: a broker in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from barnabas.cli.complete import broker_settings
from barnabas.cli.options import example, log_level_option, log_to_stderr, parse_assignments
from barnabas.config import BrokerConfig


@click.command(
    epilog=example(
        """
        barnabas start
        barnabas start --data /var/lib/barnabas --listen 0.0.0.0:9092
        barnabas start --set num.partitions=3 --set log.retention.hours=24
        barnabas start --config server.properties
        barnabas start --registry 127.0.0.1:8081
        """,
        "Ready is said in one line on stdout: `ready 127.0.0.1:9092`. Everything else goes to stderr. "
        "Ctrl-C or SIGTERM stops the broker cleanly.",
    )
)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the data lies; made when it is not there.  [default: barnabas-data]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one.  [default: 127.0.0.1:9092]",
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
    help="A file of settings: TOML, or Kafka's own server.properties. --set goes before it.",
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
    settings: tuple[str, ...],
    config: Path | None,
    registry: str | None,
    log_level: str,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    It needs nothing else on the machine: the cluster's metadata lies beside the data.
    """
    broker_config = _read_config(data, listen, settings, config)
    log_to_stderr(log_level)
    from barnabas.server.broker import Broker
    from barnabas.server.run import run

    def announce(broker: Broker) -> None:
        places = ", ".join(str(Path(place).absolute()) for place in broker_config.log_dirs)
        click.echo(
            f"broker {broker.node_id} of cluster {broker.cluster_id}\n"
            f"  listens on  {broker.address}\n"
            f"  keeps data  {places}\n"
            "  stop with   Ctrl-C",
            err=True,
        )
        click.echo(f"ready {broker.address}")
        sys.stdout.flush()

    if registry is None:
        run(broker_config, announce)
        return
    from barnabas.cli.start_registry import beside_broker

    run(broker_config, announce, beside=beside_broker(registry))


def _read_config(
    data: Path | None, listen: str | None, settings: tuple[str, ...], file: Path | None
) -> BrokerConfig:
    values: dict[str, str] = {}
    if file is not None:
        from barnabas.config.files import read_settings

        values.update(read_settings(file))
    values.update(parse_assignments(settings, "--set"))
    if data is not None:
        values.pop("log.dir", None)
        values["log.dirs"] = str(data)
    if listen is not None:
        values["listeners"] = f"PLAINTEXT://{_address(listen)}"
    return BrokerConfig.from_text(values)


def _address(listen: str) -> str:
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise click.UsageError(
            f"--listen {listen}: write HOST:PORT, for example 127.0.0.1:9092 or [::1]:9092"
        )
    return f"{host or '127.0.0.1'}:{port}"
