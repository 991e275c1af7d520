"""Declares every option of the data source once, and checks the options of a job.

Names and meanings are those of Spark's own Kafka connector. Names ignore case, because Spark passes them in
lower case. Unknown options are rejected. Settings of Java's clients that have no effect here are ignored or
rejected (`java_settings`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.types import TopicPartition
from barnabas.spark.columns import column_names
from barnabas.spark.fetch_settings import reading_settings
from barnabas.spark.java_settings import IGNORED_OPTIONS, from_java, note
from barnabas.spark.option_values import (
    EARLIEST,
    LATEST,
    assigned,
    boolean,
    by_partition,
    config_file,
    count,
    delivery,
    invalid_option,
    positive,
    seconds,
    sink_name,
    strategy,
    timestamp,
    topic_name,
    topic_pattern,
)
from barnabas.spark.ranges import Offsets

_SERVERS = "kafka.bootstrap.servers"
_CONFIG = "barnabas.config"

READ_OPTIONS = {
    _SERVERS: "The brokers to connect to first, host:port, separated by commas. Required, as this option or "
    "in the file.",
    _CONFIG: "A file of client settings (Kafka's client.properties, or TOML). The driver reads the file when "
    "it plans a query, and its secrets appear in no plan and no log. Options kafka.* override it. Every "
    "machine needs the files that it names.",
    "subscribe": "Topics to read, separated by commas.",
    "subscribePattern": "A Java regular expression. The source reads all topics whose whole name matches, "
    "also new ones.",
    "assign": 'Partitions to read: {"orders":[0,1]}.',
    "startingOffsets": 'earliest, latest, {"orders":{"0":23,"1":-2}} (-2 earliest, -1 latest), or group: '
    "the committed offsets of the group kafka.group.id (earliest for a partition "
    "without one). The default is earliest in batch, latest in a stream. A restarted "
    "stream continues where it was.",
    "startingTimestamp": "Start at the first record of this time or later; milliseconds since 1970.",
    "startingOffsetsByTimestamp": 'startingTimestamp by partition: {"orders":{"0":1700000000000}}.',
    "startingOffsetsByTimestampStrategy": "error (default) or latest: the start if no record has this time "
    "or a later one.",
    "endingOffsets": "latest (default) or offsets as in startingOffsets; batch only.",
    "endingTimestamp": "Stop before the first record of this time or later; batch only.",
    "endingOffsetsByTimestamp": "endingTimestamp by partition; batch only.",
    "maxOffsetsPerTrigger": "The approximate limit of records in a micro-batch; streams only.",
    "maxBytesPerTrigger": "The approximate limit of a micro-batch in bytes of keys, values and headers. "
    "It is estimated by the first records of the partitions with the most lag; streams only.",
    "minOffsetsPerTrigger": "The number of new records for which a micro-batch waits; streams only.",
    "maxTriggerDelay": "The longest wait for minOffsetsPerTrigger: 15m (default), 30s, 500ms, 1h.",
    "minPartitions": "The smallest number of Spark partitions; large topic partitions are split.",
    "maxRecordsPerPartition": "The largest number of records that a Spark partition reads; larger ones are "
    "split.",
    "parallelism": "The smallest number of tasks into which small partitions are combined. On a cluster set "
    "it to "
    "spark.sparkContext.defaultParallelism, which a data source cannot see. The default is the number of the "
    "driver's cores.",
    "failOnDataLoss": "true (default): the query fails when records were deleted before it read them.",
    "includeHeaders": "true: adds the column headers. The default is false.",
    "kafkaConsumer.pollTimeoutMs": "The time, in milliseconds, that a task waits for the brokers. The "
    "default is 120000.",
    "groupIdPrefix": "The group in requests if kafka.group.id is not set. Reading joins no group.",
    "commitOffsets": "true: commits the processed offsets of a stream to the group kafka.group.id, so that "
    "tools can show its lag. The stream itself never reads them. The default is false.",
}

WRITE_OPTIONS = {
    _SERVERS: READ_OPTIONS[_SERVERS],
    _CONFIG: READ_OPTIONS[_CONFIG],
    "topic": "The topic to write to; overrides the column topic.",
    "includeHeaders": "Has no effect, as in Spark's own connector: a column headers is written if there is "
    "one.",
    "barnabas.delivery": "at-least-once (default) or exactly-once: see below.",
    "barnabas.sinkId": "exactly-once in batch: a name for the target; batchId counts within it.",
    "barnabas.batchId": "exactly-once in batch: the number of this write. The rows of a number are written "
    "once, with any number of attempts. Each new number must be higher than the "
    "previous one.",
    "barnabas.failOnChangedReplay": "exactly-once: true (default): the query fails when a repeated task has "
    "other rows than it has already written.",
    "barnabas.adoptTopic": "exactly-once: true: a query continues, with its next batch, in a topic that it "
    "has not written to, such as one that was deleted and created again. The default is false.",
    "barnabas.deadLetterTopic": "The topic for rows that the topic in their column `topic` does not accept.",
    "barnabas.deadLetterLimit": "The largest number of rows of one write, or of one micro-batch, that "
    "barnabas.deadLetterTopic accepts; with more the write fails.",
}

_LIMITS = ("maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_BATCH_OF_SINK = ("barnabas.sinkId", "barnabas.batchId")
_DEAD_LETTERS = ("barnabas.deadLetterTopic", "barnabas.deadLetterLimit")
_ONLY_EXACTLY_ONCE = (*_BATCH_OF_SINK, "barnabas.failOnChangedReplay", "barnabas.adoptTopic")

#: Spark's own options, which Spark passes to the data source too.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})

#: Client settings that a job must not set, because the data source sets them or has an option instead.
REFUSED_SETTINGS = {
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "Spark's checkpoint holds the offsets; to see the lag use commitOffsets",
    "enable.auto.offset.store": "Spark's checkpoint holds the offsets",
    "enable.partition.eof": "the data source needs it to find the end of a batch",
    "key.deserializer": "keys come as bytes; decode them with Spark's functions",
    "value.deserializer": "values come as bytes; decode them with Spark's functions",
    "key.serializer": "keys are sent as they are; encode them with Spark's functions",
    "value.serializer": "values are sent as they are; encode them with Spark's functions",
    "interceptor.classes": "interceptors are Java classes, which do not run here",
    "transactional.id": "the data source names its own; use barnabas.delivery=exactly-once",
}


@dataclass(frozen=True)
class Bound:
    """The start or the end of a read.

    Attributes:
        option: the data source's option that the user has given, for error messages.
        everywhere: one value for all partitions: an offset, `EARLIEST` or `LATEST`.
        by_partition: the value of each partition; None if `everywhere` applies.
        is_timestamp: whether the values are times in milliseconds since 1970.
        is_committed: whether a partition starts at the offset that the group has committed. A partition
            without a committed offset starts at its value.
        latest_when_too_late: whether a time after a partition's last record means the latest offset. If
            false, such a time is an error.
    """

    option: str
    everywhere: int = LATEST
    by_partition: Offsets | None = None
    is_timestamp: bool = False
    is_committed: bool = False
    latest_when_too_late: bool = False

    @property
    def moves(self) -> bool:
        """Whether new records can change the offset of this bound, because it may be the latest offset."""
        values = [self.everywhere] if self.by_partition is None else self.by_partition.values()
        return LATEST in values or (self.is_timestamp and self.latest_when_too_late)


@dataclass(frozen=True)
class ReadOptions:
    """The checked options of a read. Exactly one of `topics`, `pattern` and `partitions` is given.

    `client` has the settings of the read under librdkafka's names. A limit is None if its option was not
    given. Times with the suffix ``_s`` are in seconds.
    """

    client: dict[str, str] = field(repr=False)
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    starting: Bound = Bound("startingOffsets", EARLIEST)
    ending: Bound = Bound("endingOffsets", LATEST)
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 15 * 60
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    parallelism: int | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = column_names(include_headers=False)
    poll_timeout_s: float = 120.0
    commit_offsets: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Check and return the options of ``spark.read`` or, with `streaming`, ``spark.readStream``.

        Raises:
            ConfigError: an option is unknown, missing or not allowed; the text has the option and a hint.
        """
        given = _Given(options, READ_OPTIONS)
        client = reading_settings(given.client_settings(writing=False))
        commit_offsets = given.parsed("commitOffsets", boolean, default=False)
        if commit_offsets and "group.id" not in client:
            raise invalid_option("commitOffsets", "true", "set kafka.group.id to the group to commit to")
        if not streaming and commit_offsets:
            raise invalid_option(
                "commitOffsets", "true", "only a stream commits: remove it or use readStream"
            )
        if streaming:
            given.refuse_each(_ENDINGS, "a stream has no end: remove it, or read in batch")
        else:
            given.refuse_each(_LIMITS, "a batch reads all at once: remove it, or use readStream")
        if "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
            raise invalid_option("maxTriggerDelay", given["maxTriggerDelay"], "set minOffsetsPerTrigger too")
        if "groupIdPrefix" in given:
            client.setdefault("group.id", given["groupIdPrefix"])
        starting = _bound(given, "starting", default=LATEST if streaming else EARLIEST)
        ending = _bound(given, "ending", default=LATEST)
        _check_batch_bounds(given, starting, ending, streaming)
        return cls(
            client=client,
            **_selection(given),
            starting=starting,
            ending=ending,
            max_offsets_per_trigger=given.parsed("maxOffsetsPerTrigger", positive, default=None),
            max_bytes_per_trigger=given.parsed("maxBytesPerTrigger", positive, default=None),
            min_offsets_per_trigger=given.parsed("minOffsetsPerTrigger", positive, default=None),
            max_trigger_delay_s=given.parsed("maxTriggerDelay", seconds, default=15 * 60),
            min_partitions=given.parsed("minPartitions", positive, default=None),
            max_records_per_partition=given.parsed("maxRecordsPerPartition", positive, default=None),
            parallelism=given.parsed("parallelism", positive, default=None),
            fail_on_data_loss=given.parsed("failOnDataLoss", boolean, default=True),
            columns=column_names(given.parsed("includeHeaders", boolean, default=False)),
            poll_timeout_s=given.parsed("kafkaConsumer.pollTimeoutMs", positive, default=120_000) / 1000,
            commit_offsets=commit_offsets,
        )


