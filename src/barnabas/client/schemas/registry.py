"""A schema registry, asked over Confluent's REST API."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.text import shown, without_userinfo
from barnabas.client.servers import Servers

_TIMEOUT_S = 3.0
#: a change is compiled, compared and replicated first
_CHANGE_TIMEOUT_S = 15.0
_TYPE = "application/vnd.schemaregistry.v1+json"
_LONGEST_REASON = 2000
_LARGEST_ANSWER = 4 << 20


class RegistryError(BarnabasError):
    """The schema registry does not answer, or refuses."""


class RegistryRefused(RegistryError):
    """The schema registry has answered, and refuses.

    Attributes:
        is_missing: what was asked for is not there.
    """

    def __init__(self, message: str, *, is_missing: bool) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class SchemaRegistry:
    """A registry, for any thread.

    Args:
        url: as clients are given it.
        login: a cluster whose user and authorities are the registry's, too.
    """

    def __init__(self, url: str, login: Servers | None = None) -> None:
        self._url = url.rstrip("/")
        self._tls: ssl.SSLContext | None = None
        self._headers: dict[str, str] = {"Accept": _TYPE}
        self._has_login = login is not None
        #: how curl logs in, without the password, for which it asks
        self._login: list[str] = []
        if login is not None:
            if url.startswith("https:"):
                self._tls = ssl.create_default_context(cafile=login.settings.get("ssl.ca.location"))
            user, password = (login.settings.get(f"sasl.{name}", "") for name in ("username", "password"))
            self._login = ["--user", user]
            if self._tls is not None and (authorities := login.settings.get("ssl.ca.location")):
                self._login += ["--cacert", authorities]
            encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"

    def get(self, path: str) -> Any:
        """Return a JSON answer. Raises RegistryError."""
        return self._ask("GET", path, None, _TIMEOUT_S)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Request a change, or a check of one; return the response's JSON. Raises RegistryError."""
        return self._ask(method, path, body, _CHANGE_TIMEOUT_S)

    def curl(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> list[str]:
        """Return the command that sends the same. It has no password."""
        data = [] if body is None else ["--header", f"Content-Type: {_TYPE}", "--data", _json(body)]
        address = without_userinfo(self._url) + path
        return ["curl", "--silent", "--show-error", "--request", method, *data, *self._login, address]

    @property
    def options(self) -> list[str]:
        """The options by which a `barnabas` command reaches it. They have no password."""
        return ["--registry", without_userinfo(self._url), *(["--registry-login"] if self._has_login else [])]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        data = None if body is None else _json(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": _TYPE}
        try:
            request = urllib.request.Request(self._url + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=timeout, context=self._tls) as answer:
                return json.loads(answer.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise RegistryError(
                f"the schema registry at {without_userinfo(self._url)} does not answer: {error}"
            ) from None

    def _refusal(self, error: urllib.error.HTTPError) -> RegistryError:
        try:
            reason = json.loads(error.read(_LARGEST_ANSWER))["message"]
        except (OSError, ValueError, TypeError, KeyError):
            reason = error.reason
        words = f"the schema registry at {without_userinfo(self._url)}"
        reason = shown(reason, _LONGEST_REASON)
        if error.code >= 500:
            return RegistryError(f"{words} fails (HTTP {error.code}): {reason}")
        return RegistryRefused(f"{words} refuses (HTTP {error.code}): {reason}", is_missing=error.code == 404)


def subject_path(subject: str) -> str:
    """Return a subject's name as a part of an address."""
    return urllib.parse.quote(subject, safe="")


def _json(body: Mapping[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False)
