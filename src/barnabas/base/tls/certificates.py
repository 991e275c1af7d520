"""Creates a private certificate authority, keys and certificates, as bytes without files.

`cryptography` is imported on first use, because most brokers create no certificates.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from barnabas.base.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

#: days; browsers' authorities give no more, and the Java world copes with it
CERTIFICATE_DAYS = 397
AUTHORITY_DAYS = 3650
#: Clocks differ: a new certificate was valid a while ago.
_CLOCKS_DIFFER = timedelta(hours=1)
#: the same for an authority, which cannot be replaced: a machine's first clock may be wrong by years
_AUTHORITYS_CLOCK_DIFFERS = timedelta(days=AUTHORITY_DAYS)


@dataclass(frozen=True)
class Issued:
    """A key, its certificate, and the certificate of the authority that signed it, in PEM."""

    key: bytes = field(repr=False)
    certificate: bytes
    authority: bytes

    @property
    def pem(self) -> bytes:
        """Return the content of a file for ``ssl.keystore.location``: the key, then the certificate chain."""
        return self.key + self.certificate + self.authority

    def pkcs12(self, name: str, password: str) -> bytes:
        """Return key and certificates as PKCS#12 for Java and Windows, encrypted with `password`.

        `name` is the name of the key in this store.
        """
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
        from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

        encryption = BestAvailableEncryption(password.encode())
        chain = [_certificate(self.authority)]
        key = _read_key(self.key)
        return serialize_key_and_certificates(
            name.encode(), key, _certificate(self.certificate), chain, encryption
        )


@dataclass(frozen=True)
class Description:
    """The name, the hosts and the validity of a certificate."""

    #: the common name
    name: str
    #: DNS names and addresses
    hosts: tuple[str, ...]
    begins: datetime
    ends: datetime


class Authority:
    """A certificate authority, which signs certificates.

    Args:
        certificate: the certificate of the authority, in PEM.
        key: the private key of the authority, in PEM, unencrypted.
    """

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate = certificate
        self.key = key

    def __repr__(self) -> str:
        return "Authority(...)"

    @classmethod
    def create(cls, name: str, now: datetime) -> Authority:
        """Return a new authority with a new key, valid for `AUTHORITY_DAYS` days before and after `now`.

        `name` is the common name in its certificate. Clients trust this authority only if they are configured
        to.

        Raises:
            ConfigError: a certificate cannot contain `name`.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256

        key = _new_key()
        subject = _subject(name)
        made = (
            _builder(subject, subject, key, now - _AUTHORITYS_CLOCK_DIFFERS, now + timedelta(AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, SHA256())
        )
        return cls(_pem(made), _key_pem(key))

    def issue(self, name: str, hosts: Iterable[str], now: datetime, days: int = CERTIFICATE_DAYS) -> Issued:
        """Return a new key and a certificate for `name`, with validity of `days` from `now`.

        The certificate is for a server if there are `hosts`, and only for a client if there are none. A
        server's certificate is also valid for a client, because brokers connect to each other.

        Raises:
            ConfigError: the certificate cannot contain `name` or one of `hosts`, or the authority's key is
                not an elliptic-curve key.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.x509.oid import ExtendedKeyUsageOID

        own = _certificate(self.certificate)
        signer = _read_key(self.key)
        key = _new_key()
        names = _alternative_names(hosts)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if names:
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = (
            _builder(_subject(name), own.subject, key, now - _CLOCKS_DIFFER, now + timedelta(days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(identifier, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = builder.sign(signer, SHA256())
        return Issued(_key_pem(key), _pem(made), self.certificate)


def java_truststore(certificates: Sequence[bytes], password: str) -> bytes:
    """Return a PKCS#12 store of trusted certificates (PEM), marked as trusted for Java."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        PKCS12Certificate,
        serialize_java_truststore,
    )

    entries = [
        PKCS12Certificate(_certificate(each), b"authority-%d" % number)
        for number, each in enumerate(certificates, 1)
    ]
    return serialize_java_truststore(entries, BestAvailableEncryption(password.encode()))


def describe(certificate: bytes) -> Description:
    """Return the contents of a certificate: the first one in a PEM text, or one in DER.

    Raises:
        ConfigError: `certificate` is not a certificate.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        found = (
            x509.load_der_x509_certificate(certificate)
            if certificate[:1] == b"\x30"
            else _certificate(certificate)
        )
    except ValueError as error:
        raise ConfigError(f"this is not a certificate: {error}") from None
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        hosts: tuple[str, ...] = ()
    else:
        addresses = map(str, names.get_values_for_type(x509.IPAddress))
        hosts = (*names.get_values_for_type(x509.DNSName), *addresses)
    common = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    name = str(common[0].value) if common else found.subject.rfc4514_string()
    return Description(name, hosts, found.not_valid_before_utc, found.not_valid_after_utc)


def lost_names(before: bytes, after: bytes) -> tuple[bool, list[str]]:
    """Compare the names of two certificates (DER).

    Returns:
        Whether the subjects differ, and the alternative names that `after` lacks.
    """
    from cryptography import x509

    old, new = (x509.load_der_x509_certificate(each) for each in (before, after))
    kept = _names_of(new)
    return old.subject != new.subject, [str(name.value) for name in _names_of(old) if name not in kept]


def _names_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    from cryptography import x509

    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _certificate(pem: bytes) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _read_key(pem: bytes) -> EllipticCurvePrivateKey:
    """Return the elliptic-curve key in `pem`. Raises ConfigError for another type of key."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(
            "the authority's key is not an elliptic-curve key: create the authority with `barnabas tls init`"
        )
    return key


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise ConfigError(f"a certificate cannot be for {name!r}: {error}") from None


def _alternative_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(each.strip("[]") for each in hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host.partition("%")[0])))
        except ValueError:
            try:
                names.append(x509.DNSName(host))
            except ValueError as error:
                raise ConfigError(f"a certificate cannot name the host {host!r}: {error}") from None
    return names


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
