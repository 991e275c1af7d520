"""What docs/spark.md says: the data source's options, made from their declaration."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.spark.clients import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, TRANSACTION_DEFAULTS, Settings
from barnabas.spark.columns import read_schema
from barnabas.spark.fetch_settings import HEEDED
from barnabas.spark.options import READ_OPTIONS, REFUSED_SETTINGS, WRITE_OPTIONS
from barnabas.spark.security_settings import NOT_WHEN_READING

_HEAD = """\
# The Spark data source

`format("barnabas")` reads and appends topics, in batch and in streams, against any broker that speaks the
Kafka protocol. `pip install 'barnabas[spark]'` is all it needs: PySpark finds it by itself. Names and
meanings are those of Spark's own Kafka connector, so that `format("kafka")` becomes `format("barnabas")`.

## Reading

"""

_READING_LESS = """
Reading less: Spark does not tell Python data sources which columns a query uses, but `.schema(...)` does:
`.schema("value binary, offset bigint")` reads these two only. With
`spark.sql.python.filterPushdown.enabled=true` a batch reads only what filters on `partition`, `topic`,
`offset` and the lower end of `timestamp` leave; other filters Spark applies afterwards.

`failOnDataLoss` names the offsets that are gone, partition by partition. That a topic was deleted and made
anew is noticed by its id, which the checkpoint holds beside the offsets (`{"orders":{"0":23,"id":"..."}}`);
on brokers that give topics none, when its log ends before the offset to go on from. It is then read from its
start. A topic of the same id whose log ends before that offset was cut, as by an unclean election: it is read
on from its end. How far a query is behind stands in its progress, as `latestOffset` beside `endOffset`;
`barnabas.spark.progress.lag` takes it out of there.
"""

_WRITING = """
## Writing

Needed is a column `value` (binary or string); `key` (binary or string), `topic` (string), `partition` (int)
and `headers` (array of key and value) are taken when they are there; other columns are left out. A key goes
to the partition that Java's clients choose for it.

"""

_EXACTLY_ONCE = """
### Exactly once

With `barnabas.delivery=exactly-once` readers of committed records (`isolation.level=read_committed`) find
each row once, whatever dies in between: a Python worker, an executor, the driver, a broker. A stream needs
nothing more than its checkpoint. Each task writes its rows and the number of its batch in one transaction; a
task that is tried again finds the number and writes nothing. A batch write is told from all others, so that
the tasks it retries write once; with `barnabas.sinkId` and `barnabas.batchId` a whole write can be tried
again, such as in `foreachBatch`:

    rows.write.format("barnabas").option("barnabas.delivery", "exactly-once")
        .option("barnabas.sinkId", "orders").option("barnabas.batchId", batch_id)...

What to know:

- The rows of a batch become visible task by task, not all at once.
- A batch that is run again must put the same rows into the same tasks. The checkpoint holds how the reading
  tasks of a micro-batch of topics were planned, beside their offsets (`"#plan"`), so a restarted query has
  the same ones on any machine, with any `parallelism`, `minPartitions` and `maxRecordsPerPartition`, as long
  as its code stays as it was and its rows do not depend on chance. Where a checkpoint of an older Barnabas
  does not say it and there is more than one way, the query fails.
- After a shuffle Spark plans the tasks, and where the query keeps no state or in `foreachBatch` by the
  cluster's cores: set `spark.sql.adaptive.coalescePartitions.parallelismFirst=false`, as pipelines do, where
  they may change. A batch write with `barnabas.batchId` has no checkpoint: give what it reads `endingOffsets`
  and `parallelism`, too.
- A task that comes to another number of rows than it has written, or to rows with other keys, fails, unless
  `barnabas.failOnChangedReplay` is false; other changes it cannot see.
- The numbers are kept as offsets of the groups `barnabas-spark-QUERYID-TASK`, which are also the
  transactional ids: allow both by that prefix where there are ACLs. Brokers forget them after
  `offsets.retention.minutes` (7 days): restart a query that was killed before.
- To set a checkpoint back does not write again what was written since: the query fails. A query with a new
  checkpoint is a new sink, and starts from nothing.
- A task may take `kafka.transaction.timeout.ms` (5 minutes here; brokers allow 15 by default) from its first
  row to its last. After a kill, readers of committed records wait for the restarted query or for this long.
