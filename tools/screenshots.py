"""Pictures of the console for the docs: a cluster on a real ZooKeeper, a producer, a group, a failover.

    python -m tools.screenshots [--out docs/use/images]

It needs Java and PySpark (for ZooKeeper), Debian's chromium and the extra `browser`. Look at each picture
before it is committed: light and dark, wide and narrow, and a group whose lag is real.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, sync_playwright

from barnabas.console.server import ConsoleSettings, claim, serve
from barnabas.testing import BarnabasCluster

TOPIC, GROUP = "orders", "billing"
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 430, "height": 860}
#: milliseconds; reached only where something is broken
PATIENCE = 90_000


@contextmanager
def traffic(servers: str) -> Iterator[None]:
    """A few records a second, and a group that reads them more slowly."""
    ended = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": servers, "client.id": "shop"})
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
        while not ended.wait(0.05):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                consumer.commit(message, asynchronous=False)
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
def console_of(servers: str) -> Iterator[str]:
    """A console in a thread; the link that lets a browser in."""
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
        """A page that has been drawn."""
        context = self._browser.new_context(viewport=size, color_scheme=scheme)
        context.add_cookies(self._cookies)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{self._home}#/{path}")
        page.locator("main h1").wait_for()
        return page

    def take(self, page: Page, name: str, settle_ms: int = 6000) -> None:
        """A picture, once the page has had time to fill."""
        page.wait_for_timeout(settle_ms)
        page.screenshot(path=self._out / f"{name}.png")
        print(self._out / f"{name}.png")


def take_all(browser: Browser, cluster: BarnabasCluster, link: str, out: Path) -> None:
    camera = Camera(browser, link, out)
    live = camera.open(f"topic/{TOPIC}")
    camera.take(live, "console-live", 12_000)
    camera.take(camera.open(f"topic/{TOPIC}", scheme="dark"), "console-dark", 12_000)
    camera.take(camera.open(f"topic/{TOPIC}", NARROW), "console-narrow", 12_000)
    camera.take(camera.open(""), "console-overview")
    camera.take(camera.open(f"topic/{TOPIC}/records?from=start"), "console-records")
    camera.take(camera.open(f"group/{GROUP}"), "console-group")
    cluster.kill(cluster.controller())
    camera.take(live, "console-failover", 12_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/use/images"))
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        parser.error("there is no Chromium: apt-get install chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    with BarnabasCluster(3, mode="process") as cluster:
        servers = cluster.bootstrap_servers
        admin: Any = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(60)
        with traffic(servers), console_of(servers) as link, sync_playwright() as started:
            browser = started.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
            take_all(browser, cluster, link, options.out)
            browser.close()


if __name__ == "__main__":
    main()
