"""Programs for kafka-python, aiokafka and confluent-kafka see the same with Barnabas and with Apache Kafka.

A step of a program is a call of its client. The program sees the result, or the exception with its class and
whether it is retriable, and it sees how long the call waits. Error texts of brokers may differ.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.certificates import Certificates, make
from tests.compat.programs import (
    aiokafka_programs,
    confluent_admin,
    confluent_consumers,
    confluent_groups,
    confluent_logins,
    confluent_producers,
    confluent_transactions,
    kafka_python_admin,
    kafka_python_consumers,
    kafka_python_producers,
    logins,
)
from tests.compat.programs.peers import BarnabasWithAllProtocols, KafkaWithAllProtocols
from tests.compat.programs.trace import Program, Trace, differences, run, slow

# A program is a public function of one argument, `see`.
PROGRAMS = [
    program
    for module in (
        kafka_python_producers,
        kafka_python_consumers,
        kafka_python_admin,
        aiokafka_programs,
        confluent_producers,
        confluent_transactions,
        confluent_consumers,
        confluent_groups,
        confluent_admin,
        logins,
        confluent_logins,
    )
    for name, program in vars(module).items()
    if inspect.isfunction(program)
    and list(inspect.signature(program).parameters) == ["see"]
    and not name.startswith("_")
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certificates]:
    folder = tmp_path_factory.mktemp("certificates")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(logins.FOLDER, str(folder))
        yield make(folder)


@pytest.fixture(scope="module")
def addresses(
    classpath: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """Start both brokers, and return the addresses of Barnabas and of Apache Kafka."""
    folder: Path = tmp_path_factory.mktemp("peers")
    ours = BarnabasWithAllProtocols(folder / "barnabas", certificates)
    theirs = KafkaWithAllProtocols(folder / "kafka", certificates)
    ours.start()
    try:
        theirs.start()
        yield ours.addresses(), theirs.addresses()
    finally:
        ours.stop()
        theirs.stop()


@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    "program", PROGRAMS, ids=lambda each: f"{each.__module__.split('.')[-1]}-{each.__name__}"
)
def test_same_programs(addresses: tuple[Mapping[str, str], Mapping[str, str]], program: Program) -> None:
    ours, theirs = _both(program, addresses)
    found = differences(ours, theirs)
    if not found and slow(ours, theirs):
        # A broker's own wait repeats. If this one does not, another program had the machine.
        ours, theirs = _both(program, addresses)
        found = [*differences(ours, theirs), *slow(ours, theirs)]
    assert not found, f"{len(found)} of {len(theirs.steps)} steps differ\n" + "\n".join(found)


def _both(program: Program, addresses: tuple[Mapping[str, str], Mapping[str, str]]) -> tuple[Trace, Trace]:
    prefix = f"{program.__name__.replace('_', '-')}-{time.time_ns()}"
    ours, theirs = (run(program, each, prefix) for each in addresses)
    return ours, theirs
