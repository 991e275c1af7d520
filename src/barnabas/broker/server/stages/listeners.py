"""Last stage: starts to serve clients and the other brokers at the listeners."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from barnabas.broker.logins.sasl import Sasl
from barnabas.broker.logins.token_logins import TokenLogins
from barnabas.broker.metadata.bootstrap import login_secret
from barnabas.broker.quotas import ClientQuotas, Windows
from barnabas.broker.server.client_changes import ClientChanges
from barnabas.broker.server.isolation import IsolationWatch
from barnabas.broker.server.monitoring.health import SHUTTING_DOWN
from barnabas.broker.server.monitoring.loop_watch import LoopWatch
from barnabas.broker.server.monitoring.sources import Sources
from barnabas.broker.server.network.kerberos_keys import open_kerberos
from barnabas.broker.server.network.login import Logins
from barnabas.broker.server.network.session import Serve
from barnabas.broker.server.network.stored_logins import ImageLogins
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.usage import Metering
from barnabas.broker.server.serving import served_apis
from barnabas.broker.server.stages.binding import Binding
from barnabas.broker.server.stages.closing import Closing, stage
from barnabas.broker.server.stages.coordination import Coordination
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.broker.server.stages.logs import Logs
from barnabas.broker.server.stages.membership import Membership
from barnabas.broker.server.stages.metadata import Metadata, everything
from barnabas.broker.server.stages.replication import Replication
from barnabas.broker.server.stages.upkeep import Upkeep

#: seconds that a stop without controlled shutdown waits for the controller
_ANNOUNCING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Stages:
    """All earlier stages, with their parts."""

    foundation: Foundation
    binding: Binding
    metadata: Metadata
    logs: Logs
    membership: Membership
    replication: Replication
    coordination: Coordination
    upkeep: Upkeep


@stage
async def open_listeners(closing: Closing, stages: Stages) -> Dispatcher:
    """Start to serve requests at all listeners, and return the dispatcher.

    When the stage closes, move leaderships to other brokers, stop serving, and close all connections.
    """
    foundation, binding, metadata = stages.foundation, stages.binding, stages.metadata
    view, connections = foundation.view, foundation.connections
    environment, config = foundation.environment, view.config
    closing.add(foundation.long_work.stop)
    closing.add(foundation.search.stop)
    quotas = ClientQuotas(
        view.clock.monotonic,
        Windows(config.quota_window_num, config.quota_window_size_seconds),
        Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds),
    )
    clients = ClientChanges(quotas, connections)
    clients.follow(everything(foundation))
    closing.add(metadata.loader.subscribe(clients.follow))
    served = served_apis([*_parts(stages), quotas])
    served.use(view.image.features)
    closing.add(metadata.loader.subscribe(served.follow))
    slow_ms = config.barnabas_slow_request_ms
    dispatcher = Dispatcher(
        served,
        foundation.long_work,
        Metering(quotas, view.clock),
        slow=slow_ms / 1000 if slow_ms else math.inf,
    )
    logins = Logins(view, await _sasl(stages), dispatcher.serve, environment.blocking, binding.trail)
    closing.add(logins.stop)
    metadata.own_requests.serve_with(dispatcher)
    closing.add(connections.end)
    for listener in binding.listeners:
        closing.add(listener.unbind)  # before the open connections are closed, so that none comes in
        endpoint = listener.endpoint
        await listener.start(
            partial(_begin_login, logins, endpoint.name)
            if endpoint.has_sasl
            else partial(_serve_all, dispatcher)
        )
    watch = _isolation_watch(stages)
    closing.add(watch.stop)
    watch.start()
    closing.add(lambda: _announce_stop(stages))
    if binding.monitor is not None:
        loop_watch = LoopWatch()
        closing.add(loop_watch.stop)
        loop_watch.start()
        binding.monitor.begin(_sources(stages, served, loop_watch))
    foundation.health.running()
    return dispatcher


def _begin_login(logins: Logins, listener: str) -> Serve:
    return logins.begin(listener).serve


def _serve_all(dispatcher: Dispatcher) -> Serve:
    return dispatcher.serve


def _parts(stages: Stages) -> list[object]:
    """Return the parts of the broker that handlers can use as dependencies."""
    foundation, binding, replication = stages.foundation, stages.binding, stages.replication
    coordination = stages.coordination
    return [
        foundation.view,
        foundation.long_work,
        foundation.search,
        foundation.cold_reads,
        foundation.telemetry,
        binding.authorizer,
        binding.trail,
        binding.token_keys,
        stages.metadata.loader,
        stages.metadata.forwarding,
        stages.logs.manager,
        stages.membership.controller,
        replication.replicas,
        replication.throttles,
        replication.fetch_sessions,
        replication.read_index,
        stages.metadata.peers,
        replication.producer_ids,
        coordination.groups,
        coordination.transactions,
        coordination.shares,
        coordination.persister,
        coordination.share_partitions,
        coordination.share_sessions,
        coordination.markers,
        coordination.verifier,
        stages.upkeep.moves,
    ]


async def _sasl(stages: Stages) -> Sasl:
    foundation, binding = stages.foundation, stages.binding
    view, random, keys = foundation.view, foundation.environment.random, binding.token_keys
    if any(endpoint.has_sasl for endpoint in binding.bound):
        secret = await login_secret(stages.metadata.store, random)
    else:
        secret = random.randbytes(32)  # no client logs in
    stored = ImageLogins(view)
    return Sasl(
        stored,
        random,
        secret,
        binding.tokens,
        TokenLogins(keys, stored, view.clock) if keys else None,
        open_kerberos(view.config, binding.bound),
    )


def _isolation_watch(stages: Stages) -> IsolationWatch:
    metadata = stages.metadata
    return IsolationWatch(
        stages.foundation.view,
        metadata.loader,
        metadata.peers,
        metadata.store.session_timeout,
        stages.replication.replicas,
        stages.replication.fetch_sessions,
        stages.membership.controller.note_isolation,
    )


async def _announce_stop(stages: Stages) -> None:
    """Ask the controller to move this broker's leaderships to other brokers, and wait for that.

    Meanwhile this broker still serves requests. The wait ends in these cases:

    - This broker leads no partition that another broker can lead.
    - The metadata store cannot be reached.
    - The time limit is over. It is ``controlled.shutdown.max.retries`` times
      ``controlled.shutdown.retry.backoff.ms``, or `_ANNOUNCING_SECONDS` if controlled shutdown is disabled.
    """
    stages.foundation.health.state = SHUTTING_DOWN
    config = stages.foundation.view.config
    timeout = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms / 1000
    await stages.membership.controller.leave(
        timeout if config.controlled_shutdown_enable else _ANNOUNCING_SECONDS
    )


def _sources(stages: Stages, served: Mapping[int, Served], loop_watch: LoopWatch) -> Sources:
    foundation, replication = stages.foundation, stages.replication
    return Sources(
        view=foundation.view,
        broker_state=lambda: foundation.health.state,
        session=foundation.session,
        served=served,
        connections=foundation.connections,
        serving_time=replication.serving_time,
        loop_watch=loop_watch,
        replicas=replication.replicas,
        isr_changes=replication.isr_changes,
        logs=stages.logs.manager,
        cleaner=stages.upkeep.cleaner,
        controller=stages.membership.controller,
        groups=stages.coordination.groups,
        transactions=stages.coordination.transactions,
        shares=stages.coordination.shares,
        share_partitions=stages.coordination.share_partitions,
        share_sessions=stages.coordination.share_sessions,
        peers=stages.metadata.peers,
        telemetry=foundation.telemetry,
    )
