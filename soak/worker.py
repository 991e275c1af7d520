"""One client of a soak in its own process: `python -m soak.worker TASK`, where TASK is JSON."""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from importlib import import_module

from soak.roles.common import Stop, Task


def main() -> None:
    """Run the role until SIGTERM. An exception ends the process, and the soak starts another one."""
    faulthandler.enable()  # SIGABRT shows where a client hangs
    task = Task.parse(sys.argv[1])
    roles = import_module(f"soak.roles.{task.client}").ROLES
    try:
        roles[task.role](task, Stop())
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # not waiting for a client's threads: what they have not done is lost with the process


if __name__ == "__main__":
    main()
