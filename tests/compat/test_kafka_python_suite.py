"""kafka-python's own integration tests, against our broker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from bench.artifacts import Unavailable, kafka_python_suite
from bench.peers import Barnabas

SUITE_SECONDS = 300
#: what its tests ask for that is not served yet, or that no broker but a KRaft one serves
LEFT_OUT = {
    "test_create_describe_delete_acls": "security",
    "test_sasl_integration": "security",
    "test_ssl_integration": "security",
    "test_elect_leaders": "replication",
    "test_alter_partition_reassignments": "replication",
    "test_list_partition_reassignments": "replication",
    "test_describe_metadata_quorum": "KRaft",
}
#: its sources lack the module that starts brokers; one that runs already needs no more than this
SERVICE = """
class ExternalService:
    def __init__(self, host, port): ...
    def open(self): ...
    def close(self): ...


class SpawnedService: ...
"""


class Broker(Barnabas):
    """A broker with the settings that this suite uses for Apache Kafka."""

    @property
    def settings(self) -> tuple[str, ...]:
        return (
            "node.id=0",
            "num.partitions=4",
            "group.min.session.timeout.ms=1000",
            f"advertised.listeners=PLAINTEXT://{self.bootstrap}",
        )


@pytest.fixture(scope="module")
def suite():
    try:
        home = kafka_python_suite()
    except Unavailable as error:
        pytest.skip(str(error))
    (home / "test" / "__init__.py").touch()
    (home / "test" / "service.py").write_text(SERVICE)
    return home


@pytest.mark.timeout(SUITE_SECONDS + 60)
def test_kafka_pythons_own_integration_tests_pass(suite, tmp_path):
    broker = Broker(tmp_path)
    broker.start()
    try:
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-q", "-p", "no:barnabas", "-p", "no:cacheprovider",
                "--disable-warnings", "--tb=short", "--show-capture=no", "--timeout=60", "-rfE",
                "-k", "not " + " and not ".join(LEFT_OUT), "test/integration",
            ],
            cwd=suite,
            env={
                **os.environ,
                "KAFKA_ROOT": str(suite),
                "KAFKA_URI": f"kafka://{broker.bootstrap}",
                "KAFKA_VERSION": "4.2.0",
                "PYTHONPATH": str(suite),
            },
            capture_output=True,
            text=True,
            timeout=SUITE_SECONDS,
            check=False,
        )  # fmt: skip
    finally:
        broker.stop()
    assert done.returncode == 0, done.stdout[-8000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) >= 45
