"""A folder with a certificate authority, the certificates that it has signed, and client settings.

ca.pem, ca.key.pem    the authority's certificate and its key
truststore.p12        the certificate for Java; its password is no secret
NAME.pem, NAME.p12    a key with its certificate and the authority's
NAME.password         the password of NAME.p12
NAME.properties       settings of a client (client.properties)

Only the files' owner can read them (0600). If `create_authority` created the folder, only its owner can
enter it (0700).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from barnabas.base.environment.clock import SystemClock
from barnabas.base.tls import certificates
from barnabas.base.tls.certificates import Authority, Description
from barnabas.client.errors import ClientError

#: the password of truststore.p12: Java requires one, though certificates are no secret
TRUSTSTORE_PASSWORD = "changeit"
#: a certificate that expires within this time is replaced
RENEWAL = timedelta(days=30)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_RESERVED = ("ca", "ca.key", "truststore")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class CertificateFolder:
    """Creates and reads the files of a certificate authority, and of its certificates, in a folder.

    Existing files are replaced atomically.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def authority(self) -> Path:
        """Path of the authority's certificate, which all programs must trust."""
        return self.path / "ca.pem"

    @property
    def truststore(self) -> Path:
        """Path of the PKCS#12 file with the authority's certificate, for Java."""
        return self.path / "truststore.p12"

    def pem(self, name: str) -> Path:
        """Return the path of the PEM file with the key and the certificate of `name`."""
        return self.path / f"{name}.pem"

    def properties(self, name: str) -> Path:
        """Return the path of the client settings of `name`."""
        return self.path / f"{name}.properties"

    @property
    def has_authority(self) -> bool:
        return self.authority.exists() and self._authority_key.exists()

    def names(self) -> list[str]:
        """Return the names that have a certificate, sorted."""
        return sorted(path.stem for path in self.path.glob("*.pem") if path.stem not in _RESERVED)

    def create_authority(self, name: str) -> None:
        """Create an authority with the common name `name`: its key, its certificate, and a truststore.

        Raises:
            ClientError: the folder already has an authority. Clients of a new one would not trust the
                certificates that the old one has signed.
            ConfigError: a certificate cannot contain `name`.
        """
        if self.authority.exists() or self._authority_key.exists():
            raise ClientError(
                f"{self.path} has an authority already: issue certificates, or take another folder"
            )
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Authority.create(name, _now())
        write_private(self._authority_key, made.key)
        write_private(self.truststore, certificates.java_truststore([made.certificate], TRUSTSTORE_PASSWORD))
        write_private(self.authority, made.certificate)

    def issue(
        self, name: str, hosts: Iterable[str] = (), days: int = certificates.CERTIFICATE_DAYS
    ) -> Description:
        """Create a key and a certificate for a server with these `hosts`; for a client if `hosts` is empty.

        A client also gets a file of settings. Existing files of `name` are replaced. Return a description of
        the new certificate: its name, hosts and validity.

        Args:
            days: days for which the certificate is valid.

        Raises:
            ClientError: the folder has no authority, or `name` cannot be a file name or is reserved.
            ConfigError: a certificate cannot contain one of `hosts`.
        """
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise ClientError(
                f"{name!r} cannot be the name of a certificate: write letters, digits, '.', '_', '-'"
            )
        hosts = tuple(hosts)
        issued = self._authority().issue(name, hosts, _now(), days)
        password = secrets.token_urlsafe(18)
        write_private(self.path / f"{name}.p12", issued.pkcs12(name, password))
        write_private(self.path / f"{name}.password", f"{password}\n".encode())
        if not hosts:
            self.write_properties(name, ["security.protocol=SSL", *self._trust(), *self._key(name)])
        write_private(self.pem(name), issued.pem)
        return self.describe(name)

    def renew(self, name: str) -> Description:
        """Replace a key and its certificate by new ones for the same name and hosts.

        The new certificate is valid for `certificates.CERTIFICATE_DAYS` days.

        Return a description of the new certificate: its name, hosts and validity.

        Raises:
            ClientError: the folder has no certificate of `name`, or no authority.
        """
        return self.issue(name, self.describe(name).hosts)

    def describe(self, name: str) -> Description:
        """Return the name, the hosts and the validity of the certificate of `name`.

        Raises:
            ClientError: the folder has no such certificate.
            ConfigError: the file is not a certificate.
        """
        try:
            return certificates.describe(self.pem(name).read_bytes())
        except FileNotFoundError:
            known = ", ".join(self.names()) or "none"
            raise ClientError(f"{self.path} has no certificate of {name}: there are {known}") from None

    def is_good(self, name: str, hosts: Iterable[str]) -> bool:
        """Whether the certificate of `name` contains all of `hosts`, and is valid for longer than `RENEWAL`.

        The result is false if there is no such certificate, or if it is not valid yet: the clock was ahead.
        """
        if not self.pem(name).exists():
            return False
        found = self.describe(name)
        now = _now()
        return {*hosts} <= {*found.hosts} and found.begins <= now and found.ends - now > RENEWAL

    def write_login(self, user: str, password: str, servers: str) -> Path:
        """Write a user's login as client settings in the format of Java's tools. Return the file's path.

        `servers` is the value of ``bootstrap.servers`` in this file.
        """
        lines = [
            f"bootstrap.servers={servers}",
            "security.protocol=SASL_SSL",
            "sasl.mechanism=SCRAM-SHA-512",
            f'sasl.jaas.config={SCRAM} required username="{user}" password="{password}";',
            *self._trust(),
        ]
        self.write_properties(user, lines)
        return self.properties(user)

    def write_properties(self, name: str, lines: Sequence[str]) -> None:
        write_private(self.properties(name), "".join(f"{line}\n" for line in lines).encode())

    @property
    def _authority_key(self) -> Path:
        return self.path / "ca.key.pem"

    def _authority(self) -> Authority:
        if not self.has_authority:
            raise ClientError(f"{self.path} has no authority: make one with `barnabas tls init {self.path}`")
        return Authority(self.authority.read_bytes(), self._authority_key.read_bytes())

    def _trust(self) -> list[str]:
        return ["ssl.truststore.type=PEM", f"ssl.truststore.location={escaped(self.authority)}"]

    def _key(self, name: str) -> list[str]:
        return ["ssl.keystore.type=PEM", f"ssl.keystore.location={escaped(self.pem(name))}"]


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read (0600). An existing file is replaced atomically.

    Raises OSError if the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def escaped(path: Path) -> str:
    """Return a path in the syntax of a properties file."""
    return str(path).replace("\\", "\\\\")


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
