"""Settings of Spark for `barnabas pipeline validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas.cli.app import app
from barnabas.pipelines import validate
from barnabas.pipelines.errors import PipelineError

FILE = """/*
spark = { "spark.jars" = "a.jar", "spark.executor.cores" = "2" }
[source.orders]
topic = "orders"
[sink.copy]
from = "orders"
topic = "copy"
*/
"""


def test_settings_on_the_command_line_override_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, str] = {}

    def start(name: str, folder: Path, master: str, settings: dict[str, str], log: Path) -> Any:
        found.update(settings)
        raise PipelineError("far enough")

    monkeypatch.setattr(validate, "start_session", start)
    (tmp_path / "shop.sql").write_text(FILE)
    command = ["pipeline", "validate", str(tmp_path / "shop.sql"), "--conf", "spark.jars=b.jar"]
    done = CliRunner().invoke(app, command)
    assert "far enough" in done.output
    assert found == {"spark.jars": "b.jar", "spark.executor.cores": "2"}
