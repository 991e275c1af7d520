"""Pipelines written in Python: what the file imports, and how it is read."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar

import pyspark
from pyspark import SparkContext

from barnabas.errors import ConfigError
from barnabas.pipelines.errors import PipelineError, Place, explain, place_in
from barnabas.pipelines.model import Pipeline, Sink, Source, Step, Transform
from barnabas.pipelines.options import Options, PipelineOptions, SinkOptions, SourceOptions

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=Options)

_reading: ContextVar[Pipeline] = ContextVar("reading")


def pipeline(**options: Any) -> None:
    """What holds for the whole pipeline, if there is something to say; options in `PipelineOptions`."""
    reading = _current()
    caller = inspect.currentframe()
    assert caller is not None and caller.f_back is not None
    place = Place(str(reading.path), caller.f_back.f_lineno)
    reading.options = _parse(place, "pipeline", PipelineOptions, options)


def source(**options: Any) -> Callable[[F], F]:
    """Declares a source, named as the function; options in `SourceOptions`.

    The function is given the rows as they are parsed and returns them, shaped if need be.
    """

    def declare(function: F) -> F:
        reading, name, place = _declared(function)
        if len(_parameters(function)) != 1:
            raise PipelineError(f"{place}: source {name} takes one parameter: its rows")
        parsed = _parse(place, f"source {name}", SourceOptions, options)
        reading.sources.append(Source(name, place, parsed, function))
        return function

    return declare


def step(function: F) -> F:
    """Declares a step, named as the function; its parameters are named after sources and steps."""
    reading, name, place = _declared(function)
    reading.steps.append(Step(name, place, Transform(function, _parameters(function))))
    return function


def sink(**options: Any) -> Callable[[F], F]:
    """Declares a sink, named as the function, which returns the rows to write; options in `SinkOptions`."""

    def declare(function: F) -> F:
        reading, name, place = _declared(function)
        parsed = _parse(place, f"sink {name}", SinkOptions, options)
        reading.sinks.append(Sink(name, place, parsed, Transform(function, _parameters(function))))
        return function

    return declare


def read_python(path: Path, text: str) -> Pipeline:
    """Run a file for what it declares; without Spark only as far as the first line that needs it.

    Raises:
        PipelineError: the file fails, or declares what is not allowed.
    """
    reading = Pipeline(path)
    token = _reading.set(reading)
    try:
        # its functions go to Spark's workers by value, since no module of that name can be imported there
        exec(_compile(path, text), {"__name__": "barnabas_pipeline", "__file__": str(path)})
    except PipelineError:
        raise
    except Exception as error:
        if not _lacks_spark(error):
            place = place_in(error, str(path), Place(str(path), 1))
            raise PipelineError(f"{place}: {type(error).__name__}: {explain(error)}") from error
        reading.complete = False
    finally:
        _reading.reset(token)
    return reading


def _lacks_spark(error: Exception) -> bool:
    """Whether it was PySpark that failed, before there was a session: columns and UDFs need one."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    inside = Path(innermost.filename).is_relative_to(Path(pyspark.__file__).parent)
    return inside and SparkContext._active_spark_context is None


def _compile(path: Path, text: str) -> CodeType:
    try:
        return compile(text, str(path), "exec")
    except SyntaxError as error:
        raise PipelineError(f"{path}:{error.lineno}: {error.msg}") from None


def _current() -> Pipeline:
    try:
        return _reading.get()
    except LookupError:
        raise PipelineError("a pipeline file is run by `barnabas pipeline run FILE`, not by itself") from None


def _declared(function: Callable[..., Any]) -> tuple[Pipeline, str, Place]:
    reading = _current()
    assert isinstance(function, FunctionType)
    return reading, function.__name__, Place(str(reading.path), function.__code__.co_firstlineno)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _parse(place: Place, what: str, kind: type[T], options: dict[str, Any]) -> T:
    try:
        return kind.parse(options)
    except ConfigError as error:
        raise PipelineError(f"{place}: {what}: {error}") from None
