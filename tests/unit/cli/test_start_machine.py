"""`barnabas start --brokers`: how many brokers, their ids, their addresses and their settings."""

from __future__ import annotations

import errno
import json
import os
import queue
import signal
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from barnabas.base.errors import ConfigError
from barnabas.cli.cluster import conversion, planning
from barnabas.cli.cluster import folder as folder_module
from barnabas.cli.cluster import run as run_module
from barnabas.cli.cluster.control import ClusterControlError, Command, ask
from barnabas.cli.cluster.folder import ClusterFolder, ClusterFolderError, Control, Layout
from barnabas.cli.cluster.run import ClusterRunner, State
from barnabas.cli.cluster.store import GivenZooKeeper
from barnabas.cli.start import machine
from barnabas.cli.start.machine import Services

SEVERAL = Layout({1: "127.0.0.1:9092", 2: "127.0.0.1:9093"}, is_own_zookeeper=False, is_embedded=True)


@pytest.fixture
def folder(tmp_path):
    return ClusterFolder(tmp_path / "data")


@pytest.fixture
def runner_of(folder, monkeypatch):
    """``runner_of(count, **settings)``: return the runner of this number of brokers, which do not run."""

    def plan(count, *, is_secure=False, **values):
        runners: list[ClusterRunner] = []
        monkeypatch.setattr(machine, "run_cluster", runners.append)
        values = {name.replace("_", "."): value for name, value in values.items()}
        machine.run(folder, count, values, [], Services(), is_secure=is_secure)
        return runners[0]

    return plan


def addresses(runner):
    return runner._layout.addresses


def test_the_number_of_brokers_is_the_one_asked_for_or_that_of_the_last_start(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 4)
    assert [machine.count_of(None, None), machine.count_of(None, SEVERAL)] == [1, 2]
    assert [machine.count_of("3", None), machine.count_of("1", SEVERAL)] == [3, 1]
    assert [machine.count_of("auto", None), machine.count_of("auto", SEVERAL)] == [4, 4]
    monkeypatch.setattr(machine, "cores", lambda: 1)
    assert machine.count_of("auto", SEVERAL) == 2, "brokers with data stay"
    monkeypatch.setattr(machine, "cores", lambda: 96)
    assert machine.count_of("auto", None) == 16


def test_brokers_have_ports_in_a_row_from_that_of_the_first(runner_of):
    runner = runner_of(3, listeners="PLAINTEXT://127.0.0.1:19092")
    assert addresses(runner) == {n: f"127.0.0.1:{19091 + n}" for n in (1, 2, 3)}


def test_brokers_without_a_port_choose_their_own(runner_of):
    runner = runner_of(2, listeners="PLAINTEXT://127.0.0.1:0")
    assert addresses(runner) == {1: "127.0.0.1:0", 2: "127.0.0.1:0"}


def test_a_broker_that_joins_gets_the_next_port_and_the_others_keep_theirs(folder, runner_of):
    folder.path.mkdir()
    folder.store_layout(SEVERAL)
    assert addresses(runner_of(3)) == {**SEVERAL.addresses, 3: "127.0.0.1:9094"}
    moved = runner_of(3, listeners="PLAINTEXT://127.0.0.1:5000")
    assert addresses(moved) == {1: "127.0.0.1:5000", 2: "127.0.0.1:5001", 3: "127.0.0.1:5002"}


@pytest.mark.parametrize(("lone", "ids"), [(2, [1, 2, 3]), (0, [0, 1, 2]), (1001, [1, 2, 1001])])
def test_a_lone_broker_keeps_its_id_among_the_new_ones(folder, runner_of, lone, ids):
    folder.path.mkdir()
    (folder.path / "meta.properties").write_text(f"node.id={lone}\n")
    assert sorted(addresses(runner_of(3))) == ids


