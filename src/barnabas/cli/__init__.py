"""The command line: one file a command group, loaded when it is asked for.

Exit codes: 0 done, 1 failed, 2 called wrongly, 130 interrupted. One line on stderr says why, and the cure.
A command that prints results exits with 0 and says nothing when the reader of its stdout has gone (`| head`).
"""

from __future__ import annotations

import gc


def main() -> None:
    """The `barnabas` command."""
    gc.disable()  # what is imported stays: to collect among it takes a tenth of the time
    from barnabas.cli.app import app
    from barnabas.cli.streams import prepare_streams

    gc.freeze()
    gc.enable()
    prepare_streams()
    app(prog_name="barnabas")
