"""Compares our assignors of the coordinator with those of Apache Kafka, in random groups."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinator.groups.assignors import ASSIGNORS, Assignment, MemberSpec, TopicSpec
from barnabas.broker.coordinator.groups.assignors.spec import in_order

SOURCE = Path(__file__).parent / "java" / "Assignors.java"
GROUPS = 150
STEPS = 12

Group = tuple[dict[str, MemberSpec], dict[str, TopicSpec]]
Targets = dict[str, Assignment]


@pytest.fixture(scope="module")
def compiled(java: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the Java program. Return its class path."""
    if shutil.which("javac") is None:
        pytest.skip("this needs a JDK: there is no `javac` on the PATH")
    classes = tmp_path_factory.mktemp("assignors")
    command = ["javac", "-cp", java.classpath, "-d", classes, SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{classes}{os.pathsep}{java.classpath}"


def life(name: str, rng: random.Random, *, equal: bool) -> Iterator[Group]:
    """Yield the states of a group whose members and topics change. Our assignor makes the targets between."""
    topics = {f"topic-{n}": TopicSpec(rng.randint(1, 12)) for n in range(rng.randint(1, 6))}
    members: dict[str, MemberSpec] = {}
    common = frozenset(topics)
    for _ in range(STEPS):
        for _ in range(rng.randint(0, 3)):
            subscription = (
                common if equal else frozenset(rng.sample(sorted(topics), rng.randint(1, len(topics))))
            )
            instance = rng.choice([None, f"instance-{rng.randrange(1000)}"])
            members[f"member-{rng.randrange(1000)}"] = MemberSpec(subscription, instance, None, {})
        for member_id in rng.sample(sorted(members), min(len(members), rng.randint(0, 2))):
            del members[member_id]
        if rng.random() < 0.3:
            grown = rng.choice(sorted(topics))
            topics[grown] = TopicSpec(topics[grown].partitions + rng.randint(1, 5))
        if equal and rng.random() < 0.3:
            common = frozenset(rng.sample(sorted(topics), rng.randint(1, len(topics))))
            members = {id: spec._replace(topics=common) for id, spec in members.items()}
        if not members:
            continue
        yield dict(members), dict(topics)
        targets = ASSIGNORS[name](members, topics)
        members = {id: spec._replace(assigned=targets[id]) for id, spec in members.items()}


def theirs(java: Any, compiled: str, name: str, groups: list[Group]) -> list[Targets]:
    lines = []
    for members, topics in groups:
        specs = [
            {
                "id": id,
                "instance": members[id].instance_id,
                "topics": sorted(members[id].topics),
                "assigned": {topic: sorted(found) for topic, found in members[id].assigned.items()},
            }
            for id in in_order(members)
        ]
        sizes = {topic: topics[topic].partitions for topic in sorted(topics)}
        lines.append(json.dumps({"assignor": name, "topics": sizes, "members": specs}) + "\n")
    answers = java.run("Assignors", stdin="".join(lines), classpath=compiled).splitlines()
    return [
        {id: {topic: frozenset(found) for topic, found in target.items()} for id, target in targets.items()}
        for targets in map(json.loads, answers)
    ]


@pytest.mark.parametrize("equal", [True, False], ids=["equal subscriptions", "different subscriptions"])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_everyone_gets_what_apache_kafka_gives_it(java, compiled, name, equal):
    groups = [group for n in range(GROUPS) for group in life(name, random.Random(n), equal=equal)]
    answers = theirs(java, compiled, name, groups)
    for (members, topics), answer in zip(groups, answers, strict=True):
        assert ASSIGNORS[name](members, topics) == answer