@pytest.mark.parametrize("lone", [0, 1001])
def test_metrics_have_ports_in_a_row_whatever_the_ids_are(folder, runner_of, lone):
    folder.path.mkdir()
    (folder.path / "meta.properties").write_text(f"node.id={lone}\n")
    runner = runner_of(2, barnabas_metrics_listener="127.0.0.1:9404")
    runner._store = GivenZooKeeper("zk:2181")
    listeners = [
        runner._settings_of(member)["barnabas.metrics.listener"] for member in runner._members.values()
    ]
    assert listeners == ["127.0.0.1:9404", "127.0.0.1:9405"]


def test_brokers_that_moved_to_a_zookeeper_keep_their_ids(folder):
    folder.path.mkdir()
    folder.store_layout(
        Layout({0: "127.0.0.1:1", 5: "127.0.0.1:2"}, zookeeper="zk:1", is_own_zookeeper=False)
    )
    layout = planning.plan(folder, 3, "127.0.0.1", None, None, ["a", "b", "c"])
    assert layout.addresses == {0: "127.0.0.1:1", 1: "127.0.0.1:9093", 5: "127.0.0.1:2"}
    assert layout.racks == {0: "a", 1: "b", 5: "c"}
    assert sorted(planning.plan(folder, None, "127.0.0.1", None, None, ()).addresses) == [0, 5]


def test_a_broker_that_joins_those_of_a_zookeeper_gets_a_port_that_none_of_them_has(folder):
    folder.path.mkdir()
    there = {1: "127.0.0.1:9092", 2: "127.0.0.1:9093", 5: "127.0.0.1:9094"}
    folder.store_layout(Layout(there, zookeeper="zk:1", is_own_zookeeper=False))
    layout = planning.plan(folder, 5, "127.0.0.1", None, None, ())
    assert layout.addresses == {**there, 3: "127.0.0.1:9095", 4: "127.0.0.1:9096"}


def test_brokers_that_moved_to_a_zookeeper_keep_all_their_log_directories(tmp_path, monkeypatch):
    folder = ClusterFolder(tmp_path / "a", tmp_path / "b")
    folder.path.mkdir()
    runners: list[ClusterRunner] = []
    monkeypatch.setattr(machine, "run_cluster", runners.append)
    machine.run(folder, 2, {}, [], Services(), is_secure=False)
    folder.store_layout(runners[0]._layout)
    layout = planning.plan(ClusterFolder(folder.path), None, "127.0.0.1", None, "zk:2181/c", ())
    assert layout.more_log_dirs == [str(tmp_path / "b")]


def test_a_broker_that_cannot_start_again_is_tried_later_and_the_others_serve(runner_of, monkeypatch, capsys):
    runner = runner_of(2)
    member = runner._members[2]
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(folder_module, "write_private", Mock(side_effect=full))
    runner._store = GivenZooKeeper("zk:2181")
    command = Command("restart", 2)
    runner._restart(member, command)
    said = capsys.readouterr().err
    assert "broker-2.toml cannot be written: No space left on device: free some space" in said
    assert "it starts again in 0.5 s" in said
    assert member.retry_at is not None and member.state is State.ENDED
    assert "broker-2.toml cannot be written" in command.answers.get()["error"]


def test_a_command_learns_where_the_reason_is_that_a_broker_did_not_start(runner_of):
    runner = runner_of(2)
    member = runner._members[2]
    runner._store = GivenZooKeeper("zk:2181")
    command = Command("restart", 2)
    member.at_ready.append(command)
    runner._on_ended(member, 1)
    said = f"broker 2 did not start: the output of process {os.getpid()} has the reason"
    assert command.answers.get() == {"error": said}


def test_a_command_for_a_folder_whose_brokers_do_not_run_names_the_command_that_starts_them(folder):
    for layout, words in ((None, "cluster start"), (SEVERAL, "start"), (Layout(), "cluster start")):
        if layout is not None:
            folder.store_layout(layout)
        with pytest.raises(ClusterControlError, match=f"start it with `barnabas {words} --data"):
            ask(folder, "status", timeout=1)


