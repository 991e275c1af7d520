"""How a broker reaches the others of its cluster: by the addresses in its image."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.environment.environment import Environment
from barnabas.base.types import BrokerId
from barnabas.broker.config import BrokerConfig
from barnabas.broker.interbroker import Address, BrokerClient, ChannelSettings, PeerLogin
from barnabas.broker.metadata import ClusterImage, ImageDelta
from barnabas.broker.server.network.endpoint import Endpoint, broker_login, has_broker_login
from barnabas.broker.server.network.tls import has_trust, peer_context
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.security.sasl_client import ClientExchange, plain, scram


def open_peers(
    config: BrokerConfig,
    environment: Environment,
    listener: Endpoint,
    image: Callable[[], ClusterImage],
    long_work: LongWork,
) -> BrokerClient:
    """The channels to the other brokers, by their listeners of the same name as this broker's `listener`.

    Raises:
        ConfigError: it speaks TLS or SASL, and the settings for that are wrong.
    """

    def address_of(broker_id: BrokerId) -> Address | None:
        broker = image().brokers.get(broker_id)
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


def forget_gone(peers: BrokerClient, delta: ImageDelta) -> None:
    """Close the channels to brokers that have left, or have registered again since."""
    if delta.brokers:
        for broker in delta.before.brokers.values():
            now = delta.after.brokers.get(broker.id)
            if now is None or now.epoch != broker.epoch:
                peers.forget(broker.id)
