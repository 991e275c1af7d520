"""Generates docs/reference/spark.md from the declarations of the data source's options."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.security_settings import ONLY_LIBRDKAFKA
from barnabas.spark.clients import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, TRANSACTION_DEFAULTS, Settings
from barnabas.spark.columns import read_schema
from barnabas.spark.fetch_settings import FETCH_DEFAULTS
from barnabas.spark.java_settings import IGNORED_IN_READING, IGNORED_IN_WRITING, IGNORED_OPTIONS
from barnabas.spark.options import READ_OPTIONS, REFUSED_SETTINGS, WRITE_OPTIONS

_HEAD = """\
# The Spark data source

`format("barnabas")` reads and appends topics, in batch jobs and in streams, with any broker that speaks the
Kafka protocol. It needs only the extra `spark` of the package: PySpark finds the data source by itself. The
options have the names and meanings of Spark's own Kafka connector. In an existing job, replace
`format("kafka")` by `format("barnabas")`.

## Reading

"""

_READING_LESS = """
To read less: Spark does not tell Python data sources which columns a query uses, but `.schema(...)` does.
For example, `.schema("value binary, offset bigint")` reads only these two columns. With
`spark.sql.python.filterPushdown.enabled=true` a batch applies filters on `partition`, `topic`, `offset` and
the lower end of `timestamp` before it reads; Spark applies other filters afterwards.

An error of `failOnDataLoss` lists the lost offsets of each partition. The checkpoint has each topic's id
beside its offsets (`{"orders":{"0":23,"id":"..."}}`). Another id shows that the topic was deleted and created
again; the query reads such a topic from its start. If the brokers have no topic ids, a log that ends before
the next offset has the same meaning. If the id is the same and the log ends before the next offset, the log
was truncated, for example by an unclean election. The query then continues at the log's end. A query's
progress shows its lag, as `latestOffset` beside `endOffset`; `barnabas.spark.progress.lag` computes it.
"""

_WRITING = """
## Writing

The column `value` (binary or string) is required. The columns `key` (binary or string), `topic` (string),
`partition` (int) and `headers` (array of key and value) are optional; other columns are ignored. A key goes
to the same partition as with Java's clients.

"""

_EXACTLY_ONCE = """
### Exactly once

With `barnabas.delivery=exactly-once`, consumers with `isolation.level=read_committed` read each row once,
even if a Python worker, an executor, the driver or a broker dies during the write. A stream needs only its
checkpoint. Each task writes its rows and the number of its batch in one transaction; a retried task finds the
number and writes nothing. Each batch write has an identity of its own, so its retried tasks write once. With
`barnabas.sinkId` and `barnabas.batchId` you can also repeat a whole write, for example in `foreachBatch`
(with another `sinkId` for each topic):

```python
def write(rows, batch_id):
    (rows.write.format("barnabas").mode("append")
     .option("kafka.bootstrap.servers", "127.0.0.1:9092").option("topic", "orders")
     .option("barnabas.delivery", "exactly-once")
     .option("barnabas.sinkId", "orders").option("barnabas.batchId", batch_id).save())
```

Limits and requirements:

- The rows of a batch become visible task by task, not all at once.
- A batch that is run again must put the same rows into the same tasks. The checkpoint holds the plan of a
  micro-batch's reading tasks beside their offsets (`"#plan"`). So a restarted query has the same tasks on any
  machine, with any `parallelism`, `minPartitions` and `maxRecordsPerPartition`, provided that its code is
  unchanged and its rows are deterministic. If a checkpoint of an older Barnabas does not contain the plan and
  several plans are possible, the query fails.
- After a shuffle, Spark plans the tasks. If the query keeps no state, or in `foreachBatch`, the number of
  tasks depends on the number of the cluster's cores. If that number may change, set
  `spark.sql.adaptive.coalescePartitions.parallelismFirst=false`, as pipelines do. A batch write with
  `barnabas.batchId` has no checkpoint: also set `endingOffsets` and `parallelism` on its input.
