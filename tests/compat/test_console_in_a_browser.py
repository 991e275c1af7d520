"""The console in Chromium, with Barnabas and Apache Kafka: its pages, and hostile records in them.

The tests are skipped without Debian's `chromium`, or without playwright and axe of the extra `browser`.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from bench.connection import Connection
from bench.peers import Barnabas, Kafka, Peer
from bench.scale import TOPICS_A_REQUEST, create_topics
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.console import RunningConsole
from tests.integration.acl_broker import AclBroker
from tests.integration.conftest import Wire
from tests.integration.test_telemetry import INTRODUCTION, pushing
from tests.prefix import PrefixProxy
from tests.schema_registry import register, running_registry
from tests.unit.broker.server.telemetry.test_otlp import attribute, double, gauge, pushed, text

from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.client import Admin, Worker
from barnabas.console.server import ConsoleSettings
from barnabas.console.view import Privacy
from barnabas.kafka.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.testing import BarnabasCluster

playwright = pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install '.[browser]'")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-headless-shell")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

#: reached only where something is broken, in ms
PATIENCE = 90_000
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
EVIL = (
    "<img src=x onerror='window.hacked=1'>",
    "</script><script>window.hacked=2</script>",
    "{{constructor.constructor('window.hacked=3')()}}",
    '{"__proto__": {"hacked": 4}, "<svg/onload=window.hacked=5>": "\\u202e"}',
    "\u202egnp.exe \x1b]0;title\x07 \x00 \u2066",
)
EVIL_GROUP = "<b onclick=window.hacked=6>/..%2f?#&'\""
TOPIC = "console-orders"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "total", "type": "double"}],
}
SHOP = 'syntax = "proto3"; package shop; message Order { string id = 1; } message Key { int32 n = 1; }'
MANY = 10_000
#: notes all texts that a page draws on a canvas
NOTE_DRAWN = (
    "const drawn = new Set(), draw = CanvasRenderingContext2D.prototype.fillText;"
    "CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {"
    " drawn.add(text); document.documentElement.dataset.drawn = [...drawn].join('|');"
    " return draw.call(this, text, ...at); };"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module", params=[Barnabas, Kafka], ids=lambda kind: kind.name)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Start a broker with a topic of hostile records, half of which a group with a hostile name has read."""
    if request.param is Kafka:
        request.getfixturevalue("classpath")  # skips, where its jars cannot be had
    peer: Peer = request.param(tmp_path_factory.mktemp(request.param.name))
    peer.start()
    try:
        fill(peer.bootstrap)
        yield peer
    finally:
        peer.stop()


def fill(servers: str) -> None:
    deadline = time.monotonic() + 120
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for n, evil in enumerate(EVIL):
        producer.produce(TOPIC, evil, key=evil, partition=n % 2, headers=[(evil.replace("\x00", ""), evil)])
    producer.produce(TOPIC, b"\xff\xfe\x00", partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": EVIL_GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    message = consumer.poll(60)
    while message is None or message.error() is not None:
        assert time.monotonic() < deadline, "the group gets no record"
        message = consumer.poll(60)
    consumer.commit(message, asynchronous=False)
    consumer.close()


class Tab:
    """A page of the browser, which notes forbidden events."""

    def __init__(self, context: Any, url: str) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.home = url
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("console", lambda said: said.type == "error" and self.wrong.append(said.text))
        self.page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.page.on("request", self._note)

    def _note(self, request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.home).netloc and request.url[:5] != "data:":
            self.wrong.append(f"asked {request.url}")

    def show(self, path: str, heading: str) -> Any:
        """Open a page of the console and wait until its heading is drawn. Return the element of the page."""
        self.page.goto(f"{self.home}#/{path}")
        playwright.expect(self.page.locator("main h1")).to_contain_text(heading)
        return self.page.locator("main")

    def check(self) -> None:
        """Check that no record was executed, no request failed, and no other server was called."""
        assert self.page.evaluate("window.hacked") is None
        assert self.page.evaluate("({}).hacked") is None
        assert self.wrong == []


@pytest.fixture
def console(served: Peer) -> Iterator[RunningConsole]:
    with RunningConsole(ConsoleSettings(served.bootstrap, "127.0.0.1:0", allow_writes=True)) as running:
        yield running


@pytest.fixture
def new_context(browser: Any) -> Iterator[Callable[..., Any]]:
    """Return a function: ``new_context(console, **options)`` returns a browser that is logged in to the
    console.
    """
    with contextlib.ExitStack() as exits:

        def make(console: RunningConsole, url: str = "", **options: Any) -> Any:
            context = exits.enter_context(contextlib.closing(browser.new_context(**options)))
            name, _, value = console.cookie.partition("=")
            context.add_cookies([{"name": name, "value": value, "url": url or console.url}])
            return context

        yield make


@pytest.fixture
def tab(console: RunningConsole, new_context: Callable[..., Any]) -> Tab:
    return Tab(new_context(console), console.url)


PAGES = {
    "": "Overview",
    "topics": "Topics",
    f"topic/{TOPIC}": TOPIC,
    f"topic/{TOPIC}/records?from=start": TOPIC,
    f"topic/{TOPIC}/settings": TOPIC,
    "groups": "Groups",
    "group/%3Cb%20onclick%3Dwindow.hacked%3D6%3E%2F..%252f%3F%23%26'%22": EVIL_GROUP,
    "brokers": "Brokers",
    "transactions": "Transactions",
    "schemas": "Schemas",
    "pipelines": "Pipelines",
    "access": "Access",
    "clients": "Clients' metrics",
}
#: without a registry and without pipelines there is nothing to list
BARE = ("schemas", "pipelines")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path", PAGES, ids=lambda path: path.partition("%")[0].partition("?")[0] or "overview"
)
def test_every_page_is_drawn_and_can_be_used_by_all(console, new_context, path, scheme):
    tab = Tab(new_context(console, color_scheme=scheme), console.url)
    main = tab.show(path, PAGES[path])
    if path not in BARE:
        main.locator("table").first.wait_for()
    found = axe.Axe().run(tab.page)
    assert found.violations_count == 0, found.generate_report()
    tab.check()


