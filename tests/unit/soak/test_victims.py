"""Processes under faults that overlap."""

from __future__ import annotations

import pytest
from soak.victims import Victim


class Process(Victim):
    def __init__(self):
        super().__init__()
        self.is_up = True
        self.is_stopped = False

    @property
    def is_running(self):
        return self.is_up

    def _start(self):
        self.is_up = True

    def _kill(self):
        self.is_up = False

    def _signal(self, *, go_on):
        self.is_stopped = not go_on


@pytest.fixture
def process():
    return Process()


def test_a_process_that_two_faults_keep_down_comes_back_when_both_are_over(process):
    first, second = process.kill(), process.kill()
    first()
    process.tend()
    assert not process.is_up
    second()
    assert process.is_up


def test_a_process_that_two_faults_pause_goes_on_when_both_are_over(process):
    first, second = process.pause(), process.pause()
    second()
    assert process.is_stopped and process.is_paused
    first()
    assert not process.is_stopped and not process.is_paused


def test_a_process_that_has_ended_by_itself_is_started_again(process):
    process.is_up = False
    process.tend()
    assert process.is_up