@dataclass(frozen=True)
class WriteOptions:
    """The checked options of a write. Without `topic`, each row names its topic in the column topic.

    `client` has the producer's settings under librdkafka's names.

    `sink` and `batch` identify an exactly-once write in batch: both are given, or neither. In a stream,
    Spark's query id and batch id identify the write.
    """

    client: dict[str, str] = field(repr=False)
    topic: str | None = None
    exactly_once: bool = False
    sink: str | None = None
    batch: int | None = None
    fail_on_changed_replay: bool = True
    adopt_topic: bool = False
    dead_letter_topic: str | None = None
    dead_letter_limit: int = 0

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """Check and return the options of ``df.write`` or, with `streaming`, ``df.writeStream``.

        Raises:
            ConfigError: an option is unknown, missing or not allowed; the text has the option and a hint.
        """
        given = _Given(options, WRITE_OPTIONS)
        exactly_once = given.parsed("barnabas.delivery", delivery, default=False)
        if not exactly_once:
            given.refuse_each(_ONLY_EXACTLY_ONCE, "it is for barnabas.delivery=exactly-once: set that too")
        if streaming:
            given.refuse_each(_BATCH_OF_SINK, "a stream counts its own batches: remove it")
        given.parsed("includeHeaders", boolean, default=False)
        for name, other in (*_in_pairs(_BATCH_OF_SINK), *_in_pairs(_DEAD_LETTERS)):
            if name in given and other not in given:
                raise invalid_option(name, given[name], f"set {other} too")
        return cls(
            client=given.client_settings(writing=True),
            topic=given.parsed("topic", topic_name, default=None),
            exactly_once=exactly_once,
            sink=given.parsed("barnabas.sinkId", sink_name, default=None),
            batch=given.parsed("barnabas.batchId", count, default=None),
            fail_on_changed_replay=given.parsed("barnabas.failOnChangedReplay", boolean, default=True),
            adopt_topic=given.parsed("barnabas.adoptTopic", boolean, default=False),
            dead_letter_topic=given.parsed("barnabas.deadLetterTopic", topic_name, default=None),
            dead_letter_limit=given.parsed("barnabas.deadLetterLimit", count, default=0),
        )


