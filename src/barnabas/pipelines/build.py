"""From a declaration to queries that can be started: one for each sink and each dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.errors import BarnabasError
from barnabas.pipelines.batch import BatchRun
from barnabas.pipelines.errors import PipelineError, Place, explain, place_in
from barnabas.pipelines.model import Pipeline, Sink, Source, Step, Transform
from barnabas.pipelines.options import SinkOptions
from barnabas.pipelines.refresh import Lookup
from barnabas.pipelines.reset import PARQUET_LOG, remembers
from barnabas.pipelines.session import SPARK_FAILS, answers
from barnabas.pipelines.sinks import static_writer, writer_to
from barnabas.pipelines.sources import open_source
from barnabas.pipelines.status import counted
from barnabas.spark.fetch_settings import has_effect
from barnabas.spark.options import WriteOptions

T = TypeVar("T")


@dataclass(frozen=True)
class Query:
    """A query by the name it has in status and checkpoints; each `start` goes on from its checkpoint."""

    name: str
    start: Callable[[], StreamingQuery | BatchRun]
    #: has Spark analyse the query without starting it; raises PipelineError for what it refuses
    check: Callable[[], None] = lambda: None
    #: the static sources that are read anew while it runs; all queries of a pipeline have the same ones
    lookups: Sequence[Lookup] = ()


@dataclass(frozen=True)
class Run:
    """What is chosen when a pipeline is started, not when it is written."""

    bootstrap: str
    checkpoints: str
    once: bool
    #: a file of client settings, which may name the brokers
    config: str = ""


def build(spark: SparkSession, pipeline: Pipeline, run: Run) -> list[Query]:
    """The queries of `pipeline`, not yet started.

    Raises:
        PipelineError: Spark or a function of the file refuses; the text names the line.
    """
    return _Builder(spark, pipeline, run).queries()


def check_streaming(rows: DataFrame, mode: str) -> None:
    """Have Spark refuse now what it would refuse at the query's start, such as a count without an end."""
    spark = rows.sparkSession
    modes = spark._jvm.org.apache.spark.sql.streaming.OutputMode
    chosen = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    checker = spark._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), chosen)


def is_forgotten(spark: SparkSession, checkpoint: str, output: str) -> bool:
    """Whether a stream has written Parquet files to `output` whose checkpoint is gone.

    Batches are numbered by the checkpoint. Spark leaves out a batch whose number the folder knows, which is
    right for one that is written again, and loses rows when the numbers begin anew.
    """
    return not _has_files(spark, f"{checkpoint}/offsets") and _has_files(spark, f"{output}/{PARQUET_LOG}")


def _has_files(spark: SparkSession, folder: str) -> bool:
    path = spark._jvm.org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return bool(files.exists(path) and len(files.listStatus(path)))


def client_options(pipeline: Pipeline, run: Run) -> dict[str, str]:
    """The data source's options that say how the pipeline reaches the brokers."""
    return _servers(run) | {f"kafka.{name}": value for name, value in pipeline.options.kafka.items()}


def client_settings(pipeline: Pipeline, run: Run) -> dict[str, str]:
    """The same as settings of librdkafka, for a client of the pipeline's own. Raises ConfigError."""
    return WriteOptions.parse(client_options(pipeline, run), streaming=False).client


def _servers(run: Run) -> dict[str, str]:
    servers = {"kafka.bootstrap.servers": run.bootstrap} if run.bootstrap else {}
    return servers | ({"barnabas.config": run.config} if run.config else {})


