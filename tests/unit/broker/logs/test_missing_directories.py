"""A start that misses a log directory of the broker."""

from __future__ import annotations

import asyncio
import contextlib
import errno

import pytest
from tests.unit.broker.logs.bench import CONFIG, Bench, append, hosted, incomplete

from barnabas.base.environment.filesystem import read_file, write_file
from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.storage import checkpoints


async def fill_two_directories(bench):
    """Stop cleanly with the logs of t and u, of which the second directory has u."""
    await bench.logs.load({}, lambda _: CONFIG)
    for name in "tu":
        bench.create(name, records=3)
    await bench.logs.stop()
    assert "t-0" in bench.folders("/a") and "u-0" in bench.folders("/b")


@pytest.mark.parametrize("log_dirs", [["/a"], ["/a", "/empty"]], ids=["not-named", "not-mounted"])
def test_a_log_in_a_directory_that_is_missing_is_not_created_again(play, log_dirs, caplog):
    async def scenario(bench):
        await fill_two_directories(bench)
        for _ in range(2):
            again = Bench(*log_dirs, disk=bench.disk)
            await again.logs.load(hosted("tu"), lambda _: CONFIG)
            assert again.logs.get(TopicPartition("t", 0)).log_end_offset == 3
            with pytest.raises(KafkaError, match="the log of u-0 cannot be read"):
                again.create("u")
            assert "1 partitions are not served: the log directory with directory.id=" in caplog.text
            await again.logs.stop()
        again = Bench("/a", "/b", disk=bench.disk)
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        assert again.logs.get(TopicPartition("u", 0)).log_end_offset == 3
        await again.logs.stop()

    play(scenario)


@pytest.mark.parametrize("log_dirs", [["/a"], ["/a", "/empty"]], ids=["not-named", "not-mounted"])
def test_a_replica_in_a_directory_that_is_missing_is_registered_as_incomplete(play, log_dirs):
    async def scenario(bench):
        await fill_two_directories(bench)
        for _ in range(2):
            again = Bench(*log_dirs, disk=bench.disk, is_clustered=True)
            await again.logs.load(hosted("tu"), lambda _: CONFIG)
            assert incomplete(again) == ["u-0"]
            assert again.logs.get(TopicPartition("u", 0)).log_end_offset == 0
            await again.logs.stop()
        again = Bench(*log_dirs, "/b", disk=bench.disk, is_clustered=True)
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        assert incomplete(again) == []
        assert again.logs.get(TopicPartition("u", 0)).log_end_offset == 3
        await again.logs.stop()

    play(scenario)


def known_directories(bench):
    """Return how many directories of the broker each present directory names."""
    return [len(each.known_directories) for each in bench.logs.directories]


def test_a_directory_without_logs_may_go(play):
    async def scenario(bench):
        await fill_two_directories(bench)
        again = Bench("/a", "/b", disk=bench.disk)
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        again.logs.delete(TopicPartition("u", 0))
        await again.logs.stop()
        again = Bench("/a", disk=bench.disk)
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        assert known_directories(again) == [1]
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk)
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        assert again.create("u").log_end_offset == 0
        await again.logs.stop()

    play(scenario)


def test_a_topic_is_created_again_while_the_log_of_the_deleted_one_is_in_a_missing_directory(play):
    async def scenario(bench):
        await fill_two_directories(bench)
        again = Bench("/a", disk=bench.disk)
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        await again.logs.stop()
        again = Bench("/a", disk=bench.disk)
        partition, topic_id = TopicPartition("u", 0), b"n" * 16
        await again.logs.load({**hosted("t"), partition: topic_id}, lambda _: CONFIG)
        assert again.logs.create(partition, topic_id, CONFIG).log_end_offset == 0
        await again.logs.stop()

    play(scenario)


def test_the_directory_of_a_topic_that_was_deleted_meanwhile_may_go(play):
    async def scenario(bench):
        await fill_two_directories(bench)
        again = Bench("/a", disk=bench.disk)
        await again.logs.load(hosted("t"), lambda _: CONFIG, lambda _, topic_id: topic_id == b"u" * 16)
        assert known_directories(again) == [1]
        await again.logs.stop()

    play(scenario)


