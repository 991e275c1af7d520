"""Connects a broker to the other brokers of its cluster, with the addresses in the cluster image."""

from __future__ import annotations

from random import Random

from barnabas.base.environment.environment import Environment
from barnabas.base.types import BrokerId
from barnabas.broker.config import BrokerConfig
from barnabas.broker.interbroker import Address, BrokerClient, ChannelSettings, PeerLogin
from barnabas.broker.metadata import ImageDelta
from barnabas.broker.metadata.bootstrap import NO_USERS, Users, credentials
from barnabas.broker.server.authorization import require_own_access
from barnabas.broker.server.network.endpoint import (
    Endpoint,
    broker_login,
    has_broker_login,
    login_config,
    users_of_listener,
)
from barnabas.broker.server.network.tls import has_trust, peer_context
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.view import BrokerView
from barnabas.kafka.security.acls import Authorizer
from barnabas.kafka.security.principal import ANONYMOUS, Principal
from barnabas.kafka.security.sasl_client import ClientExchange, plain, scram
from barnabas.kafka.security.scram import SALT_BYTES


def open_peers(
    config: BrokerConfig, environment: Environment, listener: Endpoint, view: BrokerView, long_work: LongWork
) -> BrokerClient:
    """Create the client with which this broker sends requests to other brokers.

    On each other broker, the client connects to the listener that has the same name as `listener`.

    Args:
        config: settings with which this broker connects and logs in.
        environment: provides the network and random numbers.
        listener: inter-broker listener of this broker.
        view: image of this broker, which has the addresses of the others.
        long_work: computes SCRAM proofs.

    Raises:
        ConfigError: the listener uses TLS or SASL, and the settings for TLS or SASL are invalid.
    """

    def address_of(broker_id: BrokerId) -> Address | None:
        broker = view.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(listener.name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    # A broker on its own needs nobody's trust, and logs in nowhere.
    is_in_cluster = config.zookeeper_connect is not None or has_trust(config)
    needs_login = config.zookeeper_connect is not None or has_broker_login(config)
    return BrokerClient(
        environment.network,
        address_of,
        client_id=f"broker-{config.node_id}",
        rng=environment.random,
        settings=ChannelSettings(request_timeout=config.request_timeout_ms / 1000),
        tls=peer_context(config) if listener.has_tls and is_in_cluster else None,
        login=_login(config, environment, long_work) if listener.has_sasl and needs_login else None,
    )


def _login(config: BrokerConfig, environment: Environment, long_work: LongWork) -> PeerLogin:
    mechanism = config.sasl_mechanism_inter_broker_protocol
    user, password = broker_login(config)

    def begin() -> ClientExchange:
        if mechanism == "PLAIN":
            return plain(user, password)
        return scram(mechanism, user, password, environment.random.randbytes(24))

    return PeerLogin(mechanism, begin, long_work.run)


async def own_user(config: BrokerConfig, listener: Endpoint, random: Random, long_work: LongWork) -> Users:
    """Return the user with which brokers log in to each other, with its SCRAM credentials.

    The caller must store the user before the first broker logs in. The result is empty in these cases:

    - brokers do not log in by SASL, or the settings have no login for brokers;
    - brokers log in by PLAIN, and this user is one of the users in the listener's settings.

    Args:
        config: settings of this broker.
        listener: listener to which the brokers connect.
        random: makes the salt of the credentials.
        long_work: computes the credentials.
    """
    login = login_config(config, listener.name)
    if not listener.has_sasl or not has_broker_login(login):
        return NO_USERS
    user, password = broker_login(login)
    if login.sasl_mechanism_inter_broker_protocol == "PLAIN" and user in users_of_listener(
        config, listener.name
    ):
        return NO_USERS
    return {user: await long_work.run(credentials, password, random.randbytes(SALT_BYTES))}


def require_access_of_brokers(
    config: BrokerConfig, authorizer: Authorizer | None, listener: Endpoint
) -> None:
    """Check that this broker may send requests to other brokers at `listener`.

    Do nothing if `authorizer` is None, because there are no ACLs then.

    Raises:
        ConfigError: the broker's principal lacks CLUSTER_ACTION on the cluster.
    """
    login = login_config(config, listener.name)
    if login.zookeeper_connect is not None or has_broker_login(login):
        user = Principal(broker_login(login)[0]) if listener.has_sasl else ANONYMOUS
        require_own_access(authorizer, user, listener.host)


def forget_gone(peers: BrokerClient, delta: ImageDelta) -> None:
    """Close the channels to brokers that, in `delta`, have left the cluster or have registered again."""
    if delta.brokers:
        for broker in delta.before.brokers.values():
            now = delta.after.brokers.get(broker.id)
            if now is None or now.epoch != broker.epoch:
                peers.forget(broker.id)
