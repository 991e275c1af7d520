"""Parses one line of any log into its fields.

`parse_line` recognizes JSON lines, logfmt, syslog (RFC 3164 and 5424), access logs, klog and container logs.
In any other line it reads a *header* of timestamp, level, process, thread and logger in any order, and then
the message. A line without any known form is a message at level INFO: the parser rejects no line.
"""

from __future__ import annotations

import json
import re
from typing import Any

from barnabas.client.timestamps import MONTHS, iso_timestamp, parse_timestamp, starts_with_timestamp

Fields = dict[str, Any]

_LEVELS = {
    "TRACE": "TRACE", "FINEST": "TRACE", "FINER": "TRACE", "VERBOSE": "TRACE",
    "DEBUG": "DEBUG", "FINE": "DEBUG", "DBG": "DEBUG", "CONFIG": "DEBUG",
    "INFO": "INFO", "INF": "INFO", "INFORMATION": "INFO", "NOTICE": "INFO", "NOTE": "INFO", "LOG": "INFO",
    "SYSTEM": "INFO", "HINT": "INFO", "DETAIL": "INFO", "STATEMENT": "INFO",
    "WARN": "WARN", "WARNING": "WARN", "WRN": "WARN",
    "ERROR": "ERROR", "ERR": "ERROR", "SEVERE": "ERROR",
    "FATAL": "FATAL", "CRITICAL": "FATAL", "CRIT": "FATAL", "ALERT": "FATAL", "EMERG": "FATAL",
    "PANIC": "FATAL",
}  # fmt: skip
_BY_LETTER = {"T": "TRACE", "D": "DEBUG", "I": "INFO", "W": "WARN", "E": "ERROR", "F": "FATAL"}
_BY_SEVERITY = ("FATAL", "FATAL", "FATAL", "ERROR", "WARN", "INFO", "INFO", "DEBUG")  # RFC 5424, 6.2.1

_LEVEL_WORDS = "|".join(sorted((w for w in _LEVELS if w not in ("SYSTEM", "CONFIG")), key=len, reverse=True))
_LEVEL = re.compile(rf"({_LEVEL_WORDS})(?=[\]:\s|)]|$)", re.IGNORECASE)
_BRACKETED = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]")
_SEPARATOR = re.compile(r"(?:\s|-{1,3}(?=\s)|[:|](?=\s|\S))*")
_NUMBER = re.compile(r"(?:pid[= ])?(\d+)(?:#\d+)?(?=\s|:\s)")
_LOGGER_THEN_LEVEL = re.compile(
    rf"([A-Za-z_][\w.$/-]*?)(?:\s+(?:-\s+)?|\.)(?=\[?(?:{_LEVEL_WORDS})[\]:\s])", re.IGNORECASE
)
_LOGGER_COLON = re.compile(r"([A-Za-z_][\w.$]*):(?=\s)")
_LOGGER_DOTTED = re.compile(r"([A-Za-z_][\w$]*(?:\.[\w$]+)+)(?=\s+\S)")
_PREFIX = re.compile(r"[\w.@/:-]+\s+(?=\d{4}-\d\d-\d\d[T ]\d\d:|\d\d [A-Z][a-z]{2} \d{4} \d\d:)")
_STRUCTURED = re.compile(r"\{|(?:time|ts|level|lvl|msg)=\S")

_ACCESS = re.compile(
    r"(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "
    r'"(?:(?P<method>[A-Z]+) (?P<path>\S+)(?: (?P<protocol>[^"]*))?|[^"]*)" '
    r"(?P<status>\d{3}) (?P<bytes>\d+|-)"
    r'(?: "(?P<referer>[^"]*)" "(?P<agent>[^"]*)")?'
)
_KLOG = re.compile(r"([IWEF])(\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d+)\s+(\d+) (\S+?:\d+)\] ")
_PRIORITY = re.compile(r"<(\d{1,3})>(1 )?")
_RFC5424 = re.compile(r"(\S+) (\S+) (\S+) (\S+) (\S+) (-|(?:\[[^\]]*\])+) ?")
_SYSLOG_TAG = re.compile(r"(?P<host>[\w.-]+) (?P<program>[\w./@()-]+)(?:\[(?P<pid>\d+)\])?: ")
_CONTAINER = re.compile(r"(stdout|stderr) [FP] ")
_LOGFMT_PAIR = re.compile(r'([A-Za-z_][\w.@/-]*)=("(?:[^"\\]|\\.)*"|\S*)(?:\s+|$)')
_LOGGING_BASIC = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):([\w.]+):")

_LEVEL_KEYS = ("level", "severity", "levelname", "lvl", "loglevel", "log.level", "s")
_MESSAGE_KEYS = ("message", "msg", "event", "text", "log", "MESSAGE")
_TIME_KEYS = ("timestamp", "@timestamp", "time", "ts", "datetime", "t", "date", "asctime")


