"""Certificates for tests of TLS, signed by an authority that no system trusts."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

#: of the client's key; the server's has none, since Java cannot read one that has
PASSWORD = "pssst"


class Certificates:
    """An authority, and certificates that it has signed for the server and for a client, as PEM files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.authority = folder / "ca.pem"
        self.authority.write_bytes(self._sign("authority", self._key).public_bytes(Encoding.PEM))
        self.server, self.server_key = self._issue("server", NoEncryption())
        self.client, self.client_key = self._issue("client", BestAvailableEncryption(PASSWORD.encode()))

    def server_context(self, *, asks_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server, self.server_key)
        if asks_client:
            context.load_verify_locations(self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _issue(self, name: str, encryption: KeySerializationEncryption) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        files = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        files[0].write_bytes(self._sign(name, key).public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return files

    def _sign(self, name: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        unsigned = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=name == "authority", path_length=None), critical=True)
        )
        if name == "server":
            addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            unsigned = unsigned.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        return unsigned.sign(self._key, hashes.SHA256())
