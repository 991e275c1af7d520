"""The one-time-password example in practice, with senders that are killed at moments that a seed determines.

BARNABAS_THOROUGH=1 BARNABAS_KILL_SEEDS=25 (`make kills`) kills many more.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from examples.one_time_password.gateway import Gateway, Outbox
from examples.one_time_password.sender import ADDRESS, CODES, SENT
from tests.examples.programs import Program
from tests.examples.topics import committed

from barnabas.testing import BarnabasBroker

Start = Callable[..., Program]

FOLDER = Path(__file__).parents[2] / "examples" / "one_time_password"
SEEDS = int(os.environ.get("BARNABAS_KILL_SEEDS", "1"))
KILLS = 5 if SEEDS > 1 else 1  # of each kind and channel
SENDERS = 3  # of each channel
USERS = 40
CODES_IN_TIME, CODES_TOO_LATE = 300, 30
ALL_SENT_S = 150.0  # at most


class DeadlyOutbox(Outbox):
    """Reports each sender before the gateway answers it, and counts repeated requests."""

    def __init__(self, path: str, on_sent: Callable[[str, str], None]) -> None:
        super().__init__(path)
        self._on_sent = on_sent
        self.answers: Counter[HTTPStatus] = Counter()

    def send(
        self, channel: str, key: str, recipient: str, text: str, valid_until: float, sender: str
    ) -> HTTPStatus:
        answer = super().send(channel, key, recipient, text, valid_until, sender)
        self.answers[answer] += 1
        if answer is HTTPStatus.CREATED:
            self._on_sent(channel, sender)
        return answer


class Killer:
    """Kills senders at critical moments: after a message is sent, and after a record is written but not
    committed.

    A sender whose message was sent dies before it gets the answer. Over many seeds, some senders die a moment
    later. Some are only paused, for longer than the session timeout, and some never start again.
    """

    def __init__(self, chance: random.Random, senders: dict[str, Program]) -> None:
        self._chance = chance
        self._senders = senders
        self._lock = threading.Lock()
        moments = range(5, CODES_IN_TIME - 50)
        self._plan = {
            (what, channel): chance.sample(moments, KILLS)
            for what in ("sent", "recorded")
            for channel in ADDRESS
        }
        self._seen: Counter[tuple[str, str]] = Counter()
        self._timers: list[threading.Timer] = []
        self._closed = threading.Event()
        self.deaths = 0
        self.gone = dict.fromkeys(ADDRESS, "")  # one of each channel at most

    def on_sent(self, channel: str, sender: str) -> None:
        """Handle a message that the gateway has sent and not confirmed."""
        if self._is_due("sent", channel):
            if SEEDS == 1 or self._chance.random() < 0.5:
                self._strike(channel, sender)
            else:
                self._later(self._chance.uniform(0, 0.05), self._strike, channel, sender)

    def watch(self, broker: BarnabasBroker) -> None:
        """Read records as soon as they are written, long before read_committed consumers get them."""
        with broker.consumer(SENT, isolation_level="read_uncommitted", fetch_wait_max_ms=5) as consumer:
            while not self._closed.is_set():
                for record in consumer.read_batch(0.05):
                    written = record.json()
                    if self._is_due("recorded", written["channel"]):
                        self._strike(written["channel"], written["by"])

    def _is_due(self, what: str, channel: str) -> bool:
        with self._lock:
            self._seen[what, channel] += 1
            return self._seen[what, channel] in self._plan[what, channel]

    def _strike(self, channel: str, sender: str) -> None:
        with self._lock:
            if not self._senders[sender].runs:
                return
            self.deaths += 1
            if SEEDS > 1 and self._chance.random() < 0.2:
                self._senders[sender].signal(signal.SIGSTOP)
                self._later(12, self._senders[sender].signal, signal.SIGCONT)
                return
            if SEEDS > 1 and not self.gone[channel] and self._chance.random() < 0.2:
                self.gone[channel] = sender
            self._senders[sender].kill()

    def _later(self, seconds: float, act: Callable[..., object], *arguments: object) -> None:
        self._timers.append(threading.Timer(seconds, act, arguments))
        self._timers[-1].start()

    def close(self) -> None:
        """Stop killing, and resume paused senders."""
        self._closed.set()
        for timer in self._timers:
            timer.cancel()
            timer.join()
        for sender in self._senders.values():
            sender.signal(signal.SIGCONT)


def issue(service: str, number: int) -> None:
    user = f"user-{number % USERS}"
    asked = {"user": user, "phone": f"+1 555 01{number % USERS:02}", "email": f"{user}@example.org"}
    with urlopen(Request(f"{service}/codes", json.dumps(asked).encode()), timeout=60) as answer:
        assert answer.status == HTTPStatus.ACCEPTED
        assert "code" not in json.loads(answer.read())


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Start]:
    """Make one of the example's programs without starting it."""
    made: list[Program] = []

    def make(name: str, *arguments: str) -> Program:
        made.append(Program(FOLDER / name, *arguments, log=tmp_path / "log"))
        return made[-1]

    yield make
    for each in made:
        each.kill()
    print((tmp_path / "log").read_text())  # shown when the test fails


@pytest.fixture
def broker() -> Iterator[BarnabasBroker]:
    with BarnabasBroker() as broker:
        broker.create_topic(CODES, 4)
        broker.create_topic(SENT, 2)
        yield broker


