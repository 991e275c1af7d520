"""`barnabas doctor`: find out why a client cannot connect or is refused."""

from __future__ import annotations

import click

from barnabas.cli.complete import topic_names
from barnabas.cli.options import NAME, SERVERS, bootstrap_option, example, json_option
from barnabas.cli.output import print_json


@click.command(
    epilog=example(
        """
        barnabas doctor
        barnabas doctor broker-1.example.org:9092 --config client.properties
        barnabas doctor --config client.properties --topic orders
        """,
        "Prints one line for each check: the address, TLS, the certificate (trust, name, expiry), the login "
        "(mechanism, password), the address that each broker advertises, the ACLs of a topic. Each error "
        "says how to fix it, and makes the exit code 1. The command changes nothing.",
    )
)
@click.argument("address", metavar="[HOST:PORT]", type=SERVERS, required=False)
@click.option("--topic", type=NAME, shell_complete=topic_names, help="A topic that the client will use.")
@json_option
@bootstrap_option
def doctor(address: str | None, topic: str | None, as_json: bool, bootstrap_server: str) -> None:
    """Find out why a client with these settings cannot connect, or why a broker rejects it."""
    from barnabas.client.addresses import parse_servers
    from barnabas.client.diagnosis import examine
    from barnabas.client.errors import unreachable

    found = []
    for each in parse_servers(address or bootstrap_server):
        for finding in examine(bootstrap_server, each, topic):
            found.append(finding)
            if not as_json:
                mark = click.style("ok   ", fg="green") if finding.is_good else click.style("WRONG", fg="red")
                click.echo(f"{mark} {finding.subject}: {finding.words}")
                if finding.hint:
                    click.echo(f"      {finding.hint}")
    if as_json:
        print_json([finding._asdict() for finding in found])
    wrong = [finding for finding in found if not finding.is_good]
    if found and all(finding.subject.startswith("address ") for finding in found):
        reasons = [f"{finding.subject.removeprefix('address ')}: {finding.words}" for finding in wrong]
        raise unreachable(address or bootstrap_server, reasons)
    if wrong:
        raise click.ClickException(f"{len(wrong)} of {len(found)} findings are wrong: see above")
