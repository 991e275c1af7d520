"""The command line: one file a command group, loaded when it is asked for."""

from __future__ import annotations

import sys


def main() -> None:
    """The `barnabas` command.

    Exit codes: 0 done, 1 failed (one line on stderr says why and what to do), 2 wrong usage, 130 interrupted.
    """
    from barnabas.cli.app import app
    from barnabas.errors import BarnabasError

    try:
        app(prog_name="barnabas")
    except BarnabasError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
