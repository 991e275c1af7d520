"""Messages about folders that cannot store data, before a broker opens anything."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.environment.folders import explain, folder_problem
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.errors import ConfigError
from barnabas.base.system import locks
from barnabas.broker.config import BrokerConfig
from barnabas.broker.logs.log_dirs import check_folders, check_paths


def config(*folders):
    return BrokerConfig(log_dirs=tuple(str(folder) for folder in folders))


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "a" * 2000])
def test_what_is_no_path_is_refused(name):
    with pytest.raises(ConfigError, match=r"log\.dirs") as caught:
        check_paths(config(name), OsFileSystem())
    assert len(str(caught.value)) < 200


def test_a_folder_that_is_named_twice_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(ConfigError, match="one folder twice"):
        check_paths(config(tmp_path / "data", tmp_path / "link"), OsFileSystem())


def test_a_folder_inside_another_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"data/inner lies inside .*data; choose folders beside each other"):
        check_paths(config(tmp_path / "data" / "inner", tmp_path / "data"), OsFileSystem())
    check_paths(config(tmp_path / "data", tmp_path / "data-2"), OsFileSystem())


def test_a_missing_parent_is_made(tmp_path):
    check_folders(config(tmp_path / "a" / "b"), OsFileSystem())
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("name", ["file", "file/inner"])
def test_a_file_in_the_way_is_named(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"/file is a file, not a folder: choose another"):
        check_folders(config(tmp_path / name), OsFileSystem())


@pytest.mark.parametrize("denied", ["data", "data/meta.properties", "data/.lock"])
def test_a_folder_without_the_right_to_write_names_the_user_and_the_cure(tmp_path, monkeypatch, denied):
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("")
    (data / ".lock").write_text("")
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path / denied))
    monkeypatch.setenv("LOGNAME", "kafka")
    with pytest.raises(ConfigError, match=rf"/{denied}: permission denied for user kafka: give this user"):
        check_folders(config(data), OsFileSystem())


def test_a_parent_without_the_right_to_write_is_named(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(OsFileSystem, "make_directory", refuse)
    with pytest.raises(ConfigError, match=rf"^{tmp_path}: permission denied for user"):
        check_folders(config(tmp_path / "a" / "b"), OsFileSystem())


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EROFS, "is on a read-only file system"),
        (errno.ENOSPC, "is on a full disk: free some space"),
        (errno.ELOOP, "cannot be used: Too many levels"),
    ],
)
def test_other_errors_are_explained(number, says):
    assert says in explain(Path("/data"), OSError(number, os.strerror(number)))


def test_the_broker_that_uses_a_folder_is_named_by_its_process(tmp_path):
    holder = (
        "import sys, time; from barnabas.base.environment.os_filesystem import OsFileSystem\n"
        f"lock = OsFileSystem().lock({str(tmp_path / '.lock')!r})\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="is in use by another broker") as caught:
            check_folders(config(tmp_path / "good", tmp_path), OsFileSystem())
        process.stdin.close()
    if sys.platform == "linux" and locks.fcntl is not None:
        assert f"(process {process.pid})" in str(caught.value)


def test_one_folder_of_several_may_be_unusable(tmp_path):
    (tmp_path / "file").write_text("")
    check_folders(config(tmp_path / "file", tmp_path / "good"), OsFileSystem())


def test_a_folder_in_the_place_of_the_lock_file_is_named(tmp_path):
    (tmp_path / ".lock").mkdir()
    problem = folder_problem(OsFileSystem(), str(tmp_path))
    assert problem is not None
    assert problem.text.startswith(f"{tmp_path / '.lock'} is a folder, not a file: move it away")
