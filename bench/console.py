"""Measures the cost of the console: the first pages of a large cluster, and an open page beside a producer.

    python -m bench.console [--topics 10000] [--groups 10000] [--rounds 10] [--records 1000000]

The first part creates topics of ten partitions with one record each, and groups with committed offsets. It
starts a console and requests the JSON of its pages, as a browser does. `bench.stalls` counts the long turns
of the broker's event loop meanwhile.

The second part uses a new broker. It runs the bulk produce of the benchmark many times, in turn with and
without an open page: records of 1 KB, as fast as possible, to one partition. It compares the broker's CPU
time for each record within each pair of runs.
"""

from __future__ import annotations

import argparse
import http.cookiejar
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median

from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from bench.connection import Connection
from bench.peers import Barnabas, cpu_nanoseconds
from bench.scale import REST_SECONDS, TOPICS_A_REQUEST, create_topics, write_records
from bench.workloads import Target

PAGES = ("overview", "topics", "groups", "topic?name=scale-1", "brokers", "transactions")
#: by how many connections groups commit
_CONNECTIONS = 50
#: bytes of a record of the bulk produce
SIZE = 1000
#: records a second, and windows of how many seconds, in which the cost of a tab is measured by itself
TRICKLE, WINDOWS, WINDOW = 500, 12, 4.0


