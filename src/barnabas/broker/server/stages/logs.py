"""Third stage: opens the logs of the partitions that this broker hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.base.text import logger_of
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.metadata.backup_keeper import BackupKeeper
from barnabas.broker.server.stages.binding import Binding
from barnabas.broker.server.stages.closing import Closing, stage
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.broker.server.stages.metadata import Metadata

log = logger_of(__name__)


@dataclass(slots=True)
class Logs:
    """The logs of this broker. Later stages add functions to `on_directory_failure`."""

    manager: LogManager
    #: called with the path of each log directory that fails, in the order in which they were added
    on_directory_failure: list[Callable[[str], None]] = field(default_factory=list)
    #: the broker epoch that a clean stop writes down, -1 for none
    clean_epoch: Callable[[], int] | None = None


@stage
async def open_logs(closing: Closing, foundation: Foundation, binding: Binding, metadata: Metadata) -> Logs:
    """Open the logs of all partitions that the cluster image assigns to this broker.

    After a stop that was not clean, also recover the logs. If only some of the log directories cannot be
    opened, the broker starts without these directories.

    Raises:
        ConfigError: another broker uses or owns a log directory, the `meta.properties` of one is damaged, or
            no log directory can be opened.
    """
    environment, view, clock = foundation.environment, foundation.view, foundation.view.clock
    config = view.configs.static
    foundation.health.step = "it opens its logs"
    is_clustered = config.zookeeper_connect is not None or environment.open_store is not None
    listeners: list[Callable[[str], None]] = []

    def directory_failed(path: str) -> None:
        for listener in tuple(listeners):
            listener(path)

    manager = LogManager(config, environment, binding.disk, directory_failed, is_clustered=is_clustered)
    logs = Logs(manager, listeners)
    closing.add(lambda: _close(foundation, logs))
    began = clock.monotonic()
    manager.open(view.image.cluster_id)
    image = view.image
    await manager.load(
        image.hosted_by(view.node_id),
        lambda topic: view.configs.topic_config(image, topic),
        lambda partition, topic_id: image.is_deleted_from(view.node_id, partition, topic_id),
    )
    for directory in manager.directories:
        log.info(
            "%s: opened %d partitions%s",
            directory.path,
            len(directory.logs),
            " after recovery, since the last stop was not clean"
            if directory.logs and not directory.was_clean
            else "",
        )
    log.info("opened all logs in %.2f s", clock.monotonic() - began)
    if is_clustered:  # a lone broker's own store has two copies already
        keeper = BackupKeeper(
            metadata.store,
            view.image.cluster_id,
            lambda: [each.path for each in manager.directories if each.failure is None],
            environment.filesystem,
            binding.disk,
            clock,
        )
        closing.add(keeper.stop)
        await keeper.start()
    return logs


async def _close(foundation: Foundation, logs: Logs) -> None:
    began, manager = foundation.view.clock.monotonic(), logs.manager
    if logs.clean_epoch is not None:
        manager.set_broker_epoch(logs.clean_epoch())
    await manager.stop()
    for directory in manager.directories:
        log.info(
            "%s: flushed and closed %d partitions; the stop is %s",
            directory.path,
            len(directory.logs),
            "marked as clean" if directory.closed_cleanly else "not clean: the next start recovers them",
        )
    log.info("closed all logs in %.2f s", foundation.view.clock.monotonic() - began)
