"""Reads topics as queues: `confluent_kafka.ShareConsumer`, a member of a share group, as an iterator."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from barnabas import __version__
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.client.brokers import Brokers
from barnabas.client.errors import ClientError, translate
from barnabas.client.record import Record
from barnabas.client.servers import servers_of
from barnabas.client.settings import DEFAULT_BOOTSTRAP, create_client, librdkafka_settings
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest

logger = logging.getLogger(__name__)

_ACCEPT, _RELEASE, _REJECT = (
    confluent_kafka.AcknowledgeType.ACCEPT,
    confluent_kafka.AcknowledgeType.RELEASE,
    confluent_kafka.AcknowledgeType.REJECT,
)
#: the API without which a broker has no share groups
_SHARE_FETCH = 78
#: seconds that the brokers have for an answer
_ANSWER_S = 10.0
#: seconds between two commits of finished records
_COMMIT_S = 1.0
#: the default of ``max.poll.records``. Other members cannot get the jobs that a slow worker has fetched.
#: librdkafka's own default is 500
_FETCHED_AT_ONCE = 10


@dataclass(slots=True)
class Job(Record):
    """A record that this member of a share group has locked.

    `attempt` is the number of deliveries of the record to the group, with this one: 1 for the first.
    """

    attempt: int = field(kw_only=True)
    _finish: Callable[[Job, confluent_kafka.AcknowledgeType], None] = field(
        kw_only=True, repr=False, compare=False
    )

    def release(self) -> None:
        """Unlock the record, so that the broker delivers it again, to this member or to another one.

        Raises:
            ClientError: the record is acknowledged already, for example because the caller took the next one.
        """
        self._finish(self, _RELEASE)

    def reject(self) -> None:
        """End the delivery of the record to the group: no attempt can succeed.

        Raises:
            ClientError: the record is acknowledged already, for example because the caller took the next one.
        """
        self._finish(self, _REJECT)


class Worker:
    """Iterates over the records of topics without end, as a member of a share group (KIP-932).

    Each record is a `Job`. The members share the records, not the partitions, so there can be more members
    than partitions. A job is done when the caller takes the next job, or when the `with` block ends without
    an error. In these cases, the brokers deliver a job again, to any member of the group:

    - An error ended the `with` block.
    - The caller called `Job.release`.
    - The member has had the job for longer than ``share.record.lock.duration.ms`` (30 s).

    After ``share.delivery.count.limit`` deliveries (5), or after `Job.reject`, the brokers do not deliver the
    job again.

    librdkafka 2.16 cannot extend a lock (KIP-1222). A fetch locks 10 jobs (the setting `max_poll_records`).
    It locks more jobs if a producer's batch has more records. Set the group's lock duration to more than the
    time that all jobs of a fetch take together.

    Args:
        bootstrap_servers: `host:port,...`
        topics: names of topics.
        group: the share group. Its setting ``share.auto.offset.reset`` says where a new group begins.
        settings: settings of librdkafka, with underscores for dots.

    Raises:
        ClientError: no broker answers, or the cluster has no share groups.
        KafkaError: there is no such topic.
    """

    def __init__(
        self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, *topics: str, group: str, **settings: Any
    ) -> None:
        servers = servers_of(bootstrap_servers, librdkafka_settings(bootstrap_servers, settings))
        with closing(Brokers(servers, _ANSWER_S)) as brokers:
            _check_share_groups(brokers)
            _check_topics(brokers, topics)
        self._pending: list[confluent_kafka.Message] = []
        #: jobs that arrived for a `take` that failed; they are acknowledged
        self._kept: list[Job] = []
        #: the last job, and its message; None if it is acknowledged
        self._taken: tuple[Job, confluent_kafka.Message] | None = None
        self._committed_at = time.monotonic()
        self._consumer = create_client(
            confluent_kafka.ShareConsumer,
            bootstrap_servers,
            settings,
            {
                "group.id": group,
                "check.crcs": True,  # librdkafka's default is to return damaged records, or nothing at all
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": _FETCHED_AT_ONCE,
            },
        )
        self._consumer.set_acknowledgement_commit_callback(_warn)
        self._consumer.subscribe(list(topics))

    def poll(self, timeout: float = 1.0) -> Job | None:
        """Return the next job; None if none has arrived within `timeout` seconds.

        The call also marks the previous job as done.

        Raises:
            KafkaError, ClientError: the broker answered with an error, or librdkafka reports one.
        """
        if self._kept:
            return self._kept.pop(0)
        self._finish_taken(_ACCEPT)
        try:
            if not self._pending:
                self._pending = list(self._consumer.poll(timeout))[::-1]
                self._committed_at = time.monotonic()
            elif time.monotonic() - self._committed_at >= _COMMIT_S:
                self._consumer.commit_async()
                self._committed_at = time.monotonic()
        except confluent_kafka.KafkaException as error:
            raise translate(error) from None
        if not self._pending:
            return None
        message = self._pending.pop()
        if (failure := message.error()) is not None:
            raise translate(failure)
        job = Job.from_message(message, attempt=message.delivery_count() or 1, _finish=self._finish_job)
        self._taken = job, message
        return job

    def take(self, count: int, timeout: float = 30.0) -> list[Job]:
        """Return exactly `count` jobs. All of them but the last count as done.

        librdkafka fetches more jobs only when all earlier ones are acknowledged. So the call marks each job
        as done before it waits for the next one.

        Raises:
            ClientError: fewer jobs have arrived within `timeout` seconds. The next calls of `take` and `poll`
                return those that have arrived, but they count as done already.
            KafkaError: the broker answered with an error.
        """
        jobs: list[Job] = []
        deadline = time.monotonic() + timeout
        try:
            while len(jobs) < count:
                job = self.poll(max(deadline - time.monotonic(), 0))
                if job is not None:
                    jobs.append(job)
                elif time.monotonic() >= deadline:
                    raise ClientError(f"only {len(jobs)} of {count} records came within {timeout:g} s")
        except BaseException:
            self._kept = jobs + self._kept
            raise
        return jobs

    def close(self) -> None:
        """Release the jobs that are not done, commit those that are done, and leave the group.

        If the broker does not store that a record is done, log a warning: the record can be delivered again.
        Also log a warning if records of a failed `take` count as done, and the caller did not get them.

        Raises:
            KafkaError, ClientError: the broker answered with an error, or did not answer.
        """
        if self._kept:
            logger.warning(
                "%d records count as done, but no worker has processed them, because `take` timed out",
                len(self._kept),
            )
        try:
            self._finish_taken(_RELEASE)
            for message in self._pending:
                if message.error() is None:
                    self._consumer.acknowledge(message, _RELEASE)
            self._pending = []
            for partition, failure in self._consumer.commit_sync(_ANSWER_S).items():
                if failure is not None:
                    _warn([partition], failure)
        except confluent_kafka.KafkaException as error:
            raise translate(error) from None
        finally:
            self._consumer.close()

    def _finish_job(self, job: Job, how: confluent_kafka.AcknowledgeType) -> None:
        if self._taken is None or self._taken[0] is not job:
            raise ClientError(f"the record at {job.topic_partition}@{job.offset} is acknowledged already")
        self._finish_taken(how)

    def _finish_taken(self, how: confluent_kafka.AcknowledgeType) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            try:
                self._consumer.acknowledge(taken[1], how)
            except confluent_kafka.KafkaException as error:
                raise translate(error) from None

    def __iter__(self) -> Iterator[Job]:
        while True:
            job = self.poll()
            if job is not None:
                yield job

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:  # what an error interrupted is not done, and comes again
            self._finish_taken(_ACCEPT)
        self.close()


def _warn(
    partitions: Iterable[confluent_kafka.TopicPartition], failure: confluent_kafka.KafkaException | None
) -> None:
    """Log a warning if a commit failed: the records of these partitions can be delivered again."""
    if failure is not None:
        names = ", ".join(sorted(f"{each.topic}-{each.partition}" for each in partitions))
        logger.warning(
            "cannot commit processed records of %s, so they can be delivered again: %s",
            names,
            translate(failure),
        )


def work(bootstrap_servers: str = DEFAULT_BOOTSTRAP, *topics: str, group: str, **settings: Any) -> Worker:
    """Return a `Worker` for ``with work(servers, "orders", group="billing") as jobs:``."""
    return Worker(bootstrap_servers, *topics, group=group, **settings)


def _check_share_groups(brokers: Brokers) -> None:
    """Raise ClientError if the cluster has no share groups. librdkafka itself would wait silently."""
    asked = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
    if not any(api.api_key == _SHARE_FETCH for api in brokers.ask_any(asked).api_keys):
        raise ClientError(
            f"the cluster at {brokers.servers} does not use share groups: upgrade its brokers, and raise the "
            "feature share.version to 2 (`barnabas features upgrade share.version=2`)"
        )


def _check_topics(brokers: Brokers, topics: tuple[str, ...]) -> None:
    for topic in brokers.metadata(list(topics), time.monotonic() + _ANSWER_S).topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}")
