"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as what is in them; numbers to the right, None as a dash."""
    body = [["-" if cell is None else str(cell) for cell in row] for row in rows]
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


def numbers(values: Iterable[int]) -> str:
    """Broker ids as Kafka's tools write them: 1,2,3."""
    return ",".join(map(str, values))


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.lstrip("-").replace(",", "").isdecimal()
