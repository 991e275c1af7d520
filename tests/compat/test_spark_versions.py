"""The data source, the demo and a pipeline with each PySpark that pyproject.toml permits.

An older PySpark is installed into its own environment, in ``.compat/``, with all other packages of this one.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).parents[2]
HERE = ".".join(pyspark.__version__.split(".")[:2])
VERSIONS = ("4.1", "4.2", "4.3")

#: Its own sockets are left to the garbage collector.
UNCLOSED = "ignore::pytest.PytestUnraisableExceptionWarning"

DATA_SOURCE = ("tests/spark/test_spark_jobs.py", "tests/spark/test_quiet_and_newer.py")
EXACTLY_ONCE = ("tests/spark/test_exactly_once_jobs.py",)
PIPELINE = ("tests/spark/test_pipelines.py", "-k", "dead_letter or windows")

#: The suite runs these with the PySpark of this environment, `make kills` the last of them.
DEAD_LETTERS = ("tests/spark/test_topic_dead_letters.py", "tests/spark/test_postgres_dead_letters.py")
KILLS = (*EXACTLY_ONCE, "-k", "executors_killed or tasks_killed")
ONLY_OLDER = (DEAD_LETTERS, KILLS)


def python_with(version: str) -> Path:
    """Return the interpreter of an environment with the newest PySpark of a minor version."""
    if version == HERE:
        return Path(sys.executable)
    place = ROOT / ".compat" / f"pyspark-{version}"
    python = place / "bin" / "python"
    place.parent.mkdir(exist_ok=True)
    with (place.parent / f".pyspark-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / "done"
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, f"pyspark=={version}.*"], check=True, timeout=1200)
            # behind its own packages, those that Barnabas is tested with
            ours = sysconfig.get_path("purelib")
            theirs = next(place.glob("lib/python*/site-packages"))
            (theirs / "zz_barnabas.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
            done.touch()
    return python


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """An interpreter with this PySpark."""
    found = python_with(request.param)
    told = subprocess.run(
        [found, "-c", "import pyspark; print(pyspark.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.startswith(f"{request.param}.")
    return found


def test_the_demo_runs(python: Path) -> None:
    done = subprocess.run(
        [python, "-m", "demo"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "tests",
    [DATA_SOURCE, EXACTLY_ONCE, PIPELINE, DEAD_LETTERS, KILLS],
    ids=["data source", "exactly once", "pipeline", "dead letters", "kills"],
)
def test_the_tests_pass(python: Path, tests: tuple[str, ...]) -> None:
    if tests in ONLY_OLDER and python == Path(sys.executable):
        pytest.skip("the suite runs them")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", UNCLOSED, *tests]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if tests is KILLS:
        environment["BARNABAS_THOROUGH"] = "1"
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1400, env=environment
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "passed" in done.stdout
