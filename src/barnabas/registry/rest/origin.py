"""Rejects requests that a browser sends for a page of another site.

The page's host name may point to this machine (DNS rebinding). Then the Host header contains the page's name.
The page can also send a request that browsers allow without asking the registry, such as a POST without a
content type. Then the Origin header names the page's site.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from aiohttp import web

from barnabas.registry.errors import RegistryError
from barnabas.registry.limits import shortened

#: the ``Host`` headers that are this registry's, in lower case
HOSTS: web.AppKey[frozenset[str]] = web.AppKey("hosts", frozenset)

_MISDIRECTED, _FORBIDDEN = 421, 403

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def own_hosts(hosts: Collection[str] | None, allowed: Collection[str]) -> frozenset[str] | None:
    """Return the accepted values of the header ``Host``, in lower case; None to accept any value.

    The result has all names of `hosts` and `allowed`. It is None if `hosts` is None and `allowed` is empty.

    Args:
        hosts: the names of the registry; None if they are unknown.
        allowed: more names, such as "registry.example" (with any port) or "registry.example:8081".
    """
    if hosts is None and not allowed:
        return None
    return frozenset(host.lower() for host in (*(hosts or ()), *allowed))


@web.middleware
async def own_requests_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run `handler`, unless the request may be from a page of another site.

    Raises:
        RegistryError: 421, the header Host is not one of the registry's names; 403, the header Origin is of
            another site, and the method is neither GET nor HEAD.
    """
    hosts, host = request.app.get(HOSTS), request.host.lower()
    if hosts is not None and not _is_named(host, hosts):
        shown = shortened(host, 100)
        raise RegistryError(
            _MISDIRECTED,
            f"this registry does not answer as '{shown}': if that is its name, start it by "
            f"`barnabas registry --allow-host {shown}`",
        )
    origin = request.headers.get("Origin")
    if origin is not None and request.method not in ("GET", "HEAD"):
        page = origin.partition("://")[2].lower()
        if page != host and not _is_named(page, hosts or ()):
            raise RegistryError(_FORBIDDEN, "a page of another site may change nothing here")
    return await handler(request)


def _is_named(host: str, names: Collection[str]) -> bool:
    return host in names or _without_port(host) in names


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
