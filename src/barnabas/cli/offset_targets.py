"""Parses the options that name offsets: the earliest, the latest, a number, a time, or a duration ago."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from barnabas.base.types import TopicPartition
    from barnabas.client import Admin

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_time(text: str, option: str) -> int:
    """Parse an ISO 8601 time, local if it has no zone. Return milliseconds since 1970.

    A time before 1970 becomes 0. `option` is the name of the option in the error message.

    Raises:
        click.UsageError: the text is not an ISO 8601 time.
    """
    try:
        return max(round(datetime.fromisoformat(text).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"{option} {text}: write for example 2026-01-31T12:00:00 or 2026-01-31"
        ) from None


def parse_duration(text: str, option: str) -> int:
    """Parse a duration such as 90s, 10m, 2h, 1d, 1w or 500ms. Return milliseconds.

    `option` is the name of the option in the error message.

    Raises:
        click.UsageError: the text is not a duration.
    """
    match = re.fullmatch(r"([0-9]{1,15})(ms|[smhdw])", text)
    if match is None:
        raise click.UsageError(f"{option} {text}: write for example 90s, 10m, 2h, 1d or 1w")
    return int(match[1]) * _UNITS[match[2]]


def time_before_now(text: str, option: str) -> int:
    """Return the time that was a duration (`text`, such as 10m) before now, in ms since 1970.

    A time before 1970 becomes 0. `option` is the name of the option in the error message.

    Raises:
        click.UsageError: the text is not a duration.
    """
    return max(round(time.time() * 1000) - parse_duration(text, option), 0)


@dataclass(frozen=True)
class Target:
    """The target of a reset of offsets, from --to-earliest, --shift-by, --by-duration or a similar option.

    Attributes:
        kind: ``earliest``, ``latest``, ``offset``, ``shift`` or ``time``.
        value: the offset, the shift, or the time in milliseconds since 1970.
    """

    kind: str
    value: int = 0

    @classmethod
    def from_options(
        cls,
        to_earliest: bool,
        to_latest: bool,
        to_offset: int | None,
        shift_by: int | None,
        to_datetime: str | None,
        by_duration: str | None,
    ) -> Target:
        """Return the target that the one given option selects.

        Raises click.UsageError if not exactly one option is given, or its time or duration is malformed.
        """
        given = []
        if to_earliest:
            given.append(cls("earliest"))
        if to_latest:
            given.append(cls("latest"))
        if to_offset is not None:
            given.append(cls("offset", to_offset))
        if shift_by is not None:
            given.append(cls("shift", shift_by))
        if to_datetime is not None:
            given.append(cls("time", parse_time(to_datetime, "--to-datetime")))
        if by_duration is not None:
            given.append(cls("time", time_before_now(by_duration, "--by-duration")))
        if len(given) != 1:
            raise click.UsageError(
                "choose one new position: --to-earliest, --to-latest, --to-offset, --shift-by, "
                "--to-datetime or --by-duration"
            )
        return given[0]

    def offsets(
        self, admin: Admin, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return each partition's new offset, from its log start offset to its high watermark.

        If the target is outside this range, the new offset is the nearer limit, and a line on stderr says so.
        For a time after the last record, the new offset is the high watermark.

        Raises:
            click.UsageError: the target is a shift, and a partition has no committed offset.
            KafkaError, ClientError: a leader rejects the request, or does not answer.
        """
        earliest = admin.offsets(partitions, "earliest")
        latest = admin.offsets(partitions, "latest")
        if self.kind == "time":
            found = admin.offsets(partitions, self.value)
            wanted = {each: latest[each] if found[each] < 0 else found[each] for each in partitions}
        elif self.kind == "shift":
            missing = [partition for partition in partitions if partition not in committed]
            if missing:
                raise click.UsageError(
                    f"--shift-by needs a committed offset, and {missing[0].topic}-{missing[0].partition} "
                    f"has none"
                )
            wanted = {partition: committed[partition] + self.value for partition in partitions}
        elif self.kind == "offset":
            wanted = dict.fromkeys(partitions, self.value)
        else:
            wanted = earliest if self.kind == "earliest" else latest
        offsets = {}
        for partition in partitions:
            offsets[partition] = min(max(wanted[partition], earliest[partition]), latest[partition])
            if offsets[partition] != wanted[partition]:
                click.echo(
                    f"{partition} has offsets {earliest[partition]} to {latest[partition]}: "
                    f"{offsets[partition]} instead of {wanted[partition]}",
                    err=True,
                )
        return offsets
