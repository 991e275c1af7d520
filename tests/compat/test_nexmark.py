"""NEXMark's queries as streams with our data source and with Spark's connector,
compared with plain Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor
from tests.compat import nexmark_answers as answers
from tests.compat.nexmark_events import CATEGORIES, DISORDER, LONGEST, Events, generate, in_disorder

from barnabas.pipelines.supervisor import _STARVED
from barnabas.testing import BarnabasBroker

pytestmark = pytest.mark.timeout(400)

COUNT = 3000
CONNECTORS = ("barnabas", "kafka")
SCHEMAS = {
    "persons": "id BIGINT, name STRING, city STRING, state STRING, at BIGINT",
    "auctions": "id BIGINT, seller BIGINT, category INT, expires BIGINT, at BIGINT",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, at BIGINT",
    "winners": "id BIGINT, seller BIGINT, category INT, expires BIGINT, bidder BIGINT, price BIGINT, "
    "at BIGINT",
}
#: Batches of a stream, so that state outlives one.
BATCHES = 3
#: Records after the last event, so that no partition is behind when another one's watermark closes all. They
#: have numbers of their own: Spark drops records that a join cannot use before it looks at their time.
PADDING = 10
IDS = {"persons": ["id"], "auctions": ["id", "seller", "expires"], "bids": ["auction", "bidder"]}
HOUR = 3_600_000
ATTEMPTS = 10
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(scope="module")
def events() -> Events:
    return generate(2002, COUNT)


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)  # which q6 needs
    return spark


@pytest.fixture(scope="module")
def servers(events: Events) -> Iterator[str]:
    with BarnabasBroker() as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in IDS]).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        for topic in IDS:
            listed = in_disorder(getattr(events, topic), 1)
            for number, event in enumerate(listed):
                producer.produce(topic, json.dumps(event), partition=number % 2)
            for partition in range(2):
                for number, at in enumerate([events.end] * PADDING + [events.end + HOUR]):
                    ids = dict.fromkeys(IDS[topic], -1 - 2 * number - partition)
                    producer.produce(topic, json.dumps({**ids, "price": 0, "at": at}), partition=partition)
        assert producer.flush(60) == 0
        yield servers


@dataclass
class Site:
    """The streams of the auction site, which one of the connectors reads."""

    spark: SparkSession
    servers: str
    connector: str
    folder: Path
    #: what q9 has written
    won: str = ""

    def __getattr__(self, name: str) -> DataFrame:
        """Return persons, auctions or bids, with `at` as event time."""
        if name not in IDS:
            raise AttributeError(name)
        rows = self.read(name, name).withColumn("at", F.timestamp_millis("at"))
        return rows.withWatermark("at", f"{2 * DISORDER} milliseconds")

    def read(self, topic: str, schema: str) -> DataFrame:
        counted = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.servers)
        total = counted.option("subscribe", topic).load().count()
        reader = self.spark.readStream.format(self.connector)
        reader = reader.option("kafka.bootstrap.servers", self.servers).option("subscribe", topic)
        reader = reader.option("startingOffsets", "earliest")
        rows = reader.option("maxOffsetsPerTrigger", str(-(-total // BATCHES))).load()
        parsed = F.from_json(F.col("value").cast("string"), SCHEMAS[schema])
        return rows.select(parsed.alias("row")).select("row.*")

    @property
    def winners(self) -> DataFrame:
        """Return the rows that q9 has written."""
        if not self.won:
            q9(self)
        return self.read(self.won, "winners")

    def collect(self, name: str, rows: DataFrame, mode: str = "append") -> list[tuple[Any, ...]]:
        """Return the rows of a stream when it has read everything."""

        def begin(attempt: int) -> tuple[str, DataStreamWriter]:
            table = f"{name}_{self.connector}_{attempt}"
            return table, rows.writeStream.format("memory").queryName(table).outputMode(mode)

        return [tuple(row) for row in self.spark.table(self._run(begin)).collect()]

    def write(self, rows: DataFrame) -> str:
        """Write a stream to a topic, and return the topic's name."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        value = F.to_json(F.struct("*")).alias("value")

        def begin(attempt: int) -> tuple[str, DataStreamWriter]:
            topic = f"winners-{self.connector}-{attempt}"
            admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
            writer = rows.select(value).writeStream.format(self.connector).outputMode("append")
            writer = writer.option("kafka.bootstrap.servers", self.servers).option("topic", topic)
            return topic, writer.option("checkpointLocation", str(self.folder / topic))

        return self._run(begin)

    def _run(self, begin: Callable[[int], tuple[str, DataStreamWriter]]) -> str:
        """Run a stream to its end. If Spark stops because of a slow Python process, start again."""
        for attempt in range(ATTEMPTS):
            target, writer = begin(attempt)
            query = writer.trigger(availableNow=True).start()
            try:
                assert query.awaitTermination(300)
            except StreamingQueryException as error:
                if attempt + 1 == ATTEMPTS or not any(mark in str(error) for mark in _STARVED):
                    raise
                continue
            finally:
                query.stop()
            assert len([each for each in query.recentProgress if each["numInputRows"]]) >= BATCHES
            return target
        raise AssertionError


