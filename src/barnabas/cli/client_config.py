"""Connections of commands to a cluster: a file of client settings, a profile, a user."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from barnabas.base.settings_file import read_unchecked
from barnabas.cli.streams import InputError, is_terminal
from barnabas.client.addresses import parse_servers
from barnabas.client.errors import SettingError
from barnabas.client.properties import translate
from barnabas.client.servers import Servers

_PASSWORD = "BARNABAS_PASSWORD"
_LOGIN = "SCRAM-SHA-512"


def read_servers(
    given: str | None,
    default: str,
    config: Path | None,
    profile: str | None,
    user: str | None,
    *,
    may_ask: bool,
) -> Servers:
    """Return the cluster to connect to. The file's settings override those of the profile.

    A line on stderr names the settings that do not concern connections: they are ignored.

    Args:
        given: addresses that override the addresses in the file and in the profile.
        default: addresses if `given`, the file and the profile have none.
        config: file of client settings.
        profile: name of a profile in `profiles_file`.
        user: user who logs in, instead of the user in the settings.
        may_ask: whether to prompt for the password of `user` if BARNABAS_PASSWORD is not set. If false, a
            missing password is empty.

    Raises:
        SettingError: a setting is unknown or cannot be honoured, the file or profile has no setting that
            concerns connections, or there is no such profile.
        ClientError: an address is not HOST:PORT.
        ConfigError: a file cannot be read.
        InputError: there is no terminal to prompt for the password.
    """
    settings = {} if profile is None else _profile(profile)
    source = f"profile {profile}"
    if config is not None:
        settings |= read_unchecked(config)
        source = str(config)
    if user is not None:
        settings |= _login(user, settings, may_ask)
        settings.pop("sasl.jaas.config", None)
    try:
        translated = translate(settings)
    except SettingError as error:
        raise SettingError(f"{source}: {error}" if config or profile else str(error)) from None
    if translated.ignored and not translated.settings:
        raise SettingError(
            f"{source} is not a file of client settings: no setting in it concerns connections"
        )
    if translated.ignored:
        names = ", ".join(sorted(translated.ignored))
        click.echo(f"{source}: ignored settings that do not concern connections: {names}", err=True)
    addresses = translated.settings.pop("bootstrap.servers", None)
    servers = Servers(given or addresses or default, translated.settings)
    parse_servers(servers)
    _ = servers.security  # report unusable settings now, in our words rather than librdkafka's
    return servers


def profiles_file() -> Path:
    """Return the path of the file of profiles: TOML, with one table of client settings for each profile."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "barnabas" / "profiles.toml"


def _profile(name: str) -> dict[str, str]:
    path = profiles_file()
    found = read_unchecked(path) if path.exists() else {}
    prefix = f"{name}."
    settings = {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}
    if not settings:
        known = ", ".join(sorted({key.partition(".")[0] for key in found})) or "none"
        raise SettingError(f"there is no profile {name} in {path}: it has {known}; write a table [{name}]")
    return settings


def _login(user: str, settings: Mapping[str, str], may_ask: bool) -> dict[str, str]:
    """Return the settings for a login as `user`, to replace the settings with the same names in `settings`.

    The password is the value of the variable BARNABAS_PASSWORD. If this variable is not set, prompt for the
    password. If `may_ask` is false, do not prompt: the password is then empty.
    """
    protocol = settings.get("security.protocol", "SASL_SSL").upper()
    secured = {"PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SASL_SSL"}.get(protocol, protocol)
    mechanism = settings.get("sasl.mechanism", _LOGIN)
    return {
        "security.protocol": secured,
        "sasl.mechanism": _LOGIN if mechanism.upper() in ("OAUTHBEARER", "GSSAPI") else mechanism,
        "sasl.username": user,
        "sasl.password": _password(user, may_ask),
    }


def _password(user: str, may_ask: bool) -> str:
    if not may_ask or _PASSWORD in os.environ:
        return os.environ.get(_PASSWORD, "")
    if not is_terminal(sys.stdin):
        raise InputError(f"there is no terminal to ask for the password of {user}: set {_PASSWORD}")
    password: str = click.prompt(f"password of {user}", hide_input=True, err=True)
    return password
