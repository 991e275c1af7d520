"""Documents that a broker is told to read, from an https server or a file. The calls block: use a thread."""

from __future__ import annotations

import ipaddress
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from barnabas.errors import BarnabasError

_MOST_BYTES = 1 << 20
_PATIENCE_S = 10.0


class DocumentError(BarnabasError):
    """A document cannot be had; the text says why, without the address."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Nobody else says where the broker reads from."""

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


def check_address(url: str) -> None:
    """Refuse what `read_document` does not read: it takes https://, file:/// and, of this machine, http://.

    Raises:
        DocumentError: the address is none of these.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise DocumentError("it is no URL") from None
    if parts.scheme == "file" and host in ("", "localhost") and parts.path:
        return
    if parts.username is not None:
        raise DocumentError("it names a user, whom every log would show")
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and _is_here(host):
        return
    raise DocumentError("write https://HOST/PATH or file:///PATH; http only of this machine")


def read_document(url: str) -> bytes:
    """What lies at `url`, at most a mebibyte. Servers have to show a certificate that the system trusts.

    Raises:
        DocumentError: it cannot be read.
    """
    check_address(url)
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as file:
                found = file.read(_MOST_BYTES + 1)
        else:
            found = _fetch(url)
    except (OSError, HTTPException, ValueError) as error:
        cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise DocumentError(f"it cannot be read: {cause}") from None
    if len(found) > _MOST_BYTES:
        raise DocumentError(f"it is longer than {_MOST_BYTES} bytes")
    return found


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(None if urlsplit(url).scheme == "https" else {}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        _NoRedirect(),
    )
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with opener.open(request, timeout=_PATIENCE_S) as response:
        found: bytes = response.read(_MOST_BYTES + 1)
    return found


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
