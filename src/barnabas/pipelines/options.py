"""Declares and checks the options of a pipeline and of a source, in Python files and in SQL headers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Self, get_args, get_type_hints

from barnabas.base.errors import ConfigError
from barnabas.spark.option_values import invalid_option

Texts = dict[str, str]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DURATION = re.compile(r"(\d+)\s+(second|minute|hour)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_WATERMARK = re.compile(r"(\S+)\s+(\d+\s+\w+)")

_WORDS: dict[type, str] = {
    str: 'a text: "..."',
    bool: "true or false",
    int: "a whole number",
    dict: "names and texts",
}


def option(doc: str, default: Any = None) -> Any:
    """Declare an option: return a dataclass field with `default`, and `doc` for the documentation."""
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"doc": doc})
    return field(default=default, metadata={"doc": doc})


class Options:
    """The base class of options. Each option is a field of a dataclass, declared with `option`."""

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Make the options from `given`. Check names, types and values.

        Raises:
            ConfigError: an option is unknown or not allowed; the text has its name, its value and a hint.
        """
        types = get_type_hints(cls)
        for name, value in given.items():
            if name not in types:
                raise invalid_option(name, value, _advice(name, list(types)))
            _check_type(name, value, types[name])
        made = cls(**given)
        made.check()
        return made

    def check(self) -> None:
        """Check the values together, and fill in defaults that depend on other values.

        Raises ConfigError if a value, or a combination of values, is not allowed.
        """

    def one_of(self, names: tuple[str, ...], what: str) -> str:
        """Return the name of the only option of `names` that is set.

        Raises ConfigError, whose text begins with `what`, if none or several are set.
        """
        chosen = [name for name in names if getattr(self, name)]
        if len(chosen) != 1:
            found = " and ".join(chosen) if chosen else "none"
            raise ConfigError(f"{what} is given by one of {', '.join(names)}; here it is {found}")
        return chosen[0]

    def choose(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            raise invalid_option(name, value, _advice(value, list(allowed)))

    def refuse_set(self, names: tuple[str, ...], why: str) -> None:
        """Raise ConfigError, with the reason `why`, if one of the options `names` is set."""
        for name in names:
            if value := getattr(self, name):
                raise invalid_option(name, value, f"{why}: remove it")


@dataclass
class PipelineOptions(Options):
    """Options of the whole pipeline."""

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
    restarts: int = option(
        "The number of successive restarts of a failed query. If it fails again, the pipeline stops.", 10
    )
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
        """Seconds for which a query's lag must exceed `alert_lag` records, until an alert begins."""
        return _seconds(self.alert_after)

    @property
    def alert_stuck_s(self) -> float:
        """Seconds for which a query may work on one batch, until an alert begins; 0 for no alerts."""
        return _seconds(self.alert_stuck)

    def check(self) -> None:
        if self.name and not NAME.fullmatch(self.name):
            raise invalid_option("name", self.name, "write letters, digits, - and _")
        if "bootstrap.servers" in self.kafka:  # there it would win over --bootstrap-server
            given = self.kafka["bootstrap.servers"]
            raise invalid_option(
                "kafka.bootstrap.servers", given, "the brokers are named by the option bootstrap"
            )
        if self.restarts < 0:
            raise invalid_option("restarts", self.restarts, "write 0 or more")
        if self.alert_lag < 0:
            raise invalid_option("alert_lag", self.alert_lag, "write 0 or more")
        for name in ("alert_after", "alert_stuck"):
            if not _DURATION.fullmatch(getattr(self, name).strip()):
                hint = "write a number and a unit: `30 seconds`, `1 minute`"
                raise invalid_option(name, getattr(self, name), hint)
        if self.status_topic and not TOPIC.fullmatch(self.status_topic):
            raise invalid_option(
                "status_topic", self.status_topic, "write letters, digits, ., _ and -, at most 249"
            )


SOURCE_KINDS = ("topic", "files")
#: formats whose schemas a registry has
REGISTERED = ("avro", "protobuf", "jsonschema")
TOPIC_FORMATS = ("raw", "json", "csv", "text", *REGISTERED, "log")
FILE_FORMATS = ("json", "csv", "text", "parquet", "orc")
#: formats that need a schema
_DECLARED = ("json", "csv")


@dataclass
class SourceOptions(Options):
    """Options of one source of a pipeline: Kafka topics or files, their format and their schema."""

    topic: str = option("The topics to read, separated by commas.", "")
    files: str = option("A folder or a pattern; the source also reads files that appear there later.", "")
    format: str = option(
        "The format of a record or a line: json, csv, text. Topics can also have avro, protobuf and "
        "jsonschema (registered), log (the records of `barnabas ship`: the columns source, level, message, "
        "at and, as JSON, all fields) and raw (the default: the columns of the data source). Files can "
        "also be parquet and orc.",
        "",
    )
    schema: str = option(
        "The columns of json, csv, parquet and orc: `id BIGINT NOT NULL, at TIMESTAMP`. A record of json "
        "or csv that lacks a NOT NULL column does not parse. For avro and jsonschema: the reader's schema, "
        "as JSON. The default is the subject's newest schema when the pipeline starts. With protobuf, the "
        "source always uses this newest schema.",
        "",
    )
    subject: str = option(
        "For registered formats: the registry's name for the schema. The default is TOPIC-value.", ""
    )
    message: str = option(
        "For protobuf: the name of the message. The default is the first message of the schema.", ""
    )
    envelope: str = option(
        "`debezium`: the records are Debezium's change events, as json or registered. The columns are the "
        "table's (`schema`, of json), and `_deleted`, which tells sinks with a key to delete rows.",
        "",
    )
    time_unit: str = option(
        "For `debezium` as json: ms, us or ns, the unit of numbers for columns of type TIMESTAMP. Omit it "
        "if events have their schema (the converter's schemas.enable), which names the unit.",
        "",
    )
    dead_letter: str = option(
        "The topic for records that do not parse. Without it such a record stops the pipeline.", ""
    )
    watermark: str = option(
        "The column of event time, and the time by which rows can be late: `at 10 minutes`.", ""
    )
    static: bool = option(
        "Read the contents that exist at the start, instead of a stream: for a table to join with, or for a "
        "batch that ends.",
        False,
    )
    refresh: str = option(
        "For a static source that is joined with a stream: the interval at which to read new contents, `5 "
        "minutes`. The default is never.",
        "",
    )
    shared: bool = option(
        "Read and parse the source once for all of these: the dead letters, and the sinks to topics, "
        "PostgreSQL and Delta whose rows come from this source alone, without state. One query, "
        "SOURCE.shared, writes to all of them.",
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
        """Column and delay of the watermark; None if it is not set."""
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
            raise invalid_option("schema", self.schema, f"the columns of {self.format} are fixed: remove it")
        check_registered(self, self.format)
        if self.format == "protobuf" and self.schema:
            raise invalid_option(
                "schema", self.schema, "protobuf is read by the newest of its subject: remove it"
            )
        if self.envelope:
            self.choose("envelope", ("debezium",))
            if self.kind != "topic" or self.format not in ("json", *REGISTERED):
                raise invalid_option(
                    "envelope", self.envelope, "it goes with topics of json or a registered format"
                )
        if self.time_unit:
            self.choose("time_unit", ("ms", "us", "ns"))
            if not self.envelope or self.format != "json":
                raise invalid_option(
                    "time_unit", self.time_unit, "it goes with envelope=debezium and format=json"
                )
        if self.format in REGISTERED and not self.subject:
            self.subject = f"{self.topic}-value"
        if self.dead_letter and self.format not in (*_DECLARED, "text", *REGISTERED):
            raise invalid_option(
                "dead_letter", self.dead_letter, f"every record is valid as {self.format}: remove it"
            )
        if self.dead_letter and self.static:
            raise invalid_option("dead_letter", self.dead_letter, "a static source has none: remove it")
        if self.refresh and not self.static:
            raise invalid_option(
                "refresh", self.refresh, "a stream reads new records as they arrive: remove it, or set static"
            )
        if self.refresh and not self.refresh_s:
            raise invalid_option(
                "refresh", self.refresh, "write a number and a unit: `30 seconds`, `5 minutes`"
            )
        if self.shared and self.static:
            raise invalid_option("shared", self.shared, "a static source has no query of its own: remove it")
        if self.watermark and not self.watermark_parts:
            raise invalid_option("watermark", self.watermark, "write a column and a delay: `at 10 minutes`")


def check_registered(options: Options, format: str) -> None:
    """Raise ConfigError if `subject` or `message` is set, and `format` does not use it."""
    if format not in REGISTERED:
        options.refuse_set(("subject",), f"it goes with {', '.join(REGISTERED)}")
    if format != "protobuf":
        options.refuse_set(("message",), "it goes with protobuf")


def _seconds(duration: str) -> float:
    match = _DURATION.fullmatch(duration.strip())
    return float(match[1]) * _SECONDS[match[2]] if match else 0.0


def describe(options: type[Options]) -> dict[str, str]:
    """Return the meaning of each option, by name, for the documentation."""
    return {each.name: each.metadata["doc"] for each in fields(options)}  # type: ignore[arg-type]


def _check_type(name: str, value: object, wanted: Any) -> None:
    base = get_args(wanted)[0] if isinstance(wanted, UnionType) else getattr(wanted, "__origin__", wanted)
    if type(value) is not base:
        raise invalid_option(name, value, f"write {_WORDS[base]}")
    if isinstance(value, dict):  # one by one: what is beside it may be a password
        for key, text in value.items():
            if not isinstance(text, str):
                raise invalid_option(f"{name}.{key}", text, f"write {_WORDS[str]}")


def _advice(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"
