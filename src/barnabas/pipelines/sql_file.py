"""Pipelines in SQL: the first comment is a TOML header, and statements create views.

    /*
    bootstrap = "127.0.0.1:9092"
    [source.orders]
    topic = "orders"
    format = "json"
    schema = "id BIGINT, price DOUBLE"
    [sink.dear]
    from = "dear_orders"
    topic = "dear"
    */
    CREATE TEMPORARY VIEW dear_orders AS SELECT * FROM orders WHERE price > 100;

``${name}`` in a string of the header, or in a statement, is a parameter. The header's table ``[parameters]``
has the defaults.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from barnabas.base.errors import ConfigError
from barnabas.pipelines.errors import Location, PipelineError
from barnabas.pipelines.model import Pipeline, Sink, Source, Step
from barnabas.pipelines.options import Options, PipelineOptions, SourceOptions
from barnabas.pipelines.parameters import Parameters
from barnabas.pipelines.sink_options import SinkOptions

T = TypeVar("T", bound=Options)

_HEADER = re.compile(r"\s*/\*(.*?)\*/", re.DOTALL)
#: comments and quoted texts, whose semicolons end no statement, or a semicolon that ends one
_TOKEN = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|(;)""", re.DOTALL)
_COMMENT = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_VIEW = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?(TEMP\w*\s+)?VIEW\s+`?(\w+)`?", re.IGNORECASE)
_TOML_PLACE = re.compile(r"\s*\(at line (\d+), column \d+\)")


def read_sql(path: Path, text: str, parameters: Parameters) -> Pipeline:
    """Read a SQL pipeline file: the declarations of its header, and its statements as steps.

    `text` is the content of the file `path`, and `parameters` has the values that a run gives.

    Raises:
        PipelineError: the header is missing or not valid TOML, or a declaration or a statement is not
            allowed.
    """
    header = _HEADER.match(text)
    if header is None:
        raise PipelineError(
            f"{path}:1: there is no header: begin with /* ... */ that holds sources and sinks"
        )
    first_line = 1 + text.count("\n", 0, header.start(1))
    reader = _HeaderReader(path, header[1], first_line, parameters)
    made = reader.pipeline()
    for statement, offset in statements(text, header.end()):
        location = Location(str(path), 1 + text.count("\n", 0, offset))
        try:
            filled = parameters.fill_in(statement, reader.defaults)
        except ConfigError as error:
            raise PipelineError(f"{location}: {error}") from None
        made.steps.append(_step(location, filled))
    return made


def statements(text: str, start: int = 0) -> Iterator[tuple[str, int]]:
    """Yield each SQL statement of `text` from `start` on, and the index in `text` at which it begins.

    A statement has no leading comments. Empty statements are left out.
    """
    ends = [match.start() for match in _TOKEN.finditer(text, start) if match[1]]
    for end in [*ends, len(text)]:
        comment = _COMMENT.match(text, start)
        begin = comment.end() if comment else start
        if text[begin:end].strip():
            yield text[begin:end].rstrip(), begin
        start = end + 1


def _step(location: Location, statement: str) -> Step:
    view = _VIEW.match(statement)
    if view and not view[1]:
        raise PipelineError(
            f"{location}: view {view[2]} would outlive the pipeline: write CREATE TEMPORARY VIEW"
        )
    if statement[:6].upper() == "SELECT":
        raise PipelineError(
            f"{location}: no sink writes the rows of this SELECT: begin it with CREATE TEMPORARY VIEW name AS"
        )
    return Step(view[2] if view else None, location, statement)


class _HeaderReader:
    """Reads the TOML tables of a SQL file's header. Errors have the line of the key."""

    def __init__(self, path: Path, toml: str, first_line: int, parameters: Parameters) -> None:
        self._path = path
        self._parameters = parameters
        self._lines = toml.splitlines()
        self._first = first_line
        try:
            self._tables = tomllib.loads(toml)
        except tomllib.TOMLDecodeError as error:
            at = _TOML_PLACE.search(str(error))
            line = first_line + int(at[1]) - 1 if at else first_line
            raise PipelineError(
                f"{path}:{line}: the header is not TOML: {_TOML_PLACE.sub('', str(error))}"
            ) from None
        #: default values of the parameters, by name
        self.defaults = self._take("parameters")

    def pipeline(self) -> Pipeline:
        made = Pipeline(self._path, self._parameters)
        sources, sinks = self._take_named("source"), self._take_named("sink")
        made.options = self._parse("", "pipeline", PipelineOptions, self._tables)
        for name, given in sources.items():
            table = f"source.{name}"
            source = self._parse(table, f"source {name}", SourceOptions, given)
            made.sources.append(Source(name, self._location(table), source))
        for name, given in sinks.items():
            table = f"sink.{name}"
            rows = given.pop("from", None)
            if not isinstance(rows, str):
                raise PipelineError(
                    f"{self._location(table)}: sink {name}: option from is missing: name a view"
                )
            sink = self._parse(table, f"sink {name}", SinkOptions, given)
            made.sinks.append(Sink(name, self._location(table, "from"), sink, rows))
        return made

    def _take(self, kind: str) -> dict[str, Any]:
        table = self._tables.pop(kind, {})
        if not isinstance(table, dict):
            raise PipelineError(f"{self._location('', kind)}: write a table [{kind}]")
        return table

    def _take_named(self, kind: str) -> dict[str, dict[str, Any]]:
        tables = self._tables.pop(kind, {})
        if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
            raise PipelineError(f"{self._location('', kind)}: write a table [{kind}.NAME] for each {kind}")
        return tables

    def _parse(self, table: str, what: str, kind: type[T], given: dict[str, Any]) -> T:
        try:
            return kind.parse(self._fill_in(given))
        except ConfigError as error:
            named = re.match(r"option (\w+)[=. ]", str(error))
            location = self._location(table, named[1] if named else "")
            raise PipelineError(f"{location}: {what}: {error}") from None

    def _fill_in(self, value: Any) -> Any:
        """Replace each ``${name}`` in the texts of `value` by the parameter's value."""
        if isinstance(value, dict):
            return {name: self._fill_in(each) for name, each in value.items()}
        return self._parameters.fill_in(value, self.defaults) if isinstance(value, str) else value

    def _location(self, table: str, key: str = "") -> Location:
        """Return the line of a key; the line of its table if the key is not found."""
        at, inside = 0, table == ""
        for number, line in enumerate(self._lines):
            word = line.strip()
            if word.startswith("["):
                name = re.sub(r"""["'\s]""", "", word.partition("]")[0].strip("["))
                inside = name == table
                at = number if inside else at
                if key and name == f"{table}.{key}".lstrip("."):
                    return Location(str(self._path), self._first + number)
            elif inside and key and re.match(rf"{re.escape(key)}\s*[.=]", word):
                return Location(str(self._path), self._first + number)
        return Location(str(self._path), self._first + at)
