"""`barnabas start --console`: runs the console in a process of its own beside the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from barnabas.broker.server.broker import Broker
from barnabas.broker.server.run import Companion
from barnabas.cli.console import require_console
from barnabas.cli.console_process import running_console


def beside_broker(listen: str, login: Callable[[str], Sequence[str]], registry: str | None) -> Companion:
    """Return a function that runs the console beside a broker.

    The returned function gets the broker, and returns a context manager: the console runs until its end.

    Args:
        listen: HOST:PORT of the console.
        login: gets the broker's address, and returns the options of `barnabas console` to log in there.
        registry: HOST:PORT of the schema registry that runs beside the broker; None if there is none.

    Raises:
        ConfigError: the console is not installed.
    """
    require_console()

    @contextmanager
    def run(broker: Broker) -> Iterator[None]:
        metrics = [] if broker.monitor is None else [broker.monitor.responder.url]
        with running_console(listen, broker.address, login(broker.address), registry, metrics):
            yield

    return run