def test_no_page_is_wider_than_a_narrow_window(served, new_context):
    """Wide tables scroll within themselves. The name of a cluster often has several servers."""
    servers = ",".join([served.bootstrap] * 5)
    with RunningConsole(ConsoleSettings(servers, "127.0.0.1:0")) as console:
        tab = Tab(new_context(console, viewport={"width": 390, "height": 844}), console.url)
        for path, heading in PAGES.items():
            main = tab.show(path, heading)
            if path not in BARE:
                main.locator("table").first.wait_for()
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390, path
        playwright.expect(tab.page.locator("#where")).to_have_text(f"{served.bootstrap} +4 · read only")
        tab.check()


def test_records_of_strangers_are_text_and_nothing_else(tab):
    main = tab.show(f"topic/{TOPIC}/records?from=start", TOPIC)
    rows = main.locator("tbody tr")
    playwright.expect(rows).to_have_count(len(EVIL) + 1)
    text = main.inner_text()
    assert EVIL[0] in text and EVIL[1] in text and EVIL[2] in text and "ff fe 00" in text
    assert "\\u202e" in text and "\\u001b" in text and "\u202e" not in text
    assert main.locator("img, script, svg, b").count() == 0
    tab.show("groups", "Groups")
    playwright.expect(main.get_by_role("link", name=EVIL_GROUP)).to_be_visible()
    main.get_by_role("link", name=EVIL_GROUP).click()
    playwright.expect(main.locator("h1")).to_have_text(f"Group {EVIL_GROUP}")
    tab.check()


