from __future__ import annotations

import pytest
from simulation.virtual_time import run_virtual
from tests.unit.broker.logs.bench import Bench


@pytest.fixture
def play():
    """Run a scenario in virtual time."""

    def run(scenario, *log_dirs):
        async def main():
            await scenario(Bench(*log_dirs))

        run_virtual(main())

    return run
