"""Writes rows to a Delta table, each batch once.

A batch is one commit in the table's log. The commit has the number of the query's last batch as an
application transaction (Delta's protocol, "Transaction Identifiers"). By this number the sink recognizes a
repeated batch. The rows pass through the driver: limit the batches of a large stream with
maxOffsetsPerTrigger.

If the table rejects a batch and the sink has dead letters, the sink searches for the rejected rows. It writes
smaller and smaller parts of the batch to a temporary local table with the same columns and constraints. Then
it commits the accepted rows. The commit's information contains the dead letters, so none is lost if the
driver dies after the commit.
"""

from __future__ import annotations

import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError as DeltaLakeError

from barnabas.base.errors import BarnabasError
from barnabas.base.text import without_userinfo
from barnabas.pipelines.bisect import find_rejected
from barnabas.pipelines.sink_letters import DeadLetters, without_origin
from barnabas.pipelines.sink_options import SinkOptions

_CONSTRAINT = "delta.constraints."
#: Keys in the information of a commit with dead letters: the query, the batch, and the dead letters.
_QUERY, _BATCH, _LETTERS = "barnabas.query", "barnabas.batch", "barnabas.deadLetters"
#: The number of latest commits in which the sink searches for the dead letters of a written batch.
_MAX_COMMITS = 1000


class DeltaError(BarnabasError):
    """The table cannot be read or written, or rejects the rows."""


def write_batch(
    options: SinkOptions, rows: pa.Table, query: str, number: int, letters: DeadLetters | None = None
) -> None:
    """Append batch `number` of `query` to the Delta table, unless it is written already.

    `query` is the query's id, and its batches have rising numbers. If the table does not exist, create it. In
    mode complete, the batch replaces all rows of the table. With `letters`, the rows that the table rejects
    are left out, and each is sent to the dead-letter topic once.

    Raises:
        DeltaError: the table rejects the batch.
        TooManyRejectedError: the table rejects more rows than the limit for dead letters.
        DeliveryError: the topic rejects the dead letters.
    """
    written, made = without_origin(rows), b""
    rejected: dict[int, str] = {}
    with _errors_of(options):
        table = DeltaTable(options.delta) if DeltaTable.is_deltatable(options.delta) else None
        last = table.transaction_version(query) if table is not None else None
        if table is not None and last is not None and last >= number:
            made = _letters_of(table, query, number) if letters is not None else b""
        else:
            try:
                _write(options, written, query, number, b"")
            except Exception:
                if table is None or letters is None:
                    raise
                rejected = _rejected(table, written, letters)
                if not rejected:
                    raise
                made = letters.made_of(rows.take(list(rejected)), list(rejected.values()))
                accepted = written.filter([each not in rejected for each in range(rows.num_rows)])
                _write(options, accepted, query, number, made)
    if letters is not None and made:
        letters.add(rejected)
        letters.deliver(query, number, made)


def _write(options: SinkOptions, rows: pa.Table, query: str, number: int, letters: bytes) -> None:
    known = {_QUERY: query, _BATCH: str(number), _LETTERS: b64encode(letters).decode()} if letters else None
    write_deltalake(
        options.delta,
        rows,
        mode="overwrite" if options.mode == "complete" else "append",
        partition_by=options.partitions or None,
        commit_properties=CommitProperties(
            app_transactions=[Transaction(query, number)], custom_metadata=known
        ),
    )


def _rejected(table: DeltaTable, rows: pa.Table, letters: DeadLetters) -> dict[int, str]:
    """Return the reason for each row that the table rejects, by the row's index in `rows`.

    The result is empty if the columns themselves do not fit the table. Raises TooManyRejectedError if the
    table rejects more rows than the limit for dead letters.
    """
    with tempfile.TemporaryDirectory(prefix="barnabas-delta-") as folder:
        given = table.metadata().configuration
        constraints = {name: text for name, text in given.items() if name.startswith(_CONSTRAINT)}
        trial = DeltaTable.create(folder, table.schema(), partition_by=table.metadata().partition_columns)
        for name, text in constraints.items():
            trial.alter.add_constraint({name.removeprefix(_CONSTRAINT): text})

        def attempt(start: int, end: int) -> str | None:
            try:
                write_deltalake(folder, rows.slice(start, end - start), mode="append")
            except OSError:
                raise
            except Exception as error:  # deltalake raises some as no class of its own
                return " ".join(str(error).split())
            return None

        reason = attempt(0, 0)
        if reason is not None:  # the columns do not fit, whatever the rows are
            return {}
        return find_rejected(rows.num_rows, attempt, letters.check)


def _letters_of(table: DeltaTable, query: str, number: int) -> bytes:
    """Return the dead letters in the commit of batch `number` of `query`.

    The result has the format of `DeadLetters.made_of`. Return empty bytes if the commit has none, or is not
    among the table's latest `_MAX_COMMITS` commits.
    """
    for commit in table.history(_MAX_COMMITS):
        if (commit.get(_QUERY), commit.get(_BATCH)) == (query, str(number)):
            return b64decode(commit[_LETTERS])
    return b""


@contextmanager
def _errors_of(options: SinkOptions) -> Iterator[None]:
    path = options.delta
    try:
        yield
    except BarnabasError:
        raise
    except Exception as error:
        known: tuple[type[Any], ...] = (DeltaLakeError, ValueError, OSError)
        if not isinstance(error, known) and type(error) is not Exception:  # as a cast that fails
            raise
        said = " ".join(str(error).split()).replace(path, without_userinfo(path))
        raise DeltaError(f"Delta table {without_userinfo(path)}: {said}") from None