def test_a_control_file_of_a_later_version_is_read_and_a_damaged_one_is_named(folder):
    folder.store_control(Control(1234, "s", 5))
    file = folder.path / "control.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "later": True}))
    assert folder.control() == Control(1234, "s", 5)
    file.write_text("{}")
    with pytest.raises(ClusterFolderError, match="is damaged: remove it"):
        folder.control()


def test_the_pause_before_a_restart_doubles_if_a_broker_that_served_for_long_ends_at_each_start(runner_of):
    runner = runner_of(2)
    member = runner._members[2]
    member.ready_at = time.monotonic() - 1000
    said = [runner._after(member) for _ in range(8)]
    assert said == [f"it starts again in {pause} s" for pause in ("0.5", 1, 2, 4, 8, 16, 30, 30)]


def test_a_start_waits_for_brokers_that_recover_their_logs_for_long(runner_of, monkeypatch):
    runner = runner_of(2)
    monkeypatch.setattr(run_module, "_NOTICE_EVERY", 0)
    said = []

    def say(words):
        said.append(words)
        if len(said) == 3:
            for member in runner._members.values():
                runner._events.put(("ready", member, ("127.0.0.1:1", "127.0.0.1:1")))

    monkeypatch.setattr(runner, "_say", say)
    assert runner._await_all()
    assert said == ["broker 1 is not ready yet, it may still recover its logs: its lines are above"] * 3


def test_a_signal_that_arrives_just_before_a_wait_ends_it(runner_of, monkeypatch):
    """Python runs the handler only when the wait has ended."""

    class Events(queue.SimpleQueue):
        def get(self, block=True, timeout=None):
            assert timeout is not None and timeout <= 1
            runner.on_signal(signal.SIGTERM, None)
            return super().get(block, timeout)

    runner = runner_of(2)
    monkeypatch.setattr(runner, "_events", Events())
    assert not runner._await_all()
    runner._serve()
    assert runner._signals == 2


def test_settings_that_contradict_secure_leave_no_file_that_forbids_a_start_without_it(folder, runner_of):
    with pytest.raises(ConfigError, match=r"sets ssl\.keystore\.location itself"):
        runner_of(2, is_secure=True, listeners="SASL_SSL://127.0.0.1:0", ssl_keystore_location="/x")
    assert not folder.secure.exists()


def test_a_broker_that_leaves_must_be_drained_and_leaves_its_folder(folder, runner_of, monkeypatch):
    asked = []
    monkeypatch.setattr(conversion, "require_drained", lambda _, gone, kept: asked.append((gone, kept)))
    folder.data_of(2).mkdir(parents=True)
    folder.store_layout(SEVERAL)
    assert sorted(addresses(runner_of(1))) == [1]
    assert asked == [([2], [1])]
    assert [path.name for path in folder.path.glob("broker-*")] == ["broker-2.old"]


def test_several_become_one_that_keeps_the_smallest_id(folder, monkeypatch):
    monkeypatch.setattr(conversion, "require_drained", lambda *_: None)
    for broker in SEVERAL.addresses:
        folder.data_of(broker).mkdir(parents=True)
        (folder.data_of(broker) / "meta.properties").write_text(f"node.id={broker}\n")
    folder.store_layout(SEVERAL)
    assert machine.make_lone(folder, SEVERAL) == 1
    assert conversion.lone_broker_of(folder, 9) == 1
    assert machine.brokers_of(folder) is None


def test_a_folder_of_another_command_is_refused(folder):
    folder.path.mkdir()
    folder.store_layout(Layout({1: "127.0.0.1:9092"}))
    with pytest.raises(ClusterFolderError, match="a cluster of `barnabas cluster start`"):
        machine.brokers_of(folder)


@pytest.mark.parametrize(
    ("asked", "count", "replicas"), [(None, 3, "1"), ("3", 3, "3"), ("3", 2, "2"), ("many", 3, "1")]
)
def test_internal_topics_have_as_many_replicas_as_records_and_no_more_than_brokers(asked, count, replicas):
    values = {} if asked is None else {"default.replication.factor": asked}
    settings = machine._settings(values, count)
    assert settings["offsets.topic.replication.factor"] == replicas