def press_until(page: Any, label: str) -> None:
    """Press Tab until the focus is on the element with the name `label`."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if (
            page.evaluate("(document.activeElement.ariaLabel || document.activeElement.innerText).trim()")
            == label
        ):
            return
    raise AssertionError(f"Tab does not lead to {label!r}")


def test_all_can_be_done_by_the_keyboard_alone(tab):
    tab.show("", "Overview")
    page, expect = tab.page, playwright.expect
    press_until(page, "Skip to the page")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    tab.show("topics", "Topics")
    press_until(page, "sort by partitions")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="sort by partitions")).to_be_focused()  # the page was drawn anew
    press_until(page, TOPIC)
    with page.expect_response(lambda answer: "api/topics" in answer.url):
        pass  # drawn again by itself: what had the focus keeps it
    expect(page.get_by_role("link", name=TOPIC)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_contain_text(TOPIC)
    press_until(page, "Pause")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    press_until(page, "Records")
    page.keyboard.press("Enter")
    press_until(page, "Send a record")
    page.keyboard.press("Space")
    page.get_by_role("textbox", name="value").last.focus()
    page.keyboard.type("by hand")
    press_until(page, "Send …")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text(f"barnabas produce {TOPIC}")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    tab.check()


def test_a_topic_is_made_and_deleted_after_its_name_was_typed(tab, served):
    page, expect, name = tab.page, playwright.expect, "console-new"
    main = tab.show("topics", "Topics")
    main.get_by_role("button", name="Create a topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("name").fill(name)
    dialog.get_by_label("partitions").fill("3")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.locator("pre")).to_contain_text(f"barnabas topics create {name} --partitions 3")
    dialog.get_by_role("button", name="Create").click()
    expect(main.locator("h1")).to_have_text(f"Topic {name}")
    tab.show(f"topic/{name}/settings", name)
    main.get_by_role("button", name="Delete the topic").click()
    dialog.get_by_role("textbox").fill("another")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("alert")).to_contain_text(f"Type {name}")
    dialog.get_by_role("textbox").fill(name)
    dialog.get_by_role("button", name="Delete").click()
    expect(main.locator("h1")).to_have_text("Topics")
    tab.check()


@pytest.fixture
def registry(served):
    with running_registry(served.bootstrap) as server:
        yield server


def test_a_schema_is_registered_refused_and_deleted_for_good(served, registry, new_context):
    settings = ConsoleSettings(served.bootstrap, "127.0.0.1:0", registry=registry.url, allow_writes=True)
    with RunningConsole(settings) as console:
        tab, expect = Tab(new_context(console), console.url), playwright.expect
        page, dialog = tab.page, tab.page.get_by_role("dialog")
        main = tab.show("schemas", "Schemas")
        main.get_by_role("button", name="Register a schema").click()
        dialog.get_by_label("subject").fill("orders-value")
        dialog.get_by_label("schema", exact=True).fill('"int"')
        dialog.get_by_role("button", name="Continue").click()
        expect(dialog).to_contain_text("It fits the versions before")
        dialog.get_by_role("button", name="Register").click()
        expect(main.locator("h1")).to_have_text("Schema of orders-value")
        main.get_by_role("button", name="Register a version").click()
        expect(dialog.get_by_label("schema", exact=True)).to_have_value('"int"')
        dialog.get_by_label("schema", exact=True).fill('"string"')
        dialog.get_by_role("button", name="Continue").click()
        expect(dialog).to_contain_text("It does not fit the versions before")
        expect(dialog.get_by_role("button", name="Register")).to_have_count(0)
        dialog.get_by_role("button", name="Cancel").click()
        main.get_by_role("button", name="Change the compatibility").click()
        dialog.get_by_label("level").select_option("NONE")
        dialog.get_by_role("button", name="Continue").click()
        dialog.get_by_role("button", name="Change").click()
        expect(main).to_contain_text("compatibility NONE")
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        for name in ("Delete the subject", "Delete the subject for good"):
            main.get_by_role("button", name=name, exact=True).click()
            dialog.get_by_role("textbox").fill("orders-value")
            dialog.get_by_role("button", name="Delete").click()
            expect(dialog).to_have_count(0)
        expect(main.locator("h1")).to_have_text("Schemas")
        expect(main).not_to_contain_text("orders-value")
        tab.check()


def test_a_record_is_sent_by_registered_schemas(served, registry, new_context):
    name = "console-encoded"
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    id_ = register(registry.url, f"{name}-value", ORDER)
    register(registry.url, "shop", SHOP, schemaType="PROTOBUF")
    settings = ConsoleSettings(served.bootstrap, "127.0.0.1:0", registry=registry.url, allow_writes=True)
    with RunningConsole(settings) as console:
        tab, expect = Tab(new_context(console), console.url), playwright.expect
        page, dialog = tab.page, tab.page.get_by_role("dialog")
        main = tab.show(f"topic/{name}/records", name)
        main.get_by_text("Send a record").click()
        form = main.locator("#editor form")
        expect(form.get_by_label("value schema", exact=True)).to_have_value(f"{name}-value")
        expect(form).to_contain_text(f"{name}-value/1, AVRO, id {id_}")
        expect(form.get_by_label("key schema", exact=True)).to_have_value("")
        form.get_by_label("key schema", exact=True).fill("shop")
        page.keyboard.press("Tab")
        form.get_by_label("message of the key schema").select_option("shop.Key")
        form.get_by_label("key", exact=True).fill('{"n": 5}')
        form.get_by_label("value", exact=True).fill('{"id": "a", "total": 1.5}')
        assert axe.Axe().run(page).violations_count == 0
        form.get_by_role("button", name="Send …").click()
        expect(dialog.locator("pre")).to_contain_text(f"--value-schema {name}-value/1")
        expect(dialog.locator("pre")).to_contain_text("--key-schema shop/1 --key-message shop.Key")
        expect(dialog).to_contain_text(f"The value has 15 bytes, by schema {id_}")
        dialog.get_by_role("button", name="Send", exact=True).click()
        expect(page.get_by_role("alert")).to_have_text("sent: partition 0, offset 0")
        main.get_by_role("button", name="Show", exact=True).click()
        row = main.locator("tbody tr").first
        expect(row).to_contain_text(f"avro by schema {id_}")
        expect(row).to_contain_text("protobuf by schema")
        # Which message the key has, the page is not told.
        expect(row.get_by_role("button", name="Edit and send")).to_have_count(0)
        # What was sent without a key can be edited, and keeps the schema that it was sent by.
        form.get_by_label("key", exact=True).fill("")
        form.get_by_label("key schema", exact=True).fill("")
        page.keyboard.press("Tab")
        expect(form.get_by_label("message of the key schema")).to_be_hidden()
        form.get_by_role("button", name="Send …").click()
        dialog.get_by_role("button", name="Send", exact=True).click()
        expect(dialog).to_have_count(0)
        main.get_by_role("button", name="Show", exact=True).click()
        main.get_by_role("button", name="Edit and send").click()
        expect(form.get_by_label("value schema", exact=True)).to_have_value(str(id_))
        expect(form.get_by_label("value", exact=True)).to_have_value('{"id": "a", "total": 1.5}')
        tab.check()


def test_a_value_of_which_a_mask_hides_a_part_is_not_edited(served, new_context):
    name = "console-masked"
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    producer = Producer({"bootstrap.servers": served.bootstrap, "log_level": 0})
    for value in ('{"card": {"number": "4111"}}', '{"item": "apple"}'):
        producer.produce(name, value)
    assert producer.flush(60) == 0
    privacy = Privacy(masks={name: [["card", "number"]]})
    settings = ConsoleSettings(served.bootstrap, "127.0.0.1:0", allow_writes=True, privacy=privacy)
    with RunningConsole(settings) as console:
        tab, expect = Tab(new_context(console), console.url), playwright.expect
        main = tab.show(f"topic/{name}/records?from=start", name)
        edit = main.get_by_role("button", name="Edit and send")
        edit.nth(0).click()
        expect(tab.page.get_by_role("alert")).to_contain_text("A mask of this console (--mask) hides a part")
        expect(main.locator("#editor textarea[name=value]")).to_have_value("")
        edit.nth(1).click()
        expect(main.locator("#editor textarea[name=value]")).to_have_value('{"item": "apple"}')
        tab.check()


def test_it_works_below_any_path(served, new_context):
    settings = ConsoleSettings(served.bootstrap, "127.0.0.1:0", behind_proxy=True)
    with RunningConsole(settings) as console, PrefixProxy(console.url, "/deep/kafka") as proxy:
        tab = Tab(new_context(console, proxy.url), proxy.url)
        main = tab.show(f"topic/{TOPIC}", TOPIC)
        main.locator("table").first.wait_for()  # the stream passes the proxy, too
        tab.show(f"topic/{TOPIC}/records?from=start", TOPIC)
        playwright.expect(main.locator("tbody tr")).to_have_count(len(EVIL) + 1)
        assert all(path.startswith("/deep/kafka/") for path in proxy.asked) and proxy.asked
        tab.check()


def test_two_tabs_see_the_same_record_arrive(console, new_context, served):
    context = new_context(console)
    tabs = [Tab(context, console.url), Tab(context, console.url)]
    for tab in tabs:
        main = tab.show(f"topic/{TOPIC}", TOPIC)
        main.get_by_label("as a table").check()
    ends = [
        tab.page.get_by_role("table", name="Partitions").locator("tbody tr td:nth-child(5)") for tab in tabs
    ]
    before = [int(text) for text in ends[0].all_inner_texts()]
    producer = Producer({"bootstrap.servers": served.bootstrap, "log_level": 0})
    producer.produce(TOPIC, "seen by both", partition=1)
    assert producer.flush(60) == 0
    for tab, shown in zip(tabs, ends, strict=True):
        playwright.expect(shown.nth(1)).to_have_text(str(before[1] + 1))
        tab.check()


def test_what_is_not_there_is_no_empty_page(console, new_context):
    page = new_context(console).new_page()  # the refused requests are errors on its console
    page.set_default_timeout(PATIENCE)
    for path, heading in (
        ("topic/nowhere", "There is no topic nowhere"),
        ("topic/nowhere/records", "There is no topic nowhere"),
        ("topic/nowhere/settings", "There is no topic nowhere"),
        ("group/nobody", "There is no group nobody"),
        ("broker/99", "There is no broker 99"),
    ):
        page.goto(f"{console.url}#/{path}")
        playwright.expect(page.locator("main h1")).to_have_text(heading)
        playwright.expect(page.locator("main table")).to_have_count(0)
        playwright.expect(page.get_by_role("alert")).to_be_hidden()


@pytest.mark.parametrize("path", ["", "/settings"], ids=["live", "settings"])
def test_a_topic_that_is_deleted_while_it_is_watched_is_gone(console, new_context, served, path):
    name = f"console-watched{path.replace('/', '-')}"
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    page = new_context(console).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{console.url}#/topic/{name}{path}")
    playwright.expect(page.locator("main table").first).to_be_visible()
    admin.delete_topics([name])[name].result(60)
    playwright.expect(page.locator("main h1")).to_have_text(f"There is no topic {name}")


def test_dialogs_and_messages_go_with_their_page(tab):
    page, expect = tab.page, playwright.expect
    main = tab.show(f"topic/{TOPIC}/settings", TOPIC)
    main.get_by_role("button", name="Delete the topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("alert")).to_contain_text(f"Type {TOPIC}")
    page.evaluate("location.hash = '#/groups'")
    expect(main.locator("h1")).to_have_text("Groups")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("alert")).to_be_hidden()
    tab.check()


@pytest.fixture
def long_value(served):
    """Create a topic with one value of 64 KiB."""
    name = "console-long"
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
    with contextlib.suppress(KafkaException):  # made by the test before
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    producer = Producer({"bootstrap.servers": served.bootstrap, "log_level": 0})
    lines = [{"n": n, "text": "x" * 20} for n in range(1500)]
    producer.produce(name, json.dumps({"lines": lines, "end": "of it"}), key="long")
    assert producer.flush(60) == 0
    return name


def test_a_long_value_is_folded_and_can_be_opened_copied_and_downloaded(
    console, new_context, served, long_value
):
    context = new_context(console, permissions=["clipboard-read", "clipboard-write"])
    tab, expect = Tab(context, console.url), playwright.expect
    page = tab.page
    main = tab.show(f"topic/{long_value}/records?from=end&limit=1", long_value)
    row = main.locator("tbody tr").first
    expect(row).to_contain_text("…")
    assert page.evaluate("document.documentElement.scrollHeight") < 1200
    row.locator("summary").click()
    text = row.locator("pre")
    expect(text).to_contain_text('"end": "of it"')
    assert page.evaluate("document.documentElement.scrollHeight") < 2400
    row.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("alert")).to_have_text("Copied")
    assert len(json.loads(page.evaluate("navigator.clipboard.readText()"))["lines"]) == 1500
    with page.expect_download() as saved:
        row.get_by_role("link", name="Download").click()
    assert json.loads(saved.value.path().read_bytes())["end"] == "of it"
    with page.expect_download() as saved:
        main.locator("form").first.get_by_role("button", name="Download").click()
    (line,) = saved.value.path().read_text().splitlines()
    assert json.loads(line)["key"] == "long" and saved.value.suggested_filename == f"{long_value}.jsonl"
    # What was opened stays open, though records above it arrive.
    main.get_by_label("live tail").check()
    producer = Producer({"bootstrap.servers": served.bootstrap, "log_level": 0})
    producer.produce(long_value, b"next")
    assert producer.flush(60) == 0
    expect(main.locator("tbody tr").first).to_contain_text("next")
    expect(main.locator("tbody tr").nth(1).locator("pre")).to_contain_text('"end": "of it"')
    tab.check()


def test_what_stands_in_one_line_has_one_bottom(tab):
    main = tab.show("topics", "Topics")
    tools = main.locator(".tools").first
    assert (
        len(
            {
                box["y"] + box["height"]
                for box in boxes(tools, "input[name=search]", "select", "button", "summary")
            }
        )
        == 1
    )
    main = tab.show("group/%3Cb%20onclick%3Dwindow.hacked%3D6%3E%2F..%252f%3F%23%26'%22", EVIL_GROUP)
    row = main.locator("tbody tr").first
    row.get_by_role("button", name="Reset").wait_for()
    (button,) = boxes(row, "button")
    text = row.locator("td").nth(1).bounding_box()
    assert abs((button["y"] + button["height"] / 2) - (text["y"] + text["height"] / 2)) <= 2


def boxes(where: Any, *selectors: str) -> list[Any]:
    """Return the positions of the controls in an element."""
    return [each.bounding_box() for selector in selectors for each in where.locator(selector).all()]


def test_a_lag_beyond_the_picture_says_what_it_is(console, new_context, served):
    """Among offsets, a number without a label would look like an offset."""
    name = "console-far"
    settings = {"bootstrap.servers": served.bootstrap, "log_level": 0}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    producer = Producer(settings)
    for _ in range(1234):
        producer.produce(name, b"x")
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "far-behind"})
    consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    consumer.close()
    context = new_context(console)
    context.add_init_script(NOTE_DRAWN)
    tab = Tab(context, console.url)
    tab.show(f"topic/{name}", name)
    page = tab.page.locator("html")
    playwright.expect(page).to_have_attribute("data-drawn", re.compile(r"◀ 1,234 behind"))
    assert not [
        text for text in page.get_attribute("data-drawn").split("|") if re.fullmatch(r"◀ [\d,]+", text)
    ]
    tab.check()


def test_a_share_group_is_many_hands_in_a_lane(console, new_context, served):
    name = "console-queue"
    admin = Admin(served.bootstrap)
    admin.create_topic(name, 1)
    settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
    admin.alter_configs("group", name, set=settings)
    admin.close()
    producer = Producer({"bootstrap.servers": served.bootstrap, "log_level": 0})
    for value in ("a", "b", "c"):
        producer.produce(name, value)
    assert producer.flush(60) == 0
    context = new_context(console)
    context.add_init_script(NOTE_DRAWN)
    tab = Tab(context, console.url)
    with Worker(served.bootstrap, name, group=name) as worker:
        worker.take(1, 60)[0].release()
        worker.take(1, 60)
        main = tab.show(f"group/{name}", name)
        playwright.expect(main).to_contain_text("records locked")
        if isinstance(served, Kafka):
            playwright.expect(main).to_contain_text("do not tell who has locked which records")
        else:
            in_flight = main.get_by_role("table", name="Records in flight").locator("tbody tr")
            playwright.expect(in_flight.first).to_contain_text("locked")
            member = main.get_by_role("table", name="Members").locator("tbody td").first.inner_text()
            playwright.expect(in_flight.first).to_contain_text(member)
        found = axe.Axe().run(tab.page)
        assert found.violations_count == 0, found.generate_report()
        main = tab.show(f"topic/{name}", name)
        if not isinstance(served, Kafka):
            playwright.expect(tab.page.locator("html")).to_have_attribute("data-drawn", re.compile("#1"))
            playwright.expect(main).to_contain_text("locked by 1 members")
        tab.check()


def test_columns_are_chosen_and_stay_chosen(tab):
    expect, page = playwright.expect, tab.page
    main = tab.show("topics", "Topics")
    heads = main.locator("thead th")
    expect(heads.filter(has_text="replicas")).to_have_count(1)
    main.get_by_text("Columns").click()
    main.get_by_label("replicas").uncheck()
    expect(heads.filter(has_text="replicas")).to_have_count(0)
    page.reload()
    expect(heads.first).to_be_visible()
    expect(heads.filter(has_text="replicas")).to_have_count(0)
    main = tab.show(f"topic/{TOPIC}/records?from=start&columns=partition", TOPIC)
    expect(heads.last.or_(heads.filter(has_text="change"))).to_be_visible()
    expect(heads.filter(has_text="partition")).to_have_count(2)
    tab.check()


def test_records_a_second_are_drawn_over_time(tab, served):
    expect = playwright.expect
    for path, heading in (("", "Overview"), (f"topic/{TOPIC}/settings", TOPIC)):
        main = tab.show(path, heading)
        chart = main.get_by_role("img", name="Records a second")
        expect(chart).to_have_attribute("aria-label", re.compile(r"Records a second from .* to .*, at most "))
        expect(chart.locator("path")).to_have_attribute("d", re.compile(r"^M[\d.]+ [\d.]+(L|M)"))
    tab.check()


def test_a_user_gets_a_password_and_rules(new_context, tmp_path):
    with (
        AclBroker(tmp_path) as broker,
        RunningConsole(ConsoleSettings(broker.open_address, "127.0.0.1:0", allow_writes=True)) as console,
    ):
        tab, expect = Tab(new_context(console), console.url), playwright.expect
        page, main = tab.page, tab.show("access", "Access")
        dialog = page.get_by_role("dialog")
        main.get_by_role("button", name="Add a user").click()
        dialog.get_by_label("name").fill("alice")
        dialog.get_by_label("password", exact=True).fill("sesame")
        dialog.get_by_label("password again").fill("sesame!")
        dialog.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("alert")).to_have_text("The two passwords differ.")
        dialog.get_by_label("password again").fill("sesame")
        dialog.get_by_role("button", name="Continue").click()
        expect(dialog.locator("pre")).to_contain_text("barnabas users add alice")
        dialog.get_by_role("button", name="Add", exact=True).click()
        users = page.get_by_role("table", name="Users with a password")
        expect(users).to_contain_text("alice")
        main.get_by_role("button", name="Add a rule").click()
        dialog.get_by_label("principal").fill("alice")
        dialog.locator("[name=resource]").select_option("GROUP")
        dialog.locator("[name=operation]").select_option("READ")
        dialog.get_by_label("name (* for all)").fill("billing-")
        dialog.locator("[name=pattern]").select_option("PREFIXED")
        assert axe.Axe().run(page).violations_count == 0
        dialog.get_by_role("button", name="Continue").click()
        expect(dialog.locator("pre")).to_contain_text(
            "barnabas acls grant alice read --group billing- --prefixed"
        )
        dialog.get_by_role("button", name="Add", exact=True).click()
        rules = page.get_by_role("table", name="Rules")
        expect(rules).to_contain_text("billing-…")
        main.get_by_role("button", name="Delete the rule of User:alice to READ billing-").click()
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(rules).not_to_contain_text("billing-…")
        main.get_by_role("button", name="Delete alice", exact=True).click()
        dialog.get_by_role("textbox").fill("alice")
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(users).not_to_contain_text("alice")
        tab.check()


def test_no_group_is_drawn_in_red(tab):
    tab.show("", "Overview")
    colours = tab.page.evaluate(
        "import('./static/picture.js').then((m) => Array.from({length: 20}, (_, i) => m.colour(i)))"
    )
    for red, green, blue in ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours):
        assert red < 160 or red < 1.3 * max(green, blue), colours


def test_what_clients_push_is_shown(new_context, tmp_path):
    """Apache Kafka passes the metrics to a plugin, so this test uses only Barnabas."""
    config = BrokerConfig.from_text(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "barnabas.metrics.listener": "127.0.0.1:0",
        }
    )
    with BrokerServer(config) as broker:
        servers, page = broker.bootstrap_servers, broker.metrics_url
        settings = ConsoleSettings(servers, "127.0.0.1:0", metrics=(page,))
        Admin(servers).alter_configs("client metrics", "all", set={"metrics": "*", "interval.ms": "60000"})
        wire = Wire(servers)
        try:
            wire(INTRODUCTION)
            asked = wire(GetTelemetrySubscriptionsRequest())
            metrics = pushed(gauge(EVIL[0], double(1.5, attribute("topic", text(1, EVIL[1])))))
            assert wire(pushing(asked, metrics=metrics)).error_code == 0
        finally:
            wire.socket.close()
        with RunningConsole(settings) as console:
            tab, expect = Tab(new_context(console), console.url), playwright.expect
            main = tab.show("clients", "Clients' metrics")
            expect(tab.page.get_by_role("table", name="Asked for")).to_contain_text("60 s")
            expect(tab.page.get_by_role("table", name="Pushing")).to_contain_text("wired")
            tab.page.get_by_role("table", name="Pushing").get_by_role("link", name="wire").click()
            expect(main.locator("h1")).to_have_text("Client wire")
            numbers = tab.page.get_by_role("table", name="Numbers").locator("tbody tr")
            expect(numbers).to_have_count(1)
            expect(numbers).to_contain_text("_img_src_x_onerror")  # as the page of metrics writes the name
            expect(numbers).to_contain_text(EVIL[1])
            expect(numbers).to_contain_text("1.5")
            assert axe.Axe().run(tab.page).violations_count == 0
            tab.check()


@pytest.fixture(scope="module", params=[Barnabas, Kafka], ids=lambda kind: kind.name)
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Start a broker with ten thousand topics."""
    if request.param is Kafka:
        request.getfixturevalue("classpath")
    peer: Peer = request.param(tmp_path_factory.mktemp(f"large-{request.param.name}"))
    peer.start()
    try:
        names = [f"many-{n:05}" for n in range(MANY)]
        with Connection(peer.bootstrap) as connection:
            for start in range(0, MANY, TOPICS_A_REQUEST):
                create_topics(connection, names[start : start + TOPICS_A_REQUEST], partitions=1)
        # Apache Kafka says that topics are created before its broker knows them.
        deadline = time.monotonic() + 300
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
        while len(admin.list_topics(timeout=60).topics) < MANY:
            assert time.monotonic() < deadline, "the broker does not know all topics"
            time.sleep(1)
        yield peer
    finally:
        peer.stop()


