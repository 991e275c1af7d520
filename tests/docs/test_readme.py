"""Statements of the README: one example, and the modules that an import of Barnabas loads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(code, cwd):
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=cwd, timeout=120
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_its_broker_outside_pytest_runs(tmp_path):
    (statement,) = re.findall(r"`(with barnabas\.testing.*?): \.\.\.`", README)
    out = run(f"import barnabas\n{statement}:\n    print(broker.bootstrap_servers)", tmp_path)
    assert out.startswith("127.0.0.1:")


def test_importing_barnabas_imports_nothing_else():
    before = "import __future__, sys, typing; before = set(sys.modules)"
    code = f"{before}; import barnabas; print(*set(sys.modules) - before)"
    assert run(code, ROOT).split() == ["barnabas"]


@pytest.mark.parametrize("name", ["client", "testing", "pipelines"])
def test_a_package_for_users_is_there_without_an_import_of_its_own(name):
    assert run(f"import barnabas; print(barnabas.{name}.__name__)", ROOT) == f"barnabas.{name}\n"
