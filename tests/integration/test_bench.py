"""The benchmark's own load generator: it counts stored records, and fails if the broker rejects some."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from bench import machine, workloads
from bench.peers import tree_cpu_seconds
from bench.queues import Drain, InFlight, Library, Paced
from bench.report import Results, targets
from bench.workloads import DriverFailed, EndToEnd, Requests, Sample, Synchronous, Target, warm_up

linux = pytest.mark.skipif(sys.platform != "linux", reason="CPU time is read from /proc")


def target_of(broker) -> Target:
    peer = SimpleNamespace(
        bootstrap=broker.bootstrap_servers, usage=lambda: SimpleNamespace(cpu_seconds=0.0, rss=0)
    )
    return Target(peer)


@pytest.mark.parametrize(
    "workload",
    [
        Requests(7, 3, 2, 3, 10, 0.2),
        Requests(1, 1, 4, 5, 4, 0.2),
        Synchronous(0.1),
        EndToEnd(0.2, 50),
    ],
    ids=lambda each: each.name,
)
def test_a_workload_measures_a_broker(barnabas_broker, workload):
    figures = {sample.unit: sample.value for sample in workload.run(target_of(barnabas_broker))}
    assert figures["p50 ms"] > 0
    assert {unit for unit in figures if unit.startswith("broker CPU µs/")}


@pytest.mark.parametrize(
    ("workload", "rate"),
    [
        (Drain(4, 3, 1_000), "records/s"),
        (InFlight(2, 3, 50), "accepted/s"),
        (Library(3, 500), "records/s"),
        (Paced(3, 50, 0.2), "p50 ms"),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_a_share_group_accepts_each_record_once(barnabas_broker, workload, rate):
    figures = {sample.unit: sample.value for sample in workload.run(target_of(barnabas_broker))}
    assert figures[rate] > 0


def test_a_share_group_that_accepts_other_records_than_a_run_wrote_fails_it(barnabas_broker):
    topic = barnabas_broker.create_topic(f"bench-{os.urandom(4).hex()}", 1)
    for number in range(3):
        barnabas_broker.produce(topic, str(number))
    with pytest.raises(DriverFailed, match="3 records were accepted, and there are 2"):
        target_of(barnabas_broker).drive("share_drain", topic=topic, members=1, records=2)


def test_of_several_brokers_each_gets_requests_for_the_partitions_that_it_leads(barnabas_cluster):
    cluster = barnabas_cluster(brokers=2)
    workload = Requests(2, 1, 4, 2, 4, 0.2)
    figures = {sample.unit: sample.value for sample in workload.run(target_of(cluster))}
    assert figures["requests/s"] > 0
    with pytest.raises(DriverFailed, match="leads 2 partitions, of 3 that a request has"):
        list(Requests(3, 1, 4, 2, 4, 0.2).run(target_of(cluster)))


def test_a_table_of_brokers_on_one_machine_has_the_ratios_to_one_broker():
    results = Results(["1 broker", "2 brokers"])
    for name, value in (("1 broker", 20_000.0), ("2 brokers", 30_000.0)):
        results.add(name, 0, Sample("requests of 1 record", "requests/s", value))
    results.add("2 brokers", 0, Sample("memory", "MB", 70.123))
    assert [*machine.table(results)][2:] == [
        "| requests of 1 record | requests/s | 20,000 | 30,000 (1.50) |",
        "| memory | MB |  | 70.12 |",
    ]


@pytest.mark.parametrize("is_refused", [True, False])
def test_refused_and_missing_records_fail_a_run(barnabas_broker, is_refused):
    configs = {"max.message.bytes": "50"} if is_refused else None
    topic = barnabas_broker.create_topic(f"bench-{os.urandom(4).hex()}", configs=configs)
    if not is_refused:
        barnabas_broker.produce(topic, "not of this run")
    load = {"connections": 1, "in_flight": 2, "records": 1, "seconds": 0.1}
    load |= {"partitions": 1, "topic_partitions": 1}
    with pytest.raises(DriverFailed) as failed:
        target_of(barnabas_broker).drive("pipelined", topic=topic, **load)
    if is_refused:
        assert "partition 0 refused records: error 10" in str(failed.value)
    else:
        acknowledged, contained = map(int, re.findall(r"\d+", str(failed.value)))
        assert contained == acknowledged + 1


@linux
def test_the_cpu_time_of_children_counts_while_they_run_and_after():
    spin = "import time\nwhile time.process_time() < 0.4: pass"  # the kernel counts in ticks of 10 ms
    run = f"subprocess.run([sys.executable, '-c', {spin!r}]); print(flush=True); input()"
    command = [sys.executable, "-c", f"import subprocess, sys; {run}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        assert tree_cpu_seconds(parent.pid) >= 0.3
        parent.communicate(b"\n")


def test_warming_up_takes_both_the_records_and_the_seconds(monkeypatch):
    clock, done = [0.0], []

    def run(workload, target):
        clock[0] += 10
        done.append(workload)
        yield from ()

    monkeypatch.setattr(workloads, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    for kind in ("Bulk", "Synchronous", "EndToEnd", "SmallTransactions", "Requests"):
        monkeypatch.setattr(getattr(workloads, kind), "run", run)
    warm_up(None, print)
    assert sum(getattr(each, "records", 0) for each in done if hasattr(each, "codec")) >= 500_000
    monkeypatch.setattr(workloads, "WARM_SECONDS", 1_000.0)
    clock[0] = 0.0
    warm_up(None, print)
    assert clock[0] >= 1_000


def test_a_broker_that_can_do_nothing_is_not_warmed_for_ever(monkeypatch):
    def run(workload, target):
        raise workloads.DriverFailed("no")

    monkeypatch.setattr(workloads.Bulk, "run", run)
    said = []
    warm_up(Target(SimpleNamespace(name="tansu")), said.append)
    assert said[0].startswith("tansu is not warmed by 100 B, none, 1p: no")


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([1.1, 0.9, 1.2], "met"),
        ([0.97, 0.9, 1.2], "equal"),
        ([0.41, 0.64, 1.78], "MISSED"),
        ([0.97, 0.9], "MISSED"),
    ],
)
def test_a_median_far_below_is_not_called_equal(ours, verdict):
    results = Results(["barnabas", "kafka"])
    for number, value in enumerate(ours):
        results.add("barnabas", number, Sample("produce 100 B, none, 1p", "records/s", value))
        results.add("kafka", number, Sample("produce 100 B, none, 1p", "records/s", 1.0))
    (line,) = targets(results)
    assert line.split()[0] == verdict