@pytest.mark.timeout(600)
def test_ten_thousand_topics_are_searched_sorted_and_paged(large, new_context):
    with RunningConsole(ConsoleSettings(large.bootstrap, "127.0.0.1:0")) as console:
        tab, expect = Tab(new_context(console), console.url), playwright.expect
        page = tab.page
        main = tab.show("", "Overview")
        expect(main.locator(".card", has_text="topics")).to_contain_text(re.compile(r"10[,.]?000"))
        main = tab.show("topics", "Topics")
        rows = main.locator("tbody tr")
        expect(rows).to_have_count(50)
        expect(main).to_contain_text("page 1 of 200")
        expect(rows.first).to_contain_text("many-00000")
        main.get_by_role("link", name="more →").click()
        expect(rows.first).to_contain_text("many-00050")
        main.get_by_role("button", name="sort by name").click()
        main.get_by_role("button", name="sort by name").click()
        expect(main.get_by_role("button", name="sort by name")).to_contain_text("↓")
        main = tab.show("topics?order=down&sort=name", "Topics")
        expect(rows.first).to_contain_text("many-09999")
        main.get_by_label("name contains").fill("-0777")
        page.keyboard.press("Enter")
        expect(rows).to_have_count(10)
        main = tab.show("brokers", "Brokers")
        expect(main).to_contain_text(re.compile(r"page 1 of 200, 10[,.]?000 in all"))
        tab.show("topic/many-07777", "many-07777")
        expect(page.get_by_role("table", name="Leaders and replicas").locator(".leads")).to_have_count(1)
        tab.check()


