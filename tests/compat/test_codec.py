"""Apache Kafka's own codecs decode every version of every message that we encode, and
encode the same bytes.
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.compat.conftest import ToolFailed
from tests.unit.kafka.protocol.examples import API_MESSAGES, INSTANCES, RECORDS, random_struct
from tools.docs.kafka_apis import KAFKA_APIS

from barnabas.kafka.protocol.codec import encode
from barnabas.kafka.protocol.schema import Field, Primitive

SOURCE = Path(__file__).parent / "java" / "Codec.java"
#: messages that are newer than the release compared with, which says that it lacks them
NEWER = [message for message in API_MESSAGES if message.api_key > max(KAFKA_APIS)]


def _java_class(message: type[Any]) -> str:
    name = message.__name__
    if message in API_MESSAGES:
        return f"org.apache.kafka.common.message.{name}Data"
    if name.startswith("ConsumerProtocol"):
        return f"org.apache.kafka.common.message.{name}"
    return f"org.apache.kafka.coordinator.group.generated.{name}"


def _expected(value: Any, field: Field, version: int) -> Any:
    """Return a value as in Apache Kafka's JSON."""
    if value is None:
        return None
    if isinstance(value, list):
        single = field.element()
        return [_expected(item, single, version) for item in value]
    if not isinstance(field.type, Primitive):
        return {
            _camel(f.name): _expected(getattr(value, f.name), f, version)
            for f in field.type.__fields__
            if f.in_version(version) and (f.tag is None or getattr(value, f.name) != f.default)
        }
    match field.type.name:
        case "bytes":
            return base64.b64encode(value).decode()
        case "uuid":
            return base64.urlsafe_b64encode(value).decode().rstrip("=")
        case "records":
            return ""  # their JSON leaves the content out; that the bytes are the same says it all
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@pytest.fixture(scope="module")
def compiled(java: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the Java program. Return its class path."""
    if shutil.which("javac") is None:
        pytest.skip("this needs a JDK: there is no `javac` on the PATH")
    classes = tmp_path_factory.mktemp("codec")
    command = ["javac", "-cp", java.classpath, "-d", classes, SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{classes}{os.pathsep}{java.classpath}"


def test_apache_kafka_reads_what_we_write_and_writes_it_back(java: Any, compiled: str) -> None:
    messages = []
    for cls in API_MESSAGES + RECORDS:
        if cls in NEWER:
            continue
        for version in range(cls.versions[0], cls.versions[1] + 1):
            rng = random.Random(f"{cls.__name__} {version}")
            messages += [(random_struct(cls, version, rng), version) for _ in range(INSTANCES)]
    lines = [f"{_java_class(type(m))} {version} {encode(m, version).hex()}\n" for m, version in messages]
    answers = java.run("Codec", stdin="".join(lines), classpath=compiled).splitlines()
    assert len(answers) == len(messages)
    for (message, version), answer in zip(messages, answers, strict=True):
        whole = Field("message", type(message), is_array=False, default=None)
        assert json.loads(answer) == _expected(message, whole, version), (type(message), version)


@pytest.mark.parametrize("message", NEWER)
def test_what_is_left_out_is_newer_than_the_release_compared_with(
    java: Any, compiled: str, message: type[Any]
) -> None:
    with pytest.raises(ToolFailed, match=f"ClassNotFoundException: .*{message.__name__}Data"):
        java.run("Codec", stdin=f"{_java_class(message)} 0 00\n", classpath=compiled)
