"""Checks a pipeline's file, queries and topics without running the pipeline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import KafkaException

from barnabas.pipelines.build import Run, build, client_settings
from barnabas.pipelines.errors import Location, PipelineError
from barnabas.pipelines.model import Pipeline
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.session import start_session
from barnabas.spark.clients import connection_settings, new_admin
from barnabas.spark.session import check_java

_PATIENCE_S = 10.0


def validate(
    path: Path,
    parameters: Mapping[str, str],
    run: Callable[[Pipeline], Run],
    *,
    offline: bool,
    spark: Mapping[str, str],
) -> list[str]:
    """Read the file, let Spark analyse each query, and check that the topics exist. This runs no Spark job.

    Return the names of the queries.

    Args:
        parameters: values of the file's parameters, by name.
        run: called with the pipeline; returns the settings of the run.
        offline: skips the check of the topics.
        spark: settings of Spark that override the file's.

    Raises:
        PipelineError: the first error that was found.
        JavaMissingError: Spark cannot find Java, or its version is too old.
    """
    check_java()
    pipeline = read_pipeline(path, parameters)
    settings = {**pipeline.options.spark, **spark}
    pipeline.check_installed(settings)
    with tempfile.TemporaryDirectory(prefix="barnabas-validate-") as folder:
        folder_path = Path(folder)
        session = start_session(pipeline.name, folder_path, "local[1]", settings, folder_path / "spark.log")
        try:
            whole = pipeline if pipeline.complete else read_pipeline(path, parameters)
            queries = build(session, whole, run(whole))
            for query in queries:
                query.check()
        finally:
            session.stop()
    if not offline:
        check_topics(whole, run(whole))
    return [query.name for query in queries]


def check_topics(pipeline: Pipeline, run: Run) -> None:
    """Check that the pipeline's topics exist.

    Raises:
        PipelineError: a topic is missing or not visible to the user, or no broker answers.
    """
    named = list(_topics(pipeline))
    if not named:
        return
    admin = new_admin({**connection_settings(client_settings(pipeline, run)), "log_level": 0})
    try:
        there = admin.list_topics(timeout=_PATIENCE_S).topics
    except KafkaException as error:
        raise PipelineError(
            f"{run.bootstrap or 'the brokers'}: {error.args[0].str()}; without them, use --offline"
        ) from None
    for location, what, topic in named:
        if topic not in there:
            raise PipelineError(
                f"{location}: {what}: there is no topic {topic} that this user may see: "
                f"barnabas topics create {topic}"
            )


def _topics(pipeline: Pipeline) -> Iterator[tuple[Location, str, str]]:
    for source in pipeline.sources:
        # empty for a pattern, which is among the options
        for topic in filter(None, map(str.strip, source.options.topic.split(","))):
            yield source.location, f"source {source.name}", topic
        if source.options.dead_letter:
            yield source.location, f"source {source.name}, dead_letter", source.options.dead_letter
    for sink in pipeline.sinks:
        for topic in sink.options.topics:
            yield sink.location, f"sink {sink.name}", topic
        if sink.options.dead_letter:
            yield sink.location, f"sink {sink.name}, dead_letter", sink.options.dead_letter
