"""`barnabas console`: web pages that show a cluster live, of Barnabas or of Apache Kafka."""

from __future__ import annotations

import ssl
import stat
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from barnabas.base.errors import ConfigError
from barnabas.base.installation import pip_install
from barnabas.base.system.signals import stop_with_stdin
from barnabas.cli.address import parse_address
from barnabas.cli.logging_output import log_to_stderr
from barnabas.cli.options import FILE, bootstrap_option, example, log_options
from barnabas.cli.schema_options import registry_login_option


@click.command(
    epilog=example(
        """
        barnabas console
        barnabas console --bootstrap-server kafka-1:9092 --registry http://127.0.0.1:8081
        barnabas console --allow-writes --mask 'orders:$.card.number'
        barnabas console --listen 0.0.0.0:8443 --auth-file users --tls-cert cert.pem --tls-key key.pem
        """,
        "The command prints `ready` and a link that logs in one browser. The console is a client of the "
        "cluster: it joins no group, commits nothing, and changes nothing without --allow-writes. "
        "`barnabas start --console` runs a console beside a broker. A console needs the extra console: "
        f"{pip_install('console', quote='`')}.",
    )
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    help="The address to listen on; port 0 takes a free one.",
)
@click.option("--registry", metavar="URL", help="A schema registry, to show schemas and decoded records.")
@registry_login_option
@click.option(
    "--metrics-url",
    "metrics",
    metavar="URL",
    multiple=True,
    help="The address of a broker's metrics (its `--metrics`), to show clients' metrics; may be repeated.",
)
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Let pages create, change and delete, send records and reset offsets.",
)
@click.option("--hide-values", is_flag=True, help="Show no keys, values and headers of records.")
@click.option(
    "--mask",
    "masks",
    metavar="TOPIC:$.PATH",
    multiple=True,
    help="Hide a path in the JSON of a topic's values (* for every topic); may be repeated.",
)
@click.option(
    "--auth-file",
    type=FILE,
    help="A file of lines USER:PASSWORD, for logins in place of the link. Only its owner may read it.",
)
@click.option("--tls-cert", type=FILE, help="A certificate with its chain (PEM): serve HTTPS.")
@click.option("--tls-key", type=FILE, help="The certificate's key (PEM).")
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="A proxy forwards the requests: accept any Host and any path prefix, without TLS.",
)
@click.option("--with-parent", is_flag=True, hidden=True, help="Stop at the end of stdin.")
@log_options
@bootstrap_option
def console(
    listen: str,
    registry: str | None,
    registry_login: bool,
    metrics: tuple[str, ...],
    allow_writes: bool,
    hide_values: bool,
    masks: tuple[str, ...],
    auth_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    with_parent: bool,
    log_format: str,
    log_level: str,
    bootstrap_server: str,
) -> None:
    """Show a cluster in the browser: topics live, records, groups, brokers."""
    parse_address(listen, "--listen", "127.0.0.1:8080", default_host="127.0.0.1")
    require_console()
    from barnabas.console.client_metrics import check_urls
    from barnabas.console.server import ConsoleSettings, is_loopback, run
    from barnabas.console.view import Privacy

    check_urls(metrics)
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("--tls-cert and --tls-key are only used together: give both, or neither")
    if not is_loopback(listen) and not (auth_file and (tls_cert or behind_proxy)):
        raise ConfigError(
            f"--listen {listen} can be reached from other machines: add --auth-file, and --tls-cert with "
            "--tls-key or --behind-proxy; or listen on 127.0.0.1"
        )
    log_to_stderr(log_level, log_format)
    settings = ConsoleSettings(
        bootstrap_server,
        listen,
        registry,
        allow_writes,
        Privacy(hide_values, _masks(masks)),
        None if auth_file is None else _users(auth_file),
        None if tls_cert is None or tls_key is None else _tls(tls_cert, tls_key),
        behind_proxy,
        registry_login,
        metrics,
    )

    def announce(url: str) -> None:
        click.echo(f"ready {url}")
        sys.stdout.flush()
        if with_parent:
            stop_with_stdin()

    run(settings, announce)


def require_console() -> None:
    """Raise ConfigError if the packages of the console are not installed."""
    if find_spec("aiohttp") is None:
        raise ConfigError(f"the console needs aiohttp: install it with {pip_install('console')}")


def _masks(texts: tuple[str, ...]) -> dict[str, list[list[str]]]:
    masks: dict[str, list[list[str]]] = {}
    for text in texts:
        topic, colon, path = text.partition(":")
        steps = path.removeprefix("$").removeprefix(".").split(".")
        if not topic or not colon or not path.startswith("$.") or not all(steps):
            raise ConfigError(f"--mask {text}: write TOPIC:$.PATH, for example 'orders:$.card.number'")
        masks.setdefault(topic, []).append(steps)
    return masks


def _users(path: Path) -> dict[str, str]:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) and sys.platform != "win32":
        raise ConfigError(f"--auth-file {path} can be read by others: chmod 600 {path}")
    users = {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        user, colon, password = line.partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not user or not colon or not password:
            raise ConfigError(f"--auth-file {path}, line {number}: write USER:PASSWORD")
        users[user] = password
    if not users:
        raise ConfigError(f"--auth-file {path} has no user: write lines of USER:PASSWORD")
    return users


def _tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigError(f"--tls-cert {certificate} and --tls-key {key} cannot be used: {error}") from None
    return context