def parse_line(line: str, source: str) -> Fields:
    """Parse one log record, which can have several lines (a stack trace), into its fields.

    These fields always exist:

    - `source` as given;
    - `level`: one of TRACE, DEBUG, INFO, WARN, ERROR, FATAL (INFO when the line names none);
    - `message`;
    - `timestamp`: ISO 8601, or None. It has a zone only if the line has one.

    Other fields have their usual names: `logger`, `thread`, `pid`, `host`, `program`, `client`, `method`,
    `path`, `status`, ..., and every field of a JSON or logfmt line. If a JSON or logfmt line has a field
    `source`, the result has this field as `source_`.
    """
    head, newline, rest = line.rstrip("\r\n").partition("\n")
    head = head.rstrip("\r")
    fields = _parse_head(head)
    message = fields.pop("message", "")
    if newline:
        message = f"{message}\n{rest}"
    result: Fields = {
        "source": source,
        "level": fields.pop("level", None) or "INFO",
        "message": message,
        "timestamp": fields.pop("timestamp", None),
    }
    if "source" in fields:  # the line's own word for it must not hide where the line came from
        fields["source_"] = fields.pop("source")
    result.update(fields)
    return result


def has_header(line: str) -> bool:
    """Whether `line` begins a new log record: with a timestamp, a level, JSON or another known form.

    Any other line continues the record before it.
    """
    if not line or line[0].isspace():
        return False
    start = 1 if line[0] == "[" else 0
    return (
        starts_with_timestamp(line, start)
        or _STRUCTURED.match(line) is not None
        or _LEVEL.match(line, start) is not None
        or _ACCESS.match(line) is not None
        or _PRIORITY.match(line) is not None
        or _KLOG.match(line) is not None
        or _PREFIX.match(line) is not None
    )


def _parse_head(line: str, *, inside: bool = False) -> Fields:
    for parser in (_json, _access, _klog, _syslog_priority, _logging_basic, _logfmt):
        fields = parser(line)
        if fields is not None:
            return fields
    return _header(line, inside=inside)


def _json(line: str) -> Fields | None:
    if not line.startswith("{"):
        return None
    try:
        fields = json.loads(line, parse_constant=str)  # NaN and Infinity would not be JSON any more
    except (ValueError, RecursionError):  # no JSON, or nested without reason
        return None
    return _structured(fields) if isinstance(fields, dict) else None


def _logfmt(line: str) -> Fields | None:
    fields: Fields = {}
    at = 0
    while at < len(line):
        match = _LOGFMT_PAIR.match(line, at)
        if match is None:
            return None
        value = match[2]
        if value.startswith('"'):
            value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        fields[match[1]] = value
        at = match.end()
    return _structured(fields) if len(fields) > 1 else None


def _structured(fields: Fields) -> Fields:
    """Return the fields of a JSON or logfmt line, with level, message and timestamp under these names.

    All other fields are unchanged. If the line has no message, the message is the JSON of all its fields.
    """
    found: Fields = {}
    level = _first(fields, _LEVEL_KEYS, str)
    if level is not None and level.upper() in (*_LEVELS, *_BY_LETTER):
        found["level"] = _LEVELS.get(level.upper()) or _BY_LETTER[level.upper()]
    message = _first(fields, _MESSAGE_KEYS, str)
    found["message"] = message if message is not None else json.dumps(fields, ensure_ascii=False)
    for key in _TIME_KEYS:
        timestamp = iso_timestamp(fields.get(key))
        if timestamp is not None:
            found["timestamp"] = timestamp
            break
    kept = {key: value for key, value in fields.items() if key not in ("level", "message", "timestamp")}
    return {**kept, **found}


def _first(fields: Fields, keys: tuple[str, ...], kind: type[str]) -> str | None:
    return next((fields[key] for key in keys if isinstance(fields.get(key), kind)), None)


def _access(line: str) -> Fields | None:
    match = _ACCESS.match(line) if '] "' in line else None
    if match is None:
        return None
    parts = match.groupdict()
    taken = parse_timestamp(parts.pop("time"))
    if taken is None:
        return None
    status = int(parts["status"])
    fields: Fields = {key: value for key, value in parts.items() if value not in (None, "-", "")}
    fields["status"] = status
    if "bytes" in fields:
        fields["bytes"] = int(fields["bytes"])
    fields["level"] = "ERROR" if status >= 500 else "WARN" if status >= 400 else "INFO"
    fields["timestamp"] = taken[0]
    fields["message"] = line
    return fields


def _klog(line: str) -> Fields | None:
    """Parse a line of Kubernetes (klog): Lmmdd hh:mm:ss.uuuuuu pid file:line] message; None for others."""
    match = _KLOG.match(line)
    if match is None:
        return None
    letter, month, day, time, pid, where = match.groups()
    taken = parse_timestamp(f"{MONTHS[(int(month) - 1) % 12]} {day} {time}")
    return {
        "level": _BY_LETTER[letter],
        "timestamp": taken[0] if taken else None,
        "pid": int(pid),
        "logger": where,
        "message": line[match.end() :],
    }


