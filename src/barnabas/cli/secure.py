"""Creates the files of `--secure` once: an authority, the broker's certificate, an admin with a password."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ConfigError
from barnabas.base.settings_file import read_unchecked
from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.files import read_settings
from barnabas.broker.metadata import open_store, znodes
from barnabas.broker.metadata.bootstrap import Users, add_missing_users, credentials
from barnabas.broker.metadata.store import MetadataStore, NotAllowedError
from barnabas.broker.metadata.zookeeper.address import parse_address
from barnabas.broker.server.network.endpoint import advertised_endpoints, bound_endpoints
from barnabas.cli.secured_data import is_of_secured_data
from barnabas.client.certificate_folder import SCRAM, CertificateFolder, escaped
from barnabas.client.properties import translate
from barnabas.client.servers import Servers
from barnabas.kafka.security.scram import Mechanism, ScramCredential, derive

#: the user who may do everything
ADMIN = "admin"
_SERVER = "server"
#: seconds that ZooKeeper has to answer
_PATIENCE = 18.0
#: the user as whom the brokers of a cluster log in to each other
_BROKER = "broker"
#: hosts of this machine: clients on it can use them, whatever address the broker advertises
_HERE = ("localhost", "127.0.0.1", "::1")
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Secured:
    """The folder with the files of `--secure`, and the admin's password.

    `password` is the password in the admin's client settings in this folder. If the folder has no such file,
    it is a new random password.
    """

    def __init__(self, folder: CertificateFolder) -> None:
        self.folder = folder
        self.password = _password_in(folder.properties(ADMIN)) or secrets.token_urlsafe(18)

    @property
    def users(self) -> Users:
        """The users that the cluster must know. Takes tens of milliseconds."""
        return {ADMIN: credentials(self.password, secrets.token_bytes(24))}

    def announce(self, servers: str) -> str:
        """Write the admin's client settings, with `servers` (``host:port,...``) as the brokers to connect to.

        Return two lines for the user: who may access the cluster, and a command that logs in as the admin.
        """
        file = self.folder.write_login(ADMIN, self.password, servers)
        command = f"barnabas topics list --config {shlex.quote(str(file))}"
        rule = f"TLS, a login, and nobody but {ADMIN} may do anything until an ACL says so"
        return f"  secured     {rule}\n  try         {command}"

    def login_options(self, servers: str) -> Sequence[str]:
        """Write the admin's client settings, with `servers` (``host:port,...``) as the brokers to connect to.

        Return the options with which a `barnabas` command uses these settings.
        """
        return ["--config", str(self.folder.write_login(ADMIN, self.password, servers))]

    def servers(self, address: str) -> Servers:
        """Return the broker at `address`, with the admin's login.

        `announce` or `login_options` must have written the admin's settings before.
        """
        return Servers(address, translate(read_unchecked(self.folder.properties(ADMIN))).settings)


def secure(values: dict[str, str]) -> Secured:
    """Set a secured broker's settings in `values`, and create the files that they name if they are missing.

    Return the folder of these files, and the admin's password.

    Raises:
        ConfigError: a setting contradicts `--secure`, or the folder cannot be used.
    """
    _refuse_own(values)
    values["authorizer.class.name"] = _AUTHORIZER
    values["super.users"] = ";".join(filter(None, (values.get("super.users"), f"User:{ADMIN}")))
    config = BrokerConfig.from_text(values)
    bound = bound_endpoints(config)
    advertised = advertised_endpoints(config, bound, Environment.of_system().network.machine_name)
    hosts = (*(each.host for each in (*advertised, *bound) if not each.is_every_interface), *_HERE)
    folder = CertificateFolder(Path(config.log_dirs[0]) / "secure")
    make_certificate(folder, tuple(dict.fromkeys(hosts)))
    values["ssl.keystore.location"] = str(folder.pem(_SERVER))
    values.setdefault("barnabas.audit.file", str(folder.path / "audit.log"))
    return Secured(folder)


def _refuse_own(values: Mapping[str, str]) -> None:
    for name in ("ssl.keystore.location", "authorizer.class.name"):
        if name in values:
            raise ConfigError(f"--secure sets {name} itself: remove it, or --secure")


class SecuredCluster(Secured):
    """The files and the admin of a cluster, whose brokers also log in to each other and to ZooKeeper.

    Args:
        folder: the folder for these files.
        data: the log directory of the first broker.
        hosts: hosts for the certificate.
    """

    def __init__(self, folder: CertificateFolder, data: Path, hosts: tuple[str, ...]) -> None:
        super().__init__(folder)
        self._data = data
        self._hosts = hosts
        before = read_unchecked(self.settings_file) if self.settings_file.exists() else {}
        self._jaas = before.get("sasl.jaas.config") or (
            f'{SCRAM} required username="{_BROKER}" password="{secrets.token_urlsafe(18)}";'
        )
        self._digest = before.get("zookeeper.digest") or f"{_BROKER}:{secrets.token_urlsafe(18)}"

    @property
    def settings_file(self) -> Path:
        """Path of the file with the settings of every broker. It has secrets."""
        return self.folder.properties(_SERVER)

    def _create_files(self) -> None:
        """Write the settings of the brokers, and create the certificates if they are missing."""
        make_certificate(self.folder, self._hosts)
        settings = {
            "authorizer.class.name": _AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{_BROKER}",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.jaas.config": self._jaas,
            "ssl.keystore.location": escaped(self.folder.pem(_SERVER)),
            "ssl.truststore.location": escaped(self.folder.authority),
            "zookeeper.digest": self._digest,
            "zookeeper.set.acl": "true",
        }
        self.folder.write_properties(_SERVER, [f"{name}={value}" for name, value in settings.items()])

    def settings_with(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the secured settings of a broker, with `values`, which override them.

        The result has the super users of `values` and of `--secure`.

        Raises:
            ConfigError: `values` contradict `--secure`.
        """
        own = read_settings(self.settings_file)
        _refuse_own(values)
        super_users = ";".join(filter(None, (own["super.users"], values.get("super.users"))))
        own.setdefault("barnabas.audit.file", str(self.folder.path / "audit.log"))
        return {**own, **values, "super.users": super_users}

    def protect(self, address: str, *, is_own: bool, is_new: bool) -> str:
        """Create the files, and let only the cluster's brokers change the cluster's nodes in ZooKeeper.

        A start that this method refuses leaves no files that the next start must use. The embedded store
        needs no more protection than its socket has.

        Args:
            address: address of the metadata store, with the chroot.
            is_own: whether only this cluster uses the ZooKeeper.
            is_new: whether the cluster does not exist yet.

        Returns:
            A warning for the user; empty if there is none.

        Raises:
            ConfigError: the cluster has a user with the name of the brokers' user, but another password.
                Or the cluster is new, has no chroot, and any client can change the root node of ZooKeeper.
                Or the nodes belong to another ZooKeeper identity. Or the folder cannot be used.
            StoreError: the store does not answer.
        """
        where = parse_address(address)

        async def protect() -> str:
            from barnabas.broker.metadata.zookeeper.store import (
                ZooKeeperStore,  # imports kazoo, which takes a while
            )

            auth = [("digest", self._digest)]
            store = await ZooKeeperStore.open(where, session_timeout=_PATIENCE, set_acl=True, auth=auth)
            try:
                await self._reject_user(store)
                is_embedded = where.socket_path is not None
                is_safe = is_embedded or is_own or where.chroot or not await store.is_root_open()
                danger = f"anybody may change / of the ZooKeeper at {address}, and with it this cluster"
                if is_new and not is_safe:
                    raise ConfigError(
                        f"{danger}: give the cluster a node of its own, by --zookeeper {address}/barnabas"
                    )
                self._create_files()  # before nodes belong to an identity that only these files have
                if is_safe:
                    if not is_embedded:
                        await store.close_off(parents=is_own)
                    return ""
                identity = f"zookeeper.digest in {self.settings_file}"
                return f"{danger}: let only the identity {identity} change that node"
            except NotAllowedError as error:
                raise ConfigError(
                    f"the ZooKeeper at {address} cannot be closed to others ({error}): that node is of an "
                    f"identity other than zookeeper.digest in {self.settings_file}; choose another node "
                    "there by --zookeeper, or another folder by --data"
                ) from error
            finally:
                await store.close()

        return asyncio.run(protect())

    def add_admin(self, zookeeper: str) -> None:
        """Make the admin known to the cluster before its brokers start.

        Raises:
            ConfigError: the cluster has a user with the name of the brokers' user, but another password.
            StoreError: ZooKeeper does not answer, or refuses the change.
        """
        values = {"zookeeper.connect": zookeeper, "log.dirs": str(self._data)}
        given = read_settings(self.settings_file)
        names = ("zookeeper.digest", "zookeeper.set.acl")
        config = BrokerConfig.from_text(values | {name: given[name] for name in names})

        async def add() -> None:
            store = await open_store(config, Environment.of_system())
            try:
                # until the nodes were closed, any client of ZooKeeper could create this user
                await self._reject_user(store)
                await add_missing_users(store, self.users)
            finally:
                await store.close()

        asyncio.run(add())

    async def _reject_user(self, store: MetadataStore) -> None:
        """Raise ConfigError if a client's user has the name of the brokers' user.

        The brokers could not log in to each other, and the client would get the rights of a super user.
        """
        node = await store.exists(znodes.user_config(_BROKER))
        texts = {} if node is None else znodes.decode_config(node.data)
        password = _password_in(self.settings_file)
        is_secured = is_of_secured_data(self.folder.path)
        hint = "start the broker alone, with --secure" if is_secured else "start without --secure"
        if password:
            changed = "if you have changed the brokers' password, write it into sasl.jaas.config in "
            hint = f"{changed}{self.settings_file}; otherwise {hint}"
        for mechanism in Mechanism:
            if mechanism.text in texts:
                stored = ScramCredential.decode(texts[mechanism.text])
                if derive(mechanism, password, stored.salt, stored.iterations) != stored:
                    raise ConfigError(
                        f"with --secure, brokers log in to each other as the user {_BROKER}, but this "
                        f"cluster has a user {_BROKER} with another password: {hint}, run `barnabas users "
                        f"delete {_BROKER}`, and give that user's client another name"
                    )


