"""Kinds of sinks that packages add as entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.pipelines import sink_options
from barnabas.pipelines.sink_options import SINK_KINDS, SinkOptions, sink_kind

MODULE = """
from barnabas.base.errors import ConfigError
from barnabas.pipelines.table_sink import TableSink


class Lake(TableSink):
    modes = ("append", "complete")
    takes = ("table", "options")

    def check(self, options):
        if "://" not in options.target:
            raise ConfigError("option lake: write a URL")

    def write_batch(self, options, rows, query, number, letters):
        pass
"""

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package whose entry point `lake` has this value."""

    def forget() -> None:
        sink_options.installed.cache_clear()
        sink_kind.cache_clear()

    def install(value: str) -> None:
        information = tmp_path / "lakes-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: lakes\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[barnabas.sinks]\nlake = {value}\n")
        (tmp_path / "lakes_of_a_test.py").write_text(MODULE)
        monkeypatch.syspath_prepend(tmp_path)
        forget()

    yield install
    forget()


def test_the_name_of_an_entry_point_is_an_option(install: Install) -> None:
    install("lakes_of_a_test:Lake")
    others = {"table": "t", "options": {"region": "x"}}
    sink = SinkOptions.parse({"lake": "s3://sales", **others})
    assert (sink.kind, sink.target, sink.mode) == ("lake", "s3://sales", "append")
    assert sink == SinkOptions.parse(
        {"added": {"lake": "s3://sales"}, "table": "t", "options": {"region": "x"}}
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lake": "sales"}, "option lake: write a URL"),
        ({"lake": 5}, 'option added.lake=5 is not allowed: write a text: "..."'),
        ({"lake": "s3://a", "key": "id"}, "it goes with topic or postgres or jdbc, not with lake"),
        ({"lake": "s3://a", "mode": "update"}, "mode=update is not allowed: choose from append, complete"),
        ({"lake": "s3://a", "topic": "t"}, "where the rows go is given by one of"),
        ({"parquet": "p", "table": "t"}, "it goes with postgres or jdbc or lake, not with parquet"),
    ],
)
def test_it_refuses_what_it_does_not_take(install: Install, given: dict[str, object], said: str) -> None:
    install("lakes_of_a_test:Lake")
    with pytest.raises(ConfigError) as caught:
        SinkOptions.parse(given)
    assert said in str(caught.value)


def test_a_package_that_cannot_be_imported_is_named(install: Install) -> None:
    install("no_such_module_of_a_test:Lake")
    with pytest.raises(ConfigError, match="sink lake: no_such_module_of_a_test:Lake cannot be imported"):
        SinkOptions.parse({"lake": "s3://a"})


def test_without_the_package_its_option_is_unknown() -> None:
    with pytest.raises(ConfigError, match="option lake=s3://a is not allowed: choose from topic, parquet"):
        SinkOptions.parse({"lake": "s3://a"})


def test_the_tables_of_barnabas_are_entry_points_which_only_a_file_that_names_them_loads() -> None:
    own = {"topic", "parquet", "console"}
    assert {
        name: each.dist.name for name, each in sink_options.installed().items() if each.dist
    } == dict.fromkeys({*SINK_KINDS} - own, "barnabas")
    sink_kind.cache_clear()
    SinkOptions.parse({"topic": "t"})
    assert sink_kind.cache_info().currsize == 1