def _syslog_priority(line: str) -> Fields | None:
    match = _PRIORITY.match(line)
    if match is None or int(match[1]) > 191:
        return None
    level = _BY_SEVERITY[int(match[1]) % 8]
    if match[2] is None:
        return {**_header(line[match.end() :]), "level": level}
    rest = _RFC5424.match(line, match.end())
    if rest is None:
        return None
    timestamp, host, program, pid, message_id, data = (
        None if part == "-" else part for part in rest.groups()
    )
    fields: Fields = {"host": host, "program": program, "message_id": message_id, "structured_data": data}
    fields = {key: value for key, value in fields.items() if value is not None}
    if pid is not None:
        fields["pid"] = int(pid) if pid.isdecimal() else pid
    message = line[rest.end() :].removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    return {**fields, "level": level, "timestamp": iso_timestamp(timestamp), "message": message}


def _logging_basic(line: str) -> Fields | None:
    """Parse a line of Python's logging.basicConfig: LEVEL:logger:message; None for any other line."""
    match = _LOGGING_BASIC.match(line)
    if match is None:
        return None
    return {"level": _LEVELS[match[1]], "logger": match[2], "message": line[match.end() :]}


def _header(line: str, *, inside: bool = False) -> Fields:
    """Parse timestamp, level, process, thread and logger at the start of a line. The rest is the message.

    The log of a container has the program's line inside a line of its own. This function parses both, and
    calls itself with `inside` for the program's line.
    """
    fields: Fields = {}
    at = 0
    prefix = _PREFIX.match(line)
    if prefix is not None:  # a program or file name before the timestamp
        fields["program"] = line[: prefix.end()].rstrip()
        at = prefix.end()
    bracket = line.startswith("[", at)
    taken = parse_timestamp(line, at + bracket)
    if taken is not None and (not bracket or line.startswith("]", taken[1])):
        fields["timestamp"], at = taken[0], taken[1] + bracket
        container = None if inside else _CONTAINER.match(line, at + 1)
        if container is not None:
            return {**_parse_head(line[container.end() :], inside=True), **fields, "stream": container[1]}
        syslog = _SYSLOG_TAG.match(line, at + 1)
        if syslog is not None and line[at : at + 1] == " " and syslog["host"].upper() not in _LEVELS:
            fields.update({key: value for key, value in syslog.groupdict().items() if value is not None})
            if syslog["pid"] is not None:
                fields["pid"] = int(syslog["pid"])
            at = syslog.end()
    elif _LEVEL.match(line, at + bracket) is None:
        return {"message": line}  # neither time nor level: no header
    at = _peel(line, at, fields)
    message = line[at:].strip()
    return {**fields, "message": message or line}


def _peel(line: str, at: int, fields: Fields) -> int:
    """Parse the parts before the message, in any order, each at most once, and add them to `fields`.

    Return the position in `line` where the message starts. The parts start at the position `at`.
    """
    while True:
        separator = _SEPARATOR.match(line, at)
        start = separator.end() if separator else at
        end = _peel_one(line, start, line[start : start + 1], fields)
        if end is None:
            return start
        at = end


def _peel_one(line: str, start: int, first: str, fields: Fields) -> int | None:
    """Parse one part of a line's header: a level, process id, logger or text in brackets.

    The part begins at the position `start` with the character `first`. Add its value to `fields`, and return
    the position after it. If the text at `start` is no such part, or `fields` already has the field, return
    None: the message begins at `start`.
    """
    if first == "[":
        bracketed = _BRACKETED.match(line, start)
        return bracketed.end() if bracketed is not None and _take_bracket(bracketed[1], fields) else None
    if first.isdecimal():
        return _take("pid", _NUMBER.match(line, start), fields)
    if "level" in fields:
        return _take("logger", _LOGGER_COLON.match(line, start) or _LOGGER_DOTTED.match(line, start), fields)
    level = _LEVEL.match(line, start)
    if level is not None:
        fields["level"] = _LEVELS[level[1].upper()]
        return level.end()
    number = _take("pid", _NUMBER.match(line, start), fields)
    return number if number is not None else _take("logger", _LOGGER_THEN_LEVEL.match(line, start), fields)


def _take(name: str, match: re.Match[str] | None, fields: Fields) -> int | None:
    if match is None or name in fields:
        return None
    fields[name] = int(match[1]) if name == "pid" else match[1]
    return match.end()


def _take_bracket(text: str, fields: Fields) -> bool:
    """Parse a text in brackets: `pid 7`, `7`, `module:level`, `client 1.2.3.4`, or a thread's name.

    Return False if `fields` has no free field for it.
    """
    word, _, rest = text.partition(" ")
    module, colon, level = text.partition(":")
    if "level" not in fields and text.upper() in _LEVELS:
        fields["level"] = _LEVELS[text.upper()]
    elif word in ("pid", "client") and rest and word not in fields:
        pid = rest.partition(":")[0]
        fields[word] = int(pid) if word == "pid" and pid.isdecimal() else rest
    elif text.isdecimal() and "pid" not in fields:
        fields["pid"] = int(text)
    elif colon and level.upper() in _LEVELS and "level" not in fields:
        fields["level"] = _LEVELS[level.upper()]
        if module:
            fields["logger"] = module
    elif "thread" not in fields:
        fields["thread"] = text
    else:
        return False
    return True
