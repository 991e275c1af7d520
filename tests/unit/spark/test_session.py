"""The error if Spark finds no suitable Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark.session import JavaMissingError, check_java


def java_that_says(folder: Path, version: str) -> None:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_a_java_that_is_new_enough_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that_says(tmp_path, "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


def test_a_java_that_is_too_old_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path, "11.0.20")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        JavaMissingError, match=r'Spark needs Java 17, .* is openjdk version "11.0.20": install'
    ):
        check_java()


def test_no_java_at_all_is_said_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError, match="java does not run: install a JRE 17 or newer"):
        check_java()
