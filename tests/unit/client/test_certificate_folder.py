"""A folder with a certificate authority and the certificates that it has signed."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.settings_file import read_unchecked
from barnabas.base.tls.certificates import describe
from barnabas.base.tls.key_stores import pem_of_pkcs12, trusted_of_pkcs12
from barnabas.client import certificate_folder
from barnabas.client.certificate_folder import TRUSTSTORE_PASSWORD, CertificateFolder, write_private
from barnabas.client.errors import ClientError
from barnabas.client.properties import translate
from barnabas.client.security_settings import security_of


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    folder = CertificateFolder(tmp_path / "tls")
    folder.create_authority("tests")
    return folder


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str:
    """Make a TLS handshake. Return the client's common name as the server sees it.
    Raises the client's error.
    """
    seen = []
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as wrapped:
                seen.append(dict(pair[0] for pair in wrapped.getpeercert()["subject"])["commonName"])
                wrapped.sendall(b"x")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=host) as wrapped:
            wrapped.recv(1)
    finally:
        ours.close()
        thread.join()
    return seen[0]


@pytest.mark.parametrize("host", ["kafka.example.org", "10.0.0.7", "fe80::1"])
def test_what_is_issued_is_trusted_by_whoever_trusts_the_authority(
    folder: CertificateFolder, host: str
) -> None:
    folder.issue("server", [host])
    folder.issue("alice")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder.pem("server"))
    server.load_verify_locations(folder.authority)
    server.verify_mode = ssl.CERT_REQUIRED
    client = security_of(translate(read_unchecked(folder.properties("alice"))).settings).tls
    assert client is not None
    assert shake_hands(server, client, host) == "alice"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "elsewhere.example.org")


def test_pkcs12_stores_hold_the_same(folder: CertificateFolder) -> None:
    folder.issue("alice")
    password = (folder.path / "alice.password").read_text().strip()
    key, chain = pem_of_pkcs12((folder.path / "alice.p12").read_bytes(), password)
    assert (key + chain).encode() == folder.pem("alice").read_bytes()
    assert (
        trusted_of_pkcs12(folder.truststore.read_bytes(), TRUSTSTORE_PASSWORD) == folder.authority.read_text()
    )


@pytest.mark.skipif(shutil.which("keytool") is None, reason="there is no Java on this machine")
def test_java_takes_the_truststore_for_one(folder: CertificateFolder) -> None:
    command = ["keytool", "-list", "-keystore", str(folder.truststore), "-storepass", TRUSTSTORE_PASSWORD]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "trustedCertEntry" in listed.stdout, listed


def test_a_certificate_is_good_until_its_hosts_change_or_it_ends_soon(folder: CertificateFolder) -> None:
    folder.issue("server", ["a", "127.0.0.1"])
    assert folder.is_good("server", ["127.0.0.1"])
    assert not folder.is_good("server", ["127.0.0.1", "b"])
    assert not folder.is_good("other", [])
    folder.issue("server", ["a"], days=29)
    assert not folder.is_good("server", ["a"])
    assert folder.renew("server").ends > datetime.now(UTC) + timedelta(days=390)


def test_certificates_of_a_clock_that_was_ahead_are_replaced_and_the_authority_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = datetime.now(UTC) + timedelta(days=400)
    with monkeypatch.context() as patch:
        patch.setattr(certificate_folder, "_now", lambda: ahead)
        folder = CertificateFolder(tmp_path / "early")
        folder.create_authority("Barnabas")
        folder.issue("server", ["a"])
        assert folder.is_good("server", ["a"])
    assert not folder.is_good("server", ["a"])
    folder.issue("server", ["a"])
    assert folder.is_good("server", ["a"])
    assert describe(folder.authority.read_bytes()).begins < datetime.now(UTC)


def test_everything_is_its_owners(folder: CertificateFolder) -> None:
    folder.issue("alice")
    folder.write_login("bob", "secret", "a:1")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert [path for path in folder.path.iterdir() if path.stat().st_mode & 0o077] == []


def test_a_private_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    write_private(path, b"old")

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(certificate_folder.os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"


def test_mistakes_are_told(folder: CertificateFolder, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="has an authority already"):
        folder.create_authority("again")
    with pytest.raises(ClientError, match="barnabas tls init"):
        CertificateFolder(tmp_path / "none").issue("a")
    for name in ("", "../x", "ca", "a b", "x" * 65):
        with pytest.raises(ClientError, match="cannot be the name"):
            folder.issue(name)
    with pytest.raises(ClientError, match="no certificate of bob: there are none"):
        folder.renew("bob")
    with pytest.raises(ConfigError, match="cannot name the host"):
        folder.issue("server", ["bücher"])
