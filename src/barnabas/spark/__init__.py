"""The PySpark data source ``barnabas``: reads and writes topics as DataFrames, in batches and streams.

    spark.readStream.format("barnabas").option("kafka.bootstrap.servers", ...).option("subscribe", "orders")

Options have the names and meanings of Spark's own Kafka connector ("Structured Streaming + Kafka Integration
Guide"). So a job needs only one changed word, the format. The brokers can be those of any implementation of
the Kafka protocol. PySpark finds the data source through the package `pyspark_barnabas`.

| task | modules |
|---|---|
| options | `options`, `java_settings`, `option_values` |
| planning | `lookup` (asks brokers), `ranges`, `plan`, `position` (checkpoints), `admission`, `pushdown` |
| reading | `batch_reader`, `stream_reader`, `fetch` (one task), `record_fields` and `arrow` (decoding) |
| writing | `writer`, `record_sink`, `message_table`, `librdkafka` |
| exactly once | `exactly_once`, `sink_progress` (written batches), `task_content` (compares repeated rows) |
| formats | `formats` (all), `text_formats`, `registered`, `payloads`, a codec for each format, `debezium` |
"""
