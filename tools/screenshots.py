"""Takes pictures of the console for the documentation.

They show a cluster on three ZooKeeper servers, a producer, a group and a failover.

    python -m tools.screenshots [--out docs/use/images]

It needs Java and PySpark (for ZooKeeper), Debian's chromium and the extra `browser`. Look at each picture
before you commit it: light and dark, wide and narrow, and a group with a real lag.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, sync_playwright

from barnabas.broker.metadata.zookeeper.server import jars, java
from barnabas.client import Admin, work
from barnabas.client import Producer as BarnabasProducer
from barnabas.console.pages.pipelines import STATUS_TOPIC
from barnabas.console.server import ConsoleSettings, claim, serve

TOPIC, GROUP = "orders", "billing"
QUEUE, WORKERS = "pictures", "thumbnails"
_BARNABAS = (sys.executable, "-m", "barnabas.cli")
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 430, "height": 860}
#: milliseconds; reached only where something is broken
PATIENCE = 90_000


def tell_of_pipelines(servers: str) -> None:
    """Write the status records of two pipelines: one runs, and the other has been silent for an hour."""
    now = datetime.now(UTC)

    def at(minutes: float) -> str:
        return (now - timedelta(minutes=minutes)).isoformat(timespec="seconds")

    def query(name: str, **fields: Any) -> dict[str, Any]:
        counts = {"rows_read": 182_340, "processed_rows_per_second": 412.5, "batch_ms": 310, "restarts": 0}
        return {"query": name, "state": "running", "rows_written": 3, "lag": 0, **counts, **fields}

    failed = {
        "restarts": 1,
        "last_error": "the broker at kafka-2:9092 did not answer within 15 s",
        "last_error_at": at(140),
        "recovered_at": at(139.5),
    }
    told = {
        "shop": (
            at(0.1),
            [query("per_minute", rows_written=1840, lag=12, **failed), query("orders.dead_letter")],
        ),
        "archive": (at(60), [query("days", rows_written=182_340)]),
    }
    producer = Producer({"bootstrap.servers": servers})
    for name, (updated, queries) in told.items():
        status = {"version": 1, "state": "running", "host": "worker-1", "file": f"{name}.py", "every_s": 60}
        status |= {"started": at(330), "updated": updated, "queries": queries}
        producer.produce(STATUS_TOPIC, json.dumps(status), key=name)
    producer.flush(30)


@contextmanager
def traffic(servers: str) -> Iterator[None]:
    """Within this context, produce a few records a second, and run a group that reads them more slowly."""
    ended = threading.Event()

    def produce() -> None:
        producer = Producer(
            {"bootstrap.servers": servers, "client.id": "shop", "enable.idempotence": True}
        )  # whose ids the brokers tell
        number = 0
        while not ended.wait(0.15):
            value = json.dumps({"order": number, "total": number * 7 % 300, "state": "paid"})
            producer.produce(TOPIC, value, key=f"customer-{number % 9}")
            producer.poll(0)
            number += 1
        producer.flush(10)

    def consume() -> None:
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": GROUP, "auto.offset.reset": "earliest"}
            | {"enable.auto.commit": False}
        )
        consumer.subscribe([TOPIC])
        read = 0
        while not ended.wait(0.05):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                read += 1
                if read % 25 == 0:  # so that it is behind for a while, and its pointers jump
                    consumer.commit(asynchronous=False)
        consumer.close()

    threads = [threading.Thread(target=each) for each in (produce, consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextmanager
def queue(servers: str) -> Iterator[None]:
    """Produce jobs, and run four members of a share group, which release and reject some of them,
    while the context lasts.
    """
    ended = threading.Event()
    letters = f"dlq.{QUEUE}"
    admin = Admin(servers)
    admin.create_topic(QUEUE, 3)
    admin.create_topic(letters, configs={"errors.deadletterqueue.group.enable": "true"})
    settings = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": letters}
    admin.alter_configs("group", WORKERS, set=settings)
    admin.close()

    def produce() -> None:
        number = 0
        with BarnabasProducer(servers, batch_num_messages=1) as producer:
            while not ended.wait(0.4):
                producer.send(QUEUE, f"picture {number}", key=f"customer-{number % 9}")
                producer.flush()
                number += 1

    def run(number: int) -> None:
        chance = random.Random(number)
        with work(servers, QUEUE, group=WORKERS, max_poll_records=2, client_id=f"worker-{number}") as jobs:
            while not ended.is_set():
                job = jobs.poll(0.3)
                if job is not None:
                    ended.wait(chance.uniform(0.5, 2.5))
                    fate = chance.random()
                    if fate < 0.05:
                        job.reject()
                    elif fate < 0.3:
                        job.release()

    threads = [threading.Thread(target=produce)]
    threads += [threading.Thread(target=run, args=[number]) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextmanager
def console_of(servers: str) -> Iterator[str]:
    """Run a console in a thread. Yield the link that opens it in a browser."""
    ready, link = threading.Event(), []
    claimed = claim("127.0.0.1:0")
    loop = asyncio.new_event_loop()

    def tell(url: str) -> None:
        link.append(url)
        ready.set()

    serving = loop.create_task(serve(ConsoleSettings(servers), claimed, tell))

    def run() -> None:
        loop.run_until_complete(asyncio.wait([serving]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        if not ready.wait(60):
            raise RuntimeError("the console does not start")
        yield link[0]
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        loop.close()
        claimed.close()


@contextmanager
def ensemble(folder: Path) -> Iterator[str]:
    """Run three ZooKeeper servers. Yield their addresses, in the format of zookeeper.connect."""
    with ExitStack() as exits:
        taken = [exits.enter_context(socket.socket()) for _ in range(9)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in taken]
    members = [
        f"server.{n}=127.0.0.1:{ports[3 * n - 2]}:{ports[3 * n - 1]};127.0.0.1:{ports[3 * n - 3]}"
        for n in (1, 2, 3)
    ]
    processes = []
    try:
        for n in (1, 2, 3):
            data = folder / f"zookeeper-{n}"
            data.mkdir(parents=True)
            (data / "myid").write_text(str(n))
            settings = [f"dataDir={data}", "tickTime=500", "initLimit=20", "syncLimit=10"]
            settings += ["admin.enableServer=false", "standaloneEnabled=false", *members]
            settings += ["4lw.commands.whitelist=srvr"]
            (data / "zoo.cfg").write_text("\n".join(settings))
            command = [java(), "-Xmx128m", "-cp", os.pathsep.join(map(str, jars()))]
            command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(data / "zoo.cfg")]
            with (data / "output.log").open("wb") as output:
                processes.append(subprocess.Popen(command, stdout=output, stderr=output))
        for n in (1, 2, 3):
            _wait_until_it_serves(ports[3 * n - 3])
        yield ",".join(f"127.0.0.1:{ports[3 * n - 3]}" for n in (1, 2, 3))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _wait_until_it_serves(port: int) -> None:
    deadline = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"srvr")
            with connection.makefile("rb") as answer:
                if b"Mode: " in answer.read():
                    return
        time.sleep(0.2)
    raise RuntimeError(f"the ZooKeeper at port {port} does not serve")


class Cluster:
    """`barnabas cluster start` with three brokers, on running ZooKeeper servers."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self._data = str(folder / "cluster")
        command = [*_BARNABAS, "cluster", "start", "--data", self._data, "--brokers", "3"]
        command += ["--zookeeper", zookeeper, "--listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline().split()
        if len(ready) < 2:
            raise RuntimeError("the cluster does not start")
        self.servers = ready[1]

    def call(self, *words: str) -> str:
        command = [*_BARNABAS, "cluster", *words, "--data", self._data]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def kill_controller(self) -> None:
        self.call("kill", str(json.loads(self.call("status", "--json"))["controller"]))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


class Camera:
    """Takes pictures of the pages of one console."""

    def __init__(self, browser: Browser, link: str, out: Path) -> None:
        self._browser = browser
        self._home = "{0.scheme}://{0.netloc}/".format(urlsplit(link))
        self._out = out
        context = browser.new_context()
        context.new_page().goto(link)
        self._cookies: Any = context.cookies()

    def open(self, path: str, size: Any = WIDE, scheme: Any = "light") -> Page:
        """Open a page, and return it when it is drawn."""
        context = self._browser.new_context(viewport=size, color_scheme=scheme)
        context.add_cookies(self._cookies)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{self._home}#/{path}")
        page.locator("main h1").wait_for()
        return page

    def take(self, page: Page, name: str, settle_ms: int = 6000) -> None:
        """Take a picture of the page after `settle_ms` milliseconds."""
        page.wait_for_timeout(settle_ms)
        # in a narrow window the page is several times as high
        page.screenshot(path=self._out / f"{name}.png", full_page=page.viewport_size == NARROW)
        print(self._out / f"{name}.png")


def take_all(browser: Browser, cluster: Cluster, link: str, out: Path) -> None:
    camera = Camera(browser, link, out)
    live = camera.open(f"topic/{TOPIC}")
    camera.take(live, "console-live", 12_000)
    camera.take(camera.open(f"topic/{TOPIC}", scheme="dark"), "console-dark", 12_000)
    camera.take(camera.open(f"topic/{TOPIC}", NARROW), "console-narrow", 12_000)
    camera.take(camera.open(f"topic/{TOPIC}", NARROW, "dark"), "console-narrow-dark", 12_000)
    overview = camera.open("")
    camera.take(camera.open(f"topic/{TOPIC}/records?from=start"), "console-records")
    camera.take(camera.open(f"group/{GROUP}"), "console-group")
    camera.take(camera.open("pipelines"), "console-pipelines")
    take_queue(camera)
    cluster.kill_controller()
    camera.take(live, "console-failover", 15_000)
    camera.take(overview, "console-overview")


def take_queue(camera: Camera) -> None:
    camera.take(camera.open(f"topic/{QUEUE}"), "console-hands", 12_000)
    camera.take(camera.open(f"group/{WORKERS}"), "console-queue", 12_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/use/images"))
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        parser.error("there is no Chromium: apt-get install chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory()))
        cluster = exits.enter_context(Cluster(folder, exits.enter_context(ensemble(folder))))
        servers = cluster.servers
        admin: Any = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(60)
        admin.create_topics([NewTopic(STATUS_TOPIC, 1, 3)])[STATUS_TOPIC].result(60)
        tell_of_pipelines(servers)
        with (
            traffic(servers),
            queue(servers),
            console_of(servers) as link,
            sync_playwright() as started,
        ):
            browser = started.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
            take_all(browser, cluster, link, options.out)
            browser.close()


if __name__ == "__main__":
    main()
