"""One change of the cluster, and the fields by which a page asks for it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any

from barnabas.console.pages.query import QueryError

#: the fields of one change, as a page sends them
Wanted = Mapping[str, Any]


class Change:
    """A requested change: the equal command, its effect in words, and the function that makes it.

    Args:
        command: the words behind ``barnabas``; empty where `shell` has the whole command.
        then: commands that read what the one before writes.
        shell: a command of another program.
        given: the line that the first command reads.
    """

    def __init__(
        self,
        command: list[str],
        carry_out: Callable[[], Any],
        preview: Any = None,
        *then: list[str],
        shell: list[str] | None = None,
        given: str | None = None,
    ) -> None:
        self._commands = [["barnabas", *each] for each in (command, *then)] if shell is None else []
        self._shell = shell
        self._given = given
        self.preview = preview
        self.carry_out = carry_out

    def command(self, servers: str, *, with_input: bool = True) -> str:
        """The equal command for a shell. It has no password.

        Args:
            with_input: whether it has the line that it reads, which may be a record.
        """
        if self._shell is not None:
            return shlex.join(self._shell)
        commands = [[*each, "--bootstrap-server", servers] for each in self._commands]
        if with_input and self._given is not None:
            commands.insert(0, ["printf", "%s\\n", self._given])
        return " | ".join(map(shlex.join, commands))


def text_of(wanted: Wanted, name: str) -> str:
    """A text that is not empty. Raises QueryError."""
    value = wanted.get(name)
    if not isinstance(value, str) or not value.strip():
        raise QueryError(f"{name} is missing")
    return value


def word_of(wanted: Wanted, name: str, allowed: Collection[str]) -> str:
    """One of some words. Raises QueryError."""
    value = text_of(wanted, name)
    if value not in allowed:
        raise QueryError(f"{name}={value[:40]}: write one of {', '.join(allowed)}")
    return value


def number_of(wanted: Wanted, name: str, least: int, most: int) -> int | None:
    """A whole number; None where there is none. Raises QueryError."""
    value = wanted.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise QueryError(f"{name}: write a whole number from {least} to {most}")
    return value


def must_confirm(wanted: Wanted, name: str, why: str) -> None:
    """Raises QueryError unless the user has typed the name that is deleted."""
    if wanted.get("confirm") != name:
        raise QueryError(f"confirm: type {name[:100]}; {why}")
