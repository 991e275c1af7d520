"""What Spark's processes ask a schema registry: schemas by id and by subject, and the id of one's own.

By the standard library alone, so that executors need nothing installed beside fastavro. Any registry with
Confluent's REST API will do.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from barnabas.errors import BarnabasError, ConfigError
from barnabas.text import is_plain_url, without_userinfo

_TIMEOUT_S = 10.0
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.1
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryUnavailableError(BarnabasError):
    """The registry does not answer, or not as one."""


class UnknownSchemaError(BarnabasError):
    """The registry does not have what it is asked for."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """An Avro schema with the texts of those that it refers to, what is needed first comes first."""

    text: str
    references: tuple[str, ...] = ()


class RegistryClient:
    """One registry, by its URL; ``http://user:password@host:8081`` authenticates
    (percent-encoded where they have anything else than letters and digits).

    Raises (every method):
        RegistryUnavailableError: it gives no answer, also after some more attempts.
    """

    def __init__(self, url: str) -> None:
        if not is_plain_url(url):
            raise _refuse(url, "a user and a password have /, ?, #, @ and spaces percent-encoded")
        try:
            parts = urlsplit(url)
        except ValueError:  # whose text quotes the URL
            raise _refuse(url, "this cannot be read") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _refuse(url, "this has no host, or another scheme")
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")

    def by_id(self, id_: int) -> RegisteredSchema:
        """Raises UnknownSchemaError when there is none, or it is not Avro."""
        return self._resolved(f"/schemas/ids/{id_}", f"schema id {id_}")

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version. Raises UnknownSchemaError when there is none, or it is not Avro."""
        return self._resolved(f"/subjects/{quote(subject, safe='')}/versions/latest", f"subject {subject}")

    def register(self, subject: str, text: str) -> int:
        """The id of a schema, which is registered when it is not yet. Raises ConfigError when refused."""
        try:
            answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", {"schema": text})
        except UnknownSchemaError as error:
            raise ConfigError(f"subject {subject} does not take the schema: {error}") from None
        return int(answer["id"])

    def _resolved(self, path: str, about: str) -> RegisteredSchema:
        try:
            answer = self._ask(path)
        except UnknownSchemaError as error:
            raise UnknownSchemaError(f"{about} is not registered at {self._url}: {error}") from None
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise UnknownSchemaError(f"{about} is of type {answer['schemaType']}, not Avro")
        texts: dict[str, None] = {}
        for reference in answer.get("references") or ():
            subject, version = quote(reference["subject"], safe=""), reference["version"]
            referred = self._resolved(
                f"/subjects/{subject}/versions/{version}?deleted=true", f"a reference of {about}"
            )
            texts |= dict.fromkeys((*referred.references, referred.text))
        return RegisteredSchema(answer["schema"], tuple(texts))

    def _ask(self, path: str, body: Any = None) -> Any:
        """The answer. Raises UnknownSchemaError, with the registry's words, when it refuses."""
        data = None if body is None else json.dumps(body).encode()
        pause = _FIRST_PAUSE_S
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(pause)
                pause *= 2
            try:
                with urlopen(Request(self._url + path, data, self._headers), timeout=_TIMEOUT_S) as answer:
                    return json.load(answer)
            except HTTPError as error:
                with error:
                    said = _message(error.read()) or str(error)
                if 400 <= error.code < 500 and error.code not in (401, 403, 408, 429):
                    raise UnknownSchemaError(said) from None
                failure: object = said
            except (URLError, OSError, ValueError) as error:
                failure = error
        raise RegistryUnavailableError(f"the schema registry at {self._url} does not answer: {failure}")


def _refuse(url: str, why: str) -> ConfigError:
    return ConfigError(
        f"registry={without_userinfo(url)}: write its URL, such as http://127.0.0.1:8081; {why}"
    )


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return ""
