"""How tests start a JVM of Spark that soon ends: options that save a sixth of its processor time.

The first compiler, the simplest collector, no verification of classes that a compiler has just made, and no
collection of the whole heap each time that classes are loaded. No stage is compiled: a test has few rows.
"""

from __future__ import annotations

SETTINGS = {
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -XX:+IgnoreUnrecognizedVMOptions "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:MetaspaceSize=256m"
    ),
    "spark.sql.codegen.wholeStage": "false",
}

#: the same for a command line
OPTIONS = tuple(part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}"))
