"""The payments example in practice. All its processes are killed at moments that a seed determines.

BARNABAS_THOROUGH=1 BARNABAS_KILL_SEEDS=25 (`make kills`) kills many more.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.payments.balances import restore
from examples.payments.teller import DEPOSIT, transfers
from tests.examples.programs import Program
from tests.examples.topics import committed, written
from tests.spark.processes import children, kill, workers_of

from barnabas.base.errors import BarnabasError
from barnabas.testing import BarnabasBroker, BarnabasCluster

FOLDER = Path(__file__).parents[2] / "examples" / "payments"
SEEDS = int(os.environ.get("BARNABAS_KILL_SEEDS", "1"))
KILLS = 6 if SEEDS > 1 else 1
ACCOUNTS = 15
TRANSFERS, A_SECOND = (900, 30) if SEEDS > 1 else (150, 50)
ALL_SETTLED_S = 1000.0  # at most

#: The cleaner looks every moment, at a log of segments that hold one balance of each account.
BROKER = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "100",  # only what is known to be flushed is cleaned
}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1200", "min.cleanable.dirty.ratio": "0.01"}


class Bank:
    """The broker and the example's programs."""

    def __init__(self, broker: BarnabasBroker | BarnabasCluster, folder: Path, seed: int) -> None:
        self.broker = broker
        self.servers = broker.bootstrap_servers
        common = ["--bootstrap-server", self.servers]
        accounts = ["--seed", seed, "--accounts", ACCOUNTS]
        amount = ["--transfers", TRANSFERS, "--a-second", A_SECOND]
        spark = ["--conf", "spark.driver.memory=1g"]
        run = ["-m", "barnabas.cli", "pipeline", "run", FOLDER / "pipeline.py", "--master", "local[2]"]
        self.log = folder / "log"
        self.status = folder / "state" / "status.json"
        teller = [FOLDER / "teller.py", *common, *accounts]
        self.opener = Program(*teller, "--transfers", 0, log=self.log)
        self.teller = Program(*teller, *amount, log=self.log)
        self.pipeline = Program(*run, *common, "--folder", folder / "state", *spark, log=self.log)

    def open(self) -> None:
        for topic in ("transfers", "credits"):
            self.broker.create_topic(topic, 4)
        for topic in ("refused", "transfers-bad"):
            self.broker.create_topic(topic)
        self.broker.create_topic("balances", configs=COMPACTED)

    def close(self) -> None:
        self.opener.kill()
        self.teller.kill()
        self.pipeline.kill()
        print(self.log.read_text())  # shown when the test fails


class Killer(threading.Thread):
    """Kills random processes each time the pipeline has written more, often before a commit."""

    def __init__(self, bank: Bank, chance: random.Random) -> None:
        super().__init__()
        self._bank = bank
        self._chance = chance
        self._stopping = threading.Event()
        self.done: list[str] = []

    def run(self) -> None:
        victims = self._victims()
        with self._bank.broker.consumer("credits", isolation_level="read_uncommitted") as consumer:
            while len(self.done) < KILLS:
                seen, due = 0, self._chance.randint(ACCOUNTS, 60)
                while seen < due:
                    if self._stopping.is_set():
                        return
                    seen += len(consumer.read_batch(0.05))
                self._stopping.wait(self._chance.choice([0, self._chance.uniform(0, 1)]))
                victim = self._chance.choice(victims)
                victim()
                self.done.append(victim.__name__)

    def _victims(self) -> list[Callable[[], None]]:
        all_of_them = [self._busy_jvm, self._jvm, self._driver, self._worker, self._broker, self._teller]
        return all_of_them if KILLS > 1 else all_of_them[:1]

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _jvm(self) -> None:
        """Kill Spark's driver, which is also its executor in local mode."""
        for pid in children(self._bank.pipeline.pid)[:1]:
            kill(pid)

    def _busy_jvm(self) -> None:
        """Kill Spark's driver while its Python process waits for an answer."""
        for pid in children(self._bank.pipeline.pid)[:1]:
            os.kill(pid, signal.SIGSTOP)
            self._stopping.wait(1)
        self._jvm()

    def _driver(self) -> None:
        self._bank.pipeline.kill()

    def _worker(self) -> None:
        workers = workers_of(self._bank.pipeline.pid)
        if workers:
            kill(self._chance.choice(workers))

    def _broker(self) -> None:
        broker = self._bank.broker
        assert isinstance(broker, BarnabasBroker)
        broker.kill()
        self._stopping.wait(self._chance.uniform(0, 2))
        broker.start()

    def _teller(self) -> None:
        self._bank.teller.kill()


