"""The log of aiohttp's servers, without a traceback for each request that is not HTTP."""

from __future__ import annotations

import logging

log = logging.getLogger("barnabas.http")


class _Malformed(logging.Filter):
    """Logs requests that aiohttp cannot parse at the level DEBUG only. Their clients get a 400."""

    def filter(self, record: logging.LogRecord) -> bool:
        from aiohttp.http_exceptions import HttpProcessingError

        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError) or record.levelno <= logging.DEBUG:
            return True
        log.debug("%s: %s", record.getMessage(), type(error).__name__)
        return False


log.addFilter(_Malformed())
