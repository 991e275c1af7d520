"""Makes texts of other systems safe for one log line, limits lines, and hides the passwords in URLs."""

from __future__ import annotations

import itertools
import logging
import re

#: how many characters of one untrusted text a line shows
MAX_SHOWN = 300
#: how many characters a line of the log has, without its time, level and logger
MAX_LINE = 1000


def shown(text: object, max_chars: int = MAX_SHOWN) -> str:
    """Return `text` on one line, without unprintable characters: they are escaped.

    Text longer than `max_chars` characters is cut, and its length is added in parentheses. Names, ids and
    reasons of clients pass through here before a logger of `logger_of` writes them. A raw text could end the
    line and forge the next one, or contain commands for the terminal.
    """
    raw = str(text)
    if len(raw) <= max_chars and raw.isprintable():
        return raw
    cut = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in raw[:max_chars])
    if max(len(raw), len(cut)) <= max_chars:
        return cut
    return f"{cut[:max_chars]}... ({len(raw)} characters)"


def quoted(text: object) -> str:
    """Return `text` like `shown`, but cut to 80 characters, for an error message."""
    return shown(text, 80)


#: for lines of one kind: the number that is written at once, and then the number for each second
BURST, PER_SECOND = 200, 10
_MAX_KINDS = 1000


def logger_of(name: str, *, is_limited: bool = False) -> logging.Logger:
    """Return the logger `name`, which writes each message as one line (see `shown`).

    The server, the coordinators and the controller use it, since they log text that clients send.

    Args:
        is_limited: limit the rate, since clients can cause any number of lines. The limit is for each message
            format: the logger writes `BURST` lines at once, and then `PER_SECOND` lines in a second. It
            always writes errors.
    """
    logger = logging.getLogger(name)
    for filter_ in (limited,) if is_limited else ():
        if filter_ not in logger.filters:
            logger.addFilter(filter_)
    if _one_line not in logger.filters:
        logger.addFilter(_one_line)
    return logger


class _Limited:
    """A log filter that limits the rate of lines with the same level and format; errors always pass.

    It lets `BURST` lines pass at once, and then `PER_SECOND` each second. The next line after dropped ones
    has their number.
    """

    def __init__(self) -> None:
        #: by level and format: how many lines may be written, the time of this count, the lines dropped since
        self._kinds: dict[tuple[int, object], tuple[float, float, int]] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        if len(self._kinds) >= _MAX_KINDS:
            self._kinds.clear()
        kind, now = (record.levelno, record.msg), record.created
        may, since, omitted = self._kinds.get(kind, (float(BURST), now, 0))
        may = min(float(BURST), may + max(0.0, now - since) * PER_SECOND)
        if may >= 1:
            self._kinds[kind] = may - 1, now, 0
            if omitted > 1:  # the first was written, with a word that others follow
                record.msg = f"{record.msg} ({omitted - 1} more like it were left out)"
            return True
        self._kinds[kind] = may, now, omitted + 1
        if omitted:
            return False
        record.msg = f"{record.msg} (at most {PER_SECOND} lines a second like it follow)"
        return True

    def forget(self) -> None:
        """Forget all counts, as in a new process."""
        self._kinds.clear()


limited = _Limited()


def _one_line(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(
            arg
            if isinstance(arg, (int, float))
            else shown(arg, MAX_SHOWN if isinstance(arg, str) else MAX_LINE)
            for arg in record.args
        )
    message = record.getMessage()
    if len(message) > MAX_LINE or not message.isprintable():
        record.msg, record.args = shown(message, MAX_LINE), ()
    return True


#: how many lines with the same format `FewLines` shows
FEW = 10


class FewLines:
    """Logs the first `FEW` lines with the same format, and the further ones at the level debug.

    One cause, such as a full disk, can affect thousands of partitions, each with a line. Any thread can call
    `log`.

    Args:
        logger: writes the lines.
        level: level of the first lines.
    """

    def __init__(self, logger: logging.Logger, level: int = logging.ERROR) -> None:
        self._logger = logger
        self._level = level
        #: by format; `next` and `setdefault` are one step each, also among threads
        self._numbers: dict[str, itertools.count[int]] = {}

    def log(self, message: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Log one line, with the traceback of `exc_info`."""
        number = next(self._numbers.setdefault(message, itertools.count(1)))
        self._logger.log(self._level if number <= FEW else logging.DEBUG, message, *args, exc_info=exc_info)

    def end(self, what: str) -> None:
        """Log how many more lines there were, and begin to count again. `what` describes them."""
        more = sum(max(next(number) - 1 - FEW, 0) for number in self._numbers.values())
        self._numbers.clear()
        if more:
            self._logger.log(self._level, "%d more %s: a start with --log-level debug names them", more, what)


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII | re.IGNORECASE)
#: with the value after it, quoted or not, in a query or in words as PostgreSQL takes them
_SECRET_PARAMETER = re.compile(
    r"(\w*(?:pass|secret|token)\w*\s*=\s*)('(?:[^'\\]|\\.)*'?|[^&\s]*)", re.IGNORECASE
)


def without_userinfo(url: str) -> str:
    """Return `url` with ``[hidden]`` in place of user, password and secret parameters.

    A parameter is secret if its name contains ``pass``, ``secret`` or ``token``. The text before the last @
    is hidden as user and password. So a malformed URL does not show them either, for example a URL with a
    slash in the password, or without a scheme.
    """
    scheme = found[0] if (found := _SCHEME.match(url)) else ""
    before, at, after = url[len(scheme) :].rpartition("@")
    if before:
        url = f"{scheme}[hidden]{at}{after}"
    return _SECRET_PARAMETER.sub(r"\1[hidden]", url)


def is_plain_url(url: str) -> bool:
    """Return whether all parsers read the same user, password and host in `url`.

    Such a URL percent-encodes ``/?#@`` and spaces in user and password, and its port is a number. Pass no
    other URL to a library: its error message could contain a part of the password.
    """
    scheme = _SCHEME.match(url)
    if scheme is None or re.search(r"\s", url):
        return False
    authority, *rest = re.split("[/?#]", url[scheme.end() :], maxsplit=1)
    hosts = authority.rpartition("@")[2]
    ports = [each.rpartition(":")[2] for each in hosts.split(",") if ":" in each and not each.endswith("]")]
    return (
        authority.count("@") <= 1
        and "@" not in "".join(rest)
        and authority.isascii()
        and all(port.isdecimal() or not port for port in ports)
    )
