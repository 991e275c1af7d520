"""What a console costs: the first pages of a large cluster, and a live tab beside a producer.

    python -m bench.console [--topics 10000] [--groups 10000] [--rounds 10] [--rate 20000]

First it makes topics of ten partitions with a record each, and groups that have committed, starts a console
and asks for the JSON of its pages as a browser does; `bench.stalls` counts the long turns of the broker's
event loop meanwhile. Then, on a new broker, a producer sends 1 KB records at a steady rate, and the broker's
CPU time is compared between windows with and without a live tab, in turn.
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

from confluent_kafka import Consumer, TopicPartition

from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from bench.connection import Connection
from bench.peers import Barnabas, cpu_nanoseconds
from bench.scale import TOPICS_A_REQUEST, create_topics, write_records

PAGES = ("overview", "topics", "groups", "topic?name=scale-1", "brokers", "transactions")
WINDOW = 5.0
#: by how many connections groups commit
_CONNECTIONS = 50
#: bytes of a record of the steady producer
SIZE = 1000


@contextmanager
def console_of(bootstrap: str) -> Iterator[tuple[subprocess.Popen[str], str, urllib.request.OpenerDirector]]:
    """A console process: it, its address, and what asks it as a browser that was let in."""
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
    """The first pages of a cluster with many topics and groups."""
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
    """How long the console takes to ask for all partitions, while somebody looks at the overview."""
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
    """The first commit makes the topic that offsets are kept in."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


def _commit(connections: list[Connection], start: int, end: int, names: list[str]) -> None:
    """A commit for each of some groups, each by a connection of its own."""
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


def live(directory: Path, rounds: int, rate: int) -> None:
    """The broker's CPU time beside a steady producer, without and with a live tab."""
    peer = Barnabas(directory)
    peer.start()
    producer = None
    try:
        with Connection(peer.bootstrap) as connection:
            create_topics(connection, ["live"])
        code = _PRODUCER.format(bootstrap=peer.bootstrap, rate=rate, size=SIZE)
        producer = subprocess.Popen([sys.executable, "-c", code])
        with console_of(peer.bootstrap) as (_, url, browser):
            began = time.monotonic()
            time.sleep(WINDOW)
            without, watched = [], []
            for _ in range(rounds):
                without.append(_cpu(peer))
                with _tab(browser, f"{url}api/live?topic=live"):
                    watched.append(_cpu(peer))
            with browser.open(f"{url}api/topic?name=live") as answer:
                ends = sum(p["end"] for p in json.load(answer)["partitions"])
            print(f"{ends / (time.monotonic() - began):,.0f} records a second")
        more = [b / a - 1 for a, b in zip(without, watched, strict=True)]
        print(f"CPU without a tab: {median(without):.1%} of a core; with one: {median(watched):.1%}")
        print(f"more in each pair: {', '.join(f'{each:+.1%}' for each in more)}; median {median(more):+.1%}")
    finally:
        if producer is not None:
            producer.terminate()
            producer.wait()
        peer.stop()


def _cpu(peer: Barnabas) -> float:
    """The part of a core that the broker uses for a while."""
    before, began = cpu_nanoseconds(peer.pid), time.monotonic()
    time.sleep(WINDOW)
    return (cpu_nanoseconds(peer.pid) - before) / 1e9 / (time.monotonic() - began)


@contextmanager
def _tab(browser: urllib.request.OpenerDirector, url: str) -> Iterator[None]:
    """Somebody who watches; the first looks, which read what is there already, have passed."""
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


_PRODUCER = """
import time
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": "{bootstrap}", "linger.ms": 10, "log_level": 0}})
value, began, sent = bytes({size}), time.monotonic(), 0
while True:
    due = int((time.monotonic() - began) * {rate})
    while sent < due:
        try:
            producer.produce("live", value, partition=sent // 500 % 10)
        except BufferError:  # the broker is slower: it is as busy as it can be
            break
        sent += 1
    producer.poll(0.005)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10, help="pairs of windows with and without a tab")
    parser.add_argument("--rate", type=int, default=20_000, help="records a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if options.topics:
            pages(Path(directory) / "pages", options.topics, options.groups)
        if options.rounds:
            live(Path(directory) / "live", options.rounds, options.rate)


if __name__ == "__main__":
    main()
