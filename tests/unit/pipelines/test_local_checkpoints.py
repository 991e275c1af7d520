"""The checkpoints for which the file system's rename is used, and those for which Spark's default is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.pipelines.errors import Location
from barnabas.pipelines.local_checkpoints import BY_RENAME, MANAGER, settings_for
from barnabas.pipelines.model import Pipeline, Sink
from barnabas.pipelines.sink_options import SinkOptions

LOCAL = "file:///srv/shop/checkpoints"

posix = pytest.mark.skipif(os.name != "posix", reason="rename(2) replaces a file atomically")


def pipeline(*, complete: bool = True, **sink: str) -> Pipeline:
    options = SinkOptions.parse(sink or {"topic": "t"})
    sinks = [Sink("out", Location("shop.py", 3), options, "orders")]
    return Pipeline(Path("shop.py"), sinks=sinks, complete=complete)


@posix
@pytest.mark.parametrize("sink", [{"topic": "t"}, {"parquet": "orders"}, {"parquet": "file:///srv/orders"}])
def test_all_that_is_local_is_renamed_by_the_file_system(sink: dict[str, str]) -> None:
    assert settings_for(pipeline(**sink), "local[2]", LOCAL) == {MANAGER: BY_RENAME}


@posix
def test_a_sink_without_files_may_be_anywhere() -> None:
    made = pipeline(postgres="postgresql://db/shop", table="orders")
    assert settings_for(made, "local[*]", LOCAL) == {MANAGER: BY_RENAME}


@pytest.mark.parametrize(
    ("made", "master", "checkpoints"),
    [
        (pipeline(), "spark://10.0.0.1:7077", LOCAL),  # other machines write there too
        (pipeline(), "local-cluster[2,1,1024]", LOCAL),  # executors are other JVMs, which write state
        (pipeline(), "local[2]", "hdfs://names/checkpoints"),
        (pipeline(), "local[2]", "s3a://shop/checkpoints"),
        (pipeline(parquet="s3a://shop/orders"), "local[2]", LOCAL),
        (pipeline(complete=False), "local[2]", LOCAL),  # its sinks are not known yet
    ],
)
def test_anything_else_is_left_to_spark(made: Pipeline, master: str, checkpoints: str) -> None:
    assert settings_for(made, master, checkpoints) == {}
