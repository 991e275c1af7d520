"""TLS in front of a broker: it ends here, and what is inside goes on to the broker as it is."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate that signs itself and its key, for 127.0.0.1."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    to = [
        "-subj",
        f"/CN={name}",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    subprocess.run(["openssl", "req", "-x509", *curve, *to], check=True, capture_output=True)
    return certificate, key


class TlsProxy:
    """Takes connections on a port of its own, from clients that show a certificate `trusted` has signed."""

    def __init__(self, certificate: tuple[Path, Path], trusted: Path) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        self._context.load_verify_locations(trusted)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._open: list[socket.socket] = []
        self.served = 0

    @contextlib.contextmanager
    def serving(self, target: str) -> Iterator[None]:
        """Pass on to `target` (``host:port``) until the block ends."""
        accepting = threading.Thread(target=self._accept, args=(target,))
        accepting.start()
        try:
            yield
        finally:
            for each in (self._listener, *self._open):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            accepting.join()

    def _accept(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            try:
                client = self._context.wrap_socket(plain, server_side=True)
            except (ssl.SSLError, OSError):  # one that is not trusted
                plain.close()
                continue
            self.served += 1
            broker = socket.create_connection((host, int(port)))
            self._open += [client, broker]
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
