"""The settings with which a pipeline starts Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from barnabas.pipelines import session

POLLING = "spark.sql.streaming.pollingDelay"


class Builder:
    """Takes the settings of a session, and starts nothing."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def master(self, _: str) -> Self:
        return self

    def appName(self, _: str) -> Self:
        return self

    def config(self, name: str, value: str) -> Self:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> None:
        pass


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return the settings of the session that a pipeline with these settings starts."""
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")

    def start(**given: str) -> dict[str, str]:
        builder = Builder()
        monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
        session.start_session("shop", tmp_path, "local[2]", given, tmp_path / "spark.log")
        return builder.settings

    return start


def test_idle_queries_poll_every_30_ms_unless_the_user_chooses(
    settings_of: Callable[..., dict[str, str]],
) -> None:
    assert settings_of()[POLLING] == "30ms"
    assert settings_of(**{POLLING: "5ms"})[POLLING] == "5ms"
