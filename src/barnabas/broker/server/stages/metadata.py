"""Second stage: opens the metadata store, the cluster image, and the channels to the other brokers."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.broker.interbroker import BrokerClient
from barnabas.broker.metadata import ClusterImage, ImageDelta, MetadataLoader, MetadataStore, open_store
from barnabas.broker.metadata.bootstrap import Users, add_missing_users
from barnabas.broker.metadata.store import SessionState
from barnabas.broker.server.failure import Failure
from barnabas.broker.server.forwarding import Forwarding
from barnabas.broker.server.network.endpoint import login_config
from barnabas.broker.server.peers import forget_gone, open_peers, own_user, require_access_of_brokers
from barnabas.broker.server.stages.binding import Binding
from barnabas.broker.server.stages.closing import Closing, stage
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.broker.server.to_controller import OwnRequests, ToController


@dataclass(frozen=True, slots=True)
class Metadata:
    """The parts of the second stage: the metadata store and its loader, and channels to other brokers."""

    store: MetadataStore
    loader: MetadataLoader
    peers: BrokerClient
    #: the requests of this broker to itself
    own_requests: OwnRequests
    to_controller: ToController
    forwarding: Forwarding


@stage
async def open_metadata(
    closing: Closing, foundation: Foundation, binding: Binding, first_users: Users
) -> Metadata:
    """Open the metadata store, read the cluster image, and prepare the channels to the other brokers.

    Create the users in `first_users` if the cluster does not have them.

    Raises:
        ConfigError: a setting is invalid, the cluster needs a later version of Barnabas, or the user of this
            broker may not send requests to other brokers.
        StoreError: the metadata store cannot be used.
    """
    environment, view, health = foundation.environment, foundation.view, foundation.health
    config, long_work = view.config, foundation.long_work
    store = await open_store(config, environment)
    closing.add(store.close)
    own = await own_user(config, binding.internal, environment.random, long_work)
    await add_missing_users(store, {**first_users, **own})
    store.on_state(foundation.session.note)
    store.on_state(lambda state: _note_unusable(foundation.failure, state))
    foundation.session.note(store.state)
    health.step = "it reads the metadata"
    loader = MetadataLoader(store, foundation.failure.metadata_failed)
    view.follow(loader)
    closing.add(loader.stop)
    await loader.start()
    if (unsupported := view.image.features.unsupported()) is not None:
        raise ConfigError(f"the cluster uses {unsupported}: start a later version of Barnabas")
    require_access_of_brokers(config, binding.authorizer, binding.internal)
    peer_config = login_config(config, binding.internal.name)
    peers = open_peers(peer_config, environment, binding.internal, view, long_work)
    closing.add(peers.close)
    if binding.tls_keys is not None and peers.tls is not None:
        binding.tls_keys.of(binding.internal.name).shown_by(peers.tls)
    loader.subscribe(lambda delta: forget_gone(peers, delta))
    own_requests = OwnRequests(view.node_id, binding.internal.name)
    to_controller = ToController(view, peers, own_requests, request_timeout=config.request_timeout_ms / 1000)
    forwarding = Forwarding(view, to_controller, loader, own_requests.connection)
    loader.subscribe(forwarding.follow)
    return Metadata(store, loader, peers, own_requests, to_controller, forwarding)


def _note_unusable(failure: Failure, state: SessionState) -> None:
    if state is SessionState.FAILED:
        failure.fail("the metadata store has become unusable; the log says why")


def everything(foundation: Foundation) -> ImageDelta:
    """Return the current metadata image as a delta from an empty image.

    A part of the broker that a later stage opens applies this delta first, and then subscribes to further
    deltas. The delta names all topics, all settings and all client quotas as changed.
    """
    image = foundation.view.image
    return ImageDelta(
        ClusterImage(),
        image,
        topics=frozenset(image.topics),
        topic_configs=frozenset(image.topic_configs),
        broker_configs=True,
        client_quotas=frozenset(image.client_quotas),
    )
