"""Members of share groups with franz-go (KIP-932); each scenario is a function of go/main.go.

`BARNABAS_COMPAT_BROKER=kafka make compat` runs the same scenarios against Apache Kafka.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from bench.artifacts import CACHE

SOURCE = Path(__file__).parent / "go"
SCENARIOS = re.findall(r'^\t"(\w+)":', (SOURCE / "main.go").read_text(encoding="utf-8"), re.MULTILINE)
BUILD_S, RUN_S = 500, 90


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenarios as a program. Its modules and their compiled packages stay in the cache of the peers."""
    if shutil.which("go") is None:
        pytest.skip("franz-go needs Go: there is no `go` on the PATH")
    program = tmp_path_factory.mktemp("go") / "shares"
    caches = {"GOMODCACHE": str(CACHE / "go" / "mod"), "GOCACHE": str(CACHE / "go" / "cache")}
    build = ["go", "build", "-modcacherw", "-o", str(program), "."]
    done = subprocess.run(
        build,
        cwd=SOURCE,
        env=os.environ | caches,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode and "dial tcp" in done.stderr:
        pytest.skip(f"franz-go cannot be fetched: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.timeout(BUILD_S + RUN_S)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_franz_go(program, broker, scenario):
    run = [str(program), scenario, broker.bootstrap]
    done = subprocess.run(run, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr
