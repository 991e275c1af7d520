"""Dead letters of sinks, for tests."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Message
from tests.spark.pipeline_run import supervise

from barnabas.pipelines.build import Query
from barnabas.pipelines.status import QueryStatus

MakeTopic = Callable[..., str]
Records = Callable[[str, int], list[Message]]

_PREFIX = "__barnabas.errors."

PEOPLE = """
@source(topic="{source}", format="json", schema="id BIGINT NOT NULL, name STRING, age BIGINT")
def people(rows):
    return rows

@sink({sink}, dead_letter="{bad}"{more})
def copy(people):
    return people
"""


def headers(letter: Message) -> dict[str, str]:
    found = {name: value.decode() for name, value in letter.headers() or []}
    return {name.removeprefix(_PREFIX): value for name, value in found.items()}


def finish(query: Query) -> QueryStatus:
    (status,) = supervise(query, restarts=3).statuses
    return status