def secure_cluster(
    folder: Path, addresses: Iterable[str], data: Path, values: Mapping[str, str]
) -> SecuredCluster:
    """Return what `--secure` needs for brokers at some addresses (``host:port``). Create no files yet.

    Args:
        folder: the folder for the files.
        data: the log directory of the first broker.
        values: the brokers' settings, without those of `--secure`.

    Raises:
        ConfigError: `values` contradict `--secure`.
    """
    _refuse_own(values)
    hosts = (address.rpartition(":")[0].strip("[]") for address in addresses)
    return SecuredCluster(CertificateFolder(folder), data, tuple(dict.fromkeys((*hosts, *_HERE))))


def make_certificate(folder: CertificateFolder, hosts: tuple[str, ...]) -> None:
    """Create the authority, if there is none, and a certificate for `hosts`.

    An existing certificate stays if it contains all of `hosts` and does not expire soon.

    Raises:
        ConfigError: the folder cannot be used.
    """
    try:
        if not folder.has_authority:
            folder.create_authority("Barnabas")
        if not folder.is_good(_SERVER, hosts):
            folder.issue(_SERVER, hosts)
    except OSError as error:
        raise ConfigError(f"{folder.path} cannot be used: {error.strerror}") from error


def _password_in(file: Path) -> str:
    """Return the password in a file of client settings; empty if there is none."""
    if not file.exists():
        return ""
    return translate(read_unchecked(file)).settings.get("sasl.password", "")