class _Given:
    """The options of a job, by their declared names."""

    def __init__(self, options: Mapping[str, str], declared: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        by_lower = {name.lower(): name for name in declared}
        for name in IGNORED_OPTIONS if declared is READ_OPTIONS else ():
            if name.lower() in self._values:
                note(name, IGNORED_OPTIONS[name])
                del self._values[name.lower()]
        for name, value in self._values.items():
            if name not in by_lower and name not in _SPARKS_OWN and not name.startswith("kafka."):
                raise invalid_option(name, value, _advice(name, by_lower))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()].strip()

    def refuse_each(self, names: Iterable[str], hint: str) -> None:
        """Raise ConfigError, whose text ends with `hint`, if one of the options `names` is given."""
        for name in names:
            if name in self:
                raise invalid_option(name, self[name], hint)

    def parsed(self, name: str, parse: Callable[[str, str], Any], default: Any) -> Any:
        return parse(name, self[name]) if name in self else default

    def client_settings(self, *, writing: bool) -> dict[str, str]:
        """Return the client's settings under librdkafka's names, from the options ``kafka.*`` and the file.

        `writing` says whether the client is a producer.

        Raises ConfigError if a setting is in `REFUSED_SETTINGS` or cannot be converted, or bootstrap.servers
        is missing.
        """
        given = {
            name.removeprefix("kafka."): value
            for name, value in self._values.items()
            if name.startswith("kafka.")
        }
        for name, hint in REFUSED_SETTINGS.items():
            if name in given:
                raise invalid_option(f"kafka.{name}", given[name], hint)
        settings = {**self.parsed(_CONFIG, config_file, default={}), **from_java(given, writing=writing)}
        if not settings.get("bootstrap.servers", "").strip():
            raise ConfigError(f"option {_SERVERS} is missing: set it to your broker, such as 127.0.0.1:9092")
        return settings


