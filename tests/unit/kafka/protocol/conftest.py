"""All messages, and examples of each."""

import random
from collections.abc import Callable

import pytest
from tests.unit.kafka.protocol.examples import API_MESSAGES, INSTANCES, RECORDS, random_struct

from barnabas.kafka.protocol.registry import request_classes
from barnabas.kafka.protocol.schema import Message, Struct


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for each message of the kind that its argument names."""
    requests: list[type[Message]] = [*request_classes()]
    arguments = {"message": API_MESSAGES + RECORDS, "api_message": API_MESSAGES, "request_type": requests}
    for name, messages in arguments.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, messages, ids=lambda message: message.__name__)


@pytest.fixture
def examples() -> Callable[[type[Message], int], list[Struct]]:
    """``examples(message, version)``: return a few random instances, always the same ones."""

    def make(message: type[Message], version: int) -> list[Struct]:
        rng = random.Random(f"{message.__name__} {version}")
        return [random_struct(message, version, rng) for _ in range(INSTANCES)]

    return make
