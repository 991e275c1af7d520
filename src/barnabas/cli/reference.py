"""docs/reference/cli.md: every command with its options, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from barnabas.cli.app import app


def cli_reference() -> str:
    """The document, in Markdown."""
    parts = [
        "# The command line",
        "",
        "Every command says this itself with `--help`.",
        "",
        "- Exit codes: 0 done, 1 failed, 2 called wrongly, 130 interrupted. A failure is one line on stderr.",
        "- `| head` is no failure: a command that prints results ends with 0, without a word, when the "
        "reader of its stdout has gone. A command that changes something finishes its work. `log check` and "
        "`transactions find-hanging` still exit with 1 when they find something.",
        "- Tables are for people: columns are as wide as what is in them, in a pipe too. `--json` is for "
        "programs: keys are in snake case (`base_offset`), names end with their unit where they have one "
        "(`size_bytes`, `started_ms`), what is not known is null, text is UTF-8. Records keep the field "
        "names of Kafka: their `timestamp` is in milliseconds since 1970.",
        "- A client that reaches no broker says why within seconds: the name does not resolve, the "
        "connection is refused, nobody answers, what answers is not a Kafka broker, or the broker "
        "advertises an address that cannot be reached.",
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
