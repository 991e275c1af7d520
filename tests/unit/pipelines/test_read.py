"""Pipeline files as they are read, before Spark: what they declare, and where a mistake is."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.model import Pipeline
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.sql_file import statements

PYTHON = """\
from barnabas.pipelines import pipeline, sink, source, step

pipeline(name="shop", bootstrap="b:1")

@source(topic="orders", format="json", schema="id BIGINT", dead_letter="bad")
def orders(rows):
    return rows

@step
def dear(orders):
    return orders

@sink(topic="dear", key="id")
def out(dear, orders):
    return dear
"""


HEADED = """\
/*
bootstrap = "b:1"

[source.orders]
topic = "orders"
format = "json"
schema = '''
  id BIGINT,
  at TIMESTAMP'''

[sink.out]
from = "dear"
topic = "dear"
options = { "kafka.acks" = "1" }
*/

-- what is dear; and why
CREATE TEMPORARY VIEW dear AS
SELECT * FROM orders WHERE note <> ';' /* ; */;

SET spark.sql.shuffle.partitions = 1
"""


def read(folder: Path, name: str, text: str) -> Pipeline:
    path = folder / name
    path.write_text(text)
    return read_pipeline(path)


def refused(folder: Path, name: str, text: str) -> str:
    """What is said of a file, without the folder it is in."""
    with pytest.raises(PipelineError) as caught:
        read(folder, name, text)
    said = str(caught.value).removeprefix(f"{folder}/")
    assert "\n" not in said
    return said


def test_python_declares_by_decorated_functions(tmp_path: Path) -> None:
    made = read(tmp_path, "p.py", PYTHON)
    assert (made.name, made.options.bootstrap) == ("shop", "b:1")
    assert [(each.name, each.options.topic, each.place.line) for each in made.sources] == [
        ("orders", "orders", 5)
    ]
    assert [(each.name, each.body.inputs) for each in made.steps] == [("dear", ("orders",))]
    assert [(each.name, each.rows.inputs) for each in made.sinks] == [("out", ("dear", "orders"))]


def test_sql_declares_by_a_header_and_views(tmp_path: Path) -> None:
    made = read(tmp_path, "shop.sql", HEADED)
    assert (made.name, made.options.bootstrap) == ("shop", "b:1")
    assert [(each.name, each.place.line) for each in made.sources] == [("orders", 4)]
    assert [(each.name, each.rows, each.options.options) for each in made.sinks] == [
        ("out", "dear", {"kafka.acks": "1"})
    ]
    assert [(each.name, each.place.line, each.body.splitlines()[0]) for each in made.steps] == [
        ("dear", 18, "CREATE TEMPORARY VIEW dear AS"),
        (None, 21, "SET spark.sql.shuffle.partitions = 1"),
    ]


def test_semicolons_in_texts_names_and_comments_end_no_statement() -> None:
    text = 'SELECT \';\', "a;\\"b", `c;d` -- e;f\n/* g;h */; \n-- last; one\n;\n SET x'
    assert [statement for statement, _ in statements(text)] == [text[: text.index("; \n")], "SET x"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'topic="orders"',
            'topick="orders"',
            "p.py:5: source orders: option topick=orders is not allowed: did you",
        ),
        (
            'bootstrap="b:1"',
            "restarts=-1",
            "p.py:3: pipeline: option restarts=-1 is not allowed: write 0 or more",
        ),
        (
            'key="id"',
            'format="avro", schema="{}"',
            "p.py:13: avro needs the pipeline's option registry: name",
        ),
        (
            "def dear(orders)",
            "def dear(order)",
            "p.py:9: there is no source or step order: did you mean orders?",
        ),
        ("def orders(rows)", "def orders()", "p.py:5: source orders takes one parameter: its rows"),
        (
            "def dear(orders)",
            "def orders(orders)",
            "p.py:9: the name orders is taken at line 5: choose another",
        ),
        ("return rows", "return rows)", "p.py:7: unmatched ')'"),
        ("@step", "1/0\n@step", "p.py:9: ZeroDivisionError: division by zero"),
        ("import pipeline", "import nothing, pipeline", "p.py:1: ImportError: cannot import name 'nothing'"),
        ('@sink(topic="dear", key="id")', "", "p.py: there is no sink: a pipeline needs one at least"),
    ],
)
def test_a_mistake_in_python_is_said_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert refused(tmp_path, "p.py", PYTHON.replace(old, new)).startswith(said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("/*", "", "p.sql:1: there is no header: begin with /* ... */"),
        ('"b:1"', "b", "p.sql:2: the header is not TOML: Invalid value"),
        (
            'format = "json"',
            'format = "jsn"',
            "p.sql:6: source orders: option format=jsn is not allowed: did you",
        ),
        (
            "bootstrap",
            "bootstrp",
            "p.sql:2: pipeline: option bootstrp=b:1 is not allowed: did you mean bootstrap?",
        ),
        ('from = "dear"', 'from = "deer"', "p.sql:12: there is no source or step deer: did you mean dear?"),
        ('from = "dear"\n', "", "p.sql:11: sink out: option from is missing: name a view"),
        ("TEMPORARY ", "", "p.sql:18: view dear would outlive the pipeline: write CREATE TEMPORARY VIEW"),
        ("CREATE TEMPORARY VIEW dear AS\n", "", "p.sql:18: this SELECT goes nowhere: begin it with CREATE"),
        ("[sink.out]", '[sink."a/b"]', "p.sql:12: the name a/b: write letters, digits, - and _"),
        ("[source.orders]", "[source]", "p.sql:4: write a table [source.NAME] for each source"),
    ],
)
def test_a_mistake_in_sql_is_said_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert refused(tmp_path, "p.sql", HEADED.replace(old, new, 1)).startswith(said)


def test_a_file_that_is_no_pipeline_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "p.txt", "") == "p.txt: a pipeline is a file that ends in .py or .sql"


def test_a_file_that_needs_spark_while_it_is_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    text = PYTHON.replace("@step", "from pyspark.sql import functions as F\nnow = F.lit(1)\n@step")
    made = read(tmp_path, "p.py", text)
    assert (made.complete, made.name, len(made.sources)) == (False, "shop", 1)
