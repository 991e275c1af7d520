"""Pipelines in Python: the functions that a pipeline file imports, and the function that reads the file."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar, overload

import pyspark
from pyspark import SparkContext, cloudpickle

from barnabas.base.errors import ConfigError
from barnabas.pipelines.errors import Location, PipelineError, explain, location_in
from barnabas.pipelines.model import Pipeline, Sink, Source, Step, Transform
from barnabas.pipelines.options import Options, PipelineOptions, SourceOptions
from barnabas.pipelines.parameters import Parameters
from barnabas.pipelines.sink_options import SinkOptions

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=Options)
V = TypeVar("V", str, int, float, bool)

_reading: ContextVar[Pipeline] = ContextVar("reading")


def pipeline(**options: Any) -> None:
    """Set the options of the whole pipeline, which are the fields of `PipelineOptions`.

    A later call replaces all options of an earlier call. Raises PipelineError if an option is not allowed.
    """
    reading = _current()
    reading.options = _parse(_caller(), "pipeline", PipelineOptions, options)


@overload
def parameter(name: str) -> str: ...
@overload
def parameter(name: str, default: V) -> V: ...
def parameter(name: str, default: Any = None) -> Any:
    """Return the value that a run gives by `--set NAME=VALUE`, or `default`.

    The value is converted to the type of `default`. Without a default, the value is a text.

    Raises:
        PipelineError: the run gives no value and there is no default, or the value has the wrong type.
    """
    try:
        return _current().parameters.get(name, default)
    except ConfigError as error:
        raise PipelineError(f"{_caller()}: {error}") from None


def source(**options: Any) -> Callable[[F], F]:
    """Return a decorator that declares a source with the name of the function.

    The options are the fields of `SourceOptions`. The function receives the parsed rows, and returns them or
    a changed version. The decorator raises PipelineError if an option is not allowed, or the function does
    not have exactly one parameter.
    """

    def declare(function: F) -> F:
        reading, name, location = _declared(function)
        if len(_parameters(function)) != 1:
            raise PipelineError(f"{location}: source {name} takes one parameter: its rows")
        parsed = _parse(location, f"source {name}", SourceOptions, options)
        reading.sources.append(Source(name, location, parsed, function))
        return function

    return declare


def step(function: F) -> F:
    """Declare a step with the name of the function. Use it as a decorator.

    Each parameter has the name of a source or step, and gets its rows as a DataFrame. The function returns
    the DataFrame of the new step.
    """
    reading, name, location = _declared(function)
    reading.steps.append(Step(name, location, Transform(function, _parameters(function))))
    return function


def sink(**options: Any) -> Callable[[F], F]:
    """Return a decorator that declares a sink with the name of the function.

    The options are the fields of `SinkOptions`. The function's parameters have the names of the sources and
    steps whose rows it receives. The function returns the rows to write. The decorator raises PipelineError
    if an option is not allowed.
    """

    def declare(function: F) -> F:
        reading, name, location = _declared(function)
        parsed = _parse(location, f"sink {name}", SinkOptions, options)
        reading.sinks.append(Sink(name, location, parsed, Transform(function, _parameters(function))))
        return function

    return declare


def read_python(path: Path, text: str, parameters: Parameters) -> Pipeline:
    """Run the pipeline file `path`, which contains `text`, and return its declarations.

    `parameters` has the values that a run gives. If Spark does not run, a line that needs Spark ends the run
    of the file. Then the result has only the declarations before this line, and its `complete` is False.

    Raises:
        PipelineError: the file raises an error, or a declaration is not allowed.
    """
    reading = Pipeline(path, parameters)
    token = _reading.set(reading)
    try:
        _let_import_from(path.absolute().parent)
        # its functions go to Spark's workers by value, since no module of that name can be imported there
        exec(_compile(path, text), {"__name__": "barnabas_pipeline", "__file__": str(path)})
    except PipelineError:
        raise
    except Exception as error:
        if not _lacks_spark(error):
            location = location_in(error, str(path), Location(str(path), 1))
            raise PipelineError(f"{location}: {type(error).__name__}: {explain(error)}") from error
        reading.complete = False
    finally:
        _reading.reset(token)
    _send_by_value(path.absolute().parent)
    return reading


def _let_import_from(folder: Path) -> None:
    """Add `folder` to the module search path, so that the pipeline file can import modules beside it."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _send_by_value(folder: Path) -> None:
    """Let cloudpickle send functions of modules in `folder` by value: Spark's workers cannot import them."""
    for name, module in list(sys.modules.items()):
        top = folder / name.partition(".")[0]
        file = Path(getattr(module, "__file__", None) or "/")
        if file == top.with_suffix(".py") or file.is_relative_to(top):
            cloudpickle.register_pickle_by_value(module)


def _lacks_spark(error: Exception) -> bool:
    """Whether PySpark raised the error because there is no session, which columns and UDFs need."""
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


def _caller() -> Location:
    """Return the line of the file that called a function of this module."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    assert frame is not None
    return Location(frame.f_code.co_filename, frame.f_lineno)


def _declared(function: Callable[..., Any]) -> tuple[Pipeline, str, Location]:
    reading = _current()
    assert isinstance(function, FunctionType)
    code = function.__code__
    return reading, function.__name__, Location(code.co_filename, code.co_firstlineno)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _parse(location: Location, what: str, kind: type[T], options: dict[str, Any]) -> T:
    try:
        return kind.parse(options)
    except ConfigError as error:
        raise PipelineError(f"{location}: {what}: {error}") from None
