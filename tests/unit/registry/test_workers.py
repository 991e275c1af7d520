"""The worker processes that parse schemas: after any job, they can do the next one."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from barnabas.base.system import limits
from barnabas.registry import limits as limits_of_jobs
from barnabas.registry import workers
from barnabas.registry.errors import RegistryError
from barnabas.registry.worker import Source
from barnabas.registry.workers import Workers

INT = Source("AVRO", '"int"')

#: jobs that only the workers of these tests know
JOBS = """
import os, time
from barnabas.registry import limits, worker
limits.CPU_S = CPU_S
kept = []

def spin():
    while True:
        pass

def take(size, keep):
    taken = b"x" * size
    kept.append(taken if keep else b"")
    return len(taken)

def begin(path):
    open(path, "w").close()
    time.sleep(60)

def lie():
    try:
        spin()
    except Exception:
        return "it went well"

jobs = dict(spin=spin, take=take, begin=begin, lie=lie, die=lambda: os.kill(os.getpid(), 9), pid=os.getpid)
worker.JOBS.update(jobs, fail=lambda: 1 / 0)
"""


@pytest.fixture
def cpu_s():
    """CPU seconds of a job: far more than those take that are to end well, on any machine."""
    return limits_of_jobs.CPU_S


@pytest.fixture
def pool(monkeypatch, cpu_s):
    jobs = f"CPU_S = {cpu_s}\n{JOBS}"
    monkeypatch.setattr(
        workers, "_RUN", workers._RUN.replace("import serve;", f"import serve; exec({jobs!r});")
    )
    pool = Workers(1)
    yield pool
    pool.close()


#: elsewhere the deadline of a job is its only limit
limited = pytest.mark.skipif(limits.resource is None, reason="this system has no limits of a process")


def soon():
    return time.monotonic() + 60


def test_a_worker_is_used_again(pool):
    assert pool.run(soon(), "pid") == pool.run(soon(), "pid") != os.getpid()
    assert pool.run(soon(), "canonical", INT) == '"int"'


@limited
@pytest.mark.parametrize("cpu_s", [0.5])
@pytest.mark.parametrize("job", ["spin", "lie"])
def test_a_job_that_takes_too_much_processor_time_is_refused_and_its_worker_replaced(pool, job):
    before = pool.run(soon(), "pid")
    with pytest.raises(RegistryError, match=r"more than 0\.5 s of processor time") as refused:
        pool.run(soon(), job)
    assert refused.value.code == 42209
    assert pool.run(soon(), "pid") != before


@limited
def test_a_job_that_takes_too_much_memory_is_refused_and_its_worker_replaced(pool):
    before = pool.run(soon(), "pid")
    with pytest.raises(RegistryError, match="too much memory") as refused:
        pool.run(soon(), "take", 2 << 30, False)
    assert refused.value.code == 42209
    assert pool.run(soon(), "pid") != before


@limited
def test_a_worker_that_has_grown_is_replaced(pool):
    held = b"x" * (300 << 20)  # by the process that starts the worker, which does not count
    before = pool.run(soon(), "pid")
    del held
    assert pool.run(soon(), "take", 200 << 20, True) == 200 << 20
    assert pool.run(soon(), "pid") != before


def test_a_worker_that_dies_is_told_of_and_replaced(pool):
    with pytest.raises(RegistryError, match=r"has ended \(status -9\)") as failed:
        pool.run(soon(), "die")
    assert failed.value.code == 50001
    assert pool.run(soon(), "canonical", INT) == '"int"'


def test_a_mistake_of_ours_is_no_fault_of_the_schema_and_ends_no_worker(pool):
    before = pool.run(soon(), "pid")
    with pytest.raises(RegistryError, match="fail failed: ZeroDivisionError") as failed:
        pool.run(soon(), "fail")
    assert failed.value.code == 50001
    assert pool.run(soon(), "pid") == before


def test_a_job_is_ended_at_its_deadline(pool, tmp_path: Path):
    before = pool.run(soon(), "pid")
    with pytest.raises(RegistryError, match="in time") as failed:
        pool.run(time.monotonic() + 0.2, "begin", str(tmp_path / "begun"))
    assert failed.value.code == 50002
    assert pool.run(soon(), "pid") != before


def test_what_is_under_way_is_given_up_when_the_last_registry_stops(pool, tmp_path: Path):
    begun, said = tmp_path / "begun", []

    def wait():
        with pytest.raises(RegistryError) as given_up:
            pool.run(soon(), "begin", str(begun))
        said.append(given_up.value.status)

    with pool.in_use():
        with pool.in_use():
            thread = threading.Thread(target=wait)
            thread.start()
            while not begun.exists():
                time.sleep(0.01)
        assert thread.is_alive()
    thread.join()
    assert said == [500]
    with pytest.raises(RegistryError, match="the registry stops"):
        pool.run(soon(), "pid")
    with pool.in_use():
        assert pool.run(soon(), "pid")
