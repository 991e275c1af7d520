"""Tests pipeline files, with rows as input and output, on a real broker and a real Spark.

    def test_dear_orders(barnabas_pipeline):
        shop = barnabas_pipeline("shop.py")
        assert shop.step("dear_orders", orders=[{"id": 1, "price": 5.0}]) == []
        out = shop.run(orders=[{"id": 2, "price": 500.0}, "no order"])
        assert out["dear"] == [{"id": 2, "price": 500.0}]
        assert out["orders.dead_letter"] == [b"no order"]

The fixture `barnabas_pipeline` is in `barnabas.testing.plugin`. It uses the Spark session of the fixture
`barnabas_spark`, and the broker of `barnabas_fresh_broker`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from barnabas.base.types import TopicPartition
from barnabas.client.record import Record
from barnabas.pipelines.build import Run, build
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.model import Pipeline, Sink, Source, Transform
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.sink_options import SinkOptions
from barnabas.pipelines.supervisor import Supervisor
from barnabas.spark.text_formats import parse_schema
from barnabas.testing.cluster import Cluster

Row = dict[str, Any]

_LOOK_S = 0.1
#: client settings that do not apply to a test's broker
_SECRETS = ("security.", "sasl.", "ssl.")
_LINES = ("json", "csv", "text")


class PipelineUnderTest:
    """A pipeline file, its topics on the test's own broker, and folders for the test.

    The constructor reads the file, and creates the topics of the pipeline.
    Topics keep their names, and have one partition each. For a source of files and for a Parquet sink, a
    folder of the test replaces the folder that is read or written. A topic with JSON replaces a sink to a
    database, a table or the screen.

    Args:
        cluster: the broker.
        file: the pipeline file.
        folder: folder for checkpoints and for the files that replace those of the pipeline.
        parameters: values of the file's parameters, by name.

    Attributes:
        cluster: the broker, for tests that use it directly.
    """

    def __init__(
        self, spark: SparkSession, cluster: Cluster, file: Path, folder: Path, parameters: Mapping[str, str]
    ) -> None:
        self.cluster = cluster
        self._spark = spark
        self._folder = folder
        self._fed = count()
        read = read_pipeline(file, parameters)
        self._pipeline = self._moved(read)
        self._read_to: dict[TopicPartition, int] = {}
        self._files_seen: set[Path] = set()
        for topic in self._topics():
            cluster.create_topic(topic)

    def run(self, /, **rows: Sequence[object]) -> dict[str, list[Any]]:
        """Write rows to the sources, run the queries to their end, and return their output.

        Each run continues from the previous run's checkpoints, like a pipeline that is restarted.

        Args:
            rows: the rows of each source, by its name. A row is a dict (a record of JSON), text, bytes, None
                (a tombstone), or a pair of a key and one of these.

        Returns:
            The rows that each sink has written in this run, by its name: parsed values for JSON, dicts for
                Parquet, bytes for other formats. A source or a sink with a dead-letter topic adds
                ``NAME.dead_letter``: the values of that topic's new records. Rows of a topic are in the order
                of their offsets.

        Raises:
            PipelineError: the file is wrong, a name is not of a source, or a query has failed.
        """
        for name, given in rows.items():
            self._feed(self._source(name), given)
        self._forget_views()
        checkpoints = (self._folder / "checkpoints").as_uri()
        run = Run(self.cluster.bootstrap_servers, checkpoints, once=True)
        # one by one: each query starts Python processes of its own
        for query in build(self._spark, self._pipeline, run):
            supervisor = Supervisor([query], 0, time.monotonic, lambda words: None)
            while not supervisor.finished:
                time.sleep(_LOOK_S)
                supervisor.look()
            if supervisor.failed:
                raise PipelineError(f"{query.name} failed: {supervisor.failed.last_error}")
        return dict(self._written())

    def step(self, name: str, /, **inputs: Sequence[Row] | DataFrame) -> list[Row]:
        """Return the output of a source's function, a step or a sink for `inputs`. Uses no topics.

        Args:
            name: the name of the source, the step or the sink.
            inputs: the rows of each source or step that `name` reads, by name (``rows`` for a source's
                function), as dicts or a DataFrame. If the source's schema declares all columns of the dicts,
                the schema gives their types. If it does not, Spark infers the types.

        Raises:
            PipelineError: there is no such name, an input of a Python function is missing, or an input
                without rows has no declared types. For a missing input of SQL, Spark's own error is raised.
        """
        self._forget_views()
        frames = {each: self._frame(each, rows) for each, rows in inputs.items()}
        for each, frame in frames.items():
            frame.createOrReplaceTempView(each)
        transform = self._transform(name)
        if isinstance(transform, str):
            made = self._sql(name, transform)
        else:
            missing = [each for each in transform.inputs if each not in frames]
            if missing:
                raise PipelineError(f"{name} reads {', '.join(missing)}: give the rows of each")
            made = transform.function(*(frames[each] for each in transform.inputs))
        return [row.asDict(recursive=True) for row in made.collect()]

    # --- what goes in ---

    def _feed(self, source: Source, rows: Sequence[object]) -> None:
        options = source.options
        if options.topic:
            topic = options.topic.split(",")[0].strip()
            with self.cluster.producer() as producer:
                for row in rows:
                    key, value = row if isinstance(row, tuple) else (None, row)
                    producer.send(topic, _value(value), key=key)
            return
        path = Path(options.files)
        path.mkdir(parents=True, exist_ok=True)
        part = path / f"part-{next(self._fed):05}"
        if options.format in _LINES:
            lines = [_value(row) or b"" for row in rows]
            part.write_bytes(b"".join(line + b"\n" for line in lines))
        else:
            self._frame(source.name, rows).write.mode("append").format(options.format).save(str(path))

    def _frame(self, name: str, rows: Sequence[Row] | DataFrame) -> DataFrame:
        if isinstance(rows, DataFrame):
            return rows
        declared = next((each.options.schema for each in self._pipeline.sources if each.name == name), "")
        if declared and not declared.lstrip().startswith("{"):
            schema = parse_schema(declared)
            if all(row.keys() <= set(schema.fieldNames()) for row in rows):
                return self._spark.createDataFrame(list(rows), schema)
        if not rows:
            raise PipelineError(f"{name}: without rows its columns are not known: give a DataFrame")
        return self._spark.createDataFrame(list(rows))

    # --- what comes out ---

    def _written(self) -> Iterator[tuple[str, list[Any]]]:
        made = self._pipeline
        topics = {topic for sink in made.sinks for topic in sink.options.topics}
        topics |= {source.options.dead_letter for source in made.sources}
        topics |= {sink.options.dead_letter for sink in made.sinks}
        # once for each topic: a source and sinks can share it
        by_topic = {topic: self._new_records(topic) for topic in topics if topic}
        for source in made.sources:
            if source.options.dead_letter:
                letters = by_topic[source.options.dead_letter]
                yield f"{source.name}.dead_letter", [record.value for record in letters]
        for sink in made.sinks:
            if sink.options.parquet:
                yield sink.name, self._new_files(Path(sink.options.parquet), sink)
                continue
            of_sink = [record for topic in sink.options.topics for record in by_topic[topic]]
            is_json = sink.options.format == "json"
            yield sink.name, [record.json() if is_json else record.value for record in of_sink]
            if sink.options.dead_letter:
                letters = by_topic[sink.options.dead_letter]
                yield f"{sink.name}.dead_letter", [record.value for record in letters]

    def _new_records(self, topic: str) -> list[Record]:
        """Return the committed records of a topic that the previous runs did not read."""
        found: list[Record] = []
        with self.cluster.consumer(isolation_level="read_committed") as consumer:
            starts, ends = {}, {}
            for partition in consumer.partitions(topic):
                first, end = consumer.watermarks(partition)
                starts[partition] = max(first, self._read_to.get(partition, 0))
                if end > starts[partition]:
                    ends[partition] = end
            consumer.assign({partition: starts[partition] for partition in ends})
            for batch in consumer.read_until(ends):
                found += batch
            self._read_to |= ends
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def _new_files(self, folder: Path, sink: Sink) -> list[Row]:
        """Return the rows of those Parquet files that the previous runs did not write."""
        files = {each for each in folder.rglob("*.parquet") if "_spark_metadata" not in each.parts}
        new = sorted(str(each) for each in files - self._files_seen)
        self._files_seen |= files
        if not new:
            return []
        reader = self._spark.read.option("basePath", str(folder))
        return [row.asDict(recursive=True) for row in reader.parquet(*new).collect()]

    # --- the file ---

    def _moved(self, read: Pipeline) -> Pipeline:
        """Return the pipeline with folders of the test, and with topics in place of some sinks."""
        kafka = {key: value for key, value in read.options.kafka.items() if not key.startswith(_SECRETS)}
        made = replace(read, options=replace(read.options, kafka=kafka, config="", checkpoints=""))
        made.sources = [
            replace(each, options=replace(each.options, files=str(self._folder / "files" / each.name)))
            if each.options.files
            else each
            for each in read.sources
        ]
        for each in made.sources:
            if each.options.files:
                Path(each.options.files).mkdir(parents=True, exist_ok=True)
        made.sinks = [replace(each, options=self._redirected(each)) for each in read.sinks]
        return made

    def _redirected(self, sink: Sink) -> SinkOptions:
        options = sink.options
        if options.topic:
            return options
        if options.parquet:
            return replace(options, parquet=str(self._folder / "written" / sink.name))
        return SinkOptions.parse({"topic": f"barnabas-test-{sink.name}", "mode": options.mode})

    def _topics(self) -> list[str]:
        found = [source.options.dead_letter for source in self._pipeline.sources]
        for source in self._pipeline.sources:
            found += map(str.strip, source.options.topic.split(","))
        for sink in self._pipeline.sinks:
            found += [*sink.options.topics, sink.options.dead_letter]
        return [topic for topic in dict.fromkeys(found) if topic]

    def _source(self, name: str) -> Source:
        for source in self._pipeline.sources:
            if source.name == name:
                return source
        known = ", ".join(source.name for source in self._pipeline.sources)
        raise PipelineError(f"there is no source {name}: choose from {known}")

    def _transform(self, name: str) -> Transform | str:
        for source in self._pipeline.sources:
            if source.name == name and source.shape is not None:
                return Transform(source.shape, ("rows",))
        for step in self._pipeline.steps:
            if step.name == name:
                return step.body
        for sink in self._pipeline.sinks:
            if sink.name == name and isinstance(sink.rows, Transform):
                return sink.rows
        made = self._pipeline
        names = [
            *(s.name for s in made.sources),
            *(s.name for s in made.steps),
            *(s.name for s in made.sinks),
        ]
        known = ", ".join(filter(None, names))
        raise PipelineError(f"there is no step {name}: choose from {known}")

    def _sql(self, name: str, statement: str) -> DataFrame:
        self._spark.sql(statement)
        return self._spark.table(name)

    def _forget_views(self) -> None:
        for table in self._spark.catalog.listTables():
            if table.isTemporary:
                self._spark.catalog.dropTempView(table.name)


def _value(given: object) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    return json.dumps(given, default=str).encode()
