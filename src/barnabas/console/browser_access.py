"""Access control of the console: by a link that works once and then a cookie, or by user and password.

Pages of other sites have no access. They cannot send the cookie (SameSite). They cannot reach the console
through a host name of their own (DNS rebinding), because the console checks the Host header. They cannot make
the browser change anything, because the console checks the Origin header and the content type.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode
from collections.abc import Collection, Mapping

from aiohttp import web

COOKIE = "barnabas_console"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class BrowserAccess:
    """Admits browsers that have opened the link or that send a user's password.

    Args:
        hosts: accepted values of the ``Host`` header; None accepts any, behind a proxy that checks them.
        users: passwords by user; None if the link gives access.
    """

    def __init__(self, hosts: Collection[str] | None, users: Mapping[str, str] | None = None) -> None:
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._users = users
        self._token: str | None = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(32)

    @property
    def link(self) -> str:
        """The path of the link, with the token that works once; empty if browsers send passwords."""
        return "" if self._users is not None else f"login?token={self._token}"

    def use_token(self, token: str) -> bool:
        """Return whether `token` is the link's token. If so, make the token invalid: it works only once."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
            return False
        self._token = None
        return True

    def let_in(self, response: web.StreamResponse, path: str) -> None:
        """Add the session cookie to `response`. The cookie admits the browser to `path` from now on."""
        response.set_cookie(COOKIE, self._session, httponly=True, samesite="Strict", path=path or "/")

    def check(self, request: web.Request) -> web.Response | None:
        """Return the response that rejects a request; None if the request is admitted."""
        if self._hosts is not None and request.host.lower() not in self._hosts:
            return _refusal(421, f"this console does not answer as {request.host[:100]!r}")
        if request.method not in ("GET", "HEAD") and not _is_own(request):
            return _refusal(403, "changes come from the console's own pages only")
        if request.path.endswith("/login"):
            return None
        if self._users is not None:
            return None if self._knows(request) else _ask_for_password()
        shown = request.cookies.get(COOKIE, "")
        if hmac.compare_digest(shown.encode(), self._session.encode()):
            return None
        return _refusal(401, "open the link that the console has printed; it works once")

    def _knows(self, request: web.Request) -> bool:
        kind, _, encoded = request.headers.get("Authorization", "").partition(" ")
        try:
            user, colon, password = b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            return False
        known = (self._users or {}).get(user)
        if kind.lower() != "basic" or not colon or known is None:
            return False
        return hmac.compare_digest(password.encode(), known.encode())


def _is_own(request: web.Request) -> bool:
    origin = request.headers.get("Origin", "")
    return origin.partition("://")[2].lower() == request.host.lower() and (
        request.content_type == "application/json"
    )


def _refusal(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


def _ask_for_password() -> web.Response:
    return web.json_response(
        {"error": "a user and a password are needed"},
        status=401,
        headers={"WWW-Authenticate": 'Basic realm="barnabas", charset="UTF-8"'},
    )
