"""`barnabas registry`: a schema registry in the foreground."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from barnabas.base.errors import ConfigError
from barnabas.base.installation import pip_install
from barnabas.cli.address import parse_address
from barnabas.cli.logging_output import log_to_stderr
from barnabas.cli.options import INT16, NAME, bootstrap_option, example, log_options

_LEVELS = (
    *("none", "backward", "backward_transitive", "forward", "forward_transitive"),
    *("full", "full_transitive"),
)


@click.command(
    epilog=example(
        """
        barnabas registry
        barnabas registry --listen 0.0.0.0:8081 --bootstrap-server broker-1:9092,broker-2:9092
        barnabas registry --compatibility full
        barnabas registry --tls registry.pem --login --config registry.properties
        curl http://127.0.0.1:8081/subjects
        """,
        "Give clients the URL as schema.registry.url. When the registry answers requests, it prints one "
        "line: `ready http://127.0.0.1:8081`. Until a broker answers, the registry waits. It stores all of "
        "its data in the topic, so any number of registries can share one topic. `barnabas start "
        "--registry` runs a registry beside a broker. A registry needs the extra registry, and for Protobuf "
        "also the extra protobuf: "
        f"{pip_install('registry', 'protobuf', quote='`')}.",
    )
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8081",
    show_default=True,
    help="The address to listen on; port 0 takes a free one.",
)
@click.option(
    "--topic",
    type=NAME,
    default="_schemas",
    show_default=True,
    help="The topic that keeps the schemas; created, with one partition, when it does not exist.",
)
@click.option(
    "--replication-factor",
    type=INT16,
    help="The topic's replication factor when it is created.  [default: the broker's]",
)
@click.option(
    "--compatibility",
    type=click.Choice(_LEVELS, case_sensitive=False),
    default="backward",
    show_default=True,
    help="The compatibility level of all subjects until PUT /config changes it.",
)
@click.option(
    "--tls", metavar="FILE", help="Serve HTTPS with the private key and the certificates in this PEM file."
)
@click.option(
    "--login",
    is_flag=True,
    help="Require clients to log in (HTTP basic authentication) as users of the cluster. Its ACLs on topics "
    "control the access to subjects.",
)
@click.option(
    "--super-user",
    "super_users",
    type=NAME,
    multiple=True,
    help="With --login, a user who may do everything, like the registry's own; may be repeated.",
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="NAME[:PORT]",
    multiple=True,
    help="A host name in requests that the registry accepts, in addition to this machine's names; may be "
    "repeated. It rejects all others.  [default: any name, if other machines can reach it]",
)
@log_options
@bootstrap_option
def registry(
    listen: str,
    topic: str,
    replication_factor: int | None,
    compatibility: str,
    tls: str | None,
    login: bool,
    super_users: tuple[str, ...],
    hosts: tuple[str, ...],
    log_format: str,
    log_level: str,
    bootstrap_server: str,
) -> None:
    """Run a schema registry (Avro, JSON Schema, Protobuf) with Confluent's REST API, until SIGTERM."""
    parse_address(listen, "--listen", "127.0.0.1:8081", default_host="127.0.0.1")
    require_registry()
    from barnabas.registry.server import RegistrySettings, run

    log_to_stderr(log_level, log_format)
    settings = RegistrySettings(
        bootstrap_server,
        listen,
        topic,
        compatibility.upper(),
        replication_factor,
        tls,
        login,
        super_users,
        hosts,
    )

    def announce(url: str) -> None:
        click.echo(f"ready {url}")
        sys.stdout.flush()

    run(settings, announce)


def require_registry() -> None:
    """Raise ConfigError if the packages of the registry are not installed."""
    missing = [name for name in ("aiohttp", "fastavro", "jsonschema") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the registry needs {', '.join(missing)}: install it with {pip_install('registry')}"
        )
