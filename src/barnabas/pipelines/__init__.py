"""Pipelines in a few lines: a file that declares sources, steps and sinks, and what runs it.

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

What is where: `options` (each declared once, for Python and SQL), `python_file` and `sql_file` (read a file),
`parameters` (what it leaves open), `model` (what it declares), `packages` (those that only some need),
`sources` and `sinks` (to DataFrames and from them), `sink_letters` and `topic_letters` (rows that sinks
refuse, found by `bisect`), `build` (queries), `batch` (those that end by themselves), `supervisor` (keeps
them running), `status` (what they leave for others to see), `status_topic` and `metrics` (where else it is
seen), `lag_alert`, `session` (Spark), `run`, `validate`, `reset`. Tests of pipeline files:
`barnabas.testing.pipelines`.
"""

from barnabas.pipelines.python_file import parameter, pipeline, sink, source, step

__all__ = ["parameter", "pipeline", "sink", "source", "step"]
