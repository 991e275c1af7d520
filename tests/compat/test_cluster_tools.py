"""Apache Kafka's tools for clusters: they move partitions, elect leaders and find problems."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.compat.conftest import ToolFailed

from barnabas.testing import BarnabasBroker

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"


@pytest.fixture
def cluster(barnabas_cluster, classpath):
    return barnabas_cluster(brokers=4)


@pytest.fixture
def tool(java, cluster):
    """Run a tool with --bootstrap-server: these brokers, or all."""

    def run(main: str, *arguments: str, ask: Sequence[int] | None = None) -> str:
        servers = ",".join(cluster.address_of(broker) for broker in ask or cluster.brokers)
        return java.run(main, *arguments, "--bootstrap-server", servers)

    return run


def create(tool, name: str, assignment: str) -> None:
    tool(TOPICS, "--create", "--topic", name, "--replica-assignment", assignment)


def plan_file(folder, *moves) -> str:
    path = folder / "plan.json"
    items = [{"topic": t, "partition": p, "replicas": r} for t, p, r in moves]
    path.write_text(json.dumps({"version": 1, "partitions": items}))
    return str(path)


def test_kafka_reassign_partitions_moves_and_verifies_with_a_throttle(tool, cluster, tmp_path):
    create(tool, "t", "1:2:3,2:3:1")
    cluster.produce("t", *map(str, range(100)))
    plan = plan_file(tmp_path, ("t", 0, [4, 2, 3]), ("t", 1, [2, 4, 1]))
    began = tool(REASSIGN, "--execute", "--reassignment-json-file", plan, "--throttle", "50000000")
    assert "Successfully started partition reassignments for t-0,t-1" in began
    for _ in range(20):
        verified = tool(REASSIGN, "--verify", "--reassignment-json-file", plan)
        if "is still in progress" not in verified:
            break
    assert "Reassignment of partition t-0 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3,4" in verified
    assert "Clearing topic-level throttles on topic t" in verified
    described = tool(TOPICS, "--describe", "--topic", "t")
    assert "Replicas: 4,2,3" in described
    assert "Replicas: 2,4,1" in described
    assert "No partition reassignments found." in tool(REASSIGN, "--list")


def test_kafka_reassign_partitions_moves_replicas_between_disks(java, tmp_path, classpath):
    paths = [str(tmp_path / name) for name in "ab"]
    with BarnabasBroker(data=",".join(paths)) as broker:
        broker.create_topic("t", 2)
        broker.produce("t", *map(str, range(100)))
        plan = tmp_path / "plan.json"
        items = [{"topic": "t", "partition": p, "replicas": [1], "log_dirs": [paths[1]]} for p in (0, 1)]
        plan.write_text(json.dumps({"version": 1, "partitions": items}))

        def reassign(*arguments: str) -> str:
            where = ("--reassignment-json-file", str(plan), "--bootstrap-server", broker.bootstrap_servers)
            return java.run(REASSIGN, *arguments, *where)

        reassign("--execute")
        for _ in range(20):
            verified = reassign("--verify")
            if verified.count("log dir") >= 2 and "in progress" not in verified:
                break
        assert "completed successfully" in verified, verified
        assert sorted(entry.name for entry in (tmp_path / "b").glob("t-*")) == ["t-0", "t-1"]
        assert len(broker.consume("t", 100)) == 100


def test_kafka_reassign_partitions_generates_what_it_then_executes(tool, tmp_path):
    create(tool, "t", "1:2,1:2,1:2,1:2")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
    generated = tool(
        REASSIGN, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "3,4"
    )
    plan = tmp_path / "plan.json"
    plan.write_text(generated.split("Proposed partition reassignment configuration", 1)[1])
    tool(REASSIGN, "--execute", "--reassignment-json-file", str(plan))
    for _ in range(20):
        if "is still in progress" not in tool(REASSIGN, "--verify", "--reassignment-json-file", str(plan)):
            break
    partitions = tool(TOPICS, "--describe", "--topic", "t").splitlines()[1:]
    assert {line.split("Replicas: ")[1].split("\t")[0] for line in partitions} <= {"3,4", "4,3"}


def test_kafka_reassign_partitions_lists_and_cancels(tool, cluster, tmp_path):
    newcomer = next(broker for broker in cluster.brokers if broker != cluster.controller())
    start = [broker for broker in cluster.brokers if broker != newcomer]
    create(tool, "t", ":".join(map(str, start)))
    plan = plan_file(tmp_path, ("t", 0, [newcomer, *start[1:]]))
    cluster.partition(newcomer, start)  # it is alive, and copies nothing
    try:
        # Clients go to the broker that answered them first, and the newcomer cannot reach the controller.
        tool(REASSIGN, "--execute", "--reassignment-json-file", plan, ask=start)
        listed = tool(REASSIGN, "--list", ask=start)
        assert f"t-0: replicas: {newcomer},{start[1]},{start[2]},{start[0]}. adding: {newcomer}." in listed
        cancelled = tool(
            REASSIGN, "--cancel", "--preserve-throttles", "--reassignment-json-file", plan, ask=start
        )
        assert "Successfully cancelled partition reassignment for: t-0" in cancelled
    finally:
        cluster.heal()


def test_kafka_leader_election_brings_the_preferred_leader_back(tool, cluster):
    create(tool, "t", "1:2:3")
    cluster.stop(1)
    under = tool(TOPICS, "--describe", "--under-replicated-partitions")
    assert "Topic: t\tPartition: 0" in under
    assert "Replicas: 1,2,3" in under
    assert "Topic: t" not in tool(TOPICS, "--describe", "--unavailable-partitions")
    cluster.restart(1)
    cluster.wait_in_sync("t")
    assert tool(TOPICS, "--describe", "--under-replicated-partitions").strip() == ""
    elected = tool(ELECT, "--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions t-0" in elected
    assert cluster.leader_of("t") == 1
    again = tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")
    assert "t-0" not in again


def test_kafka_topics_finds_partitions_at_and_under_their_min_isr(tool, cluster):
    create(tool, "t", "1:2:3")
    cluster.stop(1)
    assert "Topic: t\tPartition: 0" in tool(TOPICS, "--describe", "--at-min-isr-partitions")
    cluster.stop(2)
    assert "Topic: t\tPartition: 0" in tool(TOPICS, "--describe", "--under-min-isr-partitions")


def test_kafka_cluster_unregisters_a_broker_that_is_gone(java, cluster):
    unregister = ("unregister", "--bootstrap-server", cluster.bootstrap_servers, "--id", "3")
    with pytest.raises(ToolFailed, match="broker 3 is alive"):
        java.run(CLUSTER, *unregister)
    cluster.stop(3)
    assert "Broker 3 is no longer registered" in java.run(CLUSTER, *unregister)
    with pytest.raises(ToolFailed, match="broker 3 is not currently registered"):
        java.run(CLUSTER, *unregister)
