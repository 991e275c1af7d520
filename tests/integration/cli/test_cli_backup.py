"""`barnabas cluster backup` and `restore`, with a broker that runs alone."""

from __future__ import annotations

from click.testing import CliRunner

from barnabas.cli.app import app
from barnabas.testing import BarnabasBroker


def call(*arguments, code=0):
    result = CliRunner().invoke(app, ["cluster", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_a_lone_brokers_lost_metadata_is_restored_with_its_records(tmp_path):
    data, file = tmp_path / "data", tmp_path / "shop.backup"
    with BarnabasBroker(data=data) as broker:
        broker.create_topic("t", 2)
        broker.produce("t", "a", "b", "c")
    assert "Wrote 1 topics" in call("backup", file, "--data", data)
    for journal in data.glob("metadata-*.journal"):
        journal.unlink()
    assert "Restored 1 topics" in call("restore", file, "--data", data)
    with BarnabasBroker(data=data) as broker:
        assert sorted(record.value for record in broker.consume("t", 3)) == [b"a", b"b", b"c"]
    assert "already" in call("restore", file, "--data", data, code=1)


def test_what_is_missing_is_told_in_one_line(tmp_path):
    assert "--data" in call("backup", tmp_path / "x", code=2)
    assert "log.dirs" in call("backup", tmp_path / "x", "--data", tmp_path / "none", code=1)
    (tmp_path / "bad").write_text("x")
    assert "not a backup" in call("restore", tmp_path / "bad", "--data", tmp_path / "none", code=1)
