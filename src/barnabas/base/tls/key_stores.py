"""Converts Java's keys and certificates (PKCS#12, PEM on one line) to PEM that OpenSSL reads.

`cryptography` is imported on use.
"""

from __future__ import annotations

import re
import textwrap

#: how a Java keystore in the old format begins
JKS_MAGIC = b"\xfe\xed\xfe\xed"
_PEM_MARK = b"-----BEGIN "
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([^-]*)-----END \1-----")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
#: the width of a line of PEM (RFC 7468)
_WIDTH = 64


def kind_of(data: bytes) -> str:
    """Return the format of a key store, by its content: PEM, JKS or PKCS12."""
    if data.startswith(JKS_MAGIC):
        return "JKS"
    return "PEM" if _PEM_MARK in data else "PKCS12"


def pem_of_pkcs12(data: bytes, password: str | None) -> tuple[str, str]:
    """Return the private key of a PKCS#12 store, and the store's certificates, as PEM.

    The returned key is not encrypted. The first certificate is the one of the key. `password` is the store's
    password; None or empty if it has none.

    Raises:
        ValueError: the content is not PKCS#12, the password is wrong, or the store has no key.
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
    """Return the certificates of a PKCS#12 truststore, as PEM.

    `password` is the store's password; None or empty if it has none.

    Raises:
        ValueError: the content is not PKCS#12, the password is wrong, or the store has no certificate.
    """
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    store = load_pkcs12(data, _encoded(password))
    found = [each for each in (store.cert, *store.additional_certs) if each is not None]
    if not found:
        raise ValueError("it has no certificate")
    return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in found)


def key_of_text(text: str) -> str:
    """Return the private key in a setting's value as PEM. An encrypted key stays encrypted.

    In `text`, spaces may replace line ends, as in Java.

    Raises:
        ValueError: the text is not one private key in PKCS#8.
    """
    blocks = _pem_blocks(text)
    if [label for label, _ in blocks] not in (["PRIVATE KEY"], ["ENCRYPTED PRIVATE KEY"]):
        raise ValueError("it must be one private key: -----BEGIN PRIVATE KEY-----, or ENCRYPTED PRIVATE KEY")
    return blocks[0][1]


def certificates_of_text(text: str) -> str:
    """Return the certificates in a setting's value as PEM. In `text`, spaces may replace line ends.

    Raises:
        ValueError: the text has no certificate, or it has other PEM blocks too.
    """
    blocks = _pem_blocks(text)
    if not blocks or any(label != "CERTIFICATE" for label, _ in blocks):
        raise ValueError("it must be certificates alone: -----BEGIN CERTIFICATE-----")
    return "".join(block for _, block in blocks)


def _pem_blocks(text: str) -> list[tuple[str, str]]:
    """Return the label of each PEM block, such as CERTIFICATE, and the block with its line ends restored.

    Raises ValueError if a block is not base64.
    """
    blocks = []
    for label, body in _PEM_BLOCK.findall(text):
        data = "".join(body.split())
        if not _BASE64.fullmatch(data):
            raise ValueError(f"its {label} is not base64")
        lines = "\n".join(textwrap.wrap(data, _WIDTH))
        blocks.append((label, f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"))
    return blocks


def _encoded(password: str | None) -> bytes | None:
    return password.encode() if password else None