@pytest.mark.parametrize("seed", range(SEEDS))
def test_senders_killed_at_any_moment_send_each_code_once_by_each_channel(
    broker: BarnabasBroker, program: Start, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with ExitStack() as stack:
        senders: dict[str, Program] = {}
        killer = Killer(chance, senders)
        outbox = DeadlyOutbox(str(tmp_path / "gateway.db"), killer.on_sent)
        url = stack.enter_context(serving(outbox))
        common = ["--bootstrap-server", broker.bootstrap_servers]
        for channel in ADDRESS:
            for number in range(SENDERS):
                name = f"{channel}-{number}"
                given = [channel, "--name", name, "--gateway", url, *common]
                senders[name] = program("sender.py", *given)
        in_time = program("service.py", *common, "--listen", "127.0.0.1:0").serve()
        too_late = program("service.py", *common, "--listen", "127.0.0.1:0", "--valid-for", "0").serve()
        services = [in_time] * CODES_IN_TIME + [too_late] * CODES_TOO_LATE
        chance.shuffle(services)
        for number, service in enumerate(services[:150]):  # some wait already when the senders come up
            issue(service, number)
        watch = threading.Thread(target=killer.watch, args=(broker,))
        watch.start()
        stack.callback(watch.join)
        stack.callback(killer.close)
        for sender in senders.values():
            sender.keep_up()
        for number, service in enumerate(services[150:]):
            issue(service, number)
        await_records(broker, len(services) * len(ADDRESS), senders, killer.gone)
        killer.close()
        for name, sender in senders.items():
            if name not in killer.gone.values():
                assert sender.stop() == 0 or SEEDS > 1  # one that was only stopped may have ended itself

    issued = [record.json() for record in committed(broker, CODES)]
    assert len(issued) == len(services)
    good = [code for code in issued if float(code["expires_at"]) - time.time() > 60]
    assert len(good) == CODES_IN_TIME
    # what really went out: each good code once by each channel, to the right place, and nothing else
    assert sorted((channel, key, to, text) for channel, key, to, text, _ in outbox.sent()) == sorted(
        (channel, code["id"], code[field], f"Your code is {code['code']}")
        for channel, field in ADDRESS.items()
        for code in good
    )
    # what is on record: each code once for each channel, with what became of it
    good_ids = {code["id"] for code in good}
    on_record = [record.json() for record in committed(broker, SENT)]
    assert sorted((each["id"], each["channel"], each["outcome"]) for each in on_record) == sorted(
        (code["id"], channel, "sent" if code["id"] in good_ids else "expired")
        for channel in ADDRESS
        for code in issued
    )
    # and the kills did hit: senders died, and some had sent what they had not committed
    assert killer.deaths >= KILLS * len(ADDRESS)
    assert outbox.answers[HTTPStatus.OK] > 0


def await_records(
    broker: BarnabasBroker, count: int, senders: dict[str, Program], gone: dict[str, str]
) -> None:
    """Restart dead senders until `count` codes are recorded."""
    deadline = time.monotonic() + ALL_SENT_S
    with broker.consumer(SENT) as consumer:
        while count > 0:
            count -= len(consumer.read_batch(0.2))
            for name, sender in senders.items():
                if name not in gone.values():
                    sender.keep_up()
            assert time.monotonic() < deadline, f"{count} codes are not sent"


@contextmanager
def serving(outbox: Outbox) -> Iterator[str]:
    with Gateway(("127.0.0.1", 0), outbox) as gateway:
        thread = threading.Thread(target=gateway.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{gateway.server_port}"
        finally:
            gateway.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("key", "text", "valid_until", "status"),
    [
        ("new", "Your code is 1", 2e9, HTTPStatus.CREATED),
        ("new", "Your code is 1", 0, HTTPStatus.GONE),
        ("old", "Your code is 1", 2e9, HTTPStatus.OK),
        ("old", "Your code is 1", 0, HTTPStatus.OK),  # it went out in time, whenever that is asked about
        ("old", "Your code is 2", 2e9, HTTPStatus.UNPROCESSABLE_ENTITY),
        ("", "Your code is 1", 2e9, HTTPStatus.BAD_REQUEST),
    ],
)
def test_the_gateway_takes_a_key_once(
    tmp_path: Path, key: str, text: str, valid_until: float, status: HTTPStatus
) -> None:
    def post(key: str, text: str, valid_until: float) -> int:
        body = {"to": "ann", "text": text, "valid_until": valid_until}
        try:
            with urlopen(
                Request(f"{url}/sms", json.dumps(body).encode(), {"Idempotency-Key": key})
            ) as answer:
                return answer.status
        except HTTPError as refusal:
            refusal.close()
            return refusal.code

    outbox = Outbox(str(tmp_path / "gateway.db"))
    with serving(outbox) as url:
        assert post("old", "Your code is 1", 2e9) == HTTPStatus.CREATED
        assert post(key, text, valid_until) == status
    sent = [(key, text) for _, key, _, text, _ in outbox.sent()]
    assert sent == [("old", "Your code is 1")] + [(key, text)] * (status is HTTPStatus.CREATED)


def test_the_service_says_so_when_no_code_was_issued(program: Start) -> None:
    url = program(
        "service.py", "--bootstrap-server", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--patience", "0.5"
    ).serve()
    with pytest.raises(HTTPError) as refusal:
        issue(url, 0)
    assert refusal.value.code == HTTPStatus.SERVICE_UNAVAILABLE
    refusal.value.close()
