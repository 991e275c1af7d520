"""A real ZooKeeper server beside the brokers, from the jars of PySpark, for development and tests.

It is a single server on the loopback interface, or one of an ensemble (`Member`). It has a small heap, and
its log is in its folder. If it is started again in the same folder, it still has its data.

    folder/zoo.cfg, log4j2.properties    written at each start
    folder/zookeeper.log                 the server's log; zookeeper.out has its other output
    folder/data/                         transactions and snapshots; for a member its number (myid), too
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import pip_install
from barnabas.base.system import processes
from barnabas.base.system.sockets import claim_alone

#: the jars of PySpark that ZooKeeper needs: ZooKeeper, its log, its metrics, and snappy for snapshots
JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
    "metrics-core",
    "snappy-java",
)
#: further jars that ZooKeeper needs for TLS
TLS_JARS = (
    "netty-buffer",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_HINT = f"install Java 17 or newer, and PySpark with {pip_install('spark', quote='`')}"
#: starts quickly, and stays small
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")
#: kilobytes by which a file of transactions grows; 64 MB if nothing is set
_GROWTH = 1024
_LOG_CONFIG = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/zookeeper.log
appender.file.filePattern = {folder}/zookeeper.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


class ZooKeeperMissingError(BarnabasError):
    """A ZooKeeper cannot be run here: Java or PySpark's jars are missing. The text says what to install."""


class ZooKeeperStartError(BarnabasError):
    """ZooKeeper did not start."""


@dataclass(frozen=True)
class Member:
    """One server of an ensemble, on its own host.

    Attributes:
        number: its ``myid``.
        hosts: addresses of all members by number. Each host needs free ports 2888 and 3888.
        launcher: start of a command line that runs the rest of the line on this member's host, for example
            ``["ip", "netns", "exec", "host1"]``. Empty: the server runs without such a command.
    """

    number: int
    hosts: Mapping[int, str]
    launcher: Sequence[str] = ()

    @property
    def host(self) -> str:
        return self.hosts[self.number]


