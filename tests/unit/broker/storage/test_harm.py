"""The scope of each error of the disk."""

from __future__ import annotations

import errno
import os
from random import Random

import pytest
from simulation.clocks import ManualClock
from simulation.faulty_disk import FaultyDisk

from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.harm import Harm, TornError, harm_of, hint_of, is_about_one_file
from barnabas.broker.storage.open_files import LogFile, OpenFiles

REQUEST = (
    "ENOSPC EDQUOT EMFILE ENFILE ENOMEM EAGAIN EBUSY EINVAL EBADF ENOENT EACCES EPERM EFBIG ENAMETOOLONG "
    "EOVERFLOW EISDIR ENOTDIR EEXIST"
)


@pytest.mark.parametrize(
    ("names", "syncing", "harm"),
    [
        (REQUEST, False, Harm.REQUEST),
        ("EIO EROFS ENODEV EUCLEAN EBADMSG ENOMEDIUM", False, Harm.DIRECTORY),
        ("EIO EROFS", True, Harm.DIRECTORY),
        ("ENOSPC EDQUOT ENOMEM EINVAL", True, Harm.LOG),
        ("EMFILE ENFILE", True, Harm.REQUEST),
    ],
)
def test_errors_of_the_system(names, syncing, harm):
    for name in names.split():
        number = getattr(errno, name)
        assert harm_of(OSError(number, os.strerror(number)), syncing=syncing) is harm, name


def test_errors_of_our_own():
    assert harm_of(ValueError("a bug")) is Harm.LOG
    assert harm_of(OSError("without a number")) is Harm.REQUEST
    assert harm_of(TornError("cut off", OSError(errno.ENOSPC, "full"))) is Harm.LOG
    assert harm_of(TornError("cut off", OSError(errno.EIO, "broken"))) is Harm.DIRECTORY


def test_the_cure_ends_a_message_where_there_is_one():
    assert "free some space" in hint_of(OSError(errno.ENOSPC, "full"))
    assert hint_of(OSError(errno.EBADF, "bad")) == ""


def test_refusals_are_told_now_and_then_and_counted(caplog):
    clock = ManualClock(1_000_000)
    env = LogEnvironment("/data", OpenFiles(FaultyDisk()), clock, Random(1))
    for _ in range(5):
        env.operation_error("logs-0", OSError(errno.ENOSPC, "full"))
    env.operation_error("logs-1", OSError(errno.EMFILE, "too many"))
    clock.advance(10_000)
    env.operation_error("logs-2", OSError(errno.ENOSPC, "full"))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in lines] == ["logs-0", "logs-1", "logs-2"]
    assert "4 more" in lines[2] and env.failure is None


def test_files_that_may_be_closed_make_room_for_one_that_must_be_opened():
    disk = FaultyDisk()
    files = OpenFiles(disk)
    held = [LogFile(files, f"/{number}") for number in range(3)]
    for file in held:
        file.write_at([b"x"], 0)

    def ask(operation, path):
        if operation == "open" and disk.open_files >= 3:
            return OSError(errno.EMFILE, "too many open files")
        return None

    disk.refuse = ask
    another = LogFile(files, "/another")
    another.write_at([b"y"], 0)
    assert another.read_at(1, 0) == b"y" and disk.open_files == 1
    assert held[0].read_at(1, 0) == b"x"


def test_an_error_about_one_file_harms_no_more_than_its_request():
    about_one = [number for number in errno.errorcode if is_about_one_file(OSError(number, "x"))]
    assert errno.EISDIR in about_one and errno.ENOSPC not in about_one
    assert {harm_of(OSError(number, "x")) for number in about_one} == {Harm.REQUEST}
