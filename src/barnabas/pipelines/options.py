"""What a pipeline, a source and a sink can be told: the same in Python and in a SQL file's header."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Self, get_args, get_type_hints

from barnabas.base.errors import ConfigError
from barnabas.base.text import is_plain_url
from barnabas.client.schemas.registered import Reference
from barnabas.spark.option_values import refuse
from barnabas.spark.subjects import STRATEGIES, record_name, subject_for

Texts = dict[str, str]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DURATION = re.compile(r"(\d+)\s+(second|minute|hour)s?")
#: As Spark takes it: months have no fixed length.
_INTERVAL = re.compile(
    r"(?i)(?:interval\s+)?(?:\d+\s+(?:week|day|hour|minute|second|millisecond|microsecond)s?\s*)+"
)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_ICEBERG_PARTITION = re.compile(r"(?:(?:year|month|day|hour|truncate\[[1-9]\d{0,8}\])\([^()]+\)|[^()\[\]]+)")
_WATERMARK = re.compile(r"(\S+)\s+(\d+\s+\w+)")

_WORDS: dict[type, str] = {
    str: 'a text: "..."',
    bool: "true or false",
    int: "a whole number",
    dict: "names and texts",
}


def option(doc: str, default: Any = None) -> Any:
    """An option with what the docs say of it."""
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"doc": doc})
    return field(default=default, metadata={"doc": doc})


class Options:
    """Made from what a file gives; each option is declared once, as a typed field."""

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Check names, types and values.

        Raises:
            ConfigError: an option is unknown or not allowed; the text names it, its value and the cure.
        """
        types = get_type_hints(cls)
        for name, value in given.items():
            if name not in types:
                raise refuse(name, value, _advice(name, list(types)))
            _check_type(name, value, types[name])
        made = cls(**given)
        made.check()
        return made

    def check(self) -> None:
        """Refuse values that do not go together with ConfigError, and fill in what depends on others."""

    def one_of(self, names: tuple[str, ...], what: str) -> str:
        """The one of `names` that is set."""
        chosen = [name for name in names if getattr(self, name)]
        if len(chosen) != 1:
            found = " and ".join(chosen) if chosen else "none"
            raise ConfigError(f"{what} is given by one of {', '.join(names)}; here it is {found}")
        return chosen[0]

    def choose(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            raise refuse(name, value, _advice(value, list(allowed)))

    def refuse_set(self, names: tuple[str, ...], why: str) -> None:
        """Refuse each of `names` that is set."""
        for name in names:
            if value := getattr(self, name):
                raise refuse(name, value, f"{why}: remove it")


@dataclass
class PipelineOptions(Options):
    """Of the whole pipeline."""

    name: str = option("The pipeline's name; by default the file's, without its ending.", "")
    bootstrap: str = option(
        "The brokers to connect to first, host:port, separated by commas. --bootstrap-server overrides it.",
        "",
    )
    config: str = option(
        "A file of client settings, Kafka's client.properties or TOML, mainly for passwords. --config and "
        "`kafka` override it.",
        "",
    )
    registry: str = option("The URL of the schema registry, which avro, protobuf and jsonschema need.", "")
    kafka: Texts = option("Settings of every client, such as security.protocol, without `kafka.`.", {})
    spark: Texts = option(
        "Settings of Spark, such as spark.sql.shuffle.partitions. --conf overrides them.", {}
    )
    checkpoints: str = option(
        "The folder of the checkpoints, or a URI that every machine of a cluster can access. The default is "
        "in the pipeline's own folder.",
        "",
    )
    restarts: int = option("The number of restarts of a failed query in a row before the pipeline stops.", 10)
    status_topic: str = option(
        "The topic to write the pipeline's status to, for `barnabas pipeline list` and the console, such as "
        "barnabas-pipelines. The pipeline creates it, compacted, if it does not exist.",
        "",
    )
    alert_lag: int = option(
        "Raise an alert when the lag of a query exceeds this number of records for `alert_after`; 0: never.",
        0,
    )
    alert_after: str = option("The time for which the lag must exceed `alert_lag`: `1 minute`.", "1 minute")
    alert_stuck: str = option(
        "Raise an alert when one batch takes longer than this: `10 minutes`; `0 seconds`: never.",
        "10 minutes",
    )

    @property
    def alert_after_s(self) -> float:
        """`alert_after` in seconds."""
        return _seconds(self.alert_after)

    @property
    def alert_stuck_s(self) -> float:
        """`alert_stuck` in seconds."""
        return _seconds(self.alert_stuck)

    def check(self) -> None:
        if self.name and not NAME.fullmatch(self.name):
            raise refuse("name", self.name, "write letters, digits, - and _")
        if "bootstrap.servers" in self.kafka:  # there it would win over --bootstrap-server
            given = self.kafka["bootstrap.servers"]
            raise refuse("kafka.bootstrap.servers", given, "the brokers are named by the option bootstrap")
        if self.restarts < 0:
            raise refuse("restarts", self.restarts, "write 0 or more")
        if self.alert_lag < 0:
            raise refuse("alert_lag", self.alert_lag, "write 0 or more")
        for name in ("alert_after", "alert_stuck"):
            if not _DURATION.fullmatch(getattr(self, name).strip()):
                cure = "write a number and a unit: `30 seconds`, `1 minute`"
                raise refuse(name, getattr(self, name), cure)
        if self.status_topic and not _TOPIC.fullmatch(self.status_topic):
            raise refuse("status_topic", self.status_topic, "write letters, digits, ., _ and -, at most 249")


SOURCE_KINDS = ("topic", "files")
#: formats whose schemas a registry has
REGISTERED = ("avro", "protobuf", "jsonschema")
TOPIC_FORMATS = ("raw", "json", "csv", "text", *REGISTERED, "log")
FILE_FORMATS = ("json", "csv", "text", "parquet", "orc")
#: formats that need a schema
_DECLARED = ("json", "csv")


@dataclass
class SourceOptions(Options):
    """Of a source."""

    topic: str = option("The topics to read, separated by commas.", "")
    files: str = option("A folder or a pattern; the source also reads files that appear there later.", "")
    format: str = option(
        "The format of a record or a line: json, csv, text. Topics can also have avro, protobuf and "
        "jsonschema (registered), log (the records of `barnabas ship`: the columns source, level, message, "
        "at "
        "and, as JSON, all fields) and raw (the default: the columns of the data source). Files can also be "
        "parquet and orc.",
        "",
    )
    schema: str = option(
        "The columns of json, csv, parquet and orc: `id BIGINT NOT NULL, at TIMESTAMP`. A record of json or "
        "csv that lacks a NOT NULL one does not parse. Of avro and jsonschema: the reader's schema, as "
        "JSON. The default, and for protobuf always, is the subject's newest when the pipeline starts.",
        "",
    )
    subject: str = option(
        "Of registered formats: the registry's name for the schema; by default the topic's, TOPIC-value.", ""
    )
    message: str = option("Of protobuf: the message's name; by default the first of the schema.", "")
    envelope: str = option(
        "`debezium`: the records are Debezium's change events, as json or registered. The columns are the "
        "table's (`schema`, of json), and `_deleted`, which tells sinks with a key to delete rows.",
        "",
    )
    time_unit: str = option(
        "Of `debezium` as json: ms, us or ns, the unit of numbers for columns of type TIMESTAMP. Omit it if "
        "events have their schema (the converter's schemas.enable), which names the unit.",
        "",
    )
    dead_letter: str = option(
        "The topic for records that do not parse. Without it such a record stops the pipeline.", ""
    )
    watermark: str = option(
        "The column of event time, and the time by which rows can be late: `at 10 minutes`.", ""
    )
    static: bool = option(
        "Read the contents at the start, and not a stream: for a table to join with, or a batch that ends.",
        False,
    )
    refresh: str = option(
        "Of a static source that a stream is joined with: the interval at which to read new contents, "
        "`5 minutes`. The default is never.",
        "",
    )
    shared: bool = option(
        "Read and parse once for the dead letters and for the sinks to topics, PostgreSQL and Delta whose "
        "rows come from this source alone, without state: one query, SOURCE.shared, writes to all of them.",
        False,
    )
    options: Texts = option(
        "Options of the reader: the data source's (startingOffsets, maxOffsetsPerTrigger ...) or Spark's for "
        "the format (`header` of csv: the first line names the columns of the schema, in their order). A "
        "topic is read from its start unless startingOffsets says otherwise.",
        {},
    )

    @property
    def kind(self) -> str:
        return self.one_of(SOURCE_KINDS, "where the rows come from")

    @property
    def refresh_s(self) -> float:
        """`refresh` in seconds; 0 if it is not set."""
        return _seconds(self.refresh)

    @property
    def watermark_parts(self) -> tuple[str, str] | None:
        """Column and delay."""
        match = _WATERMARK.fullmatch(self.watermark.strip())
        return (match[1], match[2]) if match else None

    def check(self) -> None:
        if self.kind == "topic" and not self.format:
            self.format = "raw"
        self.choose("format", TOPIC_FORMATS if self.kind == "topic" else FILE_FORMATS)
        if not self.schema and (self.format in _DECLARED or self.format in ("parquet", "orc")):
            raise ConfigError(
                f"option schema is missing: {self.format} needs one, as `id BIGINT, at TIMESTAMP`"
            )
        if self.schema and self.format in ("raw", "text", "log"):
            raise refuse("schema", self.schema, f"the columns of {self.format} are fixed: remove it")
        _check_registered(self)
        if self.format == "protobuf" and self.schema:
            raise refuse("schema", self.schema, "protobuf is read by the newest of its subject: remove it")
        if self.envelope:
            self.choose("envelope", ("debezium",))
            if self.kind != "topic" or self.format not in ("json", *REGISTERED):
                raise refuse("envelope", self.envelope, "it goes with topics of json or a registered format")
        if self.time_unit:
            self.choose("time_unit", ("ms", "us", "ns"))
            if not self.envelope or self.format != "json":
                raise refuse("time_unit", self.time_unit, "it goes with envelope=debezium and format=json")
        if self.format in REGISTERED and not self.subject:
            self.subject = f"{self.topic}-value"
        if self.dead_letter and self.format not in (*_DECLARED, "text", *REGISTERED):
            raise refuse("dead_letter", self.dead_letter, f"every record is good as {self.format}: remove it")
        if self.dead_letter and self.static:
            raise refuse("dead_letter", self.dead_letter, "a static source has none: remove it")
        if self.refresh and not self.static:
            raise refuse("refresh", self.refresh, "a stream is read as it comes: remove it, or set static")
        if self.refresh and not self.refresh_s:
            raise refuse("refresh", self.refresh, "write a number and a unit: `30 seconds`, `5 minutes`")
        if self.shared and self.static:
            raise refuse("shared", self.shared, "a static source has no query of its own: remove it")
        if self.watermark and not self.watermark_parts:
            raise refuse("watermark", self.watermark, "write a column and a delay: `at 10 minutes`")


SINK_KINDS = ("topic", "parquet", "delta", "iceberg", "postgres", "jdbc", "console")
SINK_FORMATS = ("json", "csv", "text", *REGISTERED, "raw")

#: which rows a sink can write; the first is the default
_MODES = {
    "topic": ("append", "update", "complete"),
    "console": ("append", "update", "complete"),
    "parquet": ("append", "complete"),
    "delta": ("append", "complete"),
    "iceberg": ("append", "complete"),
    "postgres": ("append", "update"),
    "jdbc": ("append", "update"),
}

#: how many rows of a batch a sink may refuse, where nothing else is said
DEAD_LETTERS_OF_A_BATCH = 100

#: sinks whose rows do not pass through the driver, beside those that Spark itself writes
WRITTEN_BY_EXECUTORS = ("iceberg", "jdbc")

#: Spark's options of JDBC that the sink has as its own
_OWN_OF_JDBC = {
    "dbtable": "table",
    "driver": "driver",
    "password": "the environment variable of password_env",
    "query": "table",
    "url": "jdbc",
    "user": "user",
}
_SECRET_IN_JDBC = re.compile(r"(?i)(?:password|passwd|pwd|secret|token)\w*\s*=|//[^?;]*@|oracle:\w+:[^@]+@")

#: options that mean something to some kinds of sinks only
_ONLY_OF = (
    (("topic",), ("format", "schema", "subject", "subject_strategy", "message", "references", "delivery")),
    (("topic", "postgres", "jdbc"), ("key",)),
    (("parquet", "delta", "iceberg"), ("partition_by",)),
    (("topic", "delta", "postgres", "jdbc"), ("dead_letter",)),
    (("postgres", "jdbc"), ("table",)),
    (("jdbc",), ("driver", "user", "password_env")),
    (("topic", "parquet", "iceberg", "jdbc", "console"), ("options",)),
)


@dataclass
class SinkOptions(Options):
    """Of a sink."""

    topic: str = option(
        "The topic to write to. With several, separated by commas, the column `topic` names the topic of a "
        "row, and the format is raw.",
        "",
    )
    parquet: str = option("The folder to write Parquet files to.", "")
    delta: str = option("The folder or URI of a Delta table; the sink creates it if it does not exist.", "")
    iceberg: str = option(
        "The Iceberg table, as CATALOG.NAMESPACE.TABLE; the sink creates it if it does not exist. `options`, "
        "or PyIceberg's own configuration, name the catalog's address.",
        "",
    )
    postgres: str = option("The database: `postgresql://user@host/name`; PGPASSWORD has the password.", "")
    jdbc: str = option(
        "The database, by the URL of its JDBC driver, without user and password: `jdbc:mariadb://host/shop`.",
        "",
    )
    console: bool = option("Print the rows.", False)
    table: str = option("Of PostgreSQL and JDBC: the table, which must exist.", "")
    driver: str = option("Of JDBC: the driver's class; by default the usual one for the URL.", "")
    user: str = option("Of JDBC: the user of the database.", "")
    password_env: str = option(
        "Of JDBC: the environment variable that has the password; by default BARNABAS_JDBC_PASSWORD.", ""
    )
    format: str = option(
        "The format of a record's value: json (the default) or csv of all columns; text, of the column "
        "value; avro, protobuf and jsonschema, by `schema`; raw, if the columns are those that the data "
        "source writes.",
        "",
    )
    schema: str = option(
        "Of registered formats: the schema (JSON, or .proto text), which the sink registers if necessary. "
        "The default is the subject's newest.",
        "",
    )
    subject: str = option("Of registered formats: the registry's name for the schema.", "")
    subject_strategy: str = option(
        "Of registered formats without a `subject`: TopicNameStrategy (the default: TOPIC-value), "
        "RecordNameStrategy (the record's full name, of jsonschema its title) or TopicRecordNameStrategy "
        "(TOPIC-NAME).",
        "",
    )
    message: str = option("Of protobuf: the message's name; by default the first of the schema.", "")
    references: Texts = option(
        'Schemas that `schema` refers to, by name: `{"item.proto": "items-value/1"}`, subject and version.',
        {},
    )
    key: str = option(
        "Columns, separated by commas. Of topics: the record's key, as text unless it is binary; several "
        "columns become a JSON object. Of PostgreSQL and JDBC: the columns of a unique index; a row replaces "
        "the one with the same key.",
        "",
    )
    mode: str = option(
        "The rows to write: append (the default), update or complete. If no source is a stream, complete "
        "replaces the contents of the Parquet files, the Delta table or the Iceberg table.",
        "append",
    )
    delivery: str = option("Of topics: at-least-once (the default) or exactly-once.", "")
    dead_letter: str = option(
        "Of topics, PostgreSQL, JDBC and Delta: the topic for rows that the sink rejects (a constraint, a "
        "value out of range, a record too large). Without it such a row stops the pipeline.",
        "",
    )
    dead_letter_limit: int = option(
        "The largest number of rows of one batch that go there. A batch with more stops the pipeline, and "
        "the "
        "sink writes nothing of it.",
        DEAD_LETTERS_OF_A_BATCH,
    )
    partition_by: str = option(
        "Of Parquet and Delta: the columns that become folders, separated by commas. Of Iceberg: the "
        "partitions of a table that the sink creates, such as `day(at), item`, with the transforms year, "
        "month, day, hour and truncate[N].",
        "",
    )
    trigger: str = option(
        "The interval at which batches begin: `10 seconds`. By default a batch begins when the last one "
        "ends.",
        "",
    )
    options: Texts = option(
        "Options of the writer: the data source's or Spark's; of Iceberg the catalog's properties.", {}
    )

    @property
    def kind(self) -> str:
        return self.one_of(SINK_KINDS, "where the rows go")

    @property
    def topics(self) -> list[str]:
        return _names(self.topic)

    @property
    def keys(self) -> list[str]:
        return _names(self.key)

    @property
    def partitions(self) -> list[str]:
        return _names(self.partition_by)

    def check(self) -> None:
        for kinds, names in _ONLY_OF:
            if self.kind not in kinds:
                self.refuse_set(names, f"it goes with {' or '.join(kinds)}, not with {self.kind}")
        self.choose("mode", _MODES[self.kind])
        self._check_dead_letter()
        if self.trigger and not _INTERVAL.fullmatch(self.trigger.strip()):
            raise refuse(
                "trigger", self.trigger, "write numbers and units: `10 seconds`, `1 minute 30 seconds`"
            )
        if self.kind in ("postgres", "jdbc"):
            self._check_table()
        if self.kind == "postgres":
            self._check_postgres()
        if self.kind == "jdbc":
            self._check_jdbc()
        if self.kind == "iceberg" and not re.fullmatch(r"[^.]+(\.[^.]+){2,}", self.iceberg):
            raise refuse("iceberg", self.iceberg, "write CATALOG.NAMESPACE.TABLE: lake.shop.sales")
        if self.kind == "iceberg":
            for each in self.partitions:
                if not _ICEBERG_PARTITION.fullmatch(each):
                    cure = "write columns, year(c), month(c), day(c), hour(c) or truncate[N](c), by commas"
                    raise refuse("partition_by", each, cure)
        if self.kind == "topic":
            self.format = self.format or "json"
            self.delivery = self.delivery or "at-least-once"
            self.choose("format", SINK_FORMATS)
            self.choose("delivery", ("at-least-once", "exactly-once"))
            if len(self.topics) > 1 and self.format != "raw":
                raise refuse(
                    "format", self.format, "rows for several topics are written as they are: use raw"
                )
            self._check_schema()
            for name, value in self.options.items():
                if name.lower() == "barnabas.delivery":
                    raise refuse(name, value, "it is the sink's own option delivery: write it there")
            if self.key and self.format == "raw":
                raise refuse("key", self.key, "in the format raw the column key is the key: remove it")

    def _check_schema(self) -> None:
        _check_registered(self)
        if self.format not in REGISTERED:
            self.refuse_set(
                ("schema", "subject_strategy", "references"), f"it goes with {', '.join(REGISTERED)}"
            )
            return
        if self.subject:
            self.refuse_set(("subject_strategy",), "subject is set")
        elif self.subject_strategy and not self.schema:
            raise ConfigError("option schema is missing: a subject_strategy takes the record's name from it")
        else:
            strategy = self.subject_strategy or STRATEGIES[0]
            name = record_name(self.format, self.schema, self.message) if strategy != STRATEGIES[0] else ""
            self.subject = subject_for(strategy, self.topic, name)
        for name, where in self.references.items():
            Reference.parse(name, where)

    def _check_dead_letter(self) -> None:
        if self.dead_letter and not _TOPIC.fullmatch(self.dead_letter):
            raise refuse("dead_letter", self.dead_letter, "write letters, digits, ., _ and -, at most 249")
        if self.dead_letter and self.dead_letter in self.topics:
            raise refuse("dead_letter", self.dead_letter, "the sink writes there: choose another topic")
        if self.dead_letter_limit < 1:
            raise refuse("dead_letter_limit", self.dead_letter_limit, "write 1 or more")
        if self.dead_letter_limit != DEAD_LETTERS_OF_A_BATCH and not self.dead_letter:
            raise refuse(
                "dead_letter_limit", self.dead_letter_limit, "it goes with dead_letter: set that too"
            )

    def _check_table(self) -> None:
        if not self.table:
            raise ConfigError("option table is missing: name the table to write to")
        if self.mode == "update" and not self.key:
            raise ConfigError("option key is missing: mode=update replaces rows, so name the key's columns")

    def _check_jdbc(self) -> None:
        self.password_env = self.password_env or "BARNABAS_JDBC_PASSWORD"
        if not re.fullmatch(r"jdbc:\w+:.+", self.jdbc):
            raise refuse("jdbc", self.jdbc, "write the driver's URL: jdbc:mariadb://host/shop")
        # URLs are shown in logs and plans; Oracle's has an @ before the host
        if _SECRET_IN_JDBC.search(self.jdbc):
            cure = f"the user is the option user, and the password is in {self.password_env}"
            raise refuse("jdbc", "[hidden]", cure)
        for name, value in self.options.items():
            if name.lower() in _OWN_OF_JDBC:
                hidden = "[hidden]" if name.lower() == "password" else value
                raise refuse(f"options.{name}", hidden, f"write it as {_OWN_OF_JDBC[name.lower()]}")

    def _check_postgres(self) -> None:
        if "://" in self.postgres and not is_plain_url(self.postgres):
            cure = "in user and password, percent-encode /, ?, #, @ and spaces: postgresql://user@host/name"
            raise refuse("postgres", self.postgres, cure)


def _check_registered(options: SourceOptions | SinkOptions) -> None:
    if options.format not in REGISTERED:
        options.refuse_set(("subject",), f"it goes with {', '.join(REGISTERED)}")
    if options.format != "protobuf":
        options.refuse_set(("message",), "it goes with protobuf")


def _seconds(duration: str) -> float:
    match = _DURATION.fullmatch(duration.strip())
    return float(match[1]) * _SECONDS[match[2]] if match else 0.0


def describe(options: type[Options]) -> dict[str, str]:
    """What each option means, by name, for the docs."""
    return {each.name: each.metadata["doc"] for each in fields(options)}  # type: ignore[arg-type]


def _check_type(name: str, value: object, wanted: Any) -> None:
    base = get_args(wanted)[0] if isinstance(wanted, UnionType) else getattr(wanted, "__origin__", wanted)
    if type(value) is not base:
        raise refuse(name, value, f"write {_WORDS[base]}")
    if isinstance(value, dict):  # one by one: what is beside it may be a password
        for key, text in value.items():
            if not isinstance(text, str):
                raise refuse(f"{name}.{key}", text, f"write {_WORDS[str]}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _advice(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"
