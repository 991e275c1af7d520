"""The client of a schema registry, over Confluent's REST API.

It uses only the standard library, because Spark's executors import it.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.text import is_plain_url, shown, without_userinfo

if TYPE_CHECKING:
    from barnabas.client.servers import Servers

_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_REASON = 2000
_MAX_ANSWER = 4 << 20
_FIRST_PAUSE_S = 0.1
_DENIED = (401, 403)
#: request timeout, too many requests: the registry may answer the next attempt
_TEMPORARY = (408, 429)


class RegistryTimeouts(NamedTuple):
    """Time limits, in seconds, for reads and changes, and the number of attempts.

    A change takes longer, because the registry first compiles, compares and replicates the schema.
    """

    read_s: float
    change_s: float
    attempts: int


#: for a person who waits for the answer
ONCE = RegistryTimeouts(3.0, 15.0, 1)
#: for a job, which would fail without the answer
STEADY = RegistryTimeouts(10.0, 15.0, 5)


class RegistryError(BarnabasError):
    """The schema registry does not answer, or refuses the request."""


class RegistryRefused(RegistryError):
    """The schema registry has answered, and refuses the request.

    Attributes:
        is_missing: whether the reason is that the registry does not have the item.
    """

    def __init__(self, message: str, *, is_missing: bool) -> None:
        super().__init__(message)
        self.is_missing = is_missing

    def of(self, item: str) -> Self:
        """Return a copy of this error whose text begins with `item`."""
        return type(self)(
            f"{item}{' is not registered' if self.is_missing else ''}: {self}", is_missing=self.is_missing
        )


class RegistryDenied(RegistryRefused):
    """The schema registry does not know the user, or does not allow the user the request."""


class SchemaRegistry:
    """A client of one registry. Any thread can use it.

    Args:
        url: address. ``http://user:password@host:8081`` logs in. In this user and this password,
            percent-encode each character that is not a letter or digit.
        login: a cluster with security settings. The client trusts the certificate authorities of these
            settings, and logs in as their user unless the URL has a user. None: no such settings.
        timeouts: time limits and number of attempts of each request; by default one attempt.

    Raises:
        ConfigError: the URL is malformed. The text of the error does not contain the password.
    """

    def __init__(self, url: str, login: Servers | None = None, timeouts: RegistryTimeouts = ONCE) -> None:
        parts = _parsed(url)
        self._shown = without_userinfo(url)
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._timeouts = timeouts
        self._tls: ssl.SSLContext | None = None
        self._headers: dict[str, str] = {"Accept": _TYPE}
        self._has_login = login is not None
        #: login options of curl, without the password: curl prompts for it
        self._login: list[str] = []
        if pair := _user(parts, login):
            self._login = ["--user", pair[0]]
            self._headers["Authorization"] = f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}"
        if login is not None and parts.scheme == "https":
            authorities = login.settings.get("ssl.ca.location")
            self._tls = ssl.create_default_context(cafile=authorities)
            self._login += ["--cacert", authorities] if authorities else []

    def get(self, path: str) -> Any:
        """Return the JSON of the response to GET `path`.

        Raises:
            RegistryRefused: the registry refuses the request, or does not have the item.
            RegistryError: the registry does not answer, or fails.
        """
        return self._ask("GET", path, None, self._timeouts.read_s)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request that makes or checks a change. Return the response's JSON.

        The request has `body` as JSON; None sends no body.

        Raises:
            RegistryRefused: the registry refuses the request, or does not have what `path` names.
            RegistryError: the registry does not answer, or fails.
        """
        return self._ask(method, path, body, self._timeouts.change_s)

    def curl(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> list[str]:
        """Return the words of the curl command that sends the same request as `send`.

        The command contains no password: curl asks for the password.
        """
        data = [] if body is None else ["--header", f"Content-Type: {_TYPE}", "--data", _json(body)]
        request = ["--request", method, *data, *self._login, self._url + path]
        return ["curl", "--silent", "--show-error", *request]

    @property
    def options(self) -> list[str]:
        """Return the options with which a `barnabas` command connects to the registry.

        They have no password.
        """
        return ["--registry", self._shown, *(["--registry-login"] if self._has_login else [])]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        """Send a request, and return the JSON of the response.

        If the registry fails or does not answer, send the request again, after a pause. `timeouts` has the
        number of attempts. `timeout` is in seconds, for each attempt.

        Raises:
            RegistryRefused: the registry refuses the request. It is not sent again.
            RegistryError: the registry fails or does not answer, also at the last attempt.
        """
        left, pause = self._timeouts.attempts, _FIRST_PAUSE_S
        while True:
            left -= 1
            try:
                return self._ask_once(method, path, body, timeout)
            except RegistryRefused:
                raise
            except RegistryError:
                if not left:
                    raise
            time.sleep(pause)
            pause *= 2

    def _ask_once(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        data = None if body is None else _json(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": _TYPE}
        try:
            request = urllib.request.Request(self._url + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=timeout, context=self._tls) as answer:
                return json.loads(answer.read(_MAX_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            raise RegistryError(f"the schema registry at {self._url} does not answer: {error}") from None

    def _refusal(self, error: urllib.error.HTTPError) -> RegistryError:
        try:
            reason = json.loads(error.read(_MAX_ANSWER))["message"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError, http.client.HTTPException):
            reason = error.reason
        words = f"the schema registry at {self._url}"
        reason = shown(reason, _MAX_REASON)
        if error.code >= 500 or error.code in _TEMPORARY:
            return RegistryError(f"{words} fails (HTTP {error.code}): {reason}")
        kind = RegistryDenied if error.code in _DENIED else RegistryRefused
        return kind(f"{words} refuses (HTTP {error.code}): {reason}", is_missing=error.code == 404)


def _parsed(url: str) -> urllib.parse.SplitResult:
    """Return the parts of a registry's URL. Raises ConfigError if the URL is malformed."""
    if not is_plain_url(url):
        raise _malformed(url, "a user and a password have /, ?, #, @ and spaces percent-encoded")
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:  # its text quotes the URL
        raise _malformed(url, "this cannot be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _malformed(url, "this has no host, or another scheme")
    return parts


def _user(parts: urllib.parse.SplitResult, login: Servers | None) -> tuple[str, str] | None:
    """Return user and password: from the URL if it has a user, else from the settings of `login`.

    Return two empty texts if neither has a user. Return None if the URL has no user and `login` is None.
    """
    if parts.username is not None:
        return urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
    if login is not None:
        return login.settings.get("sasl.username", ""), login.settings.get("sasl.password", "")
    return None


def _malformed(url: str, why: str) -> ConfigError:
    return ConfigError(
        f"registry={without_userinfo(url)}: write its URL, such as http://127.0.0.1:8081; {why}"
    )


def subject_path(subject: str) -> str:
    """Return a subject's name, encoded as a part of a URL."""
    return urllib.parse.quote(subject, safe="")


def _json(body: Mapping[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False)
