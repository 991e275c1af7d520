"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from barnabas.base.types import Json


def print_json(value: Json) -> None:
    """Print a JSON document, indented, and in UTF-8 for every locale."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def print_json_line(value: Json) -> None:
    """Print a JSON document in one line, and in UTF-8 for every locale."""
    click.echo(json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Columns are as wide as their content, and None is a dash.

    A column with only numbers and dashes is right-aligned. A cell takes one line: line ends and other control
    characters in it are printed as escapes.
    """
    body = [["-" if cell is None else _printable(str(cell)) for cell in row] for row in rows]
    columns = list(zip(headings, *body, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [bool(body) and all(_is_number(cell) for cell in column[1:]) for column in columns]
    for index, row in enumerate([list(headings), *body]):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        click.echo(click.style(line, bold=True) if index == 0 else line)


#: for each heading, the key of the value in a row, or a function that returns the value from the row
Columns = Mapping[str, str | Callable[[Any], object]]


def print_rows(columns: Columns, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print `rows` as a table.

    `columns` has for each heading the key of the value in a row, or a function that converts the row to the
    value.
    """
    print_table(
        list(columns),
        [[row[each] if isinstance(each, str) else each(row) for each in columns.values()] for row in rows],
    )


def print_listing(columns: Columns, rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str) -> None:
    """Print `rows` as JSON or as a table.

    Args:
        columns: by heading, the key of the column's value in a row, or a function that returns the value for
            a row.
        as_json: whether to print JSON, which has all values of the rows. `columns` is not used then.
        empty: message for stderr in place of a table without rows.
    """
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(columns, rows)
    else:
        click.echo(empty, err=True)


def snake_case(value: Json) -> Json:
    """Return a JSON value with the keys of all objects in snake case, as in all output of commands."""
    if isinstance(value, dict):
        return {_snake(name): snake_case(item) for name, item in value.items()}
    if isinstance(value, list):
        return [snake_case(item) for item in value]
    return value


def _snake(name: str) -> str:
    return _IRREGULAR.get(name) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


#: names of Kafka's DumpLogSegments
_IRREGULAR = {"compresscodec": "compression", "isvalid": "is_valid"}


def numbers(values: Iterable[int]) -> str | None:
    """Return broker ids as Kafka's tools write them: 1,2,3; None for an empty list."""
    return ",".join(map(str, values)) or None


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.lstrip("-").replace(",", "").isdecimal()
