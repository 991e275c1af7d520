"""Text that came from outside, made fit for a line of the log."""

from __future__ import annotations

import logging

#: how many characters of one untrusted text a line shows
MAX_SHOWN = 300
#: how many characters a line of the log has, without its time, level and logger
MAX_LINE = 1000


def shown(text: object, most: int = MAX_SHOWN) -> str:
    """`text` on one line: what cannot be printed is escaped, and what is longer than `most` is cut.

    Every name, id and reason that a client gives goes through here before it is logged: it could end the line
    and forge the next one, or hold what a terminal takes for a command.
    """
    raw = str(text)
    if len(raw) <= most and raw.isprintable():
        return raw
    cut = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in raw[:most])
    return f"{cut[:most]}... ({len(raw)} characters)" if len(raw) > most or len(cut) > most else cut


def logger_of(name: str) -> logging.Logger:
    """The logger `name`, whose lines are `shown`: whatever it is told to log, each message is one line.

    The server, the coordinators and the controller have theirs from here, since they log what clients send.
    """
    logger = logging.getLogger(name)
    if _one_line not in logger.filters:
        logger.addFilter(_one_line)
    return logger


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
