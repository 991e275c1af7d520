"""How tests start a JVM of Spark that has little to do: options that save a sixth of its processor time.

The first compiler, the simplest collector, no verification of classes that a compiler has just made, and no
collection of the whole heap each time that classes are loaded. No stage is compiled: a test has few rows.
Python workers are forked with their imports done, as those of pipelines are.
"""

from __future__ import annotations

SETTINGS = {
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -XX:+IgnoreUnrecognizedVMOptions "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:MetaspaceSize=256m"
    ),
    "spark.sql.codegen.wholeStage": "false",
    "spark.python.daemon.module": "barnabas.spark.worker_daemon",
}

#: the same for a command line
OPTIONS = tuple(part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}"))
