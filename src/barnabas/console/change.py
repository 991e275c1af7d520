"""One change of the cluster, and the fields with which a page requests it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any

from barnabas.console.pages.query import QueryError

#: the fields of one change, as a page sends them
ChangeFields = Mapping[str, Any]


class Change:
    """A change that a page requests. It is made only when `carry_out` is called.

    Args:
        command: arguments of the ``barnabas`` command that makes the same change; empty with `shell`.
        carry_out: makes the change, and returns its result for the page.
        preview: the effect of the change, for the page; None if there is nothing to show.
        then: further ``barnabas`` commands, each of which reads the output of the previous one.
        shell: command of another program that makes the same change.
        given: line of input for the first command.
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
        """Return the equivalent shell command, without passwords.

        Args:
            with_input: whether to include the line of input, which can be a record.
        """
        if self._shell is not None:
            return shlex.join(self._shell)
        commands = [[*each, "--bootstrap-server", servers] for each in self._commands]
        if with_input and self._given is not None:
            commands.insert(0, ["printf", "%s\\n", self._given])
        return " | ".join(map(shlex.join, commands))


def text_of(fields: ChangeFields, name: str) -> str:
    """Return the text in the field `name` of a page's form.

    Raises QueryError if the field is missing, blank or not a text.
    """
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise QueryError(f"{name} is missing")
    return value


def word_of(fields: ChangeFields, name: str, allowed: Collection[str]) -> str:
    """Return the text in the field `name` of a page's form. Raises QueryError unless it is in `allowed`."""
    value = text_of(fields, name)
    if value not in allowed:
        raise QueryError(f"{name}={value[:40]}: write one of {', '.join(allowed)}")
    return value


def number_of(fields: ChangeFields, name: str, minimum: int, maximum: int) -> int | None:
    """Return the number in the field `name` of a page's form; None if there is no such field.

    Raises:
        QueryError: the field is not a whole number from `minimum` to `maximum`.
    """
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise QueryError(f"{name}: write a whole number from {minimum} to {maximum}")
    return value


def must_confirm(fields: ChangeFields, name: str, why: str) -> None:
    """Raise QueryError unless the field ``confirm`` of a page's form is `name`, the name of what is deleted.

    `why` is the consequence of the deletion, for the message.
    """
    if fields.get("confirm") != name:
        raise QueryError(f"confirm: type {name[:100]}; {why}")
