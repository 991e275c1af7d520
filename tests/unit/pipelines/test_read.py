"""Pipeline files before Spark: their declarations, and the places of errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.model import Pipeline, Transform
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


def read(folder: Path, file: str, text: str, /, **parameters: str) -> Pipeline:
    path = folder / file
    path.write_text(text)
    return read_pipeline(path, parameters)


def refused(folder: Path, file: str, text: str, /, **parameters: str) -> str:
    """Return the error for a file, without the path of its folder."""
    with pytest.raises(PipelineError) as caught:
        read(folder, file, text, **parameters)
    said = str(caught.value).removeprefix(f"{folder}/")
    assert "\n" not in said
    return said


def test_python_declares_by_decorated_functions(tmp_path: Path) -> None:
    made = read(tmp_path, "p.py", PYTHON)
    assert (made.name, made.options.bootstrap) == ("shop", "b:1")
    assert [(each.name, each.options.topic, each.location.line) for each in made.sources] == [
        ("orders", "orders", 5)
    ]
    assert [(each.name, each.body.inputs) for each in made.steps] == [("dear", ("orders",))]
    assert [(each.name, each.rows.inputs) for each in made.sinks] == [("out", ("dear", "orders"))]


def test_sql_declares_by_a_header_and_views(tmp_path: Path) -> None:
    made = read(tmp_path, "shop.sql", HEADED)
    assert (made.name, made.options.bootstrap) == ("shop", "b:1")
    assert [(each.name, each.location.line) for each in made.sources] == [("orders", 4)]
    assert [(each.name, each.rows, each.options.options) for each in made.sinks] == [
        ("out", "dear", {"kafka.acks": "1"})
    ]
    assert [(each.name, each.location.line, each.body.splitlines()[0]) for each in made.steps] == [
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
        (
            'options = { "kafka.acks" = "1" }',
            'options = { "kafka.acks" = 1 }',
            "p.sql:14: sink out: option options.kafka.acks=1 is not allowed: write a text",
        ),
        ('from = "dear"', 'from = "deer"', "p.sql:12: there is no source or step deer: did you mean dear?"),
        ('from = "dear"\n', "", "p.sql:11: sink out: option from is missing: name a view"),
        ("TEMPORARY ", "", "p.sql:18: view dear would outlive the pipeline: write CREATE TEMPORARY VIEW"),
        (
            "CREATE TEMPORARY VIEW dear AS\n",
            "",
            "p.sql:18: no sink writes the rows of this SELECT: begin it with CREATE",
        ),
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


ASKING = PYTHON.replace("import pipeline", "import parameter, pipeline").replace(
    'pipeline(name="shop", bootstrap="b:1")',
    """pipeline(
    name=parameter("name"), bootstrap=parameter("bootstrap", "b:1"), restarts=parameter("restarts", 3)
)""",
)


def test_a_python_file_asks_for_parameters_and_takes_them_as_the_type_of_their_default(
    tmp_path: Path,
) -> None:
    options = read(tmp_path, "p.py", ASKING, name="shop").options
    assert (options.name, options.bootstrap, options.restarts) == ("shop", "b:1", 3)
    options = read(tmp_path, "p.py", ASKING, name="s7", bootstrap="b:2", restarts="5").options
    assert (options.name, options.bootstrap, options.restarts) == ("s7", "b:2", 5)


def test_a_sql_file_names_parameters_in_its_header_and_its_statements(tmp_path: Path) -> None:
    text = HEADED.replace('topic = "dear"', 'topic = "${to}"').replace("';'", "'${note}' AND day > '${from}'")
    text = text.replace("[source.", "[parameters]\nnote = 'none'\nfrom = 2026-03-01\n\n[source.", 1)
    made = read(tmp_path, "p.sql", text, to="cheap", note="${spark.x}")
    assert made.sinks[0].options.topic == "cheap"
    assert "note <> '${spark.x}' AND day > '2026-03-01'" in str(made.steps[0].body)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "p.py:4: parameter name is not given: add --set name=..."),
        ({"name": "s", "restarts": "x"}, "p.py:4: parameter restarts=x is not allowed: write a whole number"),
        ({"name": "s", "restart": "1"}, "p.py: there is no parameter restart: did you mean restarts?"),
        (
            {"name": "s", "x": "1"},
            "p.py: there is no parameter x: the file's parameters: bootstrap, name, rest",
        ),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(tmp_path: Path, given: dict[str, str], said: str) -> None:
    assert refused(tmp_path, "p.py", ASKING, **given).startswith(said)


def test_a_parameter_that_a_sql_file_lacks_is_named_with_the_line(tmp_path: Path) -> None:
    header = refused(tmp_path, "p.sql", HEADED.replace('"dear"\ntopic', '"dear"\nkey = "${by}"\ntopic'))
    assert header == "p.sql:11: sink out: parameter by is not given: add --set by=..."
    statement = refused(tmp_path, "p.sql", HEADED.replace("';'", "'${note}'"))
    assert statement == "p.sql:18: parameter note is not given: add --set note=..."


def test_modules_beside_a_file_can_be_imported_and_go_to_workers_whole(tmp_path: Path) -> None:
    (tmp_path / "prices_of_shop.py").write_text("def is_dear(price):\n    return price > 100\n")
    text = PYTHON.replace(
        "@step", "from prices_of_shop import is_dear\n@step\ndef check(orders): return is_dear\n@step"
    )
    body = read(tmp_path, "p.py", text).steps[0].body
    assert isinstance(body, Transform)
    pickled = cloudpickle.dumps(body.function(None))  # type: ignore[arg-type]
    elsewhere = f"import pickle, sys; print(pickle.loads({pickled!r})(200))"
    done = subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True, cwd="/")
    assert (done.stdout, done.stderr) == ("True\n", "")
