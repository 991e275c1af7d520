"""Groups with many members."""

from __future__ import annotations

import json
import subprocess
import sys

from barnabas.testing import BarnabasBroker


def test_a_thousand_members_of_a_hundred_groups_settle_in_seconds():
    with BarnabasBroker(mode="process") as broker:  # of its own, for its share of open files
        request = {"bootstrap": broker.bootstrap_servers, "groups": 100, "members": 1000}
        command = [sys.executable, "-m", "bench.driver", "settle", json.dumps(request)]
        done = subprocess.run(command, input="", capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["s"] < 20  # about 1 when nothing else runs