@pytest.fixture(scope="module")
def sites(spark: SparkSession, servers: str, tmp_path_factory: pytest.TempPathFactory) -> list[Site]:
    folder = tmp_path_factory.mktemp("nexmark")
    return [Site(spark, servers, connector, folder) for connector in CONNECTORS]


def millis(column: str) -> Any:
    return F.unix_millis(column).alias(column.removesuffix(".start"))


def start_of(window: str) -> Any:
    return F.unix_millis(f"{window}.start").alias("start")


def q0(site: Site) -> list[tuple[Any, ...]]:
    """Return all bids unchanged."""
    rows = site.bids.where("auction > 0")
    return site.collect("q0", rows.select("auction", "bidder", "price", millis("at")))


def q1(site: Site) -> list[tuple[Any, ...]]:
    """Return the bids with prices in another currency."""
    euros = F.expr(f"CAST(price * {answers.RATE}BD AS DECIMAL(20, 3))").alias("price")
    rows = site.bids.where("auction > 0")
    return site.collect("q1", rows.select("auction", "bidder", euros, millis("at")))


def q2(site: Site) -> list[tuple[Any, ...]]:
    """Return the bids on some auctions."""
    return site.collect("q2", site.bids.where("auction > 0 AND auction % 7 = 0").select("auction", "price"))


def q3(site: Site) -> list[tuple[Any, ...]]:
    """Return the sellers in a category in some states: a join of streams without a time limit."""
    near = site.persons.where(F.col("state").isin(*answers.NEAR)).drop("at")
    auctions = site.auctions.where("category = 10").select(F.col("id").alias("auction"), "seller")
    rows = near.join(auctions, F.col("id") == F.col("seller"))
    return site.collect("q3", rows.select("name", "city", "state", "auction"))


def q4(site: Site) -> list[tuple[Any, ...]]:
    """Return the mean price of each category, from the rows of q9."""
    return site.collect("q4", site.winners.groupBy("category").agg(F.avg("price")), "complete")


def q5(site: Site) -> list[tuple[Any, ...]]:
    """Return the auctions with the most bids in each sliding window: an aggregation of an aggregation."""
    sliding = F.window("at", f"{answers.MINUTE} milliseconds", f"{answers.SLIDE} milliseconds")
    counts = site.bids.groupBy(sliding.alias("window"), "auction").count()
    listed = counts.groupBy("window").agg(F.collect_list(F.struct("count", "auction")).alias("all"))
    most = F.expr("inline(filter(all, x -> x.count = array_max(all).count))")
    rows = listed.select(start_of("window"), most).select("start", "auction", "count")
    return [row for row in site.collect("q5", rows) if row[1] > 0]


