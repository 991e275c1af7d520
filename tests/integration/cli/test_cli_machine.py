"""`barnabas start --brokers` as processes: several brokers on one machine, under one supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.zookeeper import new_chroot

from barnabas.base.environment.filesystem import exists
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.errors import KafkaError
from barnabas.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata.store import StoreUnavailableError
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.broker.server.run import BrokerServer
from barnabas.cli.cluster.folder import ClusterFolder
from barnabas.client import Admin, Consumer, Producer, work

BARNABAS = [sys.executable, "-m", "barnabas.cli"]
PATIENCE = 120


class Machine:
    """A `barnabas start` with one or several brokers that has printed its ready line."""

    def __init__(self, folder: Path, *arguments: str, data: bool = True) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [
                *(*BARNABAS, "start", *(["--data", str(folder)] if data else []), "--listen", "127.0.0.1:0"),
                *("--set", "offsets.topic.num.partitions=4", *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.err: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.ready = self.line()
        self.servers = self.ready.split()[-1] if self.ready else ""

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.err.extend(iter(self.process.stderr.readline, ""))

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def status(self) -> dict[str, Any]:
        words = [*BARNABAS, "cluster", "status", "--json", "--data", str(self.folder)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def stop_broker(self, broker: int) -> None:
        words = [*BARNABAS, "cluster", "stop", str(broker), "--data", str(self.folder)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr

    def pids(self) -> dict[int, int]:
        return {broker["id"]: broker["process"] for broker in self.status()["brokers"]}

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self._reading.join(PATIENCE)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode, "".join(self.err)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    started: list[Machine] = []

    def run(*arguments: str) -> Machine:
        machine = Machine(tmp_path / "data", *arguments)
        started.append(machine)
        if not machine.ready:
            pytest.fail(machine.end()[1])
        return machine

    yield run
    for machine in started:
        if machine.process.poll() is None:
            machine.end(signal.SIGTERM)


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def refused(folder: Path, *arguments: str) -> str:
    words = [*BARNABAS, "start", "--data", str(folder), "--listen", "127.0.0.1:0", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0, done.stdout
    return done.stderr


def serves_again(machine: Machine, broker: int, before: int) -> bool:
    found = machine.status()["brokers"][broker - 1]
    return found["state"] == "running" and found["process"] != before


def knows(servers: str, topic: str) -> bool:
    with contextlib.suppress(KafkaError):
        return bool(Admin(servers).describe_topics([topic]))
    return False


def leaders(servers: str, topic: str) -> dict[int, int | None]:
    wait_for(partial(knows, servers, topic))  # another broker may have answered the creation of the topic
    (described,) = Admin(servers).describe_topics([topic])
    return {partition.partition: partition.leader for partition in described.partitions}


def send(servers: str, topic: str, values: Sequence[str]) -> None:
    with Producer(servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 3)


def texts(servers: str, topic: str, count: int) -> list[str]:
    with Consumer(servers, topic) as consumer:
        return sorted(record.text for record in consumer.take(count, PATIENCE))


NUMBERS = sorted(str(number) for number in range(12))


def test_brokers_serve_as_one_and_stop_together_without_java(start: Callable[..., Machine]) -> None:
    machine = start("--brokers", "3", "--metrics", "127.0.0.1:0")
    addresses = machine.servers.split(",")
    assert len(addresses) == 3
    urls = [machine.line().split()[1] for _ in addresses]
    for url in urls:
        with urllib.request.urlopen(url.removesuffix("metrics") + "readyz", timeout=PATIENCE) as page:
            assert page.read() == b"ready\n"
    for address in addresses:  # any of them is enough to find the others
        assert {node.id for node in Admin(address).cluster().nodes} == {1, 2, 3}
    assert len({node.rack for node in Admin(machine.servers).cluster().nodes}) == 1
    Admin(machine.servers).create_topic("orders", partitions=3)
    assert sorted(leaders(addresses[1], "orders").values()) == [1, 2, 3]
    send(addresses[0], "orders", NUMBERS)
    assert texts(addresses[2], "orders", 12) == NUMBERS
    (described,) = Admin(machine.servers).describe_topics(["orders"])
    assert {len(partition.replicas) for partition in described.partitions} == {1}
    pids = machine.pids().values()
    code, err = machine.end()
    assert code == 0, err
    assert not any(map(is_alive, pids))
    assert {line.partition(":")[0] for line in err.splitlines() if "marked as clean" in line} == {
        "broker 1",
        "broker 2",
        "broker 3",
    }


def test_broker_that_dies_starts_again_with_all_that_was_acknowledged(start: Callable[..., Machine]) -> None:
    machine = start("--brokers", "3", "--set", "zookeeper.session.timeout.ms=60000")
    Admin(machine.servers).create_topic("orders", partitions=3)
    send(machine.servers, "orders", NUMBERS)
    for broker in (1, 2):
        before = machine.pids()
        os.kill(before[broker], signal.SIGKILL)
        # Its session is ended with its process: it does not wait for the minute that a session lives.
        wait_for(partial(serves_again, machine, broker, before[broker]))
    assert texts(machine.servers, "orders", 12) == NUMBERS
    code, err = machine.end()
    assert code == 0
    for broker in (1, 2):
        assert f"broker {broker} ended with exit code -9" in err
    assert "it starts again in 0.5 s" in err


def test_supervisor_that_is_killed_takes_its_brokers_and_nothing_that_was_acknowledged(
    start: Callable[..., Machine],
) -> None:
    first = start("--brokers", "2")
    Admin(first.servers).create_topic("orders", partitions=3)
    send(first.servers, "orders", NUMBERS)
    pids = first.pids()
    (store,) = ClusterFolder(first.folder).stores()
    first.end(signal.SIGKILL)
    again = start()  # at once, as a service manager does
    assert not Path(store.removeprefix("unix:")).parent.exists()
    assert ClusterFolder(first.folder).stores() != {store}
    assert not any(map(is_alive, pids.values()))
    assert len(again.servers.split(",")) == 2
    assert texts(again.servers, "orders", 12) == NUMBERS
    assert set(leaders(again.servers, "orders").values()) == {1, 2}


def test_lone_broker_grows_and_goes_back_with_its_records_groups_and_topics(
    start: Callable[..., Machine],
) -> None:
    alone = start("--set", "node.id=1")
    admin = Admin(alone.servers)
    admin.create_topic("broker", partitions=3)  # its partitions' folders have the names of brokers' folders
    send(alone.servers, "broker", NUMBERS)
    with Consumer(alone.servers, "broker", group="readers") as consumer:
        assert len(list(consumer.take(12, PATIENCE))) == 12
        consumer.commit()
    topic_id = admin.describe_topics(["broker"])[0].topic_id
    admin.alter_configs("topic", "broker", set={"retention.ms": "86400000"})
    code, err = alone.end()
    assert code == 0, err

    several = start("--brokers", "2")
    admin = Admin(several.servers)
    assert admin.describe_topics(["broker"])[0].topic_id == topic_id
    assert set(leaders(several.servers, "broker").values()) == {1}
    assert texts(several.servers, "broker", 12) == NUMBERS
    assert admin.group_offsets("readers")
    admin.create_topic("new", partitions=4)
    assert set(leaders(several.servers, "new").values()) == {1, 2}
    send(several.servers, "new", NUMBERS)
    assert several.end()[0] == 0

    more = start("--brokers", "3")
    assert {node.id for node in Admin(more.servers).cluster().nodes} == {1, 2, 3}
    assert texts(more.servers, "new", 12) == NUMBERS
    assert more.end()[0] == 0

    complaint = refused(more.folder, "--brokers", "1")
    found = re.search(r"broker \d holds \d+ partitions: .* `(barnabas .*) \| (barnabas .*) -`", complaint)
    assert found is not None, complaint
    third = start()
    plan = b""
    for words in found.groups():  # as a shell would run both
        command = [*BARNABAS, *words.split()[1:], *(["-"] if plan else []), "-b", third.servers]
        done = subprocess.run(command, input=plan, capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        plan = done.stdout
    assert set(leaders(third.servers, "new").values()) == {1}
    assert third.end()[0] == 0

    last = start("--brokers", "1")
    assert texts(last.servers, "new", 12) == texts(last.servers, "broker", 12) == NUMBERS
    assert {node.id for node in Admin(last.servers).cluster().nodes} == {1}
    settings = {each.name: each.value for each in Admin(last.servers).configs("topic", "broker")}
    assert settings["retention.ms"] == "86400000"
    assert last.end()[0] == 0
    plain = start()
    assert texts(plain.servers, "new", 12) == NUMBERS
    assert plain.end()[0] == 0
    again = start("--brokers", "2")
    assert texts(again.servers, "broker", 12) == NUMBERS


def test_share_group_delivers_each_record_once_while_the_machine_grows_and_shrinks(
    start: Callable[..., Machine],
) -> None:
    done: list[str] = []

    def take(servers: str, count: int) -> None:
        with work(servers, "jobs", group="workers") as jobs:
            done.extend(str(job.value, "ascii") for job in jobs.take(count, PATIENCE))

    def move(servers: str, *brokers: int) -> None:
        plan = [*BARNABAS, "topics", "reassign", "plan", "--brokers", ",".join(map(str, brokers))]
        planned = subprocess.run([*plan, "-b", servers], capture_output=True, timeout=PATIENCE)
        execute = [*BARNABAS, "topics", "reassign", "execute", "--wait", "-", "-b", servers]
        moved = subprocess.run(execute, input=planned.stdout, capture_output=True, timeout=PATIENCE)
        assert moved.returncode == 0, moved.stderr
        for topic in ("jobs", GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC):
            assert set(leaders(servers, topic).values()) <= set(brokers)

    alone = start("--set", "node.id=1", "--set", "share.coordinator.state.topic.num.partitions=2")
    admin = Admin(alone.servers)
    admin.create_topic("jobs", partitions=3)
    admin.alter_configs("group", "workers", set={"share.auto.offset.reset": "earliest"})
    send(alone.servers, "jobs", NUMBERS)
    take(alone.servers, 3)
    assert alone.end()[0] == 0

    several = start("--brokers", "3")
    take(several.servers, 3)
    move(several.servers, 2, 3)
    take(several.servers, 3)
    move(several.servers, 1)
    assert several.end()[0] == 0

    last = start("--brokers", "1")
    take(last.servers, 3)
    assert sorted(done) == sorted(NUMBERS)


def test_several_brokers_move_to_a_zookeeper(
    start: Callable[..., Machine], zookeeper: ZooKeeperServer
) -> None:
    machine = start("--brokers", "2")
    Admin(machine.servers).create_topic("orders", partitions=4)
    send(machine.servers, "orders", NUMBERS)
    assert machine.end()[0] == 0
    address = str(new_chroot(zookeeper.address))
    in_cluster = ["cluster", "start", "--data", str(machine.folder)]

    def refused_cluster(*words: str) -> str:
        done = subprocess.run(
            [*BARNABAS, *in_cluster, *words], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 1
        return done.stderr

    assert "need no ZooKeeper: start them with `barnabas start" in refused_cluster()
    assert "is not in a ZooKeeper yet: move it there" in refused_cluster("--zookeeper", address)
    words = ["cluster", "import", str(machine.folder), "--zookeeper", address]
    done = subprocess.run([*BARNABAS, *words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert f"`barnabas {' '.join(in_cluster)} --zookeeper {address}`" in done.stdout
    assert "was moved to ZooKeeper: start its brokers with `barnabas cluster start" in refused(machine.folder)
    done = subprocess.run([*BARNABAS, *words], capture_output=True, text=True, timeout=PATIENCE)
    assert "before: start its brokers with `barnabas cluster start" in done.stderr
    cluster = subprocess.Popen(
        [*BARNABAS, *in_cluster, "--zookeeper", address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert cluster.stdout is not None
        servers = cluster.stdout.readline().split()[1]
        assert texts(servers, "orders", 12) == NUMBERS
        assert set(leaders(servers, "orders").values()) == {1, 2}
    finally:
        cluster.terminate()
        cluster.communicate(timeout=PATIENCE)
    assert "has a cluster of `barnabas cluster start`" in refused(machine.folder)


def test_folder_of_several_is_not_opened_by_a_lone_broker(start: Callable[..., Machine]) -> None:
    machine = start("--brokers", "2")
    assert "a cluster runs in" in refused(machine.folder, "--brokers", "2")
    assert machine.end()[0] == 0
    config = BrokerConfig.from_text({"log.dirs": str(machine.folder), "listeners": "PLAINTEXT://127.0.0.1:0"})
    with pytest.raises(StoreUnavailableError, match="has the data of several brokers"):
        BrokerServer(config).start()
    assert not exists(OsFileSystem(), f"{machine.folder}/meta.properties")
    alone = refused(machine.folder / "broker-1")
    assert f"start them together, with `barnabas start --data {machine.folder}`" in alone


def test_start_of_several_beside_a_running_lone_broker_changes_nothing(start: Callable[..., Machine]) -> None:
    alone = start()
    assert f"a broker runs in {alone.folder}: stop it first" in refused(
        alone.folder, "--brokers", "2", "--secure"
    )
    assert alone.end()[0] == 0
    start()


def test_broker_that_cannot_be_started_again_is_started_once_it_can(start: Callable[..., Machine]) -> None:
    machine = start("--brokers", "2")
    before = machine.pids()[2]
    file = machine.folder / "broker-2.toml"
    file.unlink()
    file.mkdir()  # it cannot be written, as on a full disk
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: "broker 2 cannot start: " in "".join(machine.err))
    file.rmdir()
    wait_for(partial(serves_again, machine, 2, before))


def test_metadata_that_is_lost_is_refused_and_restored_from_the_brokers(
    start: Callable[..., Machine], tmp_path: Path
) -> None:
    machine = start("--brokers", "2")
    Admin(machine.servers).create_topic("orders", partitions=3)
    send(machine.servers, "orders", NUMBERS)
    backups = [machine.folder / f"broker-{number}" / "barnabas-metadata-backup" for number in (1, 2)]
    wait_for(lambda: all(each.exists() and b"orders" in each.read_bytes() for each in backups))
    assert machine.end()[0] == 0
    for number in (1, 2):
        (machine.folder / f"metadata-{number}.journal").unlink()
    complaint = refused(machine.folder)
    command = re.search("`barnabas (cluster restore .*)`", complaint)
    assert command is not None, complaint
    done = subprocess.run([*BARNABAS, *command[1].split()], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    again = start()
    assert texts(again.servers, "orders", 12) == NUMBERS


def test_only_replica_that_is_damaged_is_repaired_by_the_book(start: Callable[..., Machine]) -> None:
    machine = start("--brokers", "2")
    Admin(machine.servers).create_topic("orders", partitions=3)
    for values in (NUMBERS, [f"later {number}" for number in NUMBERS]):
        send(machine.servers, "orders", values)
    leader = leaders(machine.servers, "orders")[0]
    assert machine.end()[0] == 0
    (log,) = (machine.folder / f"broker-{leader}" / "orders-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)

    def run(*words: str) -> str:
        done = subprocess.run([*BARNABAS, *words], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "are lost" in run("log", "repair", f"{machine.folder}/broker-{leader}")
    again = start()
    wait_for(lambda: leaders(again.servers, "orders")[0] is None)
    run("topics", "elect", "orders:0", "--unclean", "-b", again.servers)
    wait_for(lambda: leaders(again.servers, "orders")[0] == leader)
    kept = run("consume", "orders", "--until-end", "-b", again.servers).split("\n")
    assert set(NUMBERS) <= set(kept) and len(kept) < 25


def test_secured_brokers_log_in_to_each_other_and_serve_their_admin(start: Callable[..., Machine]) -> None:
    machine = start("--brokers", "2", "--secure")
    admin = machine.folder / "secure" / "admin.properties"

    def run(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [*BARNABAS, *words, "--command-config", str(admin)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE)

    assert run("topics", "create", "orders", "--partitions", "4").returncode == 0
    assert run("produce", "orders", stdin="apples\n").returncode == 0
    assert run("consume", "orders", "--until-end").stdout == "apples\n"
    stranger = [*BARNABAS, "topics", "list", "-b", machine.servers]
    assert subprocess.run(stranger, capture_output=True, timeout=PATIENCE).returncode == 1
    assert machine.status()["partitions"] >= 4
    passwords = re.findall(
        'password="([^"]+)"',
        admin.read_text() + (machine.folder / "secure" / "server.properties").read_text(),
    )
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in machine.pids().values()]
    code, said = machine.end()
    assert code == 0
    assert len(passwords) == 2
    assert not [password for password in passwords if password in said + "".join(lines)]
    assert "without it every client could read and change the data" in refused(machine.folder)
    for path in machine.folder.rglob("*"):
        is_secret = path.suffix in (".toml", ".json", ".properties", ".pem")
        if path.is_file() and is_secret and path.name != "meta.properties":
            assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("options", [[], ["--secure"]])
def test_user_with_the_name_of_the_brokers_user_gets_no_rights_by_several_brokers(
    start: Callable[..., Machine], options: list[str]
) -> None:
    alone = start(*options)
    secured = ["--config", str(alone.folder / "secure" / "admin.properties")]

    def users(*words: str) -> None:
        command = [*BARNABAS, "users", *words]
        done = subprocess.run(command, input="wonderland\n", capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr

    login = secured if options else ["--bootstrap-server", alone.servers]
    users("add", "broker", "--password-file", "-", *login)
    assert alone.end()[0] == 0
    complaint = refused(alone.folder, "--brokers", "2", "--secure")
    advice = "start the broker alone, with --secure, run" if options else "start without --secure, run"
    assert f"with another password: {advice} `barnabas users delete broker`" in complaint
    alone = start(*options)  # the start that was refused has secured nothing
    users("delete", "broker", *(secured if options else ["--bootstrap-server", alone.servers]))
    assert alone.end()[0] == 0
    several = start("--brokers", "2", "--secure")
    assert several.end()[0] == 0
    start("--secure")


def test_password_of_the_brokers_user_can_be_changed(start: Callable[..., Machine]) -> None:
    machine = start("--brokers", "2", "--secure")
    secure = machine.folder / "secure"
    words = [*BARNABAS, "users", "add", "broker", "--password-file", "-"]
    login = ["--config", str(secure / "admin.properties")]
    subprocess.run([*words, *login], input=b"wonderland\n", check=True, capture_output=True, timeout=PATIENCE)
    assert machine.end()[0] == 0
    settings = secure / "server.properties"
    advice = f"if you have changed the brokers' password, write it into sasl.jaas.config in {settings}"
    assert advice in refused(machine.folder, "--secure")
    settings.write_text(re.sub('password="[^"]*"', 'password="wonderland"', settings.read_text()))
    again = start("--secure")
    create = [*BARNABAS, "topics", "create", "orders", "--partitions", "2", "--command-config", login[1]]
    assert subprocess.run(create, capture_output=True, timeout=PATIENCE).returncode == 0
    assert again.end()[0] == 0


def test_top_shows_the_brokers_as_one_cluster_whichever_it_asks(start: Callable[..., Machine]) -> None:
    machine = start("--brokers", "2")
    Admin(machine.servers).create_topic("orders", 4)
    for server in machine.servers.split(","):
        words = [*BARNABAS, "top", "--once", "--json", "--bootstrap-server", server]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert [each["address"] for each in found["brokers"]] == machine.servers.split(",")
        assert sum(each["leads"] for each in found["brokers"]) >= 4
        assert [each["partitions"] for each in found["topics"] if each["topic"] == "orders"] == [4]


def test_console_and_registry_know_all_brokers(start: Callable[..., Machine]) -> None:
    options = ("--metrics", "127.0.0.1:0", "--console", "127.0.0.1:0", "--registry", "127.0.0.1:0")
    machine = start("--brokers", "2", *options)
    told: dict[str, list[str]] = {}
    while len(told) < 3:
        word, value = machine.line().split()
        told.setdefault(word, []).append(value)
    assert sorted(told) == ["console", "metrics", "registry"]
    assert len(told["metrics"]) == 2
    with urllib.request.urlopen(f"{told['registry'][0]}/subjects", timeout=PATIENCE) as page:
        assert json.load(page) == []
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    (link,) = told["console"]
    browser.open(link, timeout=PATIENCE).close()
    with browser.open(f"{link.partition('login')[0]}api/clients", timeout=PATIENCE) as answer:
        assert json.load(answer)["pages"] == told["metrics"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--brokers", "0"), "0 is not in the range"),
        (("--brokers", "many"), "is not a valid integer"),
        (("--brokers", "2", "--set", "node.id=7"), "node.id is not allowed with --brokers"),
        (("--brokers", "2", "--set", "zookeeper.connect=zk:2181"), "zookeeper.connect is not allowed with"),
        (("--brokers", "2", "--set", "no.such.setting=1"), "no.such.setting"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: Sequence[str], complaint: str) -> None:
    assert complaint in refused(tmp_path / "d", *options)
    assert not (tmp_path / "d").exists()


def test_several_log_directories_and_an_advertised_address(tmp_path: Path) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    named = ["--set", f"log.dirs={dirs[0]},{dirs[1]}"]
    alone = Machine(dirs[0], *named, data=False)
    Admin(alone.servers).create_topic("first", partitions=4)
    send(alone.servers, "first", NUMBERS)
    assert alone.end()[0] == 0
    assert all(list(folder.glob("first-*")) for folder in dirs)
    words = [*named, "--advertise", "localhost"]
    machine = subprocess.Popen(
        [*BARNABAS, "start", "--brokers", "2", "--listen", "127.0.0.1:0", *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert machine.stdout is not None
        _, bound, _, told = machine.stdout.readline().split()
        assert told == bound.replace("127.0.0.1", "localhost")
        Admin(told).create_topic("orders", partitions=8)
        send(told, "orders", NUMBERS)
        assert texts(told, "orders", 12) == texts(told, "first", 12) == NUMBERS
        for folder in dirs:
            for number in (1, 2):
                assert (folder / f"broker-{number}" / "meta.properties").exists()
                assert list((folder / f"broker-{number}").glob("orders-*"))
    finally:
        machine.terminate()
        machine.communicate(timeout=PATIENCE)
    assert "has the data of 2 brokers: start them with `barnabas start --brokers 2` and" in refused(dirs[1])
    assert not (dirs[1] / "meta.properties").exists()
    reversed_dirs = ["--set", f"log.dirs={dirs[1]},{dirs[0]}"]
    again = Machine(tmp_path / "a", *reversed_dirs, data=False)
    try:
        assert texts(again.servers, "orders", 12) == NUMBERS
    finally:
        again.end()


def test_broker_that_starts_with_empty_disks_leads_no_partition_that_has_no_other_replica(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path / "a", "--brokers", "2")
    try:
        admin = Admin(machine.servers)
        admin.create_topic("single", partitions=4, replication_factor=1)
        admin.create_topic("copied", partitions=4, replication_factor=2)
        for topic in ("single", "copied"):
            with Producer(machine.servers) as producer:
                for number, value in enumerate(NUMBERS):
                    producer.send(topic, value, partition=number % 4)
        lost = {partition for partition, leader in leaders(machine.servers, "single").items() if leader == 2}
        # If both stopped at once, broker 2 could be the last in-sync replica of "copied".
        machine.stop_broker(2)
    finally:
        assert machine.end()[0] == 0
    assert lost

    broker, away = tmp_path / "a" / "broker-2", tmp_path / "away"
    broker.rename(away)
    machine = Machine(tmp_path / "a")
    try:
        assert texts(machine.servers, "copied", 12) == NUMBERS
        led = leaders(machine.servers, "single")
        assert {partition for partition, leader in led.items() if leader is None} == lost
    finally:
        code, told = machine.end()
    assert code == 0
    assert "replicas are incomplete, since all log directories of the broker are new" in told

    shutil.rmtree(broker)
    away.rename(broker)
    machine = Machine(tmp_path / "a")
    try:
        for topic in ("single", "copied"):
            wait_for(lambda topic=topic: None not in leaders(machine.servers, topic).values())
            assert texts(machine.servers, topic, 12) == NUMBERS
    finally:
        assert machine.end()[0] == 0


def test_log_directory_that_is_missing_for_one_start_takes_only_the_leaders_of_its_records(
    tmp_path: Path,
) -> None:
    first, second, away = (tmp_path / name for name in ("a", "b", "away"))
    words = ["--brokers", "2", "--set", f"log.dirs={first},{second}"]
    machine = Machine(first, *words, data=False)
    try:
        admin = Admin(machine.servers)
        admin.create_topic("blank", partitions=8)
        admin.create_topic("full", partitions=8)
        with Producer(machine.servers) as producer:
            for number, value in enumerate(NUMBERS):
                producer.send("full", value, partition=number % 8)
    finally:
        assert machine.end()[0] == 0
    missing = {int(path.name.rpartition("-")[2]) for path in second.glob("broker-*/full-*")}
    assert missing and list(second.glob("broker-*/blank-*"))

    second.rename(away)
    machine = Machine(first, *words, data=False)
    try:
        wait_for(lambda: None not in leaders(machine.servers, "blank").values())
        led = leaders(machine.servers, "full")
        assert {partition for partition, leader in led.items() if leader is None} == missing
    finally:
        assert machine.end()[0] == 0

    shutil.rmtree(second)
    away.rename(second)
    machine = Machine(first)  # cluster.json names the other directory
    try:
        for topic in ("blank", "full"):
            wait_for(lambda topic=topic: None not in leaders(machine.servers, topic).values())
        assert texts(machine.servers, "full", 12) == NUMBERS
    finally:
        assert machine.end()[0] == 0
