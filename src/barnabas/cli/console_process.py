"""The console as a process of its own, which ends with the process that starts it.

The console decodes records. In the broker's process, that would delay the event loop.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from barnabas.cli.streams import report

logger = logging.getLogger(__name__)

_PATIENCE_S = 5.0


@contextmanager
def running_console(
    listen: str,
    servers: str,
    login: Sequence[str] = (),
    registry: str | None = None,
    metrics: Sequence[str] = (),
) -> Iterator[None]:
    """Run a console with --allow-writes as a child process until the context ends.

    The context begins without a wait for the console. When the console is ready, its link is printed on
    stdout. If the console fails, an error is logged.

    Args:
        listen: HOST:PORT of the console.
        servers: addresses of the brokers, HOST:PORT,...
        login: options of `barnabas console` to log in to the brokers; empty if they need no login.
        registry: HOST:PORT of a schema registry, which must serve HTTPS if `login` is not empty.
        metrics: URLs of the brokers' metrics.
    """
    command = [sys.executable, "-m", "barnabas.cli", "console", "--with-parent", "--allow-writes"]
    command += ["--listen", listen, "--bootstrap-server", servers, *login]
    if registry is not None:
        secured = ["--registry-login"] if login else []
        command += ["--registry", f"{'https' if login else 'http'}://{registry}", *secured]
    for url in metrics:
        command += ["--metrics-url", url]
    # Its stdin ends when this process does, however that comes about.
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    threading.Thread(target=_tell, args=(child,), name="console", daemon=True).start()
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for stream in (child.stdin, child.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


def _tell(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    with suppress(OSError, ValueError):  # closed at the end, or ours has no reader
        for line in child.stdout:
            if line.startswith("ready "):
                report(f"console {line.removeprefix('ready ').strip()}")
        if child.wait() > 0:  # a signal gives a number below 0
            logger.error(
                "the console has ended (exit code %d); the broker goes on without it", child.returncode
            )
