"""Share groups whose data an earlier version has written: this version goes on with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from tests.compat.versions import ROOT, checkout
from tests.integration.conftest import Wire, use_share_groups

from barnabas.client import Admin, Consumer
from barnabas.testing.runners import ask_to_stop, own_group

#: a commit with share groups and without their dead letters
_EARLIER = "8a400ff6"
_MINE = {"errors.deadletterqueue.group.enable": "true"}
PATIENCE = 600


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the earlier version's sources."""
    return checkout(_EARLIER, tmp_path_factory.mktemp("earlier"))


@contextmanager
def running(data: Path, sources: Path) -> Iterator[str]:
    """Start a broker of these sources. Yield its address."""
    command = [sys.executable, "-m", "barnabas.cli", "start", "--data", str(data), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(sources)}, **own_group()
    )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().decode()
        assert ready.startswith("ready "), ready
        yield ready.split()[1]
    finally:
        ask_to_stop(process)
        process.wait(60)
        process.stdout.close()


def write(address: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce("jobs", value.encode())
    producer.flush()


def answer(address: str, answers: dict[str, Any]) -> None:
    """Answer each record as told, until each one has come. No other record may come."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": address,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe(["jobs"])
    left = set(answers)
    for _ in range(PATIENCE):
        for message in consumer.poll(0.1):
            value = message.value().decode()
            consumer.acknowledge(message, answers[value])
            left.discard(value)
        assert not any(consumer.commit_sync().values())
        if not left:
            break
    consumer.close()
    assert not left


def test_a_group_goes_on_where_it_was_and_has_dead_letters_from_then_on(
    earlier: Path, tmp_path: Path
) -> None:
    accept, reject, release = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE
    with running(tmp_path / "data", earlier) as address:
        admin = Admin(address)
        admin.create_topic("jobs", 1)
        admin.alter_configs("group", "workers", set={"share.auto.offset.reset": "earliest"})
        admin.close()
        write(address, "accepted", "rejected", "released")
        answer(address, {"accepted": accept, "rejected": reject, "released": release})
    with running(tmp_path / "data", ROOT / "src") as address:
        admin = Admin(address)
        admin.create_topic("dlq.jobs", 1, configs=_MINE)
        queue = {"errors.deadletterqueue.topic.name": "dlq.jobs"}
        admin.alter_configs("group", "workers", set=queue)
        write(address, "archived")
        answer(address, {"released": accept, "archived": reject})  # share.version is 1 still
        wire = Wire(address)
        use_share_groups(wire, level=2)
        wire.close()
        write(address, "given up")
        answer(address, {"given up": reject})
        with Consumer(address, "dlq.jobs") as letters:
            (letter,) = letters.take(1, 60)
        assert dict(letter.headers)["__dlq.errors.offset"] == b"4"
        admin.close()
