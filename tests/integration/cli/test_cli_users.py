"""`barnabas users` against a broker."""

from __future__ import annotations

import pytest


def test_a_user_is_added_listed_and_deleted(barnabas, tmp_path):
    file = tmp_path / "password"
    file.write_text("wonderland\n")
    barnabas("users", "add", "alice", "--password-file", str(file))
    listed = {"user": "alice", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
    assert listed in barnabas("users", "list", "--json").json()
    barnabas("users", "add", "alice", "--password-file", str(file), "--iterations", "8192")
    assert "SCRAM-SHA-256,SCRAM-SHA-512" in barnabas("users", "list").out
    barnabas("users", "delete", "alice")
    assert "alice" not in [each["user"] for each in barnabas("users", "list", "--json").json()]
    assert "there is no user 'alice'" in barnabas("users", "delete", "alice", code=1).err


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\n", b"x" * 1001])
def test_a_file_without_a_password_is_told(barnabas, tmp_path, content):
    file = tmp_path / "password"
    file.write_bytes(content)
    assert "password" in barnabas("users", "add", "alice", "--password-file", str(file), code=1).err
