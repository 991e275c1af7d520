"""Parses the JAAS entries in ``sasl.jaas.config``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from barnabas.base.errors import ConfigError

_JAAS = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.DOTALL
)
_JAAS_OPTION = re.compile(r"""\s*([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""")

_PLAIN = "PlainLoginModule"
_USER = "user_"


class Jaas(NamedTuple):
    """A JAAS entry: the name of a login module, without its Java package, and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"Jaas({self.module}, ...)"


def parse_jaas(text: str) -> Jaas:
    """Return the JAAS entry in a text such as ``MODULE required name="value" ...;``.

    Raises:
        ConfigError: the text is not valid. The message has no part of the text, which may contain a password.
    """
    match = _JAAS.fullmatch(text)
    options = None if match is None else _options(match["options"])
    if match is None or options is None:
        raise ConfigError(
            'sasl.jaas.config cannot be read: write MODULE required username="..." password="..."; '
            "(mind the semicolon)"
        )
    return Jaas(match["module"].rpartition(".")[2], options)


@lru_cache(16)
def plain_users(text: str) -> Mapping[str, str]:
    """Return the password of each user in a server's JAAS entry for PLAIN (``user_NAME="PASSWORD"``).

    The result is empty for an entry of another login module.

    Raises:
        ConfigError: the text is no valid entry, or a password is empty. The message has no part of the text.
    """
    entry = parse_jaas(text)
    if entry.module != _PLAIN:
        return {}
    users = {
        name.removeprefix(_USER): password
        for name, password in entry.options.items()
        if name.startswith(_USER) and name != _USER
    }
    if not all(users.values()):
        raise ConfigError(f'a user in sasl.jaas.config has no password: write {_USER}NAME="PASSWORD"')
    return users


def _options(text: str) -> dict[str, str] | None:
    """Return the options after the name of a JAAS module; None if the text is not a list of options."""
    found, at = {}, 0
    while match := _JAAS_OPTION.match(text, at):
        quoted = match[2] if match[2] is not None else match[3]
        found[match[1]] = match[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
    return found if not text[at:].strip() else None
