"""Pipelines: a file declares sources, steps and sinks, and `barnabas pipeline run FILE` runs them in Spark.

    from barnabas.pipelines import sink, source, step

    @source(topic="orders", format="json", schema="id BIGINT, price DOUBLE", dead_letter="orders-bad")
    def orders(rows):
        return rows

    @step
    def dear_orders(orders):
        return orders.where("price > 100")

    @sink(topic="dear", key="id")
    def dear(dear_orders):
        return dear_orders

| task | modules |
|---|---|
| reading a file | `read`, `python_file`, `sql_file`, `parameters`, `options`, `sink_options`, `model` |
| queries | `sources`, `sinks`, `shared`, `build`, `batch` (queries that end), `refresh` |
| tables | `table_sink` (the base of all), `table_sinks`, and a module for each |
| rejected rows | `sink_letters`, `topic_letters`, `bisect` |
| running | `run`, `session`, `supervisor`, `folder`, `local_checkpoints` |
| status | `status`, `status_topic`, `metrics`, `alerts` |
| other commands | `validate`, `reset` |

Tests of pipeline files use `barnabas.testing.pipelines`.
"""

from barnabas.pipelines.python_file import parameter, pipeline, sink, source, step

__all__ = ["parameter", "pipeline", "sink", "source", "step"]
