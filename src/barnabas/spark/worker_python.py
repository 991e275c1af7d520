"""Chooses the Python interpreter of Spark's Python processes, on the machine of the driver.

Spark puts its own copy of PySpark, a zip file, at the start of PYTHONPATH. Python must compile every module
of a zip file again in each process, which takes a second of CPU time. The installed PySpark has bytecode and
takes a quarter of a second. A pipeline of two queries starts about a dozen such processes. So Spark starts a
script instead. The script removes the zip files from the path, and then executes the interpreter.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

_SHELL = Path("/bin/sh")

_SCRIPT = """\
#!{shell}
# Written by Barnabas: Python without Spark's zipped copy of PySpark, which has no bytecode.
set -f
IFS=:
kept=
for each in $PYTHONPATH; do
    case $each in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip | */jars/spark-core_*.jar) ;;
    *) kept=$kept${{kept:+:}}$each ;;
    esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""


def worker_python(folder: Path) -> str:
    """Return the path of the program that Spark starts as its Python interpreter.

    This function writes a script to `folder`, and returns its path. The script starts the present interpreter
    without Spark's zip files. The result is the path of the present interpreter itself in two cases:

    - The script cannot be executed.
    - Spark's JVM is not from the installed PySpark, so the zip files may be another version of PySpark.
    """
    installed = Path(pyspark.__file__).resolve().parent
    if not _SHELL.exists() or Path(_find_spark_home()).resolve() != installed:
        return sys.executable
    folder.mkdir(parents=True, exist_ok=True)
    script = folder.absolute() / "worker-python"
    beside = script.with_suffix(".new")
    beside.write_text(_SCRIPT.format(shell=_SHELL, python=shlex.quote(sys.executable)), encoding="utf-8")
    beside.chmod(0o755)
    beside.replace(script)  # a process of Spark may be starting from it
    # a file system may be mounted so that nothing on it can be executed
    return str(script) if os.access(script, os.X_OK) else sys.executable
