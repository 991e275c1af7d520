"""`barnabas users`: users of listeners with SASL, and their passwords."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from barnabas.cli.options import NAME, bootstrap_option, connect, example, json_option, names_argument
from barnabas.cli.output import Columns, print_listing
from barnabas.cli.streams import InputError, is_terminal, report, stdin_bytes

#: bytes of the longest password
_MAX_PASSWORD = 1000


@click.group()
def users() -> None:
    """Users and their passwords (SCRAM and PLAIN)."""


@users.command(
    epilog=example(
        """
        barnabas users add alice
        barnabas users add alice --password-file alice.txt
        pwgen 24 1 | barnabas users add alice --password-file -
        barnabas users add bob --config barnabas-data/secure/admin.properties
        """,
        "Without --password-file the command asks for the password. An existing user gets a new password; "
        "open connections stay open. With --config, the command writes NAME.properties beside that file, "
        "readable only by its owner. The new file has the user's login, and the addresses and authorities "
        "of the --config file. Use a listener on 127.0.0.1 or one with TLS: on other listeners an "
        "eavesdropper can learn enough to log in.",
    )
)
@click.argument("name", type=NAME)
@click.option(
    "--password-file",
    type=click.Path(allow_dash=True, dir_okay=False),
    metavar="FILE",
    help="Read the password from the first line of a file, - for stdin.",
)
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=4096,
    show_default=True,
    help="Iterations of SCRAM. More iterations make it slower to guess the password.",
)
@click.option("--no-file", is_flag=True, help="Write no file of client settings for the user.")
@bootstrap_option
@click.pass_context
def add(
    ctx: click.Context,
    name: str,
    password_file: str | None,
    iterations: int,
    no_file: bool,
    bootstrap_server: str,
) -> None:
    """Add a user with a password, or change the password."""
    password = _ask(name) if password_file is None else _read(password_file)
    connect(bootstrap_server).set_password(name, password, iterations=iterations)
    report(f"{name} can log in")
    admin: Path | None = ctx.meta.get("barnabas.client_config")
    if admin is not None and not no_file:
        _write_file(admin, name, password)


def _write_file(admin: Path, name: str, password: str) -> None:
    from barnabas.cli.user_file import NoFileError, write_user_file

    try:
        file = write_user_file(admin, name, password)
    except NoFileError as error:
        click.echo(f"no file of client settings for {name}: {error}", err=True)
    else:
        report(f"  try         barnabas topics list --config {shlex.quote(str(file))}")


@users.command("list", epilog=example("barnabas users list --json"))
@json_option
@bootstrap_option
def list_users(as_json: bool, bootstrap_server: str) -> None:
    """List the users who have a password."""
    found = connect(bootstrap_server).users()
    rows = [{"user": user, "mechanisms": mechanisms} for user, mechanisms in found.items()]
    columns: Columns = {"USER": "user", "MECHANISMS": lambda row: ",".join(row["mechanisms"])}
    print_listing(columns, rows, as_json=as_json, empty="no users")


@users.command(epilog=example("barnabas users delete alice"))
@names_argument("NAME...")
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap_server: str) -> None:
    """Delete users' passwords, and close their connections."""
    admin = connect(bootstrap_server)
    for name in names:
        admin.delete_user(name)
        report(f"{name} cannot log in any more")


def _read(path: str) -> str:
    if path == "-":
        line = stdin_bytes().readline(_MAX_PASSWORD + 2)
    else:
        with Path(path).open("rb") as file:
            line = file.readline(_MAX_PASSWORD + 2)
    password = line.rstrip(b"\r\n")
    if not password or len(password) > _MAX_PASSWORD:
        raise InputError(
            f"the first line of {path} is not a password: it must have 1 to {_MAX_PASSWORD} bytes"
        )
    try:
        return password.decode()
    except UnicodeDecodeError:
        raise InputError(f"the password in {path} is not UTF-8") from None


def _ask(name: str) -> str:
    if not is_terminal(sys.stdin):
        raise InputError("there is no terminal to ask for the password: name a file with --password-file")
    password: str = click.prompt(f"password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return password