- Speculative execution is safe but a waste: a second attempt of a task fences the first.

"""

_CLIENT = """
## kafka.*

Every other `kafka.NAME` is a setting `NAME` of librdkafka, which writes and commits. Not taken are:

"""

_READING = """
Partitions and offsets are looked up, and records read into Arrow's columns, by a client of our own. Of
librdkafka's settings it heeds `bootstrap.servers`, those of security (`security.protocol`, `ssl.*`, `sasl.*`
with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, `https.ca.*`), and the following. The Java
consumer's `fetch.max.wait.ms` and `request.timeout.ms` are taken for `fetch.wait.max.ms` and
`socket.timeout.ms`. Settings of how librdkafka finds a group's offsets (`metadata.*`, `reconnect.*`,
`socket.*` ...) are taken, too; partitions are looked up at each trigger, whatever `metadata.max.age.ms` says.
Every other setting has no effect on reading and is refused there. A connection that a broker ends because
its authentication has run out is made anew.

| setting | default |
|---|---|
"""

_NOT_WHEN_READING = """
Reading refuses, with TLS or SASL:

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

- A batch write needs `mode("append")`: Spark asks Python data sources for it.
- Output mode `update` is refused by Spark for Python data sources. Use `complete`, or `foreachBatch` with a
  batch write: `rows.write.format("barnabas").options(...).mode("append").save()`.
- An option that is not in the tables above is refused, not ignored. Of Spark's connector there is not
  `fetchOffset.*`, for which there is no need here.
- Small partitions share a Spark task, down to `parallelism` tasks, by default the driver's cores; Spark tells
  a Python data source nothing of the cluster's. A pipeline sets it. `minPartitions` keeps them apart.
- Writing is at least once by default, as with Spark's own connector, which cannot do more.
- The headers of a record that has none are NULL. Arrow writers and Python functions take NULL arrays slowly;
  `spark.sql.execution.arrow.maxBytesPerBatch=2147483647` cures it.
- When "Failed to find the data source: barnabas" comes up, `python -c 'import pyspark_barnabas'` says why;
  and a stream must be started in the thread that made its session.
- Two streams that are the first of their Spark and start at the same moment can damage what Spark keeps for
  both: then every task fails with "Task not serializable" or "Illegal size 5 of collection, expected 6" until
  Spark is started again. `barnabas.spark.session.let_streams_start_together(spark)`, called before, prevents
  it; a pipeline does so by itself.
- Reading checks the batches' checksums (`kafka.check.crcs=false` spares it), reads from leaders only
  (`kafka.client.rack` has no effect), and takes messages of format 2 only, which brokers write since 0.11.
- Spark starts its workers with `PYSPARK_PYTHON`, else with the PATH's `python3`: it must be the one that
  Barnabas is installed in.
"""


def spark_reference() -> str:
    """The document, in Markdown."""
    columns = "".join(
        f"| `{field.name}` | {field.dataType.simpleString()} |\n" for field in read_schema(True)
    )
    refused = "".join(f"- `kafka.{name}`: {cure}\n" for name, cure in REFUSED_SETTINGS.items())
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
        + _READING
        + _heeded()
        + _NOT_WHEN_READING
        + "".join(f"- `kafka.{name}`: {cure}\n" for name, cure in NOT_WHEN_READING.items())
        + _DEFAULTS
        + _settings("reading", CONSUMER_DEFAULTS)
        + _settings("writing", PRODUCER_DEFAULTS)
        + _settings("writing exactly once, besides", TRANSACTION_DEFAULTS)
        + _IDEMPOTENCE
        + _LIMITS
    )


def _options(options: Mapping[str, str]) -> str:
    rows = "".join(f"| `{name}` | {doc.replace('|', '&#124;')} |\n" for name, doc in options.items())
    return f"| option | meaning |\n|---|---|\n{rows}"


def _heeded() -> str:
    given = {**HEEDED, **CONSUMER_DEFAULTS}
    return "".join(f"| `{name}` | {_text(given[name])} |\n" for name in HEEDED if given[name])


def _settings(use: str, settings: Settings) -> str:
    shown = ", ".join(f"`{name}={_text(value)}`" for name, value in settings.items())
    return f"- {use}: {shown}\n"


def _text(value: str | bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