@contextmanager
def console_of(bootstrap: str) -> Iterator[tuple[subprocess.Popen[str], str, urllib.request.OpenerDirector]]:
    """Run a console process. Yield it, its address, and an opener with the cookie of an admitted browser."""
    command = [str(Path(sys.executable).with_name("barnabas")), "console", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--bootstrap-server", bootstrap], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        link = process.stdout.readline().split()[-1]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        browser.open(link).close()
        yield process, link.partition("login")[0], browser
    finally:
        process.terminate()
        process.wait()


def pages(directory: Path, topics: int, groups: int) -> None:
    """Measure the first pages of a cluster with many topics and groups."""
    peer = Barnabas(directory)
    peer.stall_report = directory / "stalls.json"
    peer.start()
    try:
        names = [f"scale-{number}" for number in range(topics)]
        began = time.monotonic()
        with Connection(peer.bootstrap) as connection:
            for start in range(0, topics, TOPICS_A_REQUEST):
                create_topics(connection, names[start : start + TOPICS_A_REQUEST])
            write_records(connection, names)
            _prepare_offsets(peer.bootstrap, names[0])
        with ExitStack() as exits:
            several = [exits.enter_context(Connection(peer.bootstrap)) for _ in range(_CONNECTIONS)]
            for start in range(0, groups, _CONNECTIONS):
                _commit(several, start, min(groups, start + _CONNECTIONS), names)
        print(f"made in {time.monotonic() - began:.0f} s; the broker has {peer.usage().rss >> 20} MB")
        with peer.counted_stalls(), console_of(peer.bootstrap) as (process, url, browser):
            for page in PAGES * 2:
                cpu, began = [cpu_nanoseconds(pid) for pid in (process.pid, peer.pid)], time.monotonic()
                with browser.open(f"{url}api/{page}", timeout=300) as answer:
                    size = len(answer.read())
                took = time.monotonic() - began
                own, broker = (
                    (cpu_nanoseconds(pid) - before) / 1e9
                    for pid, before in zip((process.pid, peer.pid), cpu, strict=True)
                )
                print(
                    f"{page}: {took:.2f} s, {size >> 10} KB; CPU of the console {own:.2f} s, "
                    f"of the broker {broker:.2f} s"
                )
            surveyed(browser, url, process.pid, peer.pid)
            status = Path(f"/proc/{process.pid}/status").read_text()
            print(next(line for line in status.splitlines() if line.startswith("VmHWM")))
        found = json.loads(peer.stall_report.read_text())
        print(f"longest turn {found['longest_ms']:.1f} ms ({found['longest_cpu_ms']:.1f} ms of CPU time)")
        print(f"turns over 5 ms: {found['stalls']}, of CPU time: {found['cpu_stalls']}")
        for late, cpu, seen in found["longest"]:
            print(f"{late} ms late, {cpu} ms of CPU time:", file=sys.stderr)
            for what, times in Counter(seen).most_common():
                print(f"  {times} times {what[:300]}", file=sys.stderr)
    finally:
        peer.stop()


def surveyed(browser: urllib.request.OpenerDirector, url: str, console: int, broker: int) -> None:
    """Measure the console's first survey of all partitions, while the overview is open."""
    before, began = [cpu_nanoseconds(pid) for pid in (console, broker)], time.monotonic()
    while True:
        with browser.open(f"{url}api/overview") as answer:
            if json.load(answer)["rate_age_s"] is not None:
                break
        time.sleep(1)
    own, other = ((cpu_nanoseconds(p) - b) / 1e9 for p, b in zip((console, broker), before, strict=True))
    print(
        f"all partitions asked for after {time.monotonic() - began:.0f} s more: "
        f"CPU of the console {own:.1f} s, of the broker {other:.1f} s"
    )


def _prepare_offsets(bootstrap: str, topic: str) -> None:
    """Commit an offset, which creates the topic of committed offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


def _commit(connections: list[Connection], start: int, end: int, names: list[str]) -> None:
    """Commit an offset for each of some groups, each on its own connection."""
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")]
    asked = []
    for number, connection in zip(range(start, end), connections, strict=False):
        topic = OffsetCommitRequestTopic(name=names[number % len(names)], partitions=partitions)
        request = OffsetCommitRequest(group_id=f"group-{number}", topics=[topic])
        asked.append((connection, connection.send(request)))
    for connection, header in asked:
        for answered in connection.receive(header, OffsetCommitResponse).topics:
            for partition in answered.partitions:
                if partition.error_code:
                    raise RuntimeError(f"a commit failed: error {partition.error_code}")


def live(directory: Path, rounds: int, records: int) -> None:
    """Measure the broker's CPU time for a bulk produce, with and without an open tab."""
    peer = Barnabas(directory)
    peer.start()
    try:
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
        settings = {"segment.bytes": str(256 << 20), "file.delete.delay.ms": "0"}
        admin.create_topics([NewTopic("live", 1, 1, config=settings)])["live"].result(60)
        target = Target(peer)

        def produce() -> tuple[float, float]:
            """Return the microseconds of CPU time for each record, and the records a second."""
            figures, cpu = target.drive_weighed(
                "produce", topic="live", size=SIZE, codec="none", records=records
            )
            place = TopicPartition("live", 0, OFFSET_END)
            admin.delete_records([place])[place].result(60)
            time.sleep(REST_SECONDS)  # its files are deleted
            return cpu * 1e6 / records, figures["records/s"]

        with console_of(peer.bootstrap) as (_, url, browser):
            own = _tab_alone(peer, browser, f"{url}api/live?topic=live")
            print(f"a tab takes {own * 1000:.2f} ms of CPU time a second beside {TRICKLE} records a second")

            def watched() -> tuple[float, float]:
                with _tab(browser, f"{url}api/live?topic=live"):
                    return produce()

            produce()
            pairs = []
            for number in range(rounds):  # whoever is first has the same number of times the advantage
                first, second = (produce, watched) if number % 2 else (watched, produce)
                one, other = first(), second()
                pairs.append((one, other) if number % 2 else (other, one))
                print(f"{pairs[-1][1][0] / pairs[-1][0][0] - 1:+.1%}", end=" ", file=sys.stderr, flush=True)
        without, watching = zip(*pairs, strict=True)
        for title, measured in (("without a tab", without), ("with one", watching)):
            cpu, rate = (median(each) for each in zip(*measured, strict=True))
            print(f"{title}: {cpu:.3f} µs of CPU time a record, {rate:,.0f} records a second")
        busy = median(cpu * rate for cpu, rate in without) / 1e6
        print(
            f"that is {own / busy:.2%} of the {busy:.0%} of a core that the broker takes for the bulk produce"
        )
        more = sorted(b[0] / a[0] - 1 for a, b in pairs)
        print(f"more in each pair, sorted: {', '.join(f'{each:+.1%}' for each in more)}")
        print(f"median {median(more):+.2%}")
    finally:
        peer.stop()


def _tab_alone(peer: Barnabas, browser: urllib.request.OpenerDirector, url: str) -> float:
    """Return the CPU seconds a second that an open tab takes from an idle broker.

    This is more exact than a measurement during the bulk produce. The result is the median of differences
    between time windows with and without the tab.
    """
    code = _TRICKLE.format(bootstrap=peer.bootstrap, size=SIZE, rate=TRICKLE)
    producer = subprocess.Popen([sys.executable, "-c", code])
    try:
        more = []
        for _ in range(WINDOWS):
            without = _cpu(peer)
            with _tab(browser, url):
                more.append(_cpu(peer) - without)
        return median(more)
    finally:
        producer.terminate()
        producer.wait()


def _cpu(peer: Barnabas) -> float:
    """Return the part of a core that the broker uses during a time window."""
    before, began = cpu_nanoseconds(peer.pid), time.monotonic()
    time.sleep(WINDOW)
    return (cpu_nanoseconds(peer.pid) - before) / 1e9 / (time.monotonic() - began)


#: so many records that a tab counts them, in five batches a second
_TRICKLE = """
import time
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": "{bootstrap}", "linger.ms": 50, "log_level": 0}})
while True:
    for _ in range({rate} // 5):
        producer.produce("live", bytes({size}))
    producer.poll(0)
    time.sleep(0.2)
"""


@contextmanager
def _tab(browser: urllib.request.OpenerDirector, url: str) -> Iterator[None]:
    """Keep a tab of the live page open within this context. Enter the context when
    the tab has had four events.
    """
    ended = threading.Event()
    looks = threading.Semaphore(0)

    def read() -> None:
        with suppress(OSError), browser.open(url) as stream:
            while not ended.is_set():
                if stream.readline().startswith(b"data: "):
                    looks.release()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(4):
            looks.acquire()
        yield
    finally:
        ended.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10, help="pairs of windows with and without a tab")
    parser.add_argument("--records", type=int, default=1_000_000, help="of 1 KB, in each window")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if options.topics:
            pages(Path(directory) / "pages", options.topics, options.groups)
        if options.rounds:
            live(Path(directory) / "live", options.rounds, options.records)


if __name__ == "__main__":
    main()