async def fill_and_leave_blank(bench, where=("/a", "/b")):
    """Create t and v in the first directory, u and w in the second one; v and w have no record."""
    await bench.logs.load({}, lambda _: CONFIG)
    for name, records in (("t", 3), ("u", 3), ("v", 0), ("w", 0)):
        bench.create(name, records).flush()
    assert {"t-0", "v-0"} < set(bench.folders(where[0])) and {"u-0", "w-0"} < set(bench.folders(where[-1]))


async def restart(bench, *log_dirs, is_clustered):
    """Return a broker that has loaded its logs and has created those of which nothing is known to be lost."""
    again = Bench(*log_dirs, disk=bench.disk, is_clustered=is_clustered)
    await again.logs.load(hosted("tuvw"), lambda _: CONFIG)
    for name in "tuvw":
        if again.logs.get(TopicPartition(name, 0)) is None:
            with contextlib.suppress(KafkaError):
                again.create(name)
    return again


def served(bench):
    """Return the end offset of each log that can be served or have a leader, by topic."""
    lacking = incomplete(bench)
    return {
        log.topic_partition.topic: log.log_end_offset
        for log in bench.logs
        if str(log.topic_partition) not in lacking
    }


CLUSTERED = pytest.mark.parametrize("is_clustered", [False, True], ids=["lone", "clustered"])


@CLUSTERED
@pytest.mark.parametrize("log_dirs", [["/a"], ["/a", "/empty"]], ids=["not-named", "not-mounted"])
def test_partitions_without_records_are_served_while_a_directory_is_missing_and_afterwards(
    play, log_dirs, is_clustered
):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        await bench.logs.stop()
        for _ in range(2):
            again = await restart(bench, *log_dirs, is_clustered=is_clustered)
            assert served(again) == {"t": 3, "v": 0, "w": 0}
            await again.logs.stop()
        again = await restart(bench, *log_dirs, "/b", is_clustered=is_clustered)
        assert served(again) == {"t": 3, "u": 3, "v": 0, "w": 0}
        await again.logs.stop()

    play(scenario)


@CLUSTERED
def test_after_a_kill_all_that_can_be_in_a_missing_directory_waits_for_it(play, is_clustered):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        bench.disk.process_ended()
        for _ in range(2):
            again = await restart(bench, "/a", is_clustered=is_clustered)
            assert served(again) == {"t": 3, "v": 0}
            bench.disk.process_ended()
        for _ in range(2):
            again = await restart(bench, "/a", "/b", is_clustered=is_clustered)
            assert served(again) == {"t": 3, "u": 3, "v": 0, "w": 0}
            await again.logs.stop()

    play(scenario)


@CLUSTERED
@pytest.mark.parametrize("log_dirs", [["/a"], ["/a", "/b"]], ids=["without b", "with b"])
@pytest.mark.parametrize("end", ["before load", "during load"])
def test_a_start_that_fails_does_not_change_what_is_known_of_a_missing_directory(
    play, is_clustered, log_dirs, end
):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        await bench.logs.stop()
        failed = Bench(*log_dirs, disk=bench.disk, is_clustered=is_clustered)
        if end == "during load":
            load = asyncio.ensure_future(failed.logs.load(hosted("tuvw"), lambda _: CONFIG))
            await asyncio.sleep(0)
            load.cancel()
            await asyncio.wait([load])
        await failed.logs.stop()
        again = await restart(bench, "/a", is_clustered=is_clustered)
        assert "u" not in served(again)
        assert served(again)["t"] == 3
        await again.logs.stop()
        again = await restart(bench, "/a", "/b", is_clustered=is_clustered)
        assert served(again)["u"] == 3
        await again.logs.stop()

    play(scenario)


