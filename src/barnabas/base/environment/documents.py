"""Reads the content of a URL in a broker's settings, for example the public keys of an identity provider.

The URL names an https server or a file. Calls block: use a thread.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from barnabas.base.errors import BarnabasError

_MAX_BYTES = 1 << 20


class DocumentError(BarnabasError):
    """The content of a URL cannot be read. The text has the reason, but not the URL: the caller adds it."""


def check_address(url: str) -> None:
    """Check that `read_document` supports a URL.

    Raises:
        DocumentError: the URL does not begin with https:// or file:/// (or with http:// for this machine's
            loopback addresses); or it contains a user name.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise DocumentError("it is not a URL") from None
    if parts.scheme == "file" and host in ("", "localhost") and parts.path:
        return
    if parts.username is not None:
        raise DocumentError("it contains a user name, which would appear in logs: remove it")
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and _is_here(host):
        return
    raise DocumentError("write https://HOST/PATH or file:///PATH; http is allowed for this machine only")


def read_document(url: str) -> bytes:
    """Return the content of `url`, which may have at most one mebibyte.

    The operating system must trust the certificate of an https server.

    Raises:
        DocumentError: `check_address` rejects the URL, the content cannot be read, or it is too long.
    """
    check_address(url)
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as file:
                found = file.read(_MAX_BYTES + 1)
        else:
            # Importing Python's HTTP client takes a twentieth of a broker's start, and few brokers need it.
            from barnabas.base.environment.download import download

            found = download(url, _MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise DocumentError(f"it cannot be read: {cause}") from None
    if len(found) > _MAX_BYTES:
        raise DocumentError(f"it is longer than {_MAX_BYTES} bytes")
    return found


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