class BrokerKiller(Killer):
    """Kills one broker of a cluster after the other."""

    def _victims(self) -> list[Callable[[], None]]:
        return [self._one_broker]

    def _one_broker(self) -> None:
        cluster = self._bank.broker
        assert isinstance(cluster, BarnabasCluster)
        broker = self._chance.choice(cluster.brokers)
        cluster.kill(broker)
        self._stopping.wait(self._chance.choice((0, 4)))  # sooner, or later, than its session ends
        cluster.restart(broker)
        with contextlib.suppress(TimeoutError):
            cluster.wait_in_sync(timeout=10)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def bank(tmp_path: Path, seed: int) -> Iterator[Bank]:
    with BarnabasBroker(BROKER, mode="process") as broker:
        bank = Bank(broker, tmp_path, seed)
        bank.open()
        yield bank
        bank.close()


@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(SEEDS), indirect=True)
def test_money_is_neither_made_nor_lost_when_anything_is_killed_at_any_moment(bank: Bank, seed: int) -> None:
    killer = Killer(bank, random.Random(seed))
    settle_under(killer, bank)
    if KILLS == 1:  # with more, it may not have been there yet
        assert "Spark's JVM ended unexpectedly; its log is" in bank.log.read_text()
    check_the_books(bank, seed)


@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_money_is_neither_made_nor_lost_when_the_brokers_of_a_cluster_are_killed(
    tmp_path: Path, seed: int
) -> None:
    with BarnabasCluster(3, BROKER) as cluster:
        bank = Bank(cluster, tmp_path, seed)
        bank.open()
        try:
            settle_under(BrokerKiller(bank, random.Random(seed)), bank)
            cluster.wait_in_sync()
            check_the_books(bank, seed)
        finally:
            bank.close()


def settle_under(killer: Killer, bank: Bank) -> None:
    """Let the teller make its transfers while processes are killed. Stop when all transfers are settled."""
    killer.start()
    try:
        settle(bank)
    finally:
        killer.stop()
    stop_cleanly(bank)
    assert killer.done


def check_the_books(bank: Bank, seed: int) -> None:
    made = [record.json() for record in committed(bank.broker, "transfers")]
    assert in_order(made) == in_order(transfers(seed, ACCOUNTS, TRANSFERS))  # the teller's part
    refused = Counter(record.json()["id"] for record in committed(bank.broker, "refused"))
    credited = Counter(record.json()["id"] for record in committed(bank.broker, "credits"))
    # each transfer was decided, once
    assert refused + credited == Counter(each["id"] for each in made)
    assert len(refused) > 0
    # what a reader restores, from a topic that was compacted all the while, is what was not refused
    expected: Counter[str] = Counter()
    for each in made:
        if each["id"] not in refused:
            expected[each["payer"]] -= each["amount"]
            expected[each["payee"]] += each["amount"]
    await_compaction(bank)
    assert restore(bank.servers) == expected
    assert sum(expected.values()) == 0
    assert expected.pop("cash") == -ACCOUNTS * DEPOSIT
    assert min(expected.values()) >= 0


def in_order(made: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(made, key=json.dumps)


def settle(bank: Bank) -> None:
    """Restart dead processes until the teller has made its transfers and all are settled."""
    end = time.monotonic() + ALL_SETTLED_S
    while True:
        bank.pipeline.keep_up()
        with contextlib.suppress(BarnabasError):  # the broker is just dead
            if bank.opener.keep_up() and are_open(bank) and bank.teller.keep_up() and is_settled(bank):
                return
        assert time.monotonic() < end, "not settled in time"
        time.sleep(1.5)  # a look reads three topics to their ends


def stop_cleanly(bank: Bank) -> None:
    """Stop the pipeline when all is settled. Restart a process that the last kill has ended after that."""
    while True:
        settle(bank)
        while json.loads(bank.status.read_text())["pid"] != bank.pipeline.pid:  # it does not listen yet
            bank.pipeline.keep_up()
            time.sleep(0.1)
        if bank.pipeline.stop() == 0:
            return


def are_open(bank: Bank) -> bool:
    """Return whether each account has its deposit, and `cash`, which has paid the deposits, has a balance."""
    return len(restore(bank.servers)) == ACCOUNTS + 1


def is_settled(bank: Bank) -> bool:
    """Return whether all transfers are decided, and the payees have got all amounts of the payers."""
    decided = len(committed(bank.broker, "refused")) + len(committed(bank.broker, "credits"))
    return decided >= ACCOUNTS + TRANSFERS and sum(restore(bank.servers).values()) == 0


def await_compaction(bank: Bank) -> None:
    """Wait until newer records have replaced many of the records with balances."""
    end = time.monotonic() + 60
    while len(committed(bank.broker, "balances")) > written(bank.broker, "balances") * 3 / 4:
        assert time.monotonic() < end, "nothing is compacted"
        time.sleep(0.2)
