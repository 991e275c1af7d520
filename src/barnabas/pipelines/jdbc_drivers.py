"""Finds the JDBC driver for a URL, and checks before Spark starts that Spark will have it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from barnabas.base.errors import ConfigError
from barnabas.spark.option_values import invalid_option

#: driver classes by the URL's subprotocol, from the drivers' documentation
_DRIVERS = {
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "derby": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    "h2": "org.h2.Driver",
    "hsqldb": "org.hsqldb.jdbc.JDBCDriver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "postgresql": "org.postgresql.Driver",
    "sqlite": "org.sqlite.JDBC",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
}
#: settings with which Spark fetches jars itself
_FETCHED = ("spark.jars.packages", "spark.jars.ivySettings")
_ELSEWHERE = ("PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH", "SPARK_CONF_DIR")


def subprotocol(url: str) -> str:
    """Return the kind of database in a JDBC URL: ``derby`` for ``jdbc:derby:/data/shop``.

    Return an empty text if `url` is not a JDBC URL.
    """
    return url.split(":")[1] if url.startswith("jdbc:") and url.count(":") > 1 else ""


def driver_of(url: str, driver: str) -> str:
    """Return the driver's class: `driver`, or the usual class for `url` if `driver` is empty.

    Raises:
        ConfigError: `driver` is empty, and the kind of database has no usual driver.
    """
    if driver:
        return driver
    found = _DRIVERS.get(subprotocol(url), "")
    if not found:
        raise ConfigError(f"option driver is missing: name the class of the JDBC driver for {url}")
    return found


def check_driver(url: str, driver: str, spark: Mapping[str, str]) -> None:
    """Raise ConfigError if none of the jars that Spark will load has the driver for `url`.

    If Spark may load jars that are not local files, the jars are not checked. Also raises ConfigError if
    `driver` is empty and the kind of database has no usual driver.

    Args:
        driver: class of the driver; empty for the usual one.
        spark: settings of Spark.
    """
    name = driver_of(url, driver)
    listed = [each.strip() for each in spark.get("spark.jars", "").split(",") if each.strip()]
    listed += [each for each in spark.get("spark.driver.extraClassPath", "").split(os.pathsep) if each]
    if any(spark.get(each) for each in _FETCHED) or any(os.environ.get(each) for each in _ELSEWHERE):
        return
    if not all(urlsplit(each).scheme in ("", "file") for each in listed):
        return
    file = name.replace(".", "/") + ".class"
    for jar in _jars([*listed, *_of_spark()]):
        if _has(jar, file):
            return
    raise invalid_option(
        "jdbc",
        url,
        f"its driver {name} is in no jar that Spark loads: download the jar and name it by "
        '--conf spark.jars=/path/driver.jar, or in the file: spark={"spark.jars": "/path/driver.jar"}',
    )


def _jars(listed: list[str]) -> Iterator[Path]:
    for each in listed:
        path = Path(unquote(urlsplit(each).path) if each.startswith("file:") else each)
        if path.is_dir():  # of classes, or of jars by "folder/*"
            yield path
        elif any(sign in path.name for sign in "*?[{"):
            yield from path.parent.glob(path.name)
        else:
            yield path


def _of_spark() -> Iterator[str]:
    home = os.environ.get("SPARK_HOME")
    if home:
        yield f"{home}/jars/*.jar"
        return
    found = find_spec("pyspark")
    if found is not None and found.origin is not None:
        yield str(Path(found.origin).parent / "jars" / "*.jar")


def _has(jar: Path, file: str) -> bool:
    if jar.is_dir():
        return (jar / file).is_file()
    try:
        with zipfile.ZipFile(jar) as opened:
            return file in opened.NameToInfo
    except (OSError, zipfile.BadZipFile):  # Spark says what it thinks of it
        return False
