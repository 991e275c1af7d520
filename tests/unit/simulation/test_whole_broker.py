"""A whole broker in virtual time: days pass in seconds, and the seed determines all events."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_seed_decides_a_brokers_life_whatever_the_hashes_of_python():
    """`whole_broker.life` checks the results for clients. This test compares the traces of two runs."""
    plays = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.unit.simulation.whole_broker", seed],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, hash_seed in (("1", "1"), ("1", "2"), ("2", "1"))
    ]
    digests = [play.communicate()[0].splitlines()[:1] for play in plays]
    assert [play.returncode for play in plays] == [0, 0, 0]
    assert digests[0] == digests[1] != digests[2]
