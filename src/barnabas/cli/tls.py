"""`barnabas tls`: a certificate authority, and certificates that it signs."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.base.tls.certificates import CERTIFICATE_DAYS, Description
from barnabas.cli.options import FOLDER, NAME, example, json_option, names_argument, unique_names
from barnabas.cli.output import Columns, print_listing
from barnabas.cli.streams import report
from barnabas.client.certificate_folder import TRUSTSTORE_PASSWORD, CertificateFolder

_folder = click.option(
    "--folder",
    metavar="DIR",
    type=FOLDER,
    default=Path("barnabas-tls"),
    show_default=True,
    help="The folder of the authority.",
)


@click.group()
def tls() -> None:
    """Make certificates for brokers and clients, as PEM and as PKCS#12 for Java."""


@tls.command(
    epilog=example(
        """
        barnabas tls init
        barnabas tls issue broker-1 --host broker-1.example.org --host 10.0.0.7
        barnabas tls issue alice
        """,
        "Keep ca.key.pem secret: brokers and clients trust everything that it signs. Give clients ca.pem, or "
        f"truststore.p12 (password {TRUSTSTORE_PASSWORD}) for Java.",
    )
)
@click.option("--name", type=NAME, default="Barnabas", show_default=True, help="The authority's common name.")
@_folder
def init(name: str, folder: Path) -> None:
    """Make an authority."""
    made = CertificateFolder(folder)
    made.create_authority(name)
    report(f"{made.authority} is to be trusted; {made.truststore} is the same for Java")


@tls.command(
    epilog=example(
        """
        barnabas tls issue broker-1 --host broker-1.example.org --host 10.0.0.7
        barnabas tls issue alice
        """,
        "NAME.pem has the key and the certificates, for ssl.keystore.location. NAME.p12 is the same for "
        "Java, with the password in NAME.password. Without --host the certificate is for a client, and "
        "NAME.properties has the settings to connect with.",
    )
)
@click.argument("name", type=NAME)
@click.option(
    "--host",
    "hosts",
    type=NAME,
    metavar="HOST",
    multiple=True,
    callback=unique_names,
    help="A name or an address by which clients reach the broker; may be repeated.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=CERTIFICATE_DAYS,
    show_default=True,
    help="Days for which the certificate is valid.",
)
@_folder
def issue(name: str, hosts: tuple[str, ...], days: int, folder: Path) -> None:
    """Make a key and a certificate for a broker or a client. Replaces existing ones of this name."""
    opened = CertificateFolder(folder)
    _tell(opened, name, opened.issue(name, hosts, days))


@tls.command(epilog=example("barnabas tls renew broker-1 alice"))
@names_argument("NAME...")
@_folder
def renew(names: tuple[str, ...], folder: Path) -> None:
    """Make new keys and certificates for the same names and hosts."""
    opened = CertificateFolder(folder)
    for name in names:
        _tell(opened, name, opened.renew(name))


@tls.command("list", epilog=example("barnabas tls list --json"))
@json_option
@_folder
def list_certificates(as_json: bool, folder: Path) -> None:
    """List the certificates, and when each of them expires."""
    opened = CertificateFolder(folder)
    rows = [
        {"name": name, "hosts": list(each.hosts), "ends": each.ends.isoformat()}
        for name in opened.names()
        for each in [opened.describe(name)]
    ]
    columns: Columns = {
        "NAME": "name",
        "ENDS": lambda row: row["ends"][: len("2026-01-31")],
        "HOSTS": lambda row: ",".join(row["hosts"]),
    }
    print_listing(columns, rows, as_json=as_json, empty="no certificates")


def _tell(folder: CertificateFolder, name: str, made: Description) -> None:
    kind = f"for {', '.join(made.hosts)}" if made.hosts else "a client's"
    report(f"{folder.pem(name)} is valid until {made.ends:%Y-%m-%d}, {kind}")
