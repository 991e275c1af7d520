"""The client in Java. It is compiled once, if there is a JDK and Apache Kafka's jars are available."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bench.artifacts import Unavailable, kafka_classpath

SOURCE = Path(__file__).parent / "roles" / "Transform.java"
#: Small and started fast: it shares the machine with twenty others.
OPTIONS = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]


def command(directory: Path) -> list[str]:
    """Return the beginning of a command that runs one of our Java classes. The class and its arguments
    follow.

    Args:
        directory: where to put the compiled classes.

    Raises:
        Unavailable: there is no JDK, or the jars cannot be fetched; the text is the reason, in one line.
    """
    if shutil.which("javac") is None:
        raise Unavailable("there is no `javac` on the PATH")
    classpath = kafka_classpath()
    done = subprocess.run(
        ["javac", "-cp", classpath, "-d", directory, SOURCE], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"{SOURCE.name} cannot be compiled:\n{done.stderr}")
    logging = directory / "log4j2.xml"
    logging.write_text('<Configuration><Loggers><Root level="off"/></Loggers></Configuration>')
    return [
        "java",
        *OPTIONS,
        f"-Dlog4j2.configurationFile={logging}",
        "-cp",
        f"{directory}{os.pathsep}{classpath}",
    ]
