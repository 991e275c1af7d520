"""The value of ``zookeeper.connect``: the servers, and the node under which the cluster's nodes are."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.base.errors import ConfigError

DEFAULT_PORT = 2181
_FORM = "write HOST:PORT,HOST:PORT/chroot, for example zk1:2181,zk2:2181/prod"


#: before the path of the socket of `barnabas.broker.metadata.server`
_UNIX = "unix:"


class ZooKeeperAddress(NamedTuple):
    """The servers as ``host:port``, with IPv6 addresses in brackets. `chroot` is empty or a path (``/prod``).

    A server at a Unix socket is ``unix:/path``. It is the only server, and has no chroot.
    """

    servers: tuple[str, ...]
    chroot: str = ""

    @property
    def socket_path(self) -> str | None:
        """Return the path of the server's Unix socket; None for TCP servers."""
        return self.servers[0].removeprefix(_UNIX) if self.servers[0].startswith(_UNIX) else None

    def __str__(self) -> str:
        return ",".join(self.servers) + self.chroot


def unix_address(socket_path: str) -> str:
    """Return the value of ``zookeeper.connect`` for a server at a Unix socket."""
    return _UNIX + socket_path


def parse_address(text: str, name: str = "zookeeper.connect") -> ZooKeeperAddress:
    """Parse the value of ``zookeeper.connect``, or of the option `name`.

    Raises:
        ConfigError: it is not of the form ``host:port,host:port/chroot``, or ``unix:/path``.
    """
    if text.strip().startswith(_UNIX):
        if not text.strip().removeprefix(_UNIX).startswith("/"):
            raise ConfigError(f"{name}={text!r} has no absolute path after {_UNIX}")
        return ZooKeeperAddress((text.strip(),))
    servers, slash, path = text.strip().partition("/")
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        raise ConfigError(f"{name}={text!r} has no valid path after its servers: {_FORM}")
    return ZooKeeperAddress(
        tuple(_server(server.strip(), text, name) for server in servers.split(",")),
        slash + "/".join(parts) if parts else "",
    )


def _server(server: str, text: str, name: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):  # without a port; [::1] ends in its own colons
        host, port = server, str(DEFAULT_PORT)
    bare = host.strip("[]")
    if not bare or not bare.isprintable() or " " in bare or (":" in bare and not host.startswith("[")):
        raise ConfigError(f"{name}={text!r} has no valid host in {server!r}: {_FORM}")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"{name}={text!r} has no valid port in {server!r}: {_FORM}")
    return f"{host}:{port}"
