"""Downloads from a web server. The call blocks: use a thread."""

from __future__ import annotations

import ssl
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.parse import urlsplit

_PATIENCE_S = 10.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirections: only the broker's own settings decide on the addresses that it reads."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def download(url: str, max_bytes: int) -> bytes:
    """Return the first `max_bytes` bytes at an http:// or https:// address.

    For https, a proxy from the environment variables is used. Redirections are not followed.

    Raises:
        OSError: the address cannot be read, is silent for ten seconds, or answers with an error or a
            redirection.
        ValueError: the address is not valid.
    """
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(None if urlsplit(url).scheme == "https" else {}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        _NoRedirect(),
    )
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with opener.open(request, timeout=_PATIENCE_S) as response:
            found: bytes = response.read(max_bytes)
    except HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
    return found
