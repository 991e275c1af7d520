"""Declares the options and the kinds of sinks. Each kind uses some of the options, and checks them.

The kinds topic, parquet and console use Spark's own writers. Kinds for tables, also those of Barnabas, are
entry points of packages, in the group `GROUP`. Only the entry points that a pipeline uses are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Self

from barnabas.base.errors import ConfigError
from barnabas.base.installation import pip_install
from barnabas.client.schemas.registered import Reference
from barnabas.pipelines.options import REGISTERED, TOPIC, Options, Texts, check_registered, option
from barnabas.spark.option_values import invalid_option
from barnabas.spark.subjects import STRATEGIES, record_name, subject_for

#: The group of entry points that are kinds of sinks.
GROUP = "barnabas.sinks"

#: The options that name the target of the rows. Exactly one of them is set.
SINK_KINDS = ("topic", "parquet", "delta", "iceberg", "postgres", "jdbc", "console")
SINK_FORMATS = ("json", "csv", "text", *REGISTERED, "raw")
_EVERY_MODE = ("append", "update", "complete")

#: The default of `dead_letter_limit`: rows of one batch that a sink may reject.
DEAD_LETTERS_OF_A_BATCH = 100

#: Options that only some kinds of sinks use.
_OF_FORMATS = ("format", "schema", "subject", "subject_strategy", "message", "references", "delivery")
_OF_TABLES = ("table", "driver", "user", "password_env")
_ONLY_OF_SOME = (*_OF_FORMATS, "key", "partition_by", "dead_letter", *_OF_TABLES, "options")

#: An interval of Spark's, without months: they have no fixed length.
_INTERVAL = re.compile(
    r"(?i)(?:interval\s+)?(?:\d+\s+(?:week|day|hour|minute|second|millisecond|microsecond)s?\s*)+"
)


class SinkKind:
    """A kind of sink.

    Attributes:
        modes: output modes of Spark that it supports.
        takes: options of `_ONLY_OF_SOME` that the kind uses. Every kind uses the other options.
        shares: whether the sink can be one of several outputs that one query writes. Such a sink must read
            the rows of a batch only once, and recognize a repeated batch by its query and its number.
    """

    modes: ClassVar[Sequence[str]] = ("append",)
    takes: ClassVar[Sequence[str]] = ()
    shares: ClassVar[bool] = False

    def check(self, options: SinkOptions) -> None:
        """Check the options of a sink of this kind, and set defaults that depend on other options.

        Raises ConfigError if an option, or a combination of options, is not allowed.
        """

    def check_spark(self, options: SinkOptions, settings: Mapping[str, str]) -> None:
        """Raise ConfigError if a package or a jar that the sink needs is missing.

        `settings` are those of Spark, which can name jars.
        """


@dataclass
class SinkOptions(Options):
    """Options of a sink."""

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
    added: Texts = option(
        'The sink of another package by its name, such as `{"sqlite": "/data/shop.db"}`. '
        '`sqlite="/data/shop.db"` is the same.',
        {},
    )
    table: str = option("For PostgreSQL and JDBC: the table, which must exist.", "")
    driver: str = option("For JDBC: the driver's class. The default is the usual class for the URL.", "")
    user: str = option("For JDBC: the user of the database.", "")
    password_env: str = option(
        "For JDBC: the environment variable that has the password. The default is BARNABAS_JDBC_PASSWORD.", ""
    )
    format: str = option(
        "The format of a record's value. json (the default) and csv have all columns, and text has the "
        "column value. avro, protobuf and jsonschema encode all columns by `schema`. With raw, the columns "
        "must be those that the data source writes.",
        "",
    )
    schema: str = option(
        "For registered formats: the schema (JSON, or .proto text), which the sink registers if necessary. "
        "The default is the subject's newest schema.",
        "",
    )
    subject: str = option("For registered formats: the registry's name for the schema.", "")
    subject_strategy: str = option(
        "For registered formats without a `subject`: TopicNameStrategy (the default: TOPIC-value), "
        "RecordNameStrategy (the record's full name, of jsonschema its title) or TopicRecordNameStrategy "
        "(TOPIC-NAME).",
        "",
    )
    message: str = option(
        "For protobuf: the name of the message. The default is the first message of the schema.", ""
    )
    references: Texts = option(
        'Schemas that `schema` refers to, by name: `{"item.proto": "items-value/1"}`, subject and version.',
        {},
    )
    key: str = option(
        "Columns, separated by commas. For topics: the record's key, as text unless it is binary; several "
        "columns become a JSON object. For PostgreSQL and JDBC: the columns of a unique index. A row "
        "replaces the row with the same key.",
        "",
    )
    mode: str = option(
        "The rows to write: append (the default), update or complete. If no source is a stream, complete "
        "replaces the contents of the Parquet files, the Delta table or the Iceberg table.",
        "append",
    )
    delivery: str = option("For topics: at-least-once (the default) or exactly-once.", "")
    dead_letter: str = option(
        "For topics, PostgreSQL, JDBC and Delta: the topic for rows that the sink rejects (a constraint, a "
        "value out of range, a record too large). Without it such a row stops the pipeline.",
        "",
    )
    dead_letter_limit: int = option(
        "The largest number of rows of one batch that go to the topic `dead_letter`. A batch with more "
        "stops the pipeline, and the sink writes nothing of it.",
        DEAD_LETTERS_OF_A_BATCH,
    )
    partition_by: str = option(
        "For Parquet and Delta: the columns that become folders, separated by commas. For Iceberg: the "
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

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        own = {each.name for each in fields(cls)}
        added = {name: value for name, value in given.items() if name not in own and name in installed()}
        rest = {name: value for name, value in given.items() if name not in added}
        return super().parse({**rest, "added": {**rest.get("added", {}), **added}} if added else rest)

    @property
    def kind(self) -> str:
        if len(self.added) == 1 and not any(getattr(self, name) for name in SINK_KINDS):
            return next(iter(self.added))
        return self.one_of((*SINK_KINDS, *(["added"] if self.added else [])), "where the rows go")

    @property
    def target(self) -> str:
        """The target of the rows. Its meaning depends on the kind of sink: a topic, a folder or a URL."""
        found: str = self.added.get(self.kind) or getattr(self, self.kind)
        return found

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
        kind = sink_kind(self.kind)
        for name in _ONLY_OF_SOME:
            if getattr(self, name) and name not in kind.takes:
                known = [other for other in _kinds() if name in sink_kind(other).takes]
                self.refuse_set((name,), f"it goes with {' or '.join(known)}, not with {self.kind}")
        self.choose("mode", tuple(kind.modes))
        self._check_dead_letter()
        if self.trigger and not _INTERVAL.fullmatch(self.trigger.strip()):
            raise invalid_option(
                "trigger", self.trigger, "write numbers and units: `10 seconds`, `1 minute 30 seconds`"
            )
        kind.check(self)

    def _check_dead_letter(self) -> None:
        if self.dead_letter and not TOPIC.fullmatch(self.dead_letter):
            raise invalid_option(
                "dead_letter", self.dead_letter, "write letters, digits, ., _ and -, at most 249"
            )
        if self.dead_letter and self.dead_letter in self.topics:
            raise invalid_option(
                "dead_letter", self.dead_letter, "the sink writes there: choose another topic"
            )
        if self.dead_letter_limit < 1:
            raise invalid_option("dead_letter_limit", self.dead_letter_limit, "write 1 or more")
        if self.dead_letter_limit != DEAD_LETTERS_OF_A_BATCH and not self.dead_letter:
            raise invalid_option(
                "dead_letter_limit", self.dead_letter_limit, "it needs dead_letter: set that too"
            )


class _Topic(SinkKind):
    modes = _EVERY_MODE
    takes = (*_OF_FORMATS, "key", "dead_letter", "options")
    shares = True

    def check(self, options: SinkOptions) -> None:
        options.format = options.format or "json"
        options.delivery = options.delivery or "at-least-once"
        options.choose("format", SINK_FORMATS)
        options.choose("delivery", ("at-least-once", "exactly-once"))
        if len(options.topics) > 1 and options.format != "raw":
            hint = "rows for several topics are written as they are: use raw"
            raise invalid_option("format", options.format, hint)
        self._check_schema(options)
        for name, value in options.options.items():
            if name.lower() == "barnabas.delivery":
                raise invalid_option(name, value, "it is the sink's own option delivery: write it there")
        if options.key and options.format == "raw":
            raise invalid_option("key", options.key, "in the format raw the column key is the key: remove it")

    def _check_schema(self, options: SinkOptions) -> None:
        check_registered(options, options.format)
        if options.format not in REGISTERED:
            only = f"it goes with {', '.join(REGISTERED)}"
            options.refuse_set(("schema", "subject_strategy", "references"), only)
            return
        if options.subject:
            options.refuse_set(("subject_strategy",), "subject is set")
        elif options.subject_strategy and not options.schema:
            raise ConfigError("option schema is missing: a subject_strategy takes the record's name from it")
        else:
            strategy, name = options.subject_strategy or STRATEGIES[0], ""
            if strategy != STRATEGIES[0]:
                name = record_name(options.format, options.schema, options.message)
            options.subject = subject_for(strategy, options.topic, name)
        for name, where in options.references.items():
            Reference.parse(name, where)


class _Parquet(SinkKind):
    modes = ("append", "complete")
    takes = ("partition_by", "options")


class _Console(SinkKind):
    modes = _EVERY_MODE
    takes = ("options",)


_OF_SPARK = {"topic": _Topic(), "parquet": _Parquet(), "console": _Console()}


@cache
def installed() -> dict[str, EntryPoint]:
    """Return the installed entry points of the group `GROUP`, by the names of the sink kinds."""
    return {each.name: each for each in entry_points(group=GROUP)}


@cache
def sink_kind(name: str) -> SinkKind:
    """Return the kind of sink with the name `name`.

    Raises:
        ConfigError: no installed package has this kind, or its package cannot be imported.
    """
    if name in _OF_SPARK:
        return _OF_SPARK[name]
    if name not in installed():
        raise ConfigError(f"sink {name}: no installed package has it in {GROUP}: {pip_install()}")
    try:
        made: SinkKind = installed()[name].load()()
    except ImportError as error:
        raise ConfigError(f"sink {name}: {installed()[name].value} cannot be imported: {error}") from None
    return made


def _kinds() -> list[str]:
    """Return the names of all kinds of sinks: first Barnabas' own, then the kinds of other packages."""
    return [*SINK_KINDS, *sorted(installed().keys() - {*SINK_KINDS})]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
