"""JDBC drivers: the one that a URL needs, and whether Spark has it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.jdbc_drivers import check_driver, driver_of, subprotocol
from barnabas.pipelines.read import read_pipeline

URL = "jdbc:mariadb://h/shop"


@pytest.fixture(autouse=True)
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a Spark that has only the jars of these tests."""
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home with blanks"
    (home / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


def jar(path: Path, *classes: str) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name in classes:
            made.writestr(name.replace(".", "/") + ".class", b"")
    return path


def test_the_usual_driver_of_a_url_is_known_and_another_can_be_set() -> None:
    assert subprotocol("jdbc:derby:/data/shop") == "derby"
    assert driver_of(URL, "") == "org.mariadb.jdbc.Driver"
    assert driver_of(URL, "com.example.Driver") == "com.example.Driver"
    with pytest.raises(ConfigError, match=r"option driver is missing: name the class .* jdbc:exotic:x"):
        driver_of("jdbc:exotic:x", "")


def test_a_driver_that_no_jar_has_is_named_with_the_cure(tmp_path: Path, spark_home: Path) -> None:
    jar(spark_home / "jars" / "other.jar", "org.example.Other")
    (spark_home / "jars" / "broken.jar").write_text("no zip")
    for settings in ({}, {"spark.jars": f"{tmp_path}/missing.jar,{spark_home}/jars/other.jar"}):
        with pytest.raises(
            ConfigError, match=r"driver org\.mariadb\.jdbc\.Driver is in no jar .*spark\.jars"
        ):
            check_driver(URL, "", settings)


def test_a_driver_is_found_where_spark_finds_it(tmp_path: Path, spark_home: Path) -> None:
    found = jar(tmp_path / "driver 1.jar", "org.mariadb.jdbc.Driver")
    check_driver(URL, "", {"spark.jars": str(found)})
    check_driver(URL, "", {"spark.jars": f"x.jar, {found.as_uri()}"})
    check_driver(URL, "", {"spark.jars": f"{tmp_path}/*.jar"})
    check_driver(URL, "", {"spark.driver.extraClassPath": f"/nowhere:{tmp_path}/*"})
    jar(spark_home / "jars" / "mariadb.jar", "org.mariadb.jdbc.Driver")
    check_driver(URL, "", {})


def test_jars_that_only_spark_can_fetch_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_driver(URL, "", {"spark.jars.packages": "org.mariadb.jdbc:mariadb-java-client:3.5.1"})
    check_driver(URL, "", {"spark.jars": "https://example.test/driver.jar"})
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars driver.jar pyspark-shell")
    check_driver(URL, "", {})


def test_derby_comes_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("SPARK_HOME")
    check_driver("jdbc:derby:/data/shop", "", {})


def test_a_pipeline_names_the_sink_whose_driver_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(
        '/*\n[source.orders]\ntopic = "orders"\nformat = "text"\n'
        f'[sink.sales]\nfrom = "orders"\njdbc = "{URL}"\ntable = "sales"\n*/\n'
    )
    pipeline = read_pipeline(file)
    with pytest.raises(PipelineError, match=r"shop\.sql:\d+: option jdbc=.*org\.mariadb\.jdbc\.Driver"):
        pipeline.check_installed(pipeline.options.spark)
