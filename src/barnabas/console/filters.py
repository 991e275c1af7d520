r"""Filters for records: comparisons of values at paths. They are parsed, and never executed as code.

    value.order.total > 100 && header.region == "eu"
    key ~ "^user-\\d+$" || !(partition == 3)

A backslash in quotation marks is doubled. Regular expressions have the syntax of RE2. The time of a search is
in proportion to the text. In another console, filters were scripts, and strangers could run programs on its
server.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnabas.base.errors import BarnabasError

MAX_CHARS = 2000
_DEEPEST = 50

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<operator>&&|\|\||==|!=|<=|>=|<|>|~|!|\(|\)|\bcontains\b)
      | (?P<path>[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*)
    )""",
    re.VERBOSE | re.ASCII,
)
_STEP = re.compile(r"[\w-]+", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PLACES = ("key", "value", "header", "offset", "partition", "timestamp")

#: function that returns whether a record passes
Filter = Callable[["Candidate"], bool]


class FilterError(BarnabasError):
    """A filter cannot be parsed; the message has the position."""


class Candidate(NamedTuple):
    """A record as a filter sees it: key and value are text or JSON."""

    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Mapping[str, Any]


def parse(text: str) -> Filter:
    """Parse a filter. The result is a function that returns whether a record passes.

    Raises:
        FilterError: the text is not a filter, or has more than `MAX_CHARS` characters.
    """
    if len(text) > MAX_CHARS:
        raise FilterError(f"a filter has at most {MAX_CHARS} characters")
    return _Parser(text).whole()


def paths(text: str, max_paths: int = 10) -> list[Callable[[Candidate], Any]]:
    """Parse a list of paths, such as ``value.total,header.region``.

    Each function in the result returns a record's value at one path; None if the record has no such value.

    Raises:
        FilterError: an item is not a path, or there are more than `max_paths`.
    """
    found = [part for part in text.split(",") if part.strip()]
    if len(found) > max_paths or len(text) > MAX_CHARS:
        raise FilterError(f"at most {max_paths} columns can be added")
    return [_Parser(part).path() for part in found]


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), _Token("end", "the end", len(text))]
        self._next = 0
        self._depth = 0

    def whole(self) -> Filter:
        passes = self._or()
        if self._now.kind != "end":
            raise self._unexpected("&&, || or the end")
        return passes

    def path(self) -> Callable[[Candidate], Any]:
        get = self._path()
        if self._now.kind != "end":
            raise self._unexpected("the end of the path")
        return get

    @property
    def _now(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, text: str) -> bool:
        if self._now.kind == "operator" and self._now.text == text:
            self._next += 1
            return True
        return False

    def _or(self) -> Filter:
        some = [self._and()]
        while self._take("||"):
            some.append(self._and())
        return some[0] if len(some) == 1 else lambda record: any(each(record) for each in some)

    def _and(self) -> Filter:
        every = [self._not()]
        while self._take("&&"):
            every.append(self._not())
        return every[0] if len(every) == 1 else lambda record: all(each(record) for each in every)

    def _not(self) -> Filter:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise FilterError(f"the filter is nested more than {_DEEPEST} deep")
        try:
            if self._take("!"):
                refused = self._not()
                return lambda record: not refused(record)
            if self._take("("):
                inner = self._or()
                if not self._take(")"):
                    raise self._unexpected(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Filter:
        get = self._path()
        token = self._now
        if token.kind != "operator" or token.text not in (*_COMPARISONS, "~", "contains"):
            raise self._unexpected("one of " + ", ".join((*_COMPARISONS, "~", "contains")))
        self._next += 1
        wanted = self._literal()
        if token.text == "~":
            return _matching(get, wanted)
        if token.text == "contains":
            return _containing(get, wanted)
        compare = _COMPARISONS[token.text]
        return lambda record: _compared(compare, get(record), wanted)

    def _path(self) -> Callable[[Candidate], Any]:
        token = self._now
        first, *steps = _STEP.findall(token.text) if token.kind == "path" else ("",)
        if first not in _PLACES:
            raise self._unexpected("one of " + ", ".join(_PLACES))
        self._next += 1
        if first == "header":
            if not steps:
                raise FilterError(f"header is followed by its name, as in header.source (at {token.at + 1})")
            return lambda record: _at(record.headers, [token.text.partition(".")[2]])
        if first in ("key", "value"):
            field = operator.attrgetter(first)
            return lambda record: _at(field(record), steps)
        return operator.attrgetter(first)

    def _literal(self) -> Any:
        token = self._now
        self._next += 1
        if token.kind == "text":
            return re.sub(r"\\(.)", r"\1", token.text[1:-1]) if "\\" in token.text else token.text[1:-1]
        if token.kind == "number":
            return float(token.text) if any(c in token.text for c in ".eE") else int(token.text)
        if token.kind == "path" and token.text in _WORDS:
            return _WORDS[token.text]
        self._next -= 1
        raise self._unexpected('a "text", a number, true, false or null')

    def _unexpected(self, wanted: str) -> FilterError:
        return FilterError(f"{self._now.text!r} at {self._now.at + 1}: expected {wanted}")


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            left = text[position:].lstrip()
            raise FilterError(f"{left[:20]!r} at {len(text) - len(left) + 1} is not understood")
        found.append(_Token(match.lastgroup, match.group(match.lastgroup), match.start(match.lastgroup)))
        position = match.end()
    return found


def _at(value: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _compared(compare: Callable[[Any, Any], bool], found: Any, wanted: Any) -> bool:
    try:
        return compare(found, wanted)
    except TypeError:  # text against a number
        return False


def _containing(get: Callable[[Candidate], Any], wanted: Any) -> Filter:
    def passes(record: Candidate) -> bool:
        found = get(record)
        if isinstance(found, str):
            return str(wanted) in found
        return isinstance(found, list | Mapping) and wanted in found

    return passes


def _matching(get: Callable[[Candidate], Any], pattern: Any) -> Filter:
    import re2

    if not isinstance(pattern, str):
        raise FilterError("~ is followed by a regular expression in quotation marks")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        expression = re2.compile(pattern, options)
    except re2.error as error:
        raise FilterError(f"{pattern!r} is not a regular expression of RE2: {error}") from None

    def passes(record: Candidate) -> bool:
        found = get(record)
        return isinstance(found, str) and expression.search(found) is not None

    return passes
