"""Finds facts about this machine: its name for clients, and the process that uses a port."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

#: an address for documentation (RFC 5737): its route is looked up, nothing is sent
_ELSEWHERE = ("192.0.2.1", 9)


def machine_name() -> str:
    """Return a name or an IP address by which clients can find this machine.

    - If the host name resolves to an address of this machine, return the canonical host name, as in Apache
      Kafka. If there is none, or if it starts with ``localhost``, return the host name.
    - In all other cases, return an address of this machine, or ``127.0.0.1`` without a network.

    The call blocks while the system resolves the host name.
    """
    name = socket.gethostname()
    with contextlib.suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
        canonical = found[0][3]
        if any(_is_ours(family, address[0]) for family, _, _, _, address in found):
            return name if not canonical or canonical.startswith("localhost") else canonical
    return _address()


def port_owner(port: int) -> str | None:
    """Return the process that listens on a TCP port, as ``process 42 (java)``.

    Return None if no process is found. This works only on Linux. A user other than root sees only processes
    of the same user.
    """
    with contextlib.suppress(OSError, ValueError):
        sockets = {f"socket:[{inode}]" for inode in _listening(port)}
        for process in Path("/proc").iterdir():
            if sockets and process.name.isdecimal() and _has_open(process, sockets):
                command = (process / "comm").read_text("utf-8", "replace").strip()
                return f"process {process.name} ({command})"
    return None


def _is_ours(family: int, host: object) -> bool:
    """Whether an address belongs to this machine. Tries to bind it: the system refuses other addresses."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return True
    return False


def _address() -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _listening(port: int) -> set[int]:
    """Return the inodes of the sockets that listen on a port, on Linux."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(int(fields[9]))
    return inodes


def _has_open(process: Path, names: set[str]) -> bool:
    with contextlib.suppress(OSError):
        return any(str(entry.readlink()) in names for entry in (process / "fd").iterdir())
    return False