def test_a_replica_that_could_not_begin_anew_is_not_taken_for_one_without_records(play):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        await bench.logs.stop()
        bench.disk.refuse = lambda operation, path: (
            OSError(errno.EACCES, "x")
            if operation == "write" and path.endswith("partition.metadata")
            else None
        )
        again = await restart(bench, "/a", is_clustered=True)
        bench.disk.refuse = None
        await again.logs.stop()
        again = await restart(bench, "/a", is_clustered=True)
        assert "u" not in served(again)
        await again.logs.stop()

    play(scenario)


@CLUSTERED
@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_without_the_list_of_logs_elsewhere_all_that_can_be_in_a_missing_directory_waits(
    play, is_clustered, damage
):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        await bench.logs.stop()
        path = f"/a/{checkpoints.LOGS_ELSEWHERE}"
        content = read_file(bench.disk, path)
        bench.disk.remove(path)
        if damage == "torn":
            write_file(bench.disk, path, content[:-5])
        again = await restart(bench, "/a", is_clustered=is_clustered)
        assert served(again) == {"t": 3, "v": 0}
        await again.logs.stop()

    play(scenario)


def test_a_new_topic_of_the_same_name_is_not_lost_with_a_missing_directory(play):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        await bench.logs.stop()
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        await again.logs.load({**hosted("tvw"), TopicPartition("u", 0): b"n" * 16}, lambda _: CONFIG)
        assert incomplete(again) == []
        await again.logs.stop()

    play(scenario)


def test_a_folder_of_no_known_topic_counts_as_lost_with_its_directory(play):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        await bench.logs.stop()
        again = Bench("/a", "/b", disk=bench.disk, is_clustered=True)
        await again.logs.load(hosted("tvw"), lambda _: CONFIG)
        await again.logs.stop()
        again = await restart(bench, "/a", is_clustered=True)
        assert incomplete(again) == ["u-0"]
        await again.logs.stop()

    play(scenario)


def test_a_replica_stays_incomplete_where_its_directory_is_back_without_it(play):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        await bench.logs.stop()
        again = await restart(bench, "/a", is_clustered=True)
        await again.logs.stop()
        bench.disk.remove_tree("/b/u-0")
        for _ in range(2):
            again = await restart(bench, "/a", "/b", is_clustered=True)
            assert served(again) == {"t": 3, "v": 0, "w": 0}
            await again.logs.stop()

    play(scenario)


def test_a_kill_while_a_lost_replica_is_marked_does_not_make_it_one_without_records(play):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        bench.disk.process_ended()
        full = OSError(errno.ENOSPC, "the disk is full")
        bench.disk.refuse = lambda operation, path: (
            full if operation == "write" and path.endswith("partition.metadata") else None
        )
        await restart(bench, "/a", is_clustered=True)
        bench.disk.process_ended()
        bench.disk.refuse = None
        again = await restart(bench, "/a", is_clustered=True)
        assert incomplete(again) == ["u-0", "w-0"]
        await again.logs.stop()

    play(scenario)


@CLUSTERED
@pytest.mark.parametrize("starts", [1, 2])
def test_the_log_of_a_topic_that_a_start_does_not_know_waits_in_a_missing_directory(
    play, is_clustered, starts
):
    async def scenario(bench):
        await fill_two_directories(bench)
        for _ in range(starts):
            again = Bench("/a", disk=bench.disk, is_clustered=is_clustered)
            await again.logs.load(hosted("t"), lambda _: CONFIG)
            await again.logs.stop()
        again = await restart(bench, "/a", is_clustered=is_clustered)
        assert "u" not in served(again)
        await again.logs.stop()
        again = await restart(bench, "/a", "/b", is_clustered=is_clustered)
        assert served(again)["u"] == 3
        assert known_directories(again) == [2, 2]
        await again.logs.stop()

    play(scenario)


@pytest.mark.parametrize("is_clean", [False, True], ids=["kill", "stop"])
def test_after_a_kill_the_log_of_a_topic_that_a_start_does_not_know_waits_in_a_missing_directory(
    play, is_clean, caplog
):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk)
        await again.logs.load(hosted("tv"), lambda _: CONFIG)
        assert "may have logs of topics that the broker does not know" in caplog.text
        if is_clean:
            await again.logs.stop()
        bench.disk.process_ended()
        again = await restart(bench, "/a", is_clustered=False)
        assert "u" not in served(again)
        await again.logs.stop()
        again = await restart(bench, "/a", "/b", is_clustered=False)
        assert served(again) == {"t": 3, "u": 3, "v": 0, "w": 0}
        await again.logs.stop()

    play(scenario)


