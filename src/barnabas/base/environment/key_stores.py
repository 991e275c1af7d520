"""Loads keys and certificates into contexts of `ssl`, from files or text.

The calls block.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from barnabas.base.tls.key_stores import (
    certificates_of_text,
    key_of_text,
    kind_of,
    pem_of_pkcs12,
    trusted_of_pkcs12,
)


def load_key(
    context: ssl.SSLContext, path: str, store_password: str | None, key_password: str | None
) -> None:
    """Load the key and the certificates of a PEM or PKCS#12 file into a context.

    Args:
        store_password: the password of a PKCS#12 file; None if it has none. PEM files do not use it.
        key_password: the password of the key in a PEM file; None if the key is not encrypted. PKCS#12 files
            do not use it.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is a JKS store, has no key or certificate, or the password is wrong. OpenSSL
            reports some of these errors as `ssl.SSLError`, which is an OSError.
    """
    data = _read(path)
    if kind_of(data) == "PEM":
        # Without a password OpenSSL would ask the terminal for one.
        context.load_cert_chain(path, password=lambda: key_password or "")
        return
    key, chain = pem_of_pkcs12(data, store_password)
    _load_pem(context, f"{key}\n{chain}", None)


def load_key_text(context: ssl.SSLContext, key: str, chain: str, key_password: str | None) -> None:
    """Load a key and its certificates (`chain`) from PEM text into a context. Raises as `load_key`.

    `key_password` is the password of an encrypted key; None for a key that is not encrypted.
    """
    _load_pem(context, key_of_text(key) + certificates_of_text(chain), key_password)


def load_trust_text(context: ssl.SSLContext, certificates: str) -> None:
    """Make a context trust the certificates in PEM text.

    Raises ValueError if the text has no certificate, any other PEM block, or invalid base64. Raises
    `ssl.SSLError` if OpenSSL cannot read a certificate.
    """
    context.load_verify_locations(cadata=certificates_of_text(certificates))


def _load_pem(context: ssl.SSLContext, pem: str, key_password: str | None) -> None:
    with tempfile.NamedTemporaryFile("w") as file:  # readable by its owner only, and gone at once
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=lambda: key_password or "")


def load_trust(context: ssl.SSLContext, path: str, store_password: str | None) -> None:
    """Make a context trust the certificates of a PEM or PKCS#12 file.

    `store_password` is the password of a PKCS#12 file; None if it has none.

    Raises:
        OSError: the file cannot be read, or OpenSSL rejects it (`ssl.SSLError`).
        ValueError: the file is a JKS store, has no certificate, or the password is wrong.
    """
    data = _read(path)
    if kind_of(data) == "PEM":
        context.load_verify_locations(path)
    else:
        context.load_verify_locations(cadata=trusted_of_pkcs12(data, store_password))


def _read(path: str) -> bytes:
    data = Path(path).read_bytes()
    if kind_of(data) == "JKS":
        raise ValueError(
            "it is a JKS store, which only Java reads: convert it by `keytool -importkeystore -srckeystore "
            f"{path} -destkeystore {Path(path).stem}.p12 -deststoretype PKCS12`"
        )
    return data
