"""Parses and checks the query of a URL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from barnabas.base.errors import BarnabasError

Query = Mapping[str, str]
T = TypeVar("T")

#: rows of a page of a long table
_ON_A_PAGE = 50


class QueryError(BarnabasError):
    """A parameter is not allowed; the message has its name, its value and the allowed values."""


def whole(query: Query, name: str, default: int, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
    """Return the whole number in the parameter `name`; `default` if the query does not have it.

    Raises QueryError if the parameter is not a whole number from `minimum` to `maximum`.
    """
    text = query.get(name, "")
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        number = minimum - 1
    if not minimum <= number <= maximum:
        raise QueryError(f"{name}={text[:40]}: write a whole number from {minimum} to {maximum}")
    return number


def choice(query: Query, name: str, allowed: Collection[str]) -> str:
    """Return the word in the parameter `name`; the first of `allowed` if the query does not have it.

    Raises QueryError if the word is not one of `allowed`.
    """
    text = query.get(name, "") or next(iter(allowed))
    if text not in allowed:
        raise QueryError(f"{name}={text[:40]}: write one of {', '.join(allowed)}")
    return text


def numbers(query: Query, name: str) -> list[int] | None:
    """Return the first 10,000 numbers in the parameter `name`; None if the parameter is missing or empty.

    For example, the parameter ``0-3,7`` gives [0, 1, 2, 3, 7].

    Raises:
        QueryError: the text does not consist of whole numbers and ascending ranges.
    """
    text = query.get(name, "")
    if not text:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            last = first
        if not (first.isdecimal() and last.isdecimal() and len(part) <= 20 and int(first) <= int(last)):
            raise QueryError(f"{name}={text[:40]}: write numbers and ranges, as in 0-3,7")
        found += range(int(first), min(int(last), int(first) + 10_000) + 1)
    return found[:10_000]


class Listing(NamedTuple):
    """The part of a long table to show: search, sort, order (up, down) and page (from 1)."""

    search: str
    sort: str
    is_down: bool
    page: int

    @classmethod
    def asked(cls, query: Query, sorted_by: Collection[str]) -> Listing:
        """Parse the query of a table. `sorted_by` are its sort keys, the default first.

        Raises QueryError if the sort key, the order or the page is not allowed.
        """
        sort, order = choice(query, "sort", sorted_by), choice(query, "order", ("up", "down"))
        page = whole(query, "page", 1, 1, 10**6)
        return cls(query.get("search", "").lower()[:300], sort, order == "down", page)

    def finds(self, name: str) -> bool:
        """Whether a name contains the text of the search, in upper or lower case."""
        return self.search in name.lower()

    def cut(self, rows: Sequence[T]) -> Sequence[T]:
        """Return the rows on the page."""
        return rows[(self.page - 1) * _ON_A_PAGE : self.page * _ON_A_PAGE]

    def cut_lazily(self, rows: Iterable[T]) -> Iterable[T]:
        """Return the rows on the page, from an iterable whose rows are made only as needed."""
        return islice(rows, (self.page - 1) * _ON_A_PAGE, self.page * _ON_A_PAGE)

    def page_fields(self, count: int) -> dict[str, Any]:
        """Return the fields with which the browser turns the pages of a table.

        ``count`` is the table's number of rows, ``page`` is this page, and ``pages`` is the number of pages.
        """
        return {"count": count, "page": self.page, "pages": -(-count // _ON_A_PAGE) or 1}
