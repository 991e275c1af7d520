"""Measures the CPU time of a broker that creates many topics, and that answers Metadata of all of them.

python -m bench.topics [--topics 20000] [--partitions 1]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.base.system.orphans import environment_that_ends
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from bench.connection import Connection
from bench.peers import Barnabas, cpu_nanoseconds
from bench.scale import create_topics

#: the most partitions that one request creates
_A_REQUEST = 1_000
#: a broker has done what follows from a request if it uses less CPU time than this in a second, in ns
_IDLE = 10_000_000


def measure(peer: Barnabas, what: str, work: Callable[[], object]) -> None:
    """Print the broker's CPU time for the work, and for what follows from it."""
    before = cpu_nanoseconds(peer.pid)
    began = time.monotonic()
    work()
    elapsed = time.monotonic() - began
    used, last = cpu_nanoseconds(peer.pid), before
    while used - last >= _IDLE:
        time.sleep(1)
        used, last = cpu_nanoseconds(peer.pid), used
    print(f"{what}: {(used - before) / 1e9:.3f} s of CPU, answered after {elapsed:.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=20_000, help="(%(default)s)")
    parser.add_argument("--partitions", type=int, default=1, help="of each topic (%(default)s)")
    options = parser.parse_args()
    os.environ.update(environment_that_ends())
    names = [f"topic-{number}" for number in range(options.topics)]
    step = max(1, _A_REQUEST // options.partitions)
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        peer = Barnabas(Path(folder))
        peer.start()
        try:
            with Connection(peer.bootstrap) as connection:

                def create() -> None:
                    for start in range(0, len(names), step):
                        create_topics(connection, names[start : start + step], options.partitions)

                def ask() -> None:
                    connection.ask(MetadataRequest(topics=None), MetadataResponse)

                measure(peer, f"{options.topics:,} topics of {options.partitions:,} partitions", create)
                measure(peer, "the first Metadata of all topics", ask)
                measure(peer, "the next one", ask)
                measure(peer, "one more topic", lambda: create_topics(connection, ["one-more"]))
                measure(peer, "Metadata after it", ask)
        finally:
            peer.stop()


if __name__ == "__main__":
    main()
