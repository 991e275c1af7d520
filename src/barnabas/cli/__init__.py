"""The command line: one file a command group, loaded when it is asked for.

Exit codes: 0 done, 1 failed (one line on stderr says why, and the cure), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations


def main() -> None:
    """The `barnabas` command."""
    from barnabas.cli.app import app

    app(prog_name="barnabas")
