"""The key and certificates of a registry that serves HTTPS. A changed file is loaded without a restart."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from barnabas.base.errors import ConfigError

logger = logging.getLogger(__name__)

#: seconds between two checks of the file
CHECK_S = 5.0


class TlsFile:
    """A PEM file with a private key and certificates. `context` is a TLS context with its present contents.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(self.context, path)
        self._seen = Path(path).read_bytes()

    async def keep_fresh(self) -> None:
        """Until the task is cancelled, check the file every `CHECK_S` seconds, and reload a changed file."""
        while True:
            await asyncio.sleep(CHECK_S)
            await asyncio.to_thread(self.check)

    def check(self) -> None:
        """Reload the file if it has changed. New connections use the new key, and open connections continue.

        If the file cannot be used, keep the old key and log an error.
        """
        try:
            found = Path(self._path).read_bytes()
            if found == self._seen:
                return
            self._seen = found
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._path)  # it may be half written
            _load(self.context, self._path)
        except (OSError, ConfigError) as error:
            logger.error("cannot read the registry's new key, so it keeps the present one: %s", error)
        else:
            logger.info("the registry uses a new certificate from now on")


def _load(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_cert_chain(path, password=lambda: "")  # else OpenSSL would ask for one on the terminal
    except ssl.SSLError as error:
        raise ConfigError(
            f"--tls {path} cannot be used ({error.reason or error}): it must be a PEM file with a private "
            "key that is not encrypted, followed by its certificate"
        ) from None
    except OSError as error:
        raise ConfigError(f"--tls {path} cannot be read: {error.strerror}") from None
