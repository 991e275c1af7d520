"""Keys and certificates as Java keeps them (PKCS#12), made PEM; `cryptography` is imported on use."""

from __future__ import annotations

#: how a Java keystore in the old format begins
JKS_MAGIC = b"\xfe\xed\xfe\xed"
_PEM_MARK = b"-----BEGIN "


def kind_of(data: bytes) -> str:
    """The format of a store's content: PEM, JKS or PKCS12, whatever its name says."""
    if data.startswith(JKS_MAGIC):
        return "JKS"
    return "PEM" if _PEM_MARK in data else "PKCS12"


def pem_of_pkcs12(data: bytes, password: str | None) -> tuple[str, str]:
    """The private key, unencrypted, and the certificates, its own first, of a PKCS#12 store.

    Raises:
        ValueError: it is none, the password is wrong, or it has no key.
    """
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    store = load_pkcs12(data, _encoded(password))
    if store.key is None or store.cert is None:
        raise ValueError("it has no private key with a certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    chain = [store.cert, *store.additional_certs]
    return key, "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in chain)


def trusted_of_pkcs12(data: bytes, password: str | None) -> str:
    """The certificates of a PKCS#12 truststore, as PEM.

    Raises:
        ValueError: it is none, the password is wrong, or it has no certificate.
    """
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    store = load_pkcs12(data, _encoded(password))
    found = [each for each in (store.cert, *store.additional_certs) if each is not None]
    if not found:
        raise ValueError("it has no certificate")
    return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in found)


def _encoded(password: str | None) -> bytes | None:
    return password.encode() if password else None
