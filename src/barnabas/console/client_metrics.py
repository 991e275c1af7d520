"""Reads the metrics that clients have pushed (KIP-714) from the brokers' pages of metrics.

Kafka's protocol has no request for them. So the console reads ``/metrics`` of the brokers in its
settings.
"""

from __future__ import annotations

import http.client
import re
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, ConfigError

#: seconds that a broker may take; bytes that are read of its page; series in all
_TIMEOUT_S, _MAX_PAGE, _MAX_SERIES = 5.0, 64 << 20, 50_000

_LINE = re.compile(r'barnabas_client_metric(_total)?\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class PageError(BarnabasError):
    """A broker's page of metrics cannot be read."""


class Series(NamedTuple):
    """One number that a client has pushed.

    Attributes:
        labels: the metric's name, the client and the attributes, as in docs/reference/metrics.md.
        value: the value as a text of the page.
        is_sum: whether the value only grows.
    """

    labels: dict[str, str]
    value: str
    is_sum: bool


def check_urls(urls: Iterable[str]) -> None:
    """Raise ConfigError for a URL that is not HTTP."""
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"--metrics-url {url}: write http://HOST:PORT, as a broker's --metrics has it")


def read_series(urls: Sequence[str]) -> tuple[list[Series], list[str]]:
    """Read brokers' metrics pages. Return the series of clients, and an error for each unreadable page.

    The result has at most `_MAX_SERIES` series.
    """
    found: list[Series] = []
    problems = []
    for url in urls:
        try:
            for series in parse_series(_lines(f"{url.rstrip('/').removesuffix('/metrics')}/metrics")):
                if len(found) >= _MAX_SERIES:
                    break
                found.append(series)
        except PageError as error:
            problems.append(str(error))
    return found, problems


def parse_series(lines: Iterable[str]) -> Iterator[Series]:
    """Yield the series that clients have pushed, from the lines of a metrics page."""
    for line in lines:
        if line.startswith("barnabas_client_metric"):
            parts = _LINE.match(line)
            if parts is not None:
                labels = {name: _ESCAPED.sub(_meant, text) for name, text in _LABEL.findall(parts[2])}
                yield Series(labels, parts[3], parts[1] is not None)


def _meant(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


def _lines(url: str) -> Iterator[str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as page:
            left = _MAX_PAGE
            while left > 0 and (line := page.readline(65_536)):
                left -= len(line)
                yield line.decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PageError(f"{url} cannot be read: {error}") from error