class LastSold(StatefulProcessor):
    """Keeps a seller's last auctions in the order of their ends."""

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState(
            "last", "sold INT, sales ARRAY<STRUCT<expires BIGINT, id BIGINT, price BIGINT>>"
        )

    def handleInputRows(self, key: Any, rows: Iterable[Row], timers: Any) -> Iterator[Row]:
        sold, sales = 0, []
        if self._last.exists():
            sold, kept = self._last.get()
            sales = [tuple(each) for each in kept]
        for row in rows:
            sold += 1
            sales.append((row.expires, row.id, row.price))
        sales = sorted(sales)[-answers.LAST_SOLD :]
        self._last.update((sold, sales))
        yield Row(seller=key[0], sold=sold, mean=sum(price for _, _, price in sales) / len(sales))

    def close(self) -> None:
        pass


def q6(site: Site) -> list[tuple[Any, ...]]:
    """Return the mean of each seller's last ten prices, from the rows of q9."""
    shape = "seller BIGINT, sold INT, mean DOUBLE"
    rows = site.winners.groupBy("seller").transformWithState(LastSold(), shape, "Update", "None")
    newest = {}
    for row in sorted(site.collect("q6", rows, "update"), key=lambda row: row[1]):
        newest[row[0]] = row
    return list(newest.values())


def q7(site: Site) -> list[tuple[Any, ...]]:
    """Return the highest bids of each minute."""
    minute = F.window("at", f"{answers.MINUTE} milliseconds").alias("window")
    bid = F.struct("price", "auction", "bidder")
    listed = site.bids.groupBy(minute).agg(F.collect_list(bid).alias("all"))
    best = F.expr("inline(filter(all, x -> x.price = array_max(all).price))")
    rows = listed.select(start_of("window"), best).select("start", "auction", "bidder", "price")
    return [row for row in site.collect("q7", rows) if row[1] > 0]


def q8(site: Site) -> list[tuple[Any, ...]]:
    """Return the persons who opened an auction in the minute of their registration."""
    minute = F.window("at", f"{answers.MINUTE} milliseconds")
    joined = site.persons.groupBy(minute.alias("joined"), "id", "name").count()
    opened = site.auctions.groupBy(minute.alias("opened"), "seller").count()
    same = (F.col("id") == F.col("seller")) & (F.col("joined") == F.col("opened"))
    rows = joined.drop("count").join(opened.drop("count"), same)
    found = site.collect("q8", rows.select("id", "name", start_of("joined")))
    return [row for row in found if row[0] > 0]


def q9(site: Site) -> list[tuple[Any, ...]]:
    """Return the winning bid of each auction, and write it to a topic, which q4 and q6 read."""
    bids = site.bids.select("auction", "bidder", "price", F.col("at").alias("made"))
    valid = F.expr(
        f"""id = auction AND made >= at AND unix_millis(made) <= expires
        AND made <= at + INTERVAL {LONGEST // 1000} SECONDS"""
    )
    pairs = site.auctions.join(bids, valid)
    pairs = pairs.withColumn("earliest", -F.unix_millis("made")).drop("made")
    best = F.max(F.struct("price", "earliest", "bidder")).alias("best")
    won = pairs.groupBy("id", "seller", "category", "expires", "at").agg(best)
    rows = won.select(
        "id",
        "seller",
        "category",
        "expires",
        "best.bidder",
        "best.price",
        (-F.col("best.earliest")).alias("at"),
    )
    site.won = site.write(rows)
    written = site.spark.read.format(site.connector).option("kafka.bootstrap.servers", site.servers)
    parsed = F.from_json(F.col("value").cast("string"), SCHEMAS["winners"])
    found = written.option("subscribe", site.won).load().select(parsed.alias("row")).select("row.*")
    return [tuple(row) for row in found.collect()]


@pytest.mark.parametrize("query", [q0, q1, q2, q3, q9, q4, q5, q6, q7, q8], ids=lambda query: query.__name__)
def test_both_connectors_give_the_rows_of_plain_python(
    sites: list[Site], events: Events, query: Callable[[Site], list[tuple[Any, ...]]]
) -> None:
    expected = sorted(getattr(answers, query.__name__)(events))
    assert len(expected) >= len(CATEGORIES) - 1
    for site in sites:
        assert sorted(query(site)) == expected, site.connector