class ZooKeeperServer:
    """A ZooKeeper server that this process starts (`start`) and ends (`stop`).

    As a context manager, it starts at the beginning of the ``with`` block and ends at the end of the block.

    Args:
        folder: folder for its files; it is created if it is missing.
        port: port on the loopback interface; 0 chooses a free one, which then stays the same.
        heap_mb: largest Java heap, in megabytes.
        tick: ZooKeeper's ``tickTime``, in seconds. Sessions end only at ticks, and live for at least two
            ticks.
        fsync: if False, a power failure may lose acknowledged writes; tests are faster.
        tls: PEM file with a key and its certificate, with which the server also listens at `tls_address`.
        client_authority: PEM file of the authority that has signed the certificates of TLS clients; None
            requires no certificates of clients.
        environment: environment variables of the server's process; None for those of this process.
        member: the server's part in an ensemble, which requires `port`; None for a single server.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        port: int = 0,
        heap_mb: int = 256,
        tick: float = 0.5,
        fsync: bool = True,
        tls: Path | None = None,
        client_authority: Path | None = None,
        environment: Mapping[str, str] | None = None,
        member: Member | None = None,
    ) -> None:
        self._environment = environment
        self._member = member
        self._host = "127.0.0.1" if member is None else member.host
        self._tls, self._client_authority = tls, client_authority
        self._tls_port = 0
        self._folder = Path(folder).absolute()
        self._port = port
        self._heap_mb = heap_mb
        self._tick_ms = max(1, round(tick * 1000))
        self._fsync = fsync
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return ``host:port``, as in ``zookeeper.connect``."""
        return f"{self._host}:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def tls_address(self) -> str:
        """The server's address for TLS."""
        return f"{self._host}:{self._tls_port}"

    @property
    def pid(self) -> int | None:
        """The server's process id; None if the server does not run."""
        return None if self._process is None else self._process.pid

    def start(self, timeout: float = 60.0) -> Self:
        """Start the server, and wait until it serves. Do nothing if it runs already.

        Raises:
            ZooKeeperMissingError: Java or PySpark is not installed.
            ZooKeeperStartError: the port is in use, the server ended, or it did not serve within `timeout`
                seconds.
        """
        if self._process is not None:
            return self
        if self._member is None:
            self._port = _free_port(self._port)
        if self._tls is not None:
            self._tls_port = _free_port(self._tls_port)
        with nullcontext() if self._member is not None else _kept(self._port):
            self.begin()
            try:
                self.wait_ready(timeout)
            except BaseException:
                self.kill()
                raise
        return self

    def begin(self) -> None:
        """Start the server, and do not wait until it serves (see `wait_ready`).

        A member of an ensemble serves only when most members run.

        Raises:
            ZooKeeperMissingError: Java or PySpark is not installed.
        """
        command = self._command()
        self._write_configuration()
        with (self._folder / "zookeeper.out").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                **processes.own_group(),
            )

    def stop(self) -> None:
        """Stop the server cleanly, if it runs; kill it if it has not ended after 10 seconds.

        Sessions of clients end at their timeout, not now.
        """
        process, self._process = self._process, None
        if process is None:
            return
        processes.ask_to_stop(process)
        _continue(process)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kill the server's process (SIGKILL), to test a crash. Do nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Suspend the server's process (SIGSTOP), and wait until it stands still. Connections stay open.

        Raises:
            RuntimeError: the server does not run.
        """
        if self._process is None:
            raise RuntimeError("the ZooKeeper server does not run")
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let the server's process continue after `pause`. Raises RuntimeError if the server does not run."""
        if self._process is None:
            raise RuntimeError("the ZooKeeper server does not run")
        _continue(self._process)

    def ask(self, word: str, timeout: float = 5.0) -> str:
        """Return the response to a four-letter command. The server permits only ``ruok`` and ``srvr``.

        `timeout` is in seconds.

        Raises:
            OSError: the server does not answer.
        """
        with socket.create_connection((self._host, self._port), timeout) as connection:
            connection.sendall(word.encode())
            parts = []
            while part := connection.recv(4096):
                parts.append(part)
        return b"".join(parts).decode()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        return [
            *(self._member.launcher if self._member is not None else ()),
            java(),
            f"-Xmx{self._heap_mb}m",
            *_JAVA_OPTIONS,
            f"-Dzookeeper.preAllocSize={_GROWTH}",
            f"-Dzookeeper.forceSync={'yes' if self._fsync else 'no'}",
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, jars(*(TLS_JARS if self._tls is not None else ())))),
            _MAIN,
            str(self._folder / "zoo.cfg"),
        ]

    def _write_configuration(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)  # passwords lie there, salted and hashed
        (self._folder / "data").mkdir(exist_ok=True)
        (self._folder / "log4j2.properties").write_text(_LOG_CONFIG.format(folder=self._folder.as_posix()))
        settings = {
            "dataDir": (self._folder / "data").as_posix(),
            "clientPort": self._port,
            "clientPortAddress": self._host,
            "tickTime": self._tick_ms,
            "minSessionTimeout": 2 * self._tick_ms,
            "maxSessionTimeout": 3_600_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        if self._tls is not None:
            settings |= {
                "secureClientPort": self._tls_port,
                "secureClientPortAddress": self._host,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": self._tls.as_posix(),
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": (self._client_authority or self._tls).as_posix(),
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "need" if self._client_authority is not None else "none",
                "ssl.hostnameVerification": "false",  # of clients
            }
        if self._member is not None:
            hosts = self._member.hosts.items()
            settings |= {f"server.{number}": f"{host}:2888:3888" for number, host in hosts}
            settings |= {"initLimit": 10, "syncLimit": 5}  # ticks
            (self._folder / "data" / "myid").write_text(f"{self._member.number}\n")
        lines = (f"{name}={value}\n" for name, value in settings.items())
        (self._folder / "zoo.cfg").write_text("".join(lines))

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until the server, started by `begin`, serves.

        Raises:
            ZooKeeperStartError: the server ended, or did not serve within `timeout` seconds.
            RuntimeError: the server was not started.
        """
        process, deadline = self._process, time.monotonic() + timeout
        if process is None:
            raise RuntimeError("the ZooKeeper server does not run")
        while True:
            try:
                if "Mode:" in self.ask("srvr", 1.0):
                    return
            except OSError:
                pass  # it does not listen yet
            try:
                code = process.wait(0.02)  # and no busy loop meanwhile
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                reason = "did not get ready in time"
            else:
                reason = f"ended with {code}"
            raise ZooKeeperStartError(f"ZooKeeper at {self.address} {reason}: {self._last_words()}")

    def _last_words(self) -> str:
        for name in ("zookeeper.out", "zookeeper.log"):
            path = self._folder / name
            lines = path.read_text(errors="replace").splitlines() if path.exists() else []
            if lines:
                causes = [line for line in lines if "Exception" in line] or lines
                return f"{causes[-1].strip()} (all of it is in {path})"
        return f"{self._folder} has no log of it"


def java() -> str:
    """Return the path of Java, from JAVA_HOME or PATH.

    Raises:
        ZooKeeperMissingError: Java is not installed.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise ZooKeeperMissingError(f"a ZooKeeper needs Java, and there is none: {_HINT}")
    return found


def jars(*more: str) -> list[Path]:
    """Return the paths of the jars that ZooKeeper needs, from PySpark's folder of jars.

    `more` are names of further jars, without version and ending, for example ``netty-handler``.

    Raises:
        ZooKeeperMissingError: PySpark is not installed, or does not contain ZooKeeper.
    """
    spec = importlib.util.find_spec("pyspark")
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    found: list[Path] = []
    for name in (*JARS, *more):
        matches = [path for folder in folders for path in Path(folder, "jars").glob(f"{name}-[0-9]*.jar")]
        if not matches:
            raise ZooKeeperMissingError(f"a ZooKeeper needs {name}.jar, which comes with PySpark: {_HINT}")
        found.append(max(matches))
    return found


def _free_port(port: int) -> int:
    """Return `port`; for 0, a free port. Raises ZooKeeperStartError if another process uses the port.

    That process could be another ZooKeeper, which would answer in place of this one.
    """
    try:
        with socket.create_server(("127.0.0.1", port)) as probe:
            free: int = probe.getsockname()[1]
    except OSError as error:
        raise ZooKeeperStartError(
            f"ZooKeeper cannot listen on 127.0.0.1:{port} ({error.strerror}): choose another port, or stop "
            "what has it"
        ) from error
    return free


@contextmanager
def _kept(port: int) -> Iterator[None]:
    """Reserve the port against other processes during the start of Java, which takes seconds.

    On Linux, this process binds a socket to the port, and does not listen. This socket and the server's
    socket have SO_REUSEADDR, so Linux still lets the server listen on the port. On other systems, the port is
    not reserved.
    """
    with socket.socket() as held:
        if sys.platform == "linux":
            claim_alone(held)
            held.bind(("127.0.0.1", port))
        yield


def _continue(process: subprocess.Popen[bytes]) -> None:
    if hasattr(signal, "SIGCONT"):
        process.send_signal(signal.SIGCONT)