def _in_pairs(names: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return names, names[::-1]


def _advice(name: str, by_lower: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(name, by_lower, n=1)
    if close:
        return f"did you mean {by_lower[close[0]]}?"
    return f"there is no such option; remove it (there are: {', '.join(by_lower.values())})"


def _selection(given: _Given) -> dict[str, Any]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) != 1:
        found = " and ".join(f"{name}={given[name]}" for name in ways) or "none of them"
        raise ConfigError(f"set one of the options subscribe, subscribePattern, assign: there is {found}")
    name, value = ways[0], given[ways[0]]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise invalid_option(name, value, "name topics, separated by commas")
        return {"topics": topics}
    if name == "subscribePattern":
        topic_pattern(name, value)
        return {"pattern": value}
    return {"partitions": assigned(name, value)}


def _bound(given: _Given, side: str, default: int) -> Bound:
    """Return the start or the end of a read. `side` is ``starting`` or ``ending``.

    The options are {side}Timestamp, {side}OffsetsByTimestamp and {side}Offsets. The first given one applies,
    as in Spark's connector. Without these options, the result is `default` (`EARLIEST` or `LATEST`) in every
    partition. Raises ConfigError if the value of an option is not allowed.
    """
    no_match = "startingOffsetsByTimestampStrategy"
    latest_when_too_late = side == "ending" or given.parsed(no_match, strategy, default=False)
    name = f"{side}Timestamp"
    if name in given:
        moment = timestamp(name, given[name])
        return Bound(name, moment, is_timestamp=True, latest_when_too_late=latest_when_too_late)
    name = f"{side}OffsetsByTimestamp"
    if name in given:
        moments = by_partition(name, given[name])
        return Bound(name, by_partition=moments, is_timestamp=True, latest_when_too_late=latest_when_too_late)
    name = f"{side}Offsets"
    if name not in given:
        return Bound(name, default)
    word = given[name].lower()
    if word in ("earliest", "latest"):
        return Bound(name, EARLIEST if word == "earliest" else LATEST)
    if side == "starting" and word == "group":
        if "kafka.group.id" not in given:
            raise invalid_option(name, word, "set kafka.group.id to the group whose offsets to start from")
        return Bound(name, EARLIEST, is_committed=True)
    return Bound(name, by_partition=by_partition(name, given[name]))


def _check_batch_bounds(given: _Given, starting: Bound, ending: Bound, streaming: bool) -> None:
    """Raise ConfigError if a batch query starts at the latest offset, or ends at the earliest.

    Streams and bounds by timestamp are not checked.
    """
    for bound, wrong, hint in (
        (starting, LATEST, "a batch that starts at the latest offset is empty; use earliest (-2) or offsets"),
        (ending, EARLIEST, "a batch that ends at the earliest offset is empty; use latest (-1) or offsets"),
    ):
        values = [bound.everywhere] if bound.by_partition is None else list(bound.by_partition.values())
        if not streaming and not bound.is_timestamp and wrong in values:
            raise invalid_option(bound.option, given[bound.option], hint)