def test_settings_of_the_user_are_for_all_brokers_but_those_of_each(tmp_path):
    values = {"num.partitions": "5", "broker.rack": "r1", "listeners": "PLAINTEXT://:1", "log.dirs": "/x"}
    settings = machine._settings(values, 2)
    assert (settings["num.partitions"], settings["broker.rack"]) == ("5", "r1")
    assert settings.keys().isdisjoint({"listeners", "log.dirs"})
    assert "zookeeper.session.timeout.ms" in machine._settings({"zookeeper.session.timeout.ms": "9000"}, 2)


@pytest.mark.parametrize("name", ["node.id", "metadata.store", "zookeeper.connect"])
def test_what_the_command_gives_each_broker_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} is not allowed with --brokers"):
        machine._settings({name: "1"}, 2)


def test_several_addresses_are_refused_since_each_broker_has_one(runner_of):
    listeners = "A://127.0.0.1:1,B://127.0.0.1:2"
    mapped = "A:PLAINTEXT,B:PLAINTEXT"
    with pytest.raises(ConfigError, match="with --brokers each broker has one"):
        runner_of(2, listeners=listeners, **{"listener.security.protocol.map": mapped})


def test_a_system_without_unix_sockets_is_told_the_other_command(runner_of, monkeypatch):
    monkeypatch.setattr(machine, "has_local_sockets", lambda: False)
    with pytest.raises(ConfigError, match="use `barnabas cluster start`"):
        runner_of(2)


def test_the_log_directories_of_the_settings_are_the_folder():
    folder = machine.log_dirs_of({"log.dirs": "/a,/b"}, are_named=True)
    assert folder.log_dirs == (Path("/a"), Path("/b"))


def test_the_folder_of_several_brokers_has_all_their_log_directories(tmp_path, monkeypatch):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    ClusterFolder(first).store_layout(replace(SEVERAL, more_log_dirs=[str(second)]))
    runners: list[ClusterRunner] = []
    monkeypatch.setattr(machine, "run_cluster", runners.append)
    by_data = machine.log_dirs_of({"log.dirs": str(first)}, are_named=False)
    assert by_data.log_dirs == (first, second)
    machine.run(by_data, 2, {}, [], Services(), is_secure=False)
    assert runners[0]._layout.more_log_dirs == [str(second)]
    by_setting = machine.log_dirs_of({"log.dirs": str(first)}, are_named=True)
    assert by_setting.log_dirs == (first,), "the user retires a directory"


def test_the_way_to_a_zookeeper_names_all_log_directories(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    folder = ClusterFolder(first)
    folder.store_layout(replace(SEVERAL, more_log_dirs=[str(second)]))
    with pytest.raises(ClusterFolderError) as refused:
        planning.plan(folder, None, "127.0.0.1", None, None, ())
    assert f"`barnabas start --data {first}`" in str(refused.value)
    assert f"`barnabas cluster import {first} {second} --zookeeper " in str(refused.value)
    (first / "metadata-1.journal").touch()
    with pytest.raises(ClusterFolderError, match="is not in a ZooKeeper yet") as refused:
        planning.plan(folder, None, "127.0.0.1", None, "zk:2181", ())
    assert f"`barnabas cluster import {first} {second} --zookeeper zk:2181`" in str(refused.value)


def test_files_of_a_lone_broker_move_only_once_no_broker_uses_them(folder, runner_of):
    folder.path.mkdir()
    (folder.path / "meta.properties").write_text("node.id=1\n")
    runner = runner_of(2)
    assert (folder.path / "meta.properties").exists()
    runner._prepare()
    assert machine.brokers_of(folder) == runner._layout, "no lone broker starts there any more"
    assert (folder.data_of(1) / "meta.properties").exists()
