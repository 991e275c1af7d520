"""Chooses the log files, and the topic of each file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from barnabas.base.errors import BarnabasError
from demo import APP, DB, INGRESS, LOG_TOPICS

#: Where systems keep their logs: Linux, macOS.
_PLACES = ("/var/log", "/Library/Logs", "~/Library/Logs")
_NAMES = re.compile(r"(\.log(\.\d+)?|^(syslog|messages|dmesg|auth|kern)(\.\d+)?|(access|error)_log)$")

_TOPIC_BY_WORD = {
    INGRESS: r"nginx|apache|httpd|proxy|traefik|envoy|caddy|ingress|access|openstack|ufw|auth|alternatives",
    DB: r"postgres|mysql|maria|mongo|redis|sqlite|cassandra|elastic|zookeeper|kafka|dpkg|db",
}

#: Found files are taken up to this many bytes in all, so that the demo ends soon; named files have no limit.
MAX_FOUND_BYTES = 12_000_000


class NoLogsError(BarnabasError):
    """There is no log file to ship."""


def find_logs() -> list[Path]:
    """Return log files of this machine that this user may read, the largest suitable ones first.

    Raises:
        NoLogsError: there are none.
    """
    found = {path for place in _PLACES for path in _walk(Path(place).expanduser()) if _is_log(path)}
    chosen, room = [], MAX_FOUND_BYTES
    for path in sorted(found, key=lambda path: (-path.stat().st_size, path)):
        size = path.stat().st_size
        if size <= room:
            chosen.append(path)
            room -= size
    if not chosen:
        raise NoLogsError(
            "no log file was found on this machine: name some, as in make demo FILES='a.log b.log'"
        )
    return chosen


def check_logs(named: Iterable[Path]) -> list[Path]:
    """Return the files that a user has named.

    Raises:
        NoLogsError: a file cannot be read, or is not text.
    """
    files = list(dict.fromkeys(path.resolve() for path in named))
    for path in files:
        if not path.is_file() or not os.access(path, os.R_OK):
            raise NoLogsError(f"{path}: there is no file of that name that can be read")
        if not _is_text(path):
            raise NoLogsError(f"{path}: it is empty or no text; name files of plain text, one record a line")
    return files


def by_topic(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the files of each topic.

    Words in a file's name decide its topic; without such a word it is an application's log. If there are
    enough files, each topic gets at least one.
    """
    topics: dict[str, list[Path]] = {topic: [] for topic in LOG_TOPICS}
    for path in files:
        topics[_topic(path)].append(path)
    for topic in topics:
        if not topics[topic]:
            fullest = max(topics.values(), key=len)
            if len(fullest) > 1:
                topics[topic].append(fullest.pop())
    return topics


def _topic(path: Path) -> str:
    words = f"{path.parent.name}/{path.name}".lower()
    return next((topic for topic, pattern in _TOPIC_BY_WORD.items() if re.search(pattern, words)), APP)


def _walk(place: Path) -> Iterable[Path]:
    for folder, _, names in os.walk(place, onerror=None):
        yield from (Path(folder, name) for name in names)


def _is_log(path: Path) -> bool:
    try:
        readable = path.is_file() and not path.is_symlink() and os.access(path, os.R_OK)
        return bool(_NAMES.search(path.name)) and readable and _is_text(path)
    except OSError:
        return False


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4096)
    return bool(head.strip()) and b"\0" not in head
