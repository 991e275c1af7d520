"""`barnabas cluster` as processes, as a user at a terminal runs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl
from tests.ports import held_port

from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.cli.cluster.folder import ClusterFolder, Layout
from barnabas.client import Admin, Consumer, Producer

BARNABAS = [sys.executable, "-m", "barnabas.cli"]
BROKERS = 3
LINUX = sys.platform == "linux"


class Started:
    """A `barnabas cluster start` that has printed its ready line."""

    def __init__(self, folder: Path, *arguments: str, brokers: int = BROKERS) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [
                *(*BARNABAS, "cluster", "start", "--data", str(folder), "--listen", "127.0.0.1:0"),
                *("--brokers", str(brokers), "--set", "offsets.topic.num.partitions=4"),
                *("--set", "zookeeper.session.timeout.ms=8000", *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().split()
        self.servers = ready[1] if ready else ""

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*BARNABAS, "cluster", *words, "--data", str(self.folder)],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def say(self, *words: str) -> str:
        done = self.call(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.say("status", "--json"))
        return found

    def settled(self) -> dict[str, Any]:
        """Wait until every replica is in sync, and return the cluster's status."""
        deadline = time.monotonic() + 60
        while (found := self.status())["under_replicated"]:
            assert time.monotonic() < deadline, found["under_replicated"]
        return found

    def states(self) -> list[str]:
        return [broker["state"] for broker in self.status()["brokers"]]

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=90)
        return self.process.returncode, err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def run(*arguments: str, brokers: int = BROKERS) -> Started:
        started.append(Started(tmp_path / "cluster", *arguments, brokers=brokers))
        return started[-1]

    yield run
    for cluster in started:
        if cluster.process.poll() is None:
            cluster.end(signal.SIGTERM)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def refused(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [*BARNABAS, "cluster", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_a_cluster_starts_serves_and_leaves_nothing_behind_after_ctrl_c(start):
    cluster = start("--metrics", "127.0.0.1:0")
    Admin(cluster.servers).create_topic("orders")
    with Producer(cluster.servers) as producer:
        producer.send("orders", "one")
    found = cluster.settled()
    pids = [broker["process"] for broker in found["brokers"]] + [found["zookeeper_process"]]
    assert found["zookeeper_answers"]
    assert found["controller"] in [broker["id"] for broker in found["brokers"]]
    assert found["partitions"] >= 1
    for broker in found["brokers"]:
        with urllib.request.urlopen(
            broker["metrics"].removesuffix("metrics") + "readyz", timeout=60
        ) as answer:
            assert answer.read() == b"ready\n"
    code, err = cluster.end()
    assert code == 0
    assert "SIGINT: stopping" in err
    assert not any(map(is_alive, pids))
    assert "no cluster runs in" in cluster.call("status").stderr


def test_the_console_of_a_cluster_reads_the_metrics_of_its_brokers(start):
    cluster = start("--metrics", "127.0.0.1:0", "--console", "127.0.0.1:0")
    word, link = cluster.process.stdout.readline().split()
    assert word == "console"
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    browser.open(link, timeout=60).close()
    with browser.open(f"{link.partition('login')[0]}api/clients", timeout=60) as answer:
        told = json.load(answer)
    pages = [broker["metrics"] for broker in cluster.status()["brokers"]]
    assert told["pages"] == pages and len(pages) == BROKERS
    assert not [problem for problem in told["problems"] if "404" in problem]


def test_a_cluster_continues_where_it_was(start):
    first = start(brokers=2)
    Admin(first.servers).create_topic("orders")
    with Producer(first.servers) as producer:
        producer.send("orders", "one")
    assert first.say("stop") == "The cluster stops\n"
    first.process.communicate(timeout=90)
    second = start(brokers=2)
    with Consumer(second.servers, "orders") as consumer:
        assert [record.text for record in consumer.take(1, 60)] == ["one"]


def test_a_broker_is_killed_paused_stopped_and_restarted_by_name(start):
    cluster = start(brokers=2)
    assert cluster.say("pause", "1") == "Paused broker 1\n"
    assert cluster.states()[0] == "paused"
    assert "PARTITIONS" not in cluster.say("status")
    assert cluster.say("resume", "1") == "Broker 1 goes on\n"
    assert cluster.say("kill", "1") == "Killed broker 1\n"
    assert cluster.states()[0] == "killed"
    assert (
        "broker 1 does not run (killed): start it with `barnabas cluster restart 1"
        in cluster.call("pause", "1").stderr
    )
    assert cluster.say("restart", "1") == "Broker 1 serves again\n"
    assert cluster.say("stop", "1") == "Stopped broker 1\n"
    assert cluster.states()[0] == "stopped"
    assert cluster.say("restart", "1") == "Broker 1 serves again\n"
    assert "there is no broker 9 in this cluster: choose from 1" in cluster.call("kill", "9").stderr


def test_a_partitions_replicas_are_spread_over_the_racks_that_are_named(
    start: Callable[..., Started],
) -> None:
    cluster = start("--racks", "east,east,west")
    assert [broker["rack"] for broker in cluster.status()["brokers"]] == ["east", "east", "west"]
    admin = Admin(cluster.servers)
    admin.create_topic("orders", partitions=6, replication_factor=2)
    (described,) = admin.describe_topics(["orders"])
    assert all(3 in partition.replicas for partition in described.partitions)
    again = cluster.say("restart", "3")
    assert again == "Broker 3 serves again\n"
    assert cluster.status()["brokers"][2]["rack"] == "west"


def test_a_broker_that_ends_by_itself_is_reported_and_can_be_restarted(start):
    cluster = start(brokers=1)
    os.kill(cluster.status()["brokers"][0]["process"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while cluster.states()[0] != "ended":
        assert time.monotonic() < deadline
    assert cluster.say("restart", "1") == "Broker 1 serves again\n"
    _, err = cluster.end()
    assert "broker 1 ended with exit code -9" in err


def test_a_second_cluster_in_the_same_folder_is_refused(start):
    cluster = start(brokers=1)
    assert f"a cluster runs in {cluster.folder} (process {cluster.process.pid})" in refused(
        "start", "--data", str(cluster.folder)
    )


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot suspend a process")
def test_a_cluster_whose_start_is_suspended_keeps_its_folder(start):
    cluster = start(brokers=1)
    cluster.process.send_signal(signal.SIGSTOP)  # as Ctrl-Z does
    try:
        line = refused("start", "--data", str(cluster.folder), "--listen", "127.0.0.1:0")
    finally:
        cluster.process.send_signal(signal.SIGCONT)
    assert f"a cluster runs in {cluster.folder} (process {cluster.process.pid})" in line
    assert cluster.states() == ["running"]


def test_a_start_in_the_folder_of_another_that_is_under_way_is_refused(tmp_path):
    folder = ClusterFolder(tmp_path / "c")
    with folder.held():
        line = refused("start", "--data", str(folder.path), "--listen", "127.0.0.1:0")
    assert f"a cluster runs in {folder.path}: " in line
    assert not folder.path.exists()


def test_without_java_one_line_names_the_cure(tmp_path):
    line = refused("start", "--data", str(tmp_path / "c"), JAVA_HOME=str(tmp_path))
    assert "needs Java" in line
    assert "--zookeeper HOST:PORT" in line


def test_a_broker_that_does_not_start_ends_the_start_with_its_last_words(tmp_path):
    (tmp_path / "c" / "broker-1").mkdir(parents=True)
    (tmp_path / "c" / "broker-1" / "meta.properties").write_text("cluster.id=other\nnode.id=1\nversion=1\n")
    line = refused("start", "--data", str(tmp_path / "c"), "--brokers", "1", "--listen", "127.0.0.1:0")
    assert "broker 1 did not start: " in line
    assert "its log is" in line


def test_options_that_do_not_fit_are_refused_in_one_line(tmp_path):
    data = ["--data", str(tmp_path / "c")]
    assert "name one for each of 3 brokers" in refused("start", *data, "--racks", "a,b")
    assert "no.such.setting" in refused("start", *data, "--set", "no.such.setting=1")
    assert "HOST:PORT" in refused("start", *data, "--listen", "nowhere")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "cluster.json").write_text(
        '{"addresses": {"1": "127.0.0.1:1", "2": "127.0.0.1:2"}, "racks": {}, "zookeeper": "zk:2181", '
        '"is_own_zookeeper": false}'
    )
    assert "has 2 brokers: start it with --brokers 2" in refused("start", *data, "--brokers", "1")
    assert "has its metadata in the ZooKeeper at zk:2181" in refused("start", *data, "--zookeeper", "zz:2181")


def _harm_by_strangers(zookeeper: str) -> list[str]:
    """Return the changes that a client without a login can make in the cluster's ZooKeeper."""
    server, _, chroot = zookeeper.partition("/")
    base = f"/{chroot}".rstrip("/")
    client = KazooClient(server, timeout=60)
    client.start(60)
    done = []
    try:
        for name in ("controller_epoch", "controller", "brokers/ids/1", "brokers/topics/orders"):
            if client.exists(f"{base}/{name}"):
                with contextlib.suppress(NoAuthError):
                    client.delete(f"{base}/{name}", recursive=True)
                    done.append(f"delete {name}")
        for path in {"/", base or "/", f"{base}/controller_epoch"}:
            with contextlib.suppress(NoAuthError):
                client.set_acls(path, [make_digest_acl("mallory", "secret", all=True)])
                done.append(f"take {path}")
    finally:
        client.stop()
        client.close()
    return done


@pytest.mark.parametrize("chroot", ["/barnabas", ""], ids=["new", "that was open before"])
def test_nobody_without_a_login_stops_or_bricks_a_secured_cluster(tmp_path: Path, chroot: str) -> None:
    folder = tmp_path / "cluster"
    if not chroot:  # its nodes were directly below /
        with held_port() as held:
            port = held.getsockname()[1]
        ClusterFolder(folder).store_layout(Layout({1: "127.0.0.1:0"}, zookeeper=f"127.0.0.1:{port}"))
    for _ in range(2):
        cluster = Started(folder, "--secure", brokers=1)
        try:
            admin = [*BARNABAS, "topics", "create", "--if-not-exists", "orders", "--command-config"]
            admin.append(str(folder / "secure" / "admin.properties"))
            assert subprocess.run(admin, capture_output=True, timeout=60).returncode == 0
            zookeeper = cluster.status()["zookeeper"]
            assert zookeeper.endswith(chroot) and ("/" in zookeeper) == bool(chroot)
            assert _harm_by_strangers(zookeeper) == []
        finally:
            code, said = cluster.end()
        assert code == 0, said


def test_a_secured_cluster_does_not_share_the_root_of_an_open_zookeeper(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", fsync=False).start(240) as server:
        start = ["start", "--secure", "--brokers", "1", "--listen", "127.0.0.1:0", "--data"]
        complaint = refused(*start, str(tmp_path / "a"), "--zookeeper", server.address)
        assert "anybody may change /" in complaint
        address = complaint.rpartition("--zookeeper ")[2].strip()
        cluster = Started(tmp_path / "a", "--secure", "--zookeeper", address, brokers=1)
        try:
            assert cluster.status()["zookeeper"] == address
            assert _harm_by_strangers(address) == ["take /"]  # which is not the cluster's
        finally:
            code, said = cluster.end()
        assert code == 0, said
        again = Started(tmp_path / "a", "--secure", brokers=1)
        try:
            assert again.servers
        finally:
            code, said = again.end()
        assert code == 0, said


def test_a_start_with_secure_that_is_refused_for_a_user_closes_nothing(start: Callable[..., Started]) -> None:
    open_cluster = start(brokers=1)
    users = [*BARNABAS, "users", "add", "broker", "--password-file", "-"]
    login = ["--bootstrap-server", open_cluster.servers]
    subprocess.run([*users, *login], input=b"wonderland\n", check=True, capture_output=True, timeout=60)
    assert open_cluster.end()[0] == 0
    refused_one = start("--secure", brokers=1)
    code, said = refused_one.end()
    assert (code, refused_one.servers) == (1, "")
    assert "start without --secure, run `barnabas users delete broker`" in said
    open_cluster = start(brokers=1)
    delete = [*BARNABAS, "users", "delete", "broker", "--bootstrap-server", open_cluster.servers]
    subprocess.run(delete, check=True, capture_output=True, timeout=60)
    assert open_cluster.end()[0] == 0
    secured = start("--secure", brokers=1)
    code, said = secured.end()
    assert (code, bool(secured.servers)) == (0, True), said


def test_a_secured_cluster_serves_its_admin_and_shows_no_secret(start: Callable[..., Started]) -> None:
    cluster = start("--secure", brokers=2)
    secure = cluster.folder / "secure"
    admin = secure / "admin.properties"

    def run(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [*BARNABAS, *words, "--command-config", str(admin)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)

    assert run("topics", "create", "orders", "--replication-factor", "2").returncode == 0
    assert run("produce", "orders", stdin="apples\n").returncode == 0
    assert run("consume", "orders", "--until-end").stdout == "apples\n"
    status = cluster.settled()
    assert status["partitions"]
    stranger = subprocess.run(
        [*BARNABAS, "topics", "list", "-b", cluster.servers], capture_output=True, text=True, timeout=60
    )
    assert stranger.returncode == 1
    passwords = re.findall(
        'password="([^"]+)"', admin.read_text() + (secure / "server.properties").read_text()
    )
    logs = "".join(path.read_text() for path in cluster.folder.glob("*.log"))
    arguments = [
        Path(f"/proc/{broker['process']}/cmdline").read_text() for broker in status["brokers"] if LINUX
    ]
    code, said = cluster.end()
    assert code == 0
    assert len(passwords) == 2
    for password in passwords:
        assert password not in logs + said + "".join(arguments)
    assert "without it every client could read and change the data" in refused(
        "start", "--data", str(cluster.folder)
    )
    assert (cluster.folder / "zookeeper").stat().st_mode & 0o077 == 0
    for broker in (1, 2):
        audited = [json.loads(line) for line in (secure / f"audit-{broker}.log").read_text().splitlines()]
        assert "login" in {entry["event"] for entry in audited}
        assert {entry["broker"] for entry in audited} == {broker}
    entries = (secure / "audit-1.log").read_text() + (secure / "audit-2.log").read_text()
    assert '"CreateTopics"' in entries and '"User:admin"' in entries
    _is_for_its_user_alone(cluster.folder)


def _is_for_its_user_alone(folder: Path) -> None:
    """Check that only the user can read logs, settings and certificates. ZooKeeper's files are in a folder of
    the user.
    """
    for path in folder.rglob("*"):
        if path.is_file() and (folder / "zookeeper") not in path.parents:
            assert path.stat().st_mode & 0o077 == 0, path


SECRETS = {"delegation.token.secret.key": 'wizard \\ of "oz" ü', "zookeeper.digest": "tin:man = oil can"}


def test_secrets_of_a_file_reach_the_brokers_and_no_command_line(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in SECRETS.items()))
    with file.open("a") as more:
        more.write('"log.retention.hours" = 24\n"num.partitions" = 5\n')
        more.write(f'"barnabas.audit.file" = {json.dumps(str(tmp_path / "audit.log"))}\n')
    was = os.umask(0o022)
    try:
        cluster = start("--config", str(file), "--set", "num.partitions=2", brokers=2)
    finally:
        os.umask(was)
    admin = Admin(cluster.servers)
    found = {config.name: config.value for config in admin.configs("broker", "1")}
    assert (found["log.retention.hours"], found["num.partitions"]) == ("24", "2")
    status = cluster.status()
    lines = [
        Path(f"/proc/{pid}/cmdline").read_text()
        for pid in (cluster.process.pid, *(broker["process"] for broker in status["brokers"]))
        if LINUX
    ]
    logs = "".join(path.read_text() for path in cluster.folder.glob("*.log"))
    assert cluster.say("restart", "1") == "Broker 1 serves again\n"
    code, said = cluster.end()
    assert code == 0
    for value in SECRETS.values():
        assert value not in "".join(lines) + logs + said
    for broker in (1, 2):
        assert (
            tomllib.loads((cluster.folder / f"broker-{broker}.toml").read_text())[
                "delegation.token.secret.key"
            ]
            == SECRETS["delegation.token.secret.key"]
        )
        assert (tmp_path / f"audit-{broker}.log").exists()
    _is_for_its_user_alone(cluster.folder)


@pytest.mark.parametrize("how", ["--config", "--set"])
@pytest.mark.parametrize(
    "name", ["broker.id", "node.id", "log.dir", "log.dirs", "listeners", "broker.rack", "zookeeper.connect"]
)
def test_what_each_broker_has_of_its_own_is_no_setting_of_the_cluster(
    tmp_path: Path, how: str, name: str
) -> None:
    value = "1" if name.endswith(".id") else "PLAINTEXT://127.0.0.1:0" if name == "listeners" else "x:1"
    file = tmp_path / "cluster.properties"
    file.write_text(f"{name}={value}\n")
    line = refused(
        "start", "--data", str(tmp_path / "c"), how, str(file) if how == "--config" else f"{name}={value}"
    )
    assert "gives each broker its own" in line
    assert not (tmp_path / "c").exists()
