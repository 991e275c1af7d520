"""Generates docs/reference/pipeline-options.md from the declarations of the options."""

from __future__ import annotations

from barnabas.pipelines.metrics import METRICS
from barnabas.pipelines.options import Options, PipelineOptions, SourceOptions, describe
from barnabas.pipelines.sink_options import SinkOptions

_HEAD = """\
# The options of a pipeline file

The options are the same in Python (`pipeline(name=...)`, `@source(topic=...)`, `@sink(topic=...)`) and in the
TOML header of a SQL file (`name = ...`, `[source.NAME]`, `[sink.NAME]`). [Pipelines](../use/pipelines.md)
uses them in examples.
"""


def pipeline_reference() -> str:
    """Return the page in Markdown."""
    return (
        _HEAD
        + _table("The pipeline", "All of these options are optional.", PipelineOptions)
        + _table("A source", "Either `topic` or `files` says where the rows come from.", SourceOptions)
        + _table(
            "A sink",
            "One of `topic`, `parquet`, `delta`, `iceberg`, `postgres`, `jdbc` and `console` says where "
            "the rows go, or the name of [another package's sink](../use/pipelines.md#your-own-sink). "
            "In SQL, `from` names the view.",
            SinkOptions,
        )
        + _metrics()
    )


def _metrics() -> str:
    rows = "".join(
        f"| `{each.name}` | {', '.join(each.labels)} | {each.kind.value} | {each.help} |\n"
        for each in METRICS
    )
    head = "| metric | labels | kind | meaning |\n|---|---|---|---|\n"
    return (
        "\n## Metrics\n\n`barnabas pipeline run --metrics HOST:PORT` serves these metrics to Prometheus. "
        f"Rates, lags and sizes are those of each query's last batch.\n\n{head}{rows}"
    )


def _table(title: str, words: str, options: type[Options]) -> str:
    rows = "".join(
        f"| `{name}` | {doc.replace('|', '&#124;')} |\n" for name, doc in describe(options).items()
    )
    return f"\n## {title}\n\n{words}\n\n| option | meaning |\n|---|---|\n{rows}"