class _Builder:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, run: Run) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._run = run
        self._frames: dict[str, DataFrame] = {}
        self._lookups: list[Lookup] = []
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
        return made + [self._sink(sink) for sink in self._pipeline.sinks]

    def _open(self, source: Source) -> list[Query]:
        """Open a source; its query for dead letters, if it has one."""
        what = f"source {source.name}"
        opened = self._attempt(
            source.place, what, lambda: open_source(self._spark, source, self._reader, self._registry)
        )
        rows = opened.rows
        if source.options.refresh and not self._run.once:
            self._lookups.append(Lookup(source.name, rows, source.options.refresh_s))
        if source.shape is not None:
            rows = self._call(source.place, what, Transform(source.shape, ()), rows)
        self._keep(source.name, rows)
        if opened.dead_letters is None:
            return []
        letters = SinkOptions.parse({"topic": source.options.dead_letter, "format": "raw"})
        return [self._query(f"{source.name}.dead_letter", source.place, opened.dead_letters, letters)]

    def _take(self, step: Step) -> None:
        if isinstance(step.body, Transform):
            assert step.name is not None
            inputs = [self._frames[name] for name in step.body.inputs]
            self._keep(step.name, self._call(step.place, f"step {step.name}", step.body, *inputs))
            return
        statement = step.body
        self._attempt(
            step.place, f"view {step.name}" if step.name else "", lambda: self._spark.sql(statement)
        )
        if step.name:
            self._frames[step.name] = self._spark.table(step.name)

    def _sink(self, sink: Sink) -> Query:
        if isinstance(sink.rows, str):
            rows = self._frames[sink.rows]
        else:
            inputs = [self._frames[name] for name in sink.rows.inputs]
            rows = self._call(sink.place, f"sink {sink.name}", sink.rows, *inputs)
        return self._query(sink.name, sink.place, rows, sink.options)

    def _query(self, name: str, place: Place, rows: DataFrame, options: SinkOptions) -> Query:
        begin = self._streaming(name, rows, options) if rows.isStreaming else self._static(rows, options)
        return Query(
            name,
            lambda: self._attempt(place, name, begin),
            lambda: self._attempt(place, name, lambda: self._analyse(rows, options)),
            self._lookups,
        )

    def _analyse(self, rows: DataFrame, options: SinkOptions) -> None:
        if rows.isStreaming:
            writer_to(rows, options, self._client, self._registry)
            check_streaming(rows, options.mode)
        else:
            static_writer(rows, options, self._client, self._registry, "")

    def _static(self, rows: DataFrame, options: SinkOptions) -> Callable[[], BatchRun]:
        run = str(uuid4())  # what is tried again is still the same write

        def prepare(rows: DataFrame) -> Callable[[], None]:
            return static_writer(rows, options, self._client, self._registry, run)

        return lambda: BatchRun(rows, prepare)

    def _streaming(self, name: str, rows: DataFrame, options: SinkOptions) -> Callable[[], StreamingQuery]:
        checkpoint = f"{self._run.checkpoints}/{name}"

        def start() -> StreamingQuery:
            if options.parquet and is_forgotten(self._spark, checkpoint, options.parquet):
                raise PipelineError(f"{name}: {remembers(options.parquet)}")
            writer = writer_to(counted(rows), options, self._client, self._registry)
            writer = writer.queryName(name).option("checkpointLocation", checkpoint)
            if self._run.once:
                writer = writer.trigger(availableNow=True)
            elif options.trigger:
                writer = writer.trigger(processingTime=options.trigger)
            return writer.start()

        return start

    def _keep(self, name: str, rows: DataFrame) -> None:
        """Known to later steps, and to their SQL."""
        rows.createOrReplaceTempView(name)
        self._frames[name] = rows

    def _call(self, place: Place, what: str, transform: Transform, *inputs: DataFrame) -> DataFrame:
        made = self._attempt(place, what, lambda: transform.function(*inputs))
        if not isinstance(made, DataFrame):
            raise PipelineError(f"{place}: {what} gives {type(made).__name__}: return a DataFrame")
        return made

    def _attempt(self, place: Place, what: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except PipelineError:  # said already
            raise
        except Exception as error:
            if isinstance(error, SPARK_FAILS) and not answers(self._spark):
                raise  # Spark itself is gone
            known = isinstance(error, (BarnabasError, PySparkException, Py4JError))
            kind = "" if known else f"{type(error).__name__}: "
            place = place_in(error, place.file, place)
            words = f"{what}: " if what else ""
            raise PipelineError(f"{place}: {words}{kind}{explain(error)}") from error
