"""Hosts in network namespaces. Packets from one host to another can be dropped.

Each host has a namespace with one interface. A router in a separate namespace connects all hosts and the
machine's own namespace. The router drops packets without an answer, as a broken network does. So no
connection is refused or closed, and TCP sends the packets again afterwards. It needs root, ``ip`` and
``nsenter``.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

#: of the machine's own namespace, where the clients run
HERE = 253
_ROUTER = 254
#: packets that the router drops meet its rules first
_BEFORE_ALL = "100"

#: a host that sends, and the one that would receive
Way = tuple[int, int]


class NoNetworkError(Exception):
    """The system does not allow network namespaces; the text is the reason, in one line."""


class Network:
    """A network of `hosts` (numbers of 1 to 252) and of the machine itself (`HERE`).

    Raises:
        NoNetworkError: this system or user cannot create the namespaces.
    """

    def __init__(self, hosts: Sequence[int]) -> None:
        self._hosts = tuple(hosts)
        self._prefix = f"soak{os.getpid()}"
        self._near = f"{self._prefix}h"  # the interface of each host
        self._subnet, self._claim = _claimed_subnet()
        self._cuts: Counter[Way] = Counter()
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NoNetworkError(getattr(error, "stderr", "") or str(error)) from error

    def address(self, host: int) -> str:
        """Return the IP address of a host."""
        return f"{self._subnet}.{host}"

    def launcher(self, host: int) -> list[str]:
        """Return the beginning of a command line that runs the rest of the line on the host, in the same
        process.
        """
        return ["nsenter", f"--net=/run/netns/{self._name(host)}"]

    def cut(self, ways: Iterable[Way]) -> None:
        """Drop every packet from the first host to the second host of each pair.

        If two faults cut the same pair, both must heal it before packets pass again.
        """
        for way in ways:
            if not self._cuts[way]:
                self._rule("add", way)
            self._cuts[way] += 1

    def heal(self, ways: Iterable[Way]) -> None:
        for way in ways:
            self._cuts[way] -= 1
            if not self._cuts[way]:
                self._rule("del", way)

    def is_cut(self, host: int) -> bool:
        """Return whether packets from or to the host are dropped."""
        return any(count and host in way for way, count in self._cuts.items())

    def close(self) -> None:
        """Remove the network. The processes on its hosts must have ended."""
        subprocess.run(["ip", "link", "del", self._near], capture_output=True, check=False)
        for host in (_ROUTER, *self._hosts):
            subprocess.run(["ip", "netns", "del", self._name(host)], capture_output=True, check=False)
        self._claim.close()

    def _name(self, host: int) -> str:
        return f"{self._prefix}-{host}"

    def _make(self) -> None:
        _run("ip", "netns", "add", self._name(_ROUTER))
        self._on_router("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for host in self._hosts:
            _run("ip", "netns", "add", self._name(host))
            _run(*self.launcher(host), "ip", "link", "set", "lo", "up")
            self._join(host, self._name(host), self.launcher(host))
        self._join(HERE, "", [])

    def _join(self, host: int, namespace: str, launcher: Sequence[str]) -> None:
        """Connect a host to the router."""
        near, far = self._near, f"r{host}"
        place = ["netns", namespace] if namespace else []
        _run(
            "ip",
            "link",
            "add",
            near,
            *place,
            "type",
            "veth",
            "peer",
            "name",
            far,
            "netns",
            self._name(_ROUTER),
        )
        address, router = self.address(host), self.address(_ROUTER)
        for command in (
            f"ip addr add {address}/32 dev {near}",
            f"ip link set {near} up",
            f"ip route add {router}/32 dev {near}",
        ):
            _run(*launcher, *command.split())
        for command in (
            f"ip link set {far} up",
            f"ip addr add {router}/32 dev {far}",
            f"ip route add {address}/32 dev {far}",
        ):
            self._on_router(*command.split())
        _run(*launcher, "ip", "route", "add", f"{self._subnet}.0/24", "via", router, "src", address)

    def _rule(self, action: str, way: Way) -> None:
        source, target = map(self.address, way)
        self._on_router(
            "ip", "rule", action, "from", source, "to", target, "priority", _BEFORE_ALL, "blackhole"
        )

    def _on_router(self, *command: str) -> None:
        _run(*self.launcher(_ROUTER), *command)


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True)


def _claimed_subnet() -> tuple[str, socket.socket]:
    """Return the first three numbers of an unused subnet, and a socket that claims it until it is closed.

    Other networks are made on this machine at the same time, and their routes come after their claims. A
    killed process leaves routes without a claim.
    """
    try:
        routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoNetworkError(str(error)) from error
    for subnet in _subnets():
        if f"{subnet}." not in routes:
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0barnabas-soak-{subnet}")  # as routes do, it holds in this network namespace
            except OSError:
                claim.close()
            else:
                return subnet, claim
    raise NoNetworkError("every subnet is in use")


def _subnets() -> Iterator[str]:
    return (f"10.213.{number}" for number in range(1, 255))