def test_a_broker_is_killed_while_it_is_watched(new_context):
    with BarnabasCluster(3) as cluster:
        cluster.create_topic("watched", partitions=3)
        cluster.wait_in_sync("watched")
        with RunningConsole(ConsoleSettings(cluster.bootstrap_servers, "127.0.0.1:0")) as console:
            tab = Tab(new_context(console), console.url)
            tab.show("topic/watched", "watched")
            head = tab.page.get_by_role("table", name="Leaders and replicas").locator("thead")
            controller = cluster.controller()
            expect = playwright.expect
            expect(head).to_contain_text(f"♛ {controller}")
            cluster.kill(controller)
            expect(head).to_contain_text(f"{controller} (gone)")
            expect(head).to_contain_text(f"♛ {cluster.controller(timeout=60)}")
            expect(tab.page.locator(".replica.leads")).to_have_count(3)
            watching = Tab(tab.page.context, console.url)
            main = watching.show("", "Overview")
            rows = watching.page.get_by_role("table", name="Brokers").locator("tbody tr")
            expect(rows).to_have_count(3)
            expect(rows.filter(has_text="gone").locator("a")).to_have_text(str(controller))
            expect(main.locator(".card .bad")).to_have_text("2 of 3")
            main = watching.show(f"broker/{controller}", f"Broker {controller}")
            expect(main.locator(".card .bad")).to_have_text("gone")
            expect(main).to_contain_text("watched-0")
            main = watching.show("", "Overview")
            cluster.restart(controller)
            expect(head).not_to_contain_text("gone")
            expect(main).to_contain_text(f"broker {controller} has joined")
            tab.check()
            watching.check()
