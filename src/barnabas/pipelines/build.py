"""Makes the queries of a declared pipeline: one for each sink and each dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.batch import BatchRun
from barnabas.pipelines.errors import Location, PipelineError, explain, location_in
from barnabas.pipelines.files import exists, has_files, make_folder
from barnabas.pipelines.model import Pipeline, Sink, Source, Step, Transform
from barnabas.pipelines.refresh import Lookup
from barnabas.pipelines.reset import PARQUET_LOG, used_folder_error
from barnabas.pipelines.session import SPARK_FAILS, answers
from barnabas.pipelines.shared import Fanout, Output, can_share
from barnabas.pipelines.sink_letters import Rejections
from barnabas.pipelines.sink_options import SinkOptions
from barnabas.pipelines.sinks import static_writer, writer_to
from barnabas.pipelines.sources import Parsed, open_source
from barnabas.pipelines.stateless import comes_alone
from barnabas.pipelines.status import counted
from barnabas.spark.fetch_settings import has_effect
from barnabas.spark.options import WriteOptions

#: The folder in a shared query's checkpoint that has a folder for each output written so far.
_OUTPUTS = "outputs"

T = TypeVar("T")


@dataclass(frozen=True)
class Query:
    """A query that can be started. Its status and the folder of its checkpoint have the name `name`.

    Each call of `start` continues from the query's checkpoint.
    """

    name: str
    start: Callable[[], StreamingQuery | BatchRun]
    #: lets Spark analyse the query without starting it; raises PipelineError if Spark rejects it
    check: Callable[[], None] = lambda: None
    #: the static sources that are refreshed while the query runs; the same for all queries of a pipeline
    lookups: Sequence[Lookup] = ()
    #: returns the number of rows given to sinks, if Spark does not count them
    written: Callable[[], int] | None = None
    #: counts of the rows that sinks have rejected, if Spark does not count them
    rejected: Sequence[Rejections] = ()


@dataclass(frozen=True)
class Run:
    """Settings of one run of a pipeline.

    Attributes:
        bootstrap: addresses of brokers; empty if the file `config` names them.
        checkpoints: URI of the folder of the queries' checkpoints.
        once: whether the run ends when all present records are read.
    """

    bootstrap: str
    checkpoints: str
    once: bool
    #: a file of client settings, which may name the brokers
    config: str = ""


def build(spark: SparkSession, pipeline: Pipeline, run: Run) -> list[Query]:
    """Return the queries of `pipeline`, which are not started yet.

    Raises:
        PipelineError: Spark or a function of the file raises an error; the text has the line.
    """
    return _Builder(spark, pipeline, run).queries()


def check_streaming(rows: DataFrame, mode: str) -> None:
    """Check the streaming rules that Spark otherwise checks only when the query starts.

    `mode` is the output mode: append, update or complete. An example: append does not support an aggregation
    without a watermark. If a rule is broken, Spark's own error is raised.
    """
    spark = rows.sparkSession
    modes = spark._jvm.org.apache.spark.sql.streaming.OutputMode
    chosen = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    checker = spark._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), chosen)


def is_forgotten(spark: SparkSession, checkpoint: str, output: str) -> bool:
    """Whether a stream has written Parquet files to `output`, and its checkpoint does not exist any more.

    The checkpoint numbers the batches. Spark skips a batch whose number is already in `output`, as for a
    repeated batch. Without the checkpoint, the numbers begin again, and Spark would skip new rows.
    """
    return not has_files(spark, f"{checkpoint}/offsets") and has_files(spark, f"{output}/{PARQUET_LOG}")


def client_options(pipeline: Pipeline, run: Run) -> dict[str, str]:
    """Return the data source's options for the pipeline's connection to the brokers."""
    return _servers(run) | {f"kafka.{name}": value for name, value in pipeline.options.kafka.items()}


def client_settings(pipeline: Pipeline, run: Run) -> dict[str, str]:
    """Return librdkafka's settings for a client of the pipeline's brokers, outside Spark.

    Raises ConfigError if no broker's address is given, or a setting is not allowed.
    """
    return WriteOptions.parse(client_options(pipeline, run), streaming=False).client


def _servers(run: Run) -> dict[str, str]:
    servers = {"kafka.bootstrap.servers": run.bootstrap} if run.bootstrap else {}
    return servers | ({"barnabas.config": run.config} if run.config else {})


@dataclass
class _Shared:
    """A source that is read and parsed once for several outputs."""

    source: Source
    parsed: Parsed
    outputs: list[Output] = field(default_factory=list)
    #: the rows of the outputs, as streams
    streams: list[DataFrame] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.source.name}.shared"

    def add(self, output: Output, rows: DataFrame) -> None:
        self.outputs.append(output)
        self.streams.append(rows)


class _Builder:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, run: Run) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._run = run
        self._frames: dict[str, DataFrame] = {}
        self._lookups: list[Lookup] = []
        self._shared: list[_Shared] = []
        settings = pipeline.options.kafka
        self._registry = pipeline.options.registry
        servers = _servers(run)
        self._client = client_options(pipeline, run)
        #: without those for writing, which a source refuses: a pipeline states its settings once for both
        self._reader = servers | {
            f"kafka.{name}": value for name, value in settings.items() if has_effect(name)
        }

    def queries(self) -> list[Query]:
        made = [query for source in self._pipeline.sources for query in self._open(source)]
        for step in self._pipeline.steps:
            self._take(step)
        sinks = [query for sink in self._pipeline.sinks for query in self._sink(sink)]
        return [self._fan_out(shared) for shared in self._shared if shared.outputs] + made + sinks

    def _open(self, source: Source) -> list[Query]:
        """Open a source. Return its query for dead letters, in a list.

        The list is empty if the source has no dead-letter topic, or if one query writes all of its outputs.
        """
        what = f"source {source.name}"
        opened = self._attempt(
            source.location, what, lambda: open_source(self._spark, source, self._reader, self._registry)
        )
        rows = opened.rows
        if source.options.refresh and not self._run.once:
            self._lookups.append(Lookup(source.name, rows, source.options.refresh_s))
        if source.shape is not None:
            rows = self._call(source.location, what, Transform(source.shape, ()), rows)
        self._keep(source.name, rows)
        if opened.parsed is not None:
            self._shared.append(_Shared(source, opened.parsed))
        if opened.dead_letters is None:
            return []
        letters = SinkOptions.parse({"topic": source.options.dead_letter, "format": "raw"})
        name = f"{source.name}.dead_letter"
        if opened.parsed is not None:
            output = Output(name, letters, Rejections(name), lambda frames: frames[name])
            self._shared[-1].add(output, opened.dead_letters)
            return []
        return [self._query(name, source.location, opened.dead_letters, letters)]

    def _take(self, step: Step) -> None:
        if isinstance(step.body, Transform):
            assert step.name is not None
            inputs = [self._frames[name] for name in step.body.inputs]
            self._keep(step.name, self._call(step.location, f"step {step.name}", step.body, *inputs))
            return
        statement = step.body
        self._attempt(
            step.location, f"view {step.name}" if step.name else "", lambda: self._spark.sql(statement)
        )
        if step.name:
            self._frames[step.name] = self._spark.table(step.name)

    def _sink(self, sink: Sink) -> list[Query]:
        """Return the sink's query, in a list.

        The list is empty if the query that writes all outputs of a source also writes the rows of this sink.
        """

        def rows_of(frames: Mapping[str, DataFrame]) -> DataFrame:
            if isinstance(sink.rows, str):
                return frames[sink.rows]
            inputs = [frames[name] for name in sink.rows.inputs]
            return self._call(sink.location, f"sink {sink.name}", sink.rows, *inputs)

        rows = rows_of(self._frames)
        if rows.isStreaming and can_share(sink.options):
            for shared in self._shared:
                if comes_alone(rows, shared.source.name):
                    shared.add(Output(sink.name, sink.options, Rejections(sink.name), rows_of), rows)
                    return []
        return [self._query(sink.name, sink.location, rows, sink.options)]

    def _fan_out(self, shared: _Shared) -> Query:
        """Return the query that reads a shared source once, and writes all of its outputs."""
        source, location = shared.source, shared.source.location
        steps = [
            step
            for step in self._pipeline.steps
            if step.name
            and self._frames[step.name].isStreaming
            and comes_alone(self._frames[step.name], source.name)
        ]

        def frames(batch: DataFrame) -> dict[str, DataFrame]:
            """Return the DataFrames of the pipeline by name, for one batch of the shared source.

            The source's rows, its dead letters, and the steps that depend on the source alone are new
            DataFrames over `batch`. The source and these steps are also registered as views.
            """
            made = dict(self._frames)
            if shared.parsed.dead_letters is not None:
                made[f"{source.name}.dead_letter"] = shared.parsed.dead_letters(batch)
            rows = shared.parsed.rows(batch)
            if source.shape is not None:
                rows = self._call(location, f"source {source.name}", Transform(source.shape, ()), rows)
            made[source.name] = rows
            rows.createOrReplaceTempView(source.name)
            for step in steps:
                made[str(step.name)] = self._step_of(step, made, batch.sparkSession)
            return made

        fanout = Fanout(shared.outputs, frames, self._client, self._registry)

        def begin() -> StreamingQuery:
            checkpoint = f"{self._run.checkpoints}/{shared.name}"
            for output in shared.outputs:
                if self._has_begun(output.name) and not self._has_written(shared.name, output.name):
                    raise PipelineError(
                        f"{output.name} has run as a query of its own, and {shared.name} is not at the same "
                        "position: remove the option shared, or reset the pipeline"
                    )
            writer = shared.parsed.records.writeStream.foreachBatch(fanout.write)
            writer = writer.queryName(shared.name).option("checkpointLocation", checkpoint)
            query = (writer.trigger(availableNow=True) if self._run.once else writer).start()
            for output in shared.outputs:  # in a checkpoint that Spark has made: it wants to begin with none
                make_folder(self._spark, f"{checkpoint}/{_OUTPUTS}/{output.name}")
            return query

        def check() -> None:
            for output, rows in zip(shared.outputs, shared.streams, strict=True):
                self._analyse(rows, output.options)

        return Query(
            shared.name,
            lambda: self._attempt(location, shared.name, begin),
            lambda: self._attempt(location, shared.name, check),
            self._lookups,
            lambda: fanout.written,
            [output.rejections for output in shared.outputs],
        )

    def _check_not_shared_before(self, query: str) -> None:
        """Raise PipelineError if the query has no checkpoint, but an earlier run has written its rows.

        In that run, the source was shared, and its one query wrote all outputs. The rows would be written
        again.
        """
        for source in self._pipeline.sources:
            shared = f"{source.name}.shared"
            if self._has_written(shared, query) and not self._has_begun(query):
                raise PipelineError(
                    f"{query} has no checkpoint and would read all records again, although {shared} has "
                    "written its rows: make it share the source again, or reset the pipeline"
                )

    def _has_begun(self, query: str) -> bool:
        return has_files(self._spark, f"{self._run.checkpoints}/{query}/offsets")

    def _has_written(self, shared: str, output: str) -> bool:
        return exists(self._spark, f"{self._run.checkpoints}/{shared}/{_OUTPUTS}/{output}")

    def _step_of(self, step: Step, frames: Mapping[str, DataFrame], session: SparkSession) -> DataFrame:
        """Run a step for one batch. Return the step's rows, and register them as a view with its name.

        `frames` has the batch's DataFrames by the names of sources and steps. `session` is the batch's Spark
        session, with its own views.
        """
        name = str(step.name)
        if isinstance(step.body, Transform):
            inputs = [frames[each] for each in step.body.inputs]
            rows = self._call(step.location, f"step {name}", step.body, *inputs)
            rows.createOrReplaceTempView(name)
            return rows
        statement = step.body
        session.catalog.dropTempView(name)
        self._attempt(step.location, f"view {name}", lambda: session.sql(statement))
        return session.table(name)

    def _query(self, name: str, location: Location, rows: DataFrame, options: SinkOptions) -> Query:
        rejections = Rejections(name)
        start = self._streaming if rows.isStreaming else self._static
        begin: Callable[[], StreamingQuery | BatchRun] = start(name, rows, options, rejections)
        return Query(
            name,
            lambda: self._attempt(location, name, begin),
            lambda: self._attempt(location, name, lambda: self._analyse(rows, options)),
            self._lookups,
            rejected=[rejections],
        )

    def _analyse(self, rows: DataFrame, options: SinkOptions) -> None:
        unasked = replace(options, dead_letter="")  # brokers would be asked what their topics refuse
        if rows.isStreaming:
            writer_to(rows, unasked, self._client, self._registry, Rejections("checked"))
            check_streaming(rows, options.mode)
        else:
            static_writer(rows, unasked, self._client, self._registry, Rejections("checked"), "checked")

    def _static(
        self, name: str, rows: DataFrame, options: SinkOptions, rejections: Rejections
    ) -> Callable[[], BatchRun]:
        run = str(uuid4())  # what is tried again is still the same write

        def prepare(rows: DataFrame) -> Callable[[], None]:
            return static_writer(rows, options, self._client, self._registry, rejections, run)

        return lambda: BatchRun(rows, prepare)

    def _streaming(
        self, name: str, rows: DataFrame, options: SinkOptions, rejections: Rejections
    ) -> Callable[[], StreamingQuery]:
        checkpoint = f"{self._run.checkpoints}/{name}"

        def start() -> StreamingQuery:
            self._check_not_shared_before(name)
            if options.parquet and is_forgotten(self._spark, checkpoint, options.parquet):
                raise PipelineError(f"{name}: {used_folder_error(options.parquet)}")
            writer = writer_to(counted(rows), options, self._client, self._registry, rejections)
            writer = writer.queryName(name).option("checkpointLocation", checkpoint)
            if self._run.once:
                writer = writer.trigger(availableNow=True)
            elif options.trigger:
                writer = writer.trigger(processingTime=options.trigger)
            return writer.start()

        return start

    def _keep(self, name: str, rows: DataFrame) -> None:
        """Store `rows` under `name`, and register the view `name`, so that later steps can use them."""
        rows.createOrReplaceTempView(name)
        self._frames[name] = rows

    def _call(self, location: Location, what: str, transform: Transform, *inputs: DataFrame) -> DataFrame:
        made = self._attempt(location, what, lambda: transform.function(*inputs))
        if not isinstance(made, DataFrame):
            raise PipelineError(f"{location}: {what} gives {type(made).__name__}: return a DataFrame")
        return made

    def _attempt(self, location: Location, what: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except PipelineError:  # said already
            raise
        except Exception as error:
            if isinstance(error, SPARK_FAILS) and not answers(self._spark):
                raise  # Spark itself is gone
            known = isinstance(error, (BarnabasError, PySparkException, Py4JError))
            kind = "" if known else f"{type(error).__name__}: "
            location = location_in(error, location.file, location)
            words = f"{what}: " if what else ""
            raise PipelineError(f"{location}: {words}{kind}{explain(error)}") from error
