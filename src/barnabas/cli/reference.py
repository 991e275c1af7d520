"""docs/cli.md: every command with its options, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from barnabas.cli.app import app


def cli_reference() -> str:
    """The document, in Markdown."""
    parts = [
        "# The command line",
        "",
        "Every command says this itself with `--help`. Failures are one line on stderr. Exit codes: 0 done, "
        "1 failed, 2 wrong usage, 130 interrupted.",
        "",
    ]
    for path, command in _walk(app, click.Context(app, info_name="barnabas", **app.context_settings)):
        text = command.get_help(path)
        parts += [f"## {path.command_path}", "", "```", text.rstrip(), "```", ""]
    return "\n".join(parts)


def _walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    # The width must not depend on the terminal, nor defaults on the environment.
    context.terminal_width = 100
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _walk(child, click.Context(child, info_name=name, parent=context))
