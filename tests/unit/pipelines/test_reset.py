"""The files that `barnabas pipeline reset` lists, removes and keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.app import app
from barnabas.pipelines.folder import Folder
from barnabas.pipelines.reset import local_path

FILE = """\
from barnabas.pipelines import pipeline, sink, source
pipeline({options})
@source(topic="orders", format="text", dead_letter="bad")
def orders(rows): return rows
@sink(topic="copies")
def copy(orders): return orders
@sink(parquet="{output}")
def archive(orders): return orders
"""


class Shop:
    """A pipeline file that has run."""

    def __init__(self, place: Path, options: str = "") -> None:
        self.file = place / "shop.py"
        self.output = place / "archive"
        self.file.write_text(FILE.format(output=self.output, options=options))
        self.folder = Folder(place / ".barnabas" / "shop")
        for query in ("copy", "archive", "orders.dead_letter", "of-another"):
            commits = self.folder.checkpoints / query / "commits"
            commits.mkdir(parents=True)
            for batch in ("9", "10", ".11.crc"):
                (commits / batch).write_text("v1\n{}")
        (self.folder.checkpoints / "copy" / "commits" / "11").touch()

    def reset(self, *arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(
            app, ["pipeline", "reset", str(self.file), *arguments], prog_name="barnabas"
        )
        return result.exit_code, result.stdout, result.stderr

    @property
    def left(self) -> list[str]:
        return sorted(each.name for each in self.folder.checkpoints.iterdir())


ALL = ["archive", "copy", "of-another", "orders.dead_letter"]


def test_a_preview_shows_all_and_changes_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    code, shown, said = shop.reset()
    assert code == 0
    heading, *rows = shown.splitlines()
    assert heading.split() == ["QUERY", "LAST", "BATCH", "SIZE", "CHECKPOINT"]
    assert [row.split()[:2] for row in rows[:3]] == [
        ["orders.dead_letter", "10"],
        ["copy", "11"],
        ["archive", "10"],
    ]
    assert "copy: all records are written again, after those that are there" in shown
    assert said == "nothing has been changed: add --execute to do it\n"
    assert shop.left == ALL


def test_execute_removes_the_checkpoints_of_this_pipeline_only(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert shop.reset("--execute")[0] == 0
    assert shop.left == ["of-another"]
    assert shop.reset("--execute")[2] == "there are no checkpoints: the next run begins at the beginning\n"


def test_one_query_begins_again_and_the_others_go_on(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert shop.reset("--query", "copy", "--execute")[0] == 0
    assert shop.left == ["archive", "of-another", "orders.dead_letter"]
    code, _, said = shop.reset("--query", "copies")
    assert code == 1
    assert "there is no query copies: choose from orders.dead_letter, copy, archive" in said


def test_a_pipeline_that_runs_is_left_alone(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with shop.folder.held():
        code, _, said = shop.reset("--execute")
    assert code == 1
    assert "is in use: the pipeline runs already" in said
    assert shop.left == ALL


def test_a_folder_of_parquet_files_that_remembers_its_batches_has_to_go_first(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (shop.output / "_spark_metadata").mkdir(parents=True)
    code, shown, said = shop.reset("--execute")
    assert code == 1
    assert f"{shop.output} remembers the batches written there" in shown
    assert "delete the folder or move it away first" in said
    assert shop.left == ALL  # none, or all
    shop.output.rename(tmp_path / "old")
    assert shop.reset("--execute")[0] == 0
    assert shop.left == ["of-another"]


def test_checkpoints_of_a_store_are_named_and_not_guessed_at(tmp_path: Path) -> None:
    shop = Shop(tmp_path, 'checkpoints="s3a://bucket/shop"')
    code, _, said = shop.reset("--execute")
    assert code == 1
    assert "not in a local folder" in said
    assert "s3a://bucket/shop/copy, s3a://bucket/shop/archive" in said


def test_checkpoints_by_uri_are_found(tmp_path: Path) -> None:
    place = tmp_path / "a place"
    shop = Shop(tmp_path, f'checkpoints="{place.as_uri()}"')
    (place / "copy" / "commits").mkdir(parents=True)
    code, shown, _ = shop.reset("--execute")
    assert (code, list(place.iterdir())) == (0, [])
    assert shown.splitlines()[1].split()[:2] == ["copy", "-"]
    assert shop.left == ALL


@pytest.mark.parametrize(
    ("place", "path"),
    [("a/b", "a/b"), ("file:///a%20b", "/a b"), ("file:/a", "/a"), ("hdfs://n/a", None), ("s3a://b/a", None)],
)
def test_local_places_are_told_from_others(place: str, path: str | None) -> None:
    assert local_path(place) == (path and Path(path))


def test_the_query_of_a_source_that_was_shared_is_forgotten_too(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (tmp_path / ".barnabas" / "shop" / "checkpoints" / "orders.shared").mkdir()
    assert shop.reset("--execute")[0] == 0
    assert shop.left == ["of-another"]
