"""Errors when a query cannot be made: those that the file causes, and others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from barnabas.pipelines.build import Run, build
from barnabas.pipelines.errors import Location, PipelineError
from barnabas.pipelines.model import Pipeline, Step, Transform


def made(answer: Callable[[], int], step: Callable[[], Any]) -> None:
    """Return a pipeline of one step, with a Spark whose JVM gives this answer."""
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(_jvm=SimpleNamespace(System=SimpleNamespace(currentTimeMillis=answer)))
    )
    steps = [Step("dear", Location("shop.py", 3), Transform(step, ()))]
    build(spark, Pipeline(Path("shop.py"), steps=steps), Run("", "", once=True))


@pytest.mark.parametrize("error", [ConnectionRefusedError, Py4JNetworkError])
def test_a_spark_that_is_gone_is_no_mistake_of_the_file(error: type[Exception]) -> None:
    def fails() -> int:
        raise error("refused")

    with pytest.raises(error):
        made(answer=fails, step=fails)


def test_a_connection_of_the_files_own_is_not_sparks() -> None:
    def fails() -> None:
        raise ConnectionRefusedError("no shop")

    with pytest.raises(PipelineError, match=r"shop\.py:3: step dear: ConnectionRefusedError: no shop"):
        made(answer=lambda: 0, step=fails)
