"""The metadata store of a cluster on this machine: a ZooKeeper, or the embedded store of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.server.thread import StoreServerThread
from barnabas.broker.metadata.zookeeper.server import ZooKeeperMissingError, ZooKeeperServer
from barnabas.cli.cluster.folder import ClusterFolder, Layout

#: the chroot of a cluster with --secure in its own ZooKeeper
_SECURE_CHROOT = "/barnabas"


class ClusterStore(Protocol):
    """The store that a cluster's brokers share."""

    @property
    def address(self) -> str:
        """The brokers' ``zookeeper.connect``."""

    @property
    def process(self) -> int | None:
        """The id of the process that serves the store; None if the cluster has started none."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def broker_ended(self, broker: int) -> None:
        """Handle the end of a broker's process. A store may end the broker's session."""

    def description(self) -> str:
        """Return one line that describes the store for the user."""


class GivenZooKeeper:
    """A ZooKeeper that the user has named. This process neither starts nor stops it."""

    process = None

    def __init__(self, address: str) -> None:
        self.address = address

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def broker_ended(self, broker: int) -> None: ...

    def description(self) -> str:
        return f"ZooKeeper   {self.address}"


class OwnZooKeeper:
    """A ZooKeeper that runs beside the brokers, with its address in the folder's layout.

    Args:
        folder: folder of the cluster.
        layout: layout of the cluster, which gets the address.
        is_secured: whether the cluster was started with `--secure`.
    """

    def __init__(self, folder: ClusterFolder, layout: Layout, *, is_secured: bool) -> None:
        self._folder = folder
        self._layout = layout
        self._is_secured = is_secured
        self._server: ZooKeeperServer | None = None

    @property
    def address(self) -> str:
        return str(self._layout.zookeeper)

    @property
    def process(self) -> int | None:
        return None if self._server is None else self._server.pid

    def start(self) -> None:
        """Start ZooKeeper. Raises ZooKeeperMissingError without Java or PySpark."""
        # In a secured cluster no node of the brokers lies directly below a node that others can change.
        known = self._layout.zookeeper or f":0{_SECURE_CHROOT if self._is_secured else ''}"
        address, slash, path = known.partition("/")
        server = ZooKeeperServer(self._folder.zookeeper, port=int(address.rpartition(":")[2]))
        try:
            self._server = server.start()
        except ZooKeeperMissingError as error:
            raise ZooKeeperMissingError(f"{error}, or name a ZooKeeper by --zookeeper HOST:PORT") from None
        self._layout.zookeeper = server.address + slash + path

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def broker_ended(self, broker: int) -> None: ...

    def description(self) -> str:
        return f"ZooKeeper   {self.address}, a process of this cluster"


class ServedStore:
    """The embedded store in the folder, which this process serves to the brokers.

    Args:
        folder: folder with the store's files.
        before_new: called without arguments before a new store is created. It may raise an error to prevent
            that.
        on_failure: called with the error, in another thread, when the store fails.
    """

    process = None

    def __init__(
        self,
        folder: ClusterFolder,
        before_new: Callable[[], None],
        on_failure: Callable[[BaseException], object],
    ) -> None:
        self._folder = folder
        self._server = StoreServerThread(folder.log_dirs, before_new=before_new, on_failure=on_failure)
        self._is_open = False

    @property
    def address(self) -> str:
        return self._server.address

    def start(self) -> None:
        """Serve the store.

        Raises:
            StoreUnavailableError: another process uses the store, it is damaged beyond repair, or
                `before_new` refuses a new store.
        """
        self._server.start()
        self._is_open = True

    def stop(self) -> None:
        self._is_open = False
        self._server.stop()

    def broker_ended(self, broker: int) -> None:
        """End the broker's session at once, so that it can register again."""
        if self._is_open:
            self._server.end_owner_of(znodes.broker(broker))

    def description(self) -> str:
        return f"metadata    {', '.join(map(str, self._folder.log_dirs))}"