- A retried task fails if its rows are not those that it has written (by number and content, in any order),
  unless `barnabas.failOnChangedReplay` is false: then the written rows are kept.
- The sink stores batch numbers as offsets of the groups `barnabas-spark-QUERYID-TASK` and
  `barnabas-spark-QUERYID-batches`. The names with TASK are also its transactional ids. If there are ACLs,
  allow these groups and ids by their prefix `barnabas-spark-`. Brokers delete the batch numbers after
  `offsets.retention.minutes` (7 days): restart a killed query before that time.
- Progress belongs to the query (by its checkpoint) and to the topic (by its id). A batch that does not match
  the progress fails before it writes a row; [the table](#when-a-checkpoint-and-a-topic-do-not-match) lists
  the cases.
- A task must write all its rows within `kafka.transaction.timeout.ms` (5 minutes here; brokers allow 15 by
  default). After a kill, read_committed consumers wait until the restarted query ends the transaction, or
  until this timeout.
- Speculative execution is safe but useless: a second attempt of a task fences the first.

#### When a checkpoint and a topic do not match

| what happened | what the sink does |
|---|---|
| A copy of the checkpoint writes to another topic. | The copy fails; the original continues. |
| A copy writes to the same topic. | Equal batches are written once; a batch that differs fails. |
| An older checkpoint is restored. | The query fails, because the topic has later batches. |
| The checkpoint is deleted. | The query is a new sink, starts from the beginning and writes its rows again. |
| The topic was created again. | The query fails. It can miss this if others have written to the new topic. |
| The option `topic` has changed. | The query fails. |
| The last release wrote the progress. | The query reads that progress and continues. |

If the other topic is the right one, `barnabas.adoptTopic=true` lets the query continue there with its next
batch. The query does not write earlier batches to it. Remove the option afterwards. To have all rows in the
topic, start with a new checkpoint. If rows name their topics, the sink detects a topic that was created again
only while the brokers keep the batch numbers of the old topic.

"""

_CLIENT = """
## kafka.*

Every other `kafka.NAME` is a setting `NAME` of librdkafka, the library that writes the records. The data
source rejects these settings:

"""

_JAVA = """
Settings of Java's clients continue to work. `max.request.size`, `receive.buffer.bytes`, `send.buffer.bytes`,
`buffer.memory` and `partitioner.class` (Java's own) become librdkafka's, and so do `sasl.jaas.config` and
the stores of TLS, as in a `client.properties`. The data source ignores these, with a line in
the log, because they have no effect here:

"""

_READING = """
Barnabas has its own client, which looks up partitions and offsets, reads records into Arrow columns, and
reads the progress of an exactly-once sink. It uses these settings of librdkafka: `bootstrap.servers`, those
of security (`security.protocol`, `ssl.*`, `sasl.*` with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER,
`https.ca.*`), and those in the table. The Java consumer's `fetch.max.wait.ms` and `request.timeout.ms` are
other names of `fetch.wait.max.ms` and `socket.timeout.ms`. Reading also accepts librdkafka's settings of
connections (`metadata.*`, `reconnect.*`, `socket.*` ...). They apply to the librdkafka consumer that samples
records for `maxBytesPerTrigger`. The client looks up partitions at each trigger, with any
`metadata.max.age.ms`. Reading rejects all other settings, because they would have no effect. When a broker
closes a connection because its authentication has expired, the client reconnects.

| setting | default |
|---|---|
"""

_ONLY_WHEN_WRITING = """
With TLS or SASL, reading also rejects:

"""

_DEFAULTS = """
Defaults that are not librdkafka's:

"""

_IDEMPOTENCE = """
A write with `kafka.acks` other than `all`, `kafka.retries=0` or more than 5 of
`kafka.max.in.flight.requests.per.connection` is not idempotent, as with Java's producer.
"""

_LIMITS = """
## What differs from Spark's own connector

- A batch write needs `mode("append")`: Spark requires it of Python data sources.
- Spark rejects output mode `update` for Python data sources. Use `complete`, or `foreachBatch` with a
  batch write: `rows.write.format("barnabas").options(...).mode("append").save()`.
- The data source rejects an option that this page does not name; it does not ignore it.
- Small partitions share a Spark task, down to `parallelism` tasks. The default of `parallelism` is the number
  of the driver's cores, because a Python data source cannot see the cluster's cores. A pipeline sets the
  option. `minPartitions` keeps partitions apart.
- Writing is at least once by default, as with Spark's own connector, which has no exactly-once delivery.
- The headers of a record that has none are NULL. Arrow writers and Python functions are slow with NULL
  arrays; `spark.sql.execution.arrow.maxBytesPerBatch=2147483647` avoids that.
- If Spark says "Failed to find the data source: barnabas", `python -c 'import pyspark_barnabas'` shows the
  cause. A stream must be started in the thread that created its session.
- If the first two streams of a Spark process start at the same moment, they can damage state that they share:
  then every task fails with "Task not serializable" or "Illegal size 5 of collection, expected 6" until
  Spark is started again. To prevent this, call `barnabas.spark.session.let_streams_start_together(spark)`
  before you start them. Pipelines call it themselves.
- Reading checks the batches' checksums (`kafka.check.crcs=false` omits this), and reads only from
  leaders. It accepts only messages of format 2, which brokers have written since version 0.11.
- Spark starts its workers with the Python that `PYSPARK_PYTHON` names. If it is not set, Spark uses `python3`
  of the PATH. Barnabas must be installed in that Python.
"""


def spark_reference() -> str:
    """Return the page in Markdown."""
    columns = "".join(
        f"| `{field.name}` | {field.dataType.simpleString()} |\n" for field in read_schema(True)
    )
    refused = "".join(f"- `kafka.{name}`: {hint}\n" for name, hint in REFUSED_SETTINGS.items())
    return (
        _HEAD
        + _options(READ_OPTIONS)
        + f"\nThe column `headers` comes with `includeHeaders`.\n\n| column | type |\n|---|---|\n{columns}"
        + _READING_LESS
        + _WRITING
        + _options(WRITE_OPTIONS)
        + _EXACTLY_ONCE
        + _CLIENT
        + refused
        + _JAVA
        + _ignored()
        + _READING
        + _fetch_defaults()
        + _ONLY_WHEN_WRITING
        + "".join(f"- `kafka.{name}`: {hint}\n" for name, hint in ONLY_LIBRDKAFKA.items())
        + _DEFAULTS
        + _settings("reading", CONSUMER_DEFAULTS)
        + _settings("writing", PRODUCER_DEFAULTS)
        + _settings("writing exactly once, in addition", TRANSACTION_DEFAULTS)
        + _IDEMPOTENCE
        + _LIMITS
    )


def _ignored() -> str:
    uses = {
        "reading": [*IGNORED_OPTIONS, *(f"kafka.{name}" for name in IGNORED_IN_READING)],
        "writing": [f"kafka.{name}" for name in IGNORED_IN_WRITING],
    }
    return "".join(f"- {use}: {', '.join(f'`{name}`' for name in names)}\n" for use, names in uses.items())


def _options(options: Mapping[str, str]) -> str:
    rows = "".join(f"| `{name}` | {doc.replace('|', '&#124;')} |\n" for name, doc in options.items())
    return f"| option | meaning |\n|---|---|\n{rows}"


def _fetch_defaults() -> str:
    given = {**FETCH_DEFAULTS, **CONSUMER_DEFAULTS}
    return "".join(f"| `{name}` | {_text(given[name])} |\n" for name in FETCH_DEFAULTS if given[name])


def _settings(use: str, settings: Settings) -> str:
    shown = ", ".join(f"`{name}={_text(value)}`" for name, value in settings.items())
    return f"- {use}: {shown}\n"


def _text(value: str | bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
