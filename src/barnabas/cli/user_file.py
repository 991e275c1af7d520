"""Writes client settings for a new user. Addresses and TLS come from the settings of the administrator."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.settings_file import read_unchecked
from barnabas.client.certificate_folder import write_private
from barnabas.client.properties import translate

#: names that are safe as a file's
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
#: settings of connections that all users share
_COMMON = (
    "bootstrap.servers",
    "security.protocol",
    "ssl.truststore.",
    "ssl.endpoint.identification.algorithm",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
)
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_DEFAULT = "SCRAM-SHA-512"


class NoFileError(ConfigError):
    """The file with the user's client settings cannot be written. The user is added nevertheless."""


def write_user_file(admin: Path, user: str, password: str) -> Path:
    """Write ``USER.properties`` beside the settings file `admin`, and return its path.

    The new file has the user's login, and the addresses and the trusted authorities of `admin`.

    Only its owner can read the new file. An existing file with a login of the user is replaced, because it
    has the old password.

    Raises:
        NoFileError: `user` is not a valid file name, ``USER.properties`` exists without a login of this
            user, or the file system does not let the command read or write a file.
    """
    if not _FILE_NAME.fullmatch(user):
        raise NoFileError(f"{user!r} cannot be the name of a file")
    path = admin.with_name(f"{user}.properties")
    try:
        if path.exists() and _user_of(path) != user:
            raise NoFileError(f"{path} exists, and is not a file with the login of {user}")
        settings = read_unchecked(admin)
        mechanism = settings.get("sasl.mechanism", _DEFAULT).upper()
        mechanism = mechanism if mechanism in _MODULES else _DEFAULT
        kept = {name: value for name, value in settings.items() if name.startswith(_COMMON)}
        login = f"{_MODULES[mechanism]} required username={_quoted(user)} password={_quoted(password)};"
        kept |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
        write_private(path, "".join(f"{name}={_escaped(kept[name])}\n" for name in kept).encode())
    except OSError as error:
        raise NoFileError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _user_of(path: Path) -> str | None:
    """Return the user in a file's login; None if it has no readable login."""
    try:
        return translate(read_unchecked(path)).settings.get("sasl.username")
    except BarnabasError:
        return None


def _quoted(text: str) -> str:
    """Quote a value for a JAAS entry."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    """Escape a value for a Java properties file, in ASCII."""
    plain = text.replace("\\", "\\\\")
    return "".join(
        each if " " <= each <= "~" else "".join(f"\\u{unit:04x}" for unit in _utf16(each)) for each in plain
    )


def _utf16(character: str) -> list[int]:
    encoded = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
