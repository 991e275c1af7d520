"""A schema registry's client for Spark's processes: schemas by id and by subject, and registration.

It uses the standard library alone, so that executors need only the packages of the formats. It works with any
registry that has Confluent's REST API.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.text import is_plain_url, without_userinfo

_TIMEOUT_S = 10.0
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.1
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"

#: types of schemas, as registries call them
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


class RegistryUnavailableError(BarnabasError):
    """The registry does not answer, or its answer cannot be read."""


class UnknownSchemaError(BarnabasError):
    """The registry has no such schema."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with its references, each by the name that refers to it; a schema follows those it needs.

    The text of a Protobuf schema is the base64 of its FileDescriptorProto, which needs no compiler.
    """

    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A registered version that a schema to be registered refers to, and the name it does so by."""

    name: str
    subject: str
    version: int

    @classmethod
    def parse(cls, name: str, where: str) -> Self:
        """From ``SUBJECT/VERSION``. Raises ConfigError."""
        subject, _, version = where.rpartition("/")
        if not subject or not version.isdecimal():
            raise ConfigError(f"reference {name}={where}: write SUBJECT/VERSION, such as items-value/1")
        return cls(name, subject, int(version))


class RegistryClient:
    """One registry, by its URL; ``http://user:password@host:8081`` authenticates
    (percent-encoded where they have anything else than letters and digits).

    Raises (every method):
        RegistryUnavailableError: it does not answer, after several attempts.
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

    def by_id(self, id_: int, kind: str = AVRO) -> RegisteredSchema:
        """Raises UnknownSchemaError when there is none, or it is of another type."""
        return self._resolved(f"/schemas/ids/{id_}", f"schema id {id_}", kind)[0]

    def latest(self, subject: str, kind: str = AVRO) -> RegisteredSchema:
        """The newest version. Raises UnknownSchemaError when there is none, or it is of another type."""
        return self.latest_with_id(subject, kind)[0]

    def latest_with_id(self, subject: str, kind: str = AVRO) -> tuple[RegisteredSchema, int]:
        """The newest version and its id. Raises UnknownSchemaError, as `latest`."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        schema, answer = self._resolved(path, f"subject {subject}", kind)
        return schema, int(answer["id"])

    def register(
        self, subject: str, text: str, kind: str = AVRO, references: Sequence[Reference] = ()
    ) -> int:
        """The id of a schema, which is registered when it is not yet. Raises ConfigError when refused."""
        body: dict[str, Any] = {"schema": text}
        if kind != AVRO:
            body["schemaType"] = kind
        if references:
            body["references"] = [asdict(reference) for reference in references]
        try:
            answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", body)
        except UnknownSchemaError as error:
            raise ConfigError(f"subject {subject} does not take the schema: {error}") from None
        return int(answer["id"])

    def _resolved(self, path: str, about: str, kind: str) -> tuple[RegisteredSchema, Any]:
        form = ("&" if "?" in path else "?") + "format=serialized" if kind == PROTOBUF else ""
        try:
            answer = self._ask(path + form)
        except UnknownSchemaError as error:
            raise UnknownSchemaError(f"{about} is not registered at {self._url}: {error}") from None
        found = answer.get("schemaType", AVRO)
        if found != kind:
            raise UnknownSchemaError(f"{about} is of type {found}, not {kind}")
        named: dict[str, str] = {}
        for reference in answer.get("references") or ():
            subject, version = quote(reference["subject"], safe=""), reference["version"]
            referred, _ = self._resolved(
                f"/subjects/{subject}/versions/{version}?deleted=true", f"a reference of {about}", kind
            )
            named |= {name: text for name, text in referred.references if name not in named}
            named.setdefault(reference["name"], referred.text)
        return RegisteredSchema(answer["schema"], tuple(named.items())), answer

    def _ask(self, path: str, body: Any = None) -> Any:
        """The answer. Raises UnknownSchemaError, with the registry's message, if it refuses."""
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
