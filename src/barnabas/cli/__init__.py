"""The command line: one file per command group, loaded on demand.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted. One line on stderr says why a
command failed and what to do. A command that prints results exits with 0 and prints no message when the
reader of its stdout has gone (`| head`).
"""

from __future__ import annotations

import gc


def main() -> None:
    """Run the `barnabas` command with the arguments of this process."""
    gc.disable()  # what is imported stays: to collect among it takes a tenth of the time
    from barnabas.cli.app import app
    from barnabas.cli.streams import prepare_streams

    gc.freeze()
    gc.enable()
    prepare_streams()
    try:
        app(prog_name="barnabas")
    finally:
        gc.freeze()  # at its end, Python would look for garbage among all objects
