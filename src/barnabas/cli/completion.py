"""`barnabas completion`: the script with which a shell completes commands, options, topics and groups."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from barnabas.cli.options import example

_HOW = {
    "bash": 'eval "$(barnabas completion bash)"      in ~/.bashrc',
    "zsh": 'eval "$(barnabas completion zsh)"       in ~/.zshrc',
    "fish": "barnabas completion fish | source       in ~/.config/fish/config.fish",
}


@click.command(
    epilog=example(
        "\n".join(_HOW.values()), "Names of topics and groups are completed, too, while a broker answers."
    )
)
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that gives SHELL tab completion."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = ctx.find_root()
    click.echo(found(root.command, {}, "barnabas", "_BARNABAS_COMPLETE").source())
