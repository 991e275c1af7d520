"""Data classes of a pipeline's declarations: sources, steps and sinks, each with its line in the file."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import ConfigError
from barnabas.pipelines.errors import Location, PipelineError
from barnabas.pipelines.options import NAME, REGISTERED, PipelineOptions, SourceOptions
from barnabas.pipelines.packages import check_packages
from barnabas.pipelines.parameters import Parameters
from barnabas.pipelines.sink_options import SinkOptions, sink_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Transform:
    """A function in a pipeline file. `inputs` names the sources and steps whose rows are its arguments."""

    function: Callable[..., DataFrame]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A source of rows.

    In Python files, the function `shape` changes the rows before steps use them. In SQL files, it is None.
    """

    name: str
    location: Location
    options: SourceOptions
    shape: Callable[[DataFrame], DataFrame] | None = None


@dataclass(frozen=True)
class Step:
    """A step: a function or a SQL statement. `name` is None for a statement that creates no view."""

    name: str | None
    location: Location
    body: Transform | str


@dataclass(frozen=True)
class Sink:
    """A sink. `rows` is the function that returns its rows or, in SQL files, the name of a source or step."""

    name: str
    location: Location
    options: SinkOptions
    rows: Transform | str


@dataclass
class Pipeline:
    """The declarations in a pipeline file."""

    path: Path
    parameters: Parameters = field(default_factory=lambda: Parameters({}))
    options: PipelineOptions = field(default_factory=PipelineOptions)
    sources: list[Source] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)
    #: False when the file could be read only in part, because Spark is not started yet
    complete: bool = True

    @property
    def name(self) -> str:
        return self.options.name or self.path.stem

    def check(self) -> None:
        """Check the declarations as far as possible without Spark.

        Raises:
            PipelineError: a name is invalid, is used twice or is unknown; there is no source or no sink; a
                parameter was given that the file does not use; the package of a format is not installed; or a
                format needs a schema registry, and the pipeline has no option registry.
        """
        try:
            self.parameters.check()
        except ConfigError as error:
            raise PipelineError(f"{self.path}: {error}") from None
        if not self.sources or not self.sinks:
            missing = "sink" if self.sources else "source"
            raise PipelineError(f"{self.path}: there is no {missing}: a pipeline needs one at least")
        _check_names([*self.sources, *self.steps])
        _check_names(self.sinks)
        ends: list[Source | Sink] = [*self.sources, *self.sinks]
        for end in ends:
            if end.options.format in REGISTERED and not self.options.registry:
                raise PipelineError(
                    f"{end.location}: {end.options.format} needs the pipeline's option registry: name its URL"
                )
            try:
                check_packages(end.options.format)
            except ConfigError as error:
                raise PipelineError(f"{end.location}: {error}") from None
        self._check_inputs()

    def check_installed(self, spark: Mapping[str, str]) -> None:
        """Check that the packages of the sinks are installed, and that Spark will have their JDBC drivers.

        Raises:
            PipelineError: a package or driver is missing; the text has its name.
        """
        for sink in self.sinks:
            try:
                sink_kind(sink.options.kind).check_spark(sink.options, spark)
            except ConfigError as error:
                raise PipelineError(f"{sink.location}: {error}") from None

    def _check_inputs(self) -> None:
        known = [source.name for source in self.sources]
        for step in self.steps:
            _check_known(step.location, _inputs(step.body), known)
            known += [step.name] if step.name else []
        for sink in self.sinks:
            _check_known(
                sink.location, (sink.rows,) if isinstance(sink.rows, str) else sink.rows.inputs, known
            )


def _check_names(declared: Iterable[Source | Step | Sink]) -> None:
    locations: dict[str, Location] = {}
    for each in declared:
        if each.name is None:
            continue
        if not NAME.fullmatch(each.name):
            raise PipelineError(f"{each.location}: the name {each.name}: write letters, digits, - and _")
        if each.name in locations:
            taken = locations[each.name].line
            raise PipelineError(
                f"{each.location}: the name {each.name} is taken at line {taken}: choose another"
            )
        locations[each.name] = each.location


def _inputs(body: Transform | str) -> tuple[str, ...]:
    return body.inputs if isinstance(body, Transform) else ()


def _check_known(location: Location, names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"before this line there are: {', '.join(known)}"
            raise PipelineError(f"{location}: there is no source or step {name}: {hint}")
