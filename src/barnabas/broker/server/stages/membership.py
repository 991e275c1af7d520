"""Fourth stage: registers the broker in its cluster, and takes part in the election of the controller."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.base.environment.randomness import new_uuid
from barnabas.base.tasks import first
from barnabas.base.types import BrokerId
from barnabas.broker.controller import Controller
from barnabas.broker.controller.replica_logs import Ask
from barnabas.broker.metadata.features import SUPPORTED
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage, BrokerState
from barnabas.broker.server.leadership import Leadership
from barnabas.broker.server.stages.binding import Binding
from barnabas.broker.server.stages.closing import Closing, stage
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.broker.server.stages.logs import Logs
from barnabas.broker.server.stages.metadata import Metadata
from barnabas.kafka.protocol.schema import Request, Response

#: time limit of the controller's requests to a broker, in seconds
_ASKED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Membership:
    """The parts of the fourth stage: the controller on this broker, and `Leadership`.

    `Leadership` ends this broker's leaderships of partitions when it may no longer lead.
    """

    controller: Controller
    leadership: Leadership


@stage
async def open_membership(
    closing: Closing, foundation: Foundation, binding: Binding, metadata: Metadata, logs: Logs
) -> Membership:
    """Register the broker, and wait until the controller has admitted it.

    Raises:
        StoreError: the metadata store cannot be used, or a live broker has this broker's id.
        BrokerFailedError: a part that the broker needs has failed.
    """
    view, failure, manager = foundation.view, foundation.failure, logs.manager
    foundation.health.step = "it registers in the cluster"
    controller = Controller(
        metadata.store,
        metadata.loader,
        view,
        _registration(foundation, binding, logs),
        foundation.environment.random,
        _asking(view.node_id, metadata),
        failure.registration_failed,
        binding.token_keys,
        binding.try_keys,
    )
    registration = controller.registration
    logs.clean_epoch = lambda: registration.clean_epoch
    logs.on_directory_failure.append(
        lambda _: registration.announce(failed_log_dirs=tuple(manager.failed_directories))
    )
    manager.incomplete.on_change = lambda: registration.announce(
        incomplete_replicas=manager.incomplete.registered
    )
    closing.add(controller.stop)
    leadership = Leadership(view, controller)
    metadata.store.on_state(leadership.on_session)
    await controller.start()
    await first(controller.enter(), failure.failed())
    return Membership(controller, leadership)


def _registration(foundation: Foundation, binding: Binding, logs: Logs) -> BrokerImage:
    config, manager = foundation.view.config, logs.manager
    return BrokerImage(
        config.node_id,
        tuple(BrokerEndpoint(e.name, e.host, e.port, e.protocol) for e in binding.advertised),
        config.broker_rack,
        state=BrokerState.STARTING,
        features={name: (feature.lowest, feature.highest) for name, feature in SUPPORTED.items()},
        failed_log_dirs=tuple(manager.failed_directories),
        previous_epoch=manager.previous_epoch,
        incarnation=new_uuid(foundation.environment.random).hex,
        incomplete_replicas=manager.incomplete.registered,
    )


def _asking(node_id: BrokerId, metadata: Metadata) -> Ask:
    """Return a function with which the controller sends a request to any broker, also to this one.

    The function is awaited with the broker's id and the request, and returns the response. It raises
    ChannelError if another broker does not respond within `_ASKED_SECONDS`.
    """

    async def ask(broker_id: BrokerId, request: Request) -> Response:
        if broker_id == node_id:
            return await metadata.own_requests.send(request)
        channel = metadata.peers.channel(broker_id, "control")
        response: Response = await channel.send(request, timeout_s=_ASKED_SECONDS)
        return response

    return ask
