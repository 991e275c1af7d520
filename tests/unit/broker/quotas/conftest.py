from __future__ import annotations

import pytest


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time():
    return Time()
