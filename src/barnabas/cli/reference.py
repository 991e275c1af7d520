"""Makes the documentation's page cli.md: every command with its options, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from barnabas.cli.app import app


def cli_reference() -> str:
    """Return the reference of all commands, in Markdown."""
    parts = [
        "# The command line",
        "",
        "`--help` prints the same text for each command.",
        "",
        "- Exit codes: 0 success, 1 failure, 2 wrong option or argument, 130 interrupted. A failure is one "
        "line on stderr.",
        "- `| head` does not make a command fail. When the reader of its stdout has ended, a command that "
        "prints results exits with 0 and prints no message. A command that changes something finishes its "
        "work. `log check` and `transactions find-hanging` still exit with 1 when they find something.",
        "- Tables are for people: columns are as wide as their contents, also in a pipe. `--json` is for "
        "programs. Keys are in snake case (`base_offset`), and names end with their unit "
        "(`size_bytes`, `started_ms`). Unknown values are null, and text is UTF-8. Records keep Kafka's "
        "field names: their `timestamp` is in milliseconds since 1970.",
        "- A client that cannot reach a broker gives the reason within seconds: the name does not resolve, "
        "the connection is refused, no answer arrives, the server is not a Kafka broker, or the broker "
        "advertises an unreachable address.",
        "",
    ]
    for path, command in _walk(app, click.Context(app, info_name="barnabas", **app.context_settings)):
        text = command.get_help(path)
        parts += [f"## {path.command_path}", "", "```text", text.rstrip(), "```", ""]
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
