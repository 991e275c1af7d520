"""A pipeline's own folder: one run at a time, and a status that shows whether a run is active."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.app import app
from barnabas.cli.pipeline.table import LiveTable
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.folder import Folder
from barnabas.pipelines.status import PartitionLag, PipelineStatus, QueryStatus

FILE = """\
from barnabas.pipelines import sink, source
@source(topic="t")
def t(rows): return rows
@sink(console=True)
def out(t): return t
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def folder(file: Path) -> Folder:
    folder = Folder(file.parent / ".barnabas" / "shop")
    with folder.held():
        pass
    return folder


def status(state: str = "running") -> PipelineStatus:
    lag = PartitionLag("t", 0, 5, 9, 4)
    query = QueryStatus(
        "out", state, rows_read=5, rows_written=4, lag=4, partitions=[lag], last_error="no answer"
    )
    query.last_error_at = "2026-01-01T00:00:00+00:00"
    return PipelineStatus(
        "shop", "shop.py", "local[1]", 1, state, *["2026-01-01T00:00:00+00:00"] * 2, [query]
    )


def ask(file: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pipeline", "status", str(file), *arguments], prog_name="barnabas")
    return result.exit_code, result.stdout, result.stderr


def test_a_status_comes_back_as_it_was_written(folder: Folder) -> None:
    status().write(folder.status)
    assert PipelineStatus.read(folder.status) == status()


def test_two_runs_at_a_time_are_refused(folder: Folder) -> None:
    refused = pytest.raises(PipelineError, match="is in use: the pipeline runs already; stop it, or")
    with folder.held(), refused, folder.held():
        pass


def test_a_running_pipeline_shows_its_status(file: Path, folder: Folder) -> None:
    status().write(folder.status)
    with folder.held():
        code, out, _ = ask(file, "--json")
        assert (code, json.loads(out)["state"], json.loads(out)["queries"][0]["lag"]) == (0, "running", 4)
        _, out, _ = ask(file)
    assert "shop on local[1]: running, process 1" in out
    assert "out is 4 behind in t-0: at 5 of 9" in out
    assert "out failed at 2026-01-01T00:00:00+00:00: no answer" in out


def test_a_pipeline_that_was_killed_is_not_said_to_run(file: Path, folder: Folder) -> None:
    status().write(folder.status)
    hold = "import sys, os; from pathlib import Path; from barnabas.pipelines.folder import Folder\n"
    hold += f"f = Folder(Path({str(folder.path)!r}))\nwith f.held(): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", hold], check=False).returncode == -9
    assert json.loads(ask(file, "--json")[1])["state"] == "killed"


def test_a_pipeline_that_ended_says_how(file: Path, folder: Folder) -> None:
    status("stopped").write(folder.status)
    assert json.loads(ask(file, "--json")[1])["state"] == "stopped"


def test_a_pipeline_that_never_ran_says_so(file: Path) -> None:
    code, _, err = ask(file)
    assert (code, err) == (1, f"Error: {file.parent}/.barnabas/shop has no status: it has not run yet\n")


def test_the_table_is_kept_up_to_date_and_words_stay_above_it(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveTable(stderr=False) as table:
        table.show(status())
        table.say("out failed, [trying] again in 1 s")
        table.show(status("stopped"))
    shown = capsys.readouterr().out
    assert "out failed, [trying] again in 1 s" in shown
    assert shown.rindex("stopped, process 1") > shown.index("out failed")


def test_without_a_terminal_nothing_is_cut(
    file: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    found = status("failed")
    found.queries[0].query = "query_" + "x" * 200
    found.queries[0].last_error = "error " + "y" * 2000
    found.write(folder.status)
    _, out, _ = ask(file)
    assert f"\n{found.queries[0].query}  failed  " in out
    assert out.rstrip().endswith("y" * 2000)
