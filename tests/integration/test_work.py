"""`barnabas.client.work`: the records of topics as a queue, with librdkafka's share consumer."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from tests.integration.conftest import Wire, use_share_groups

from barnabas.base.errors import KafkaError
from barnabas.client import ClientError, Producer, Worker, work
from barnabas.testing import BarnabasBroker

PATIENCE = 60.0


@pytest.fixture(scope="module")
def broker():
    settings = {
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "100",
        "group.share.min.record.lock.duration.ms": "1000",
    }
    with BarnabasBroker(settings) as broker:
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire)
        wire.close()
        yield broker


@pytest.fixture
def queue(broker, request):
    """Create a topic with a share group of the same name, which begins at the first
    record. Return the name.
    """
    name = f"queue-{abs(hash(request.node.name))}"
    broker.create_topic(name, 2)
    broker.admin().alter_configs("group", name, set={"share.auto.offset.reset": "earliest"})
    return name


def send(broker, topic, *values):
    with Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value)


def test_each_record_goes_to_one_member(broker, queue):
    values = [f"job {number}" for number in range(200)]
    send(broker, queue, *values)
    done: Counter[str] = Counter()
    finished = threading.Event()

    def run() -> None:
        with work(broker.bootstrap_servers, queue, group=queue, max_poll_records=10) as records:
            while not finished.is_set():
                record = records.poll(0.2)
                if record is not None:
                    done[record.text] += 1
                    if len(done) == len(values):
                        finished.set()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert finished.wait(PATIENCE)
    for thread in threads:
        thread.join()
    assert done == Counter(values)


def test_what_an_error_interrupts_comes_again_and_what_was_done_does_not(broker, queue):
    send(broker, queue, "a", "b", "c")
    with pytest.raises(ZeroDivisionError), Worker(broker.bootstrap_servers, queue, group=queue) as worker:
        done = worker.take(2, PATIENCE)[0].text
        raise ZeroDivisionError
    with Worker(broker.bootstrap_servers, queue, group=queue) as worker:
        again = [record.text for record in worker.take(2, PATIENCE)]
        assert worker.poll(0.5) is None
    assert sorted([done, *again]) == ["a", "b", "c"]


def test_a_released_job_comes_again_with_its_attempt_and_a_rejected_one_does_not(broker, queue):
    send(broker, queue, "bad", "busy")
    seen = []
    with Worker(broker.bootstrap_servers, queue, group=queue) as worker:
        while ("busy", 3) not in seen or ("bad", 1) not in seen:
            (job,) = worker.take(1, PATIENCE)
            seen.append((job.text, job.attempt))
            if job.text == "bad":
                job.reject()
            elif job.attempt < 3:
                job.release()
        assert worker.poll(0.5) is None
    assert sorted(seen) == [("bad", 1), ("busy", 1), ("busy", 2), ("busy", 3)]


def test_a_slow_worker_leaves_all_but_ten_jobs_to_the_others(broker, queue):
    topic = broker.create_topic(f"{queue}-of-both", 1)
    with Producer(broker.bootstrap_servers, batch_num_messages=1) as producer:
        for number in range(50):
            producer.send(topic, f"job {number}")
    with (
        Worker(broker.bootstrap_servers, topic, group=queue) as slow,
        Worker(broker.bootstrap_servers, topic, group=queue) as fast,
    ):
        slow.take(1, PATIENCE)
        assert len({job.text for job in fast.take(40, PATIENCE)}) == 40


def test_only_the_present_job_can_be_released(broker, queue):
    send(broker, queue, "a", "b")
    with Worker(broker.bootstrap_servers, queue, group=queue) as worker:
        first, second = worker.take(2, PATIENCE)
        with pytest.raises(ClientError, match="is acknowledged already"):
            first.release()
        second.release()
        with pytest.raises(ClientError, match="is acknowledged already"):
            second.reject()
        (again,) = worker.take(1, PATIENCE)
        assert (again.text, again.attempt) == (second.text, 2)


def test_jobs_that_arrived_for_a_take_that_timed_out_come_with_the_next_calls(broker, queue, caplog):
    send(broker, queue, "a", "b")
    with Worker(broker.bootstrap_servers, queue, group=queue) as worker:
        first = worker.poll(PATIENCE)
        said = ""
        while "only 1 of 3" not in said:  # the other may take longer than a second
            with pytest.raises(ClientError, match=r"only [01] of 3 records") as timed_out:
                worker.take(3, 1)
            said = str(timed_out.value)
        send(broker, queue, "c")
        taken = worker.take(2, PATIENCE)
        assert sorted(job.text for job in [first, *taken]) == ["a", "b", "c"]
        assert worker.poll(0.5) is None
    assert not caplog.records


def test_a_worker_says_that_nobody_got_the_jobs_of_a_take_that_timed_out(broker, queue, caplog):
    send(broker, queue, "a", "b")
    with Worker(broker.bootstrap_servers, queue, group=queue) as worker:
        while True:
            try:
                worker.take(3, 1)
            except ClientError as error:
                if "only 2 of 3" in str(error):
                    break
    (warning,) = caplog.records
    assert "2 records count as done, but no worker has processed them" in warning.getMessage()


def test_a_topic_that_is_not_there_is_an_error_at_once(broker):
    with pytest.raises(KafkaError, match="there is no topic missing"):
        Worker(broker.bootstrap_servers, "missing", group="g")


def test_a_cluster_without_share_groups_is_an_error_at_once():
    with BarnabasBroker() as broker:
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire, level=0)
        wire.close()
        broker.create_topic("t")
        with pytest.raises(ClientError, match=r"raise the feature share.version to 2"):
            Worker(broker.bootstrap_servers, "t", group="g")
