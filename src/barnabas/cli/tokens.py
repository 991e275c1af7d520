"""`barnabas tokens`: delegation tokens, which let others log in as a user for a limited time."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from barnabas.cli.offset_targets import parse_duration
from barnabas.cli.options import NAME, TIMEOUT, bootstrap_option, example, json_option
from barnabas.cli.output import Columns, print_json, print_listing, print_rows
from barnabas.cli.streams import report

_DEFAULT = -1
#: the longest time in the protocol, in milliseconds
_MAX_MS = 2**63 - 1
_TIMES: Columns = {
    "EXPIRES": lambda token: _shown(token["expires_ms"]),
    "ENDS": lambda token: _shown(token["max_ms"]),
}


@click.group()
def tokens() -> None:
    """Delegation tokens: let others log in as you for some time."""


@tokens.command(
    epilog=example(
        """
        barnabas tokens create --config alice.properties
        barnabas tokens create --renewer scheduler --max-lifetime 2d --json --config alice.properties
        """,
        "A client logs in by SCRAM with the token as its name and tokenauth=true (Java's clients can do "
        "this). The command shows the password once.",
    )
)
@click.option(
    "--owner",
    type=NAME,
    metavar="USER",
    help="The user of the clients that log in with the token; by default you.",
)
@click.option(
    "--renewer",
    type=NAME,
    multiple=True,
    metavar="USER",
    help="A user who may also renew the token; may be repeated.",
)
@click.option(
    "--max-lifetime", metavar="TIME", help="The longest lifetime of the token: 90s, 10m, 2h, 1d ..."
)
@json_option
@bootstrap_option
def create(
    owner: str | None,
    renewer: tuple[str, ...],
    max_lifetime: str | None,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Create a token and show its password."""
    from barnabas.client.delegation_tokens import create_token
    from barnabas.client.reach import require_broker

    lifetime_ms = _period(max_lifetime, "--max-lifetime")
    require_broker(bootstrap_server)
    token = create_token(
        bootstrap_server, TIMEOUT, owner=owner, renewers=renewer, max_lifetime_ms=lifetime_ms
    )
    if as_json:
        print_json(token._asdict())
    else:
        columns: Columns = {"TOKEN": "id", "OWNER": "owner", "PASSWORD": "password", **_TIMES}
        print_rows(columns, [token._asdict()])


@tokens.command("list", epilog=example("barnabas tokens list --json --config alice.properties"))
@json_option
@bootstrap_option
def list_tokens(as_json: bool, bootstrap_server: str) -> None:
    """List the tokens that you may see, without their passwords."""
    from barnabas.client.delegation_tokens import list_tokens
    from barnabas.client.reach import require_broker

    require_broker(bootstrap_server)
    columns: Columns = {
        "TOKEN": "id",
        "OWNER": "owner",
        "CREATED BY": "requester",
        "RENEWERS": lambda token: ",".join(token["renewers"]),
        **_TIMES,
    }
    rows = [token._asdict() for token in list_tokens(bootstrap_server, TIMEOUT)]
    print_listing(columns, rows, as_json=as_json, empty="no tokens")


@tokens.command(epilog=example("barnabas tokens renew TOKEN --for 2h --config alice.properties"))
@click.argument("token", type=NAME)
@click.option(
    "--for",
    "period",
    metavar="TIME",
    help="The new lifetime from now on; by default that of the broker's settings.",
)
@bootstrap_option
def renew(token: str, period: str | None, bootstrap_server: str) -> None:
    """Renew a token: it expires later."""
    from barnabas.client.delegation_tokens import renew_token
    from barnabas.client.reach import require_broker

    period_ms = _period(period, "--for")
    require_broker(bootstrap_server)
    report(f"{token} expires {_shown(renew_token(bootstrap_server, TIMEOUT, token, period_ms))}")


@tokens.command(epilog=example("barnabas tokens expire TOKEN --config alice.properties"))
@click.argument("token", type=NAME)
@click.option("--in", "period", metavar="TIME", help="The time until the token expires; by default at once.")
@bootstrap_option
def expire(token: str, period: str | None, bootstrap_server: str) -> None:
    """Expire a token: it allows no more logins. Open connections stay."""
    from barnabas.client.delegation_tokens import expire_token
    from barnabas.client.reach import require_broker

    period_ms = _period(period, "--in")
    require_broker(bootstrap_server)
    expires_ms = expire_token(bootstrap_server, TIMEOUT, token, period_ms)
    report(f"{token} is deleted" if period is None else f"{token} expires {_shown(expires_ms)}")


def _period(text: str | None, option: str) -> int:
    return _DEFAULT if text is None else min(parse_duration(text, option), _MAX_MS)


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
