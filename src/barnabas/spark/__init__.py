"""The PySpark data source ``barnabas``: topics as DataFrames, in batch and in streams, by Arrow.

    spark.readStream.format("barnabas").option("kafka.bootstrap.servers", ...).option("subscribe", "orders")

Option names and meanings are those of Spark's own Kafka connector (its "Structured Streaming + Kafka
Integration Guide"), so that a job moves over by changing one word; it works against any broker that speaks
the Kafka protocol. Nothing has to be registered: PySpark finds `pyspark_barnabas` by its name.

Modules: `options` (every option, checked), `lookup` (offsets asked of the brokers), `ranges` (plans
over offsets, no I/O), `position` (what a checkpoint holds), `admission` (how much a micro-batch reads),
`pushdown` (filters), `fetch` (a task reads), `batch_reader` and `stream_reader`, `writer`, `record_sink` (a
task's rows become records: `message_table` has their addresses, `librdkafka` sends), `exactly_once` (in one
transaction), `sink_progress` (the batches that are written), `task_content` (compares rows that come
again), `columns`, `progress` (lag), `dead_letters`, `pyspark_versions` (what 4.1 lacks).
Formats of values: `formats` (all, behind one function), `text_formats`, `registered` (with `payloads` and a
codec for each of `avro`, `protobuf` and `json`), `debezium`, `subjects`.
"""