@CLUSTERED
def test_a_list_of_logs_elsewhere_counts_only_with_the_clean_stop_that_wrote_it(play, is_clustered):
    async def scenario(bench):
        await fill_and_leave_blank(bench)
        await bench.logs.stop()
        old = {
            path: read_file(bench.disk, path)
            for path in (f"{each}/{checkpoints.LOGS_ELSEWHERE}" for each in ("/a", "/b"))
        }
        again = await restart(bench, "/a", "/b", is_clustered=is_clustered)
        append(again, again.logs.get(TopicPartition("w", 0)))
        await again.logs.stop()
        # what an earlier version leaves, which does not know the list
        for path, content in old.items():
            write_file(bench.disk, path, content)
            marker = f"{path.rpartition('/')[0]}/{checkpoints.CLEAN_SHUTDOWN}"
            write_file(bench.disk, marker, b'{"version":0,"brokerEpoch":-1}')
        again = await restart(bench, "/a", is_clustered=is_clustered)
        assert "w" not in served(again)
        await again.logs.stop()

    play(scenario)


@pytest.mark.parametrize("log_dirs", [["/a"], ["/a", "/b"]], ids=["one", "two"])
@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("failed", [False, True], ids=["", "after a failed start"])
def test_a_broker_of_a_cluster_that_has_lost_all_log_directories_leads_nothing(play, log_dirs, end, failed):
    async def scenario(bench):
        bench = Bench(*log_dirs, is_clustered=True)
        await fill_and_leave_blank(bench, where=log_dirs)
        if end == "stop":
            await bench.logs.stop()
        bench.disk.process_ended()
        for path in log_dirs:
            bench.disk.rename(path, f"{path}-away")
        if failed:
            again = Bench(*log_dirs, disk=bench.disk, is_clustered=True)
            load = asyncio.ensure_future(again.logs.load(hosted("tuvw"), lambda _: CONFIG))
            await asyncio.sleep(0)
            load.cancel()
            await asyncio.wait([load])
            await again.logs.stop()
        for _ in range(2):
            again = await restart(bench, *log_dirs, is_clustered=True)
            assert served(again) == {}
            await again.logs.stop()
        for path in log_dirs:
            bench.disk.remove_tree(path)
            bench.disk.rename(f"{path}-away", path)
        again = await restart(bench, *log_dirs, is_clustered=True)
        assert served(again) == {"t": 3, "u": 3, "v": 0, "w": 0}
        await again.logs.stop()

    play(scenario)


def test_in_new_log_directories_a_replica_that_could_not_begin_anew_is_incomplete_at_the_next_start(play):
    async def scenario(bench):
        bench = Bench("/a", is_clustered=True)
        await fill_and_leave_blank(bench, where=["/a"])
        await bench.logs.stop()
        bench.disk.rename("/a", "/away")
        bench.disk.refuse = lambda operation, path: (
            OSError(errno.EACCES, "x")
            if operation == "write" and path.endswith("partition.metadata")
            else None
        )
        again = await restart(bench, "/a", is_clustered=True)
        assert served(again) == {}
        bench.disk.refuse = None
        await again.logs.stop()
        for _ in range(2):
            again = await restart(bench, "/a", is_clustered=True)
            assert served(again) == {}
            await again.logs.stop()

    play(scenario)


def test_partitions_that_a_new_broker_gets_later_have_no_records_to_lose(play):
    async def scenario(bench):
        bench = Bench("/a", "/b", is_clustered=True)
        await bench.logs.load({}, lambda _: CONFIG)
        bench.disk.process_ended()
        again = await restart(bench, "/a", "/b", is_clustered=True)
        assert served(again) == {"t": 0, "u": 0, "v": 0, "w": 0}
        await again.logs.stop()

    play(scenario)
