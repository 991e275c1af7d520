"""Random walks of an administrator who changes and describes settings of all kinds of resources."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from tests.compat.walks.pair import Pair
from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages import alter_configs as whole
from barnabas.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.kafka.protocol.schema import Request

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
MIN_ISR = "min.insync.replicas"
Resource = tuple[int, str]
Setting = tuple[str, str | None]

#: types and names of resources with their weights; a name is the end of a name of the walk, or beginning
#: with '=', a whole name
RESOURCES: dict[Resource, float] = {
    (TOPIC, "t"): 6, (TOPIC, "u"): 2, (TOPIC, "nowhere"): 0.5, (TOPIC, "="): 0.3, (TOPIC, "=a/b"): 0.3,
    (BROKER, "=1"): 4, (BROKER, "="): 4, (BROKER, "=77"): 0.3, (BROKER, "=one"): 0.3, (BROKER, "=-1"): 0.2,
    (GROUP, "g"): 3, (GROUP, "h"): 1, (GROUP, "="): 0.3, (CLIENT_METRICS, "m"): 3, (CLIENT_METRICS, "n"): 1,
    (CLIENT_METRICS, "="): 0.3, (0, "x"): 0.2, (99, "x"): 0.2,
}  # fmt: skip
#: of these, Kafka finds first that a setting is no list
INVALID = {(TOPIC, "=a/b"), (TOPIC, "="), (GROUP, "="), (BROKER, "=77"), (BROKER, "=one"), (BROKER, "=-1")}

VALUES: dict[int, dict[str, tuple[str | None, ...]]] = {
    TOPIC: {
        "retention.ms": ("5000", "-1", "-2", "soon", None, " 7 ", "9223372036854775808", ""),
        "cleanup.policy": ("compact", "delete", "compact,delete", "delete,delete", "", "shred", "compact,"),
        "compression.type": ("lz4", "gzip", "LZ4", "", None),
        "compression.gzip.level": ("1", "9", "-1", "0", "10", None),
        "compression.lz4.level": ("1", "17", "0", "18"),
        "compression.zstd.level": ("1", "22", "-131072", "-131073", "23"),
        "min.cleanable.dirty.ratio": ("0.25", "1", "1.5", ".5", "1e-1"),
        "max.message.bytes": ("0", "77", "-1", "0x10", "2147483648", "+5", "1_000"),
        "unclean.leader.election.enable": ("true", "FALSE", "yes", " true", None),
        "min.insync.replicas": ("1", "2", "0"),
        "min.compaction.lag.ms": ("0", "9", "60000", "-1"),
        "max.compaction.lag.ms": ("5", "9", "0", "9223372036854775807"),
        "message.timestamp.type": ("LogAppendTime", "CreateTime", "createtime"),
        "leader.replication.throttled.replicas": ("0:1", "*", "0:1,1:1", "0-1", "1:1", ""),
        "segment.bytes": ("2000000", "1"),
        "no.such": ("1", None),
        "": ("1",),
    },
    BROKER: {
        "log.retention.ms": ("5000", "-1", "soon", None),
        "log.retention.hours": ("5",),
        "log.cleanup.policy": ("compact", "delete", "shred", ""),
        "message.max.bytes": ("2000000", "-5", "many"),
        MIN_ISR: ("1", "2", "0", None),
        "unclean.leader.election.enable": ("true", "false", "maybe"),
        "compression.type": ("zstd", "producer", "rar"),
        "compression.gzip.level": ("1", "0", "10", "best"),
        "compression.zstd.level": ("22", "23", None),
        "leader.replication.throttled.rate": ("1000", "-1", "x"),
        "log.cleaner.min.cleanable.ratio": ("0.25", "2"),
        "max.connections": ("1000", "-1"),
    },
    GROUP: {
        "consumer.session.timeout.ms": ("45000", "50000", "1", "999999999", "x", None),
        "consumer.heartbeat.interval.ms": ("5000", "6000", "1", "70000"),
        "share.session.timeout.ms": ("45000", "50000", "1"),
        "share.heartbeat.interval.ms": ("5000", "1", "70000"),
        "share.record.lock.duration.ms": ("15000", "1", "3600001"),
        "share.auto.offset.reset": (
            "earliest",
            "latest",
            "by_duration:PT1H",
            "by_duration:-PT1H",
            "none",
            "",
        ),
        "share.isolation.level": ("read_committed", "READ_COMMITTED", "none"),
        "no.such": ("1",),
    },
    CLIENT_METRICS: {
        "metrics": ("a.b,c", "*", "", None, "a,a"),
        "interval.ms": ("100", "99", "3600000", "3600001"),
        "match": (
            "client_id=a.*",
            "client_id=[",
            "nobody=x",
            "client_id",
            "",
            "client_id=a,client_software_name=b",
        ),
        "no.such": ("1",),
    },
}
#: the settings of brokers that describe; of the others, Kafka says that they are read-only
DESCRIBED = VALUES[BROKER].keys() - {"leader.replication.throttled.rate"}
#: settings of a broker that are no synonyms of a topic's setting in Kafka
COARSER = {
    "log.roll.hours", "log.roll.jitter.hours", "log.retention.hours", "log.retention.minutes",
    "log.flush.scheduler.interval.ms",
}  # fmt: skip
LISTS = {"cleanup.policy", "leader.replication.throttled.replicas", "log.cleanup.policy", "metrics", "match"}


class ConfigWalk:
    """One administrator, who changes settings of topics, brokers, groups and clients' metrics."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.random = pair, pair.random

    def run(self, steps: int) -> None:
        for topic in ("t", "u"):
            self.pair.each(lambda wire, topic=topic: wire.topic(topic, 2))
        work = {self.alter: 8, self.replace: 3, self.describe: 6, self.list_resources: 1}
        try:
            for _ in range(steps):
                self.random.choices(list(work), list(work.values()))[0]()
        finally:
            self.restore(self.pair)

    def _resource(self) -> Resource:
        return self.random.choices(list(RESOURCES), list(RESOURCES.values()))[0]

    def _resources(self) -> list[Resource]:
        found = [self._resource() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
        # Kafka rejects all resources of a request with an unknown type
        return [each for each in found if each[0] in VALUES] or found[:1]

    def _setting(self, kind: int) -> Setting:
        values = VALUES.get(kind) or VALUES[TOPIC]
        if kind != BROKER and self.random.random() < 0.02:  # Kafka stores a broker's setting of any name
            values = self.random.choice(list(VALUES.values()))
        name = self.random.choice(list(values))
        return name, self.random.choice(values[name])

    def alter(self) -> None:
        rng = self.random
        wanted = []
        for kind, name in self._resources():
            changes = []
            for _ in range(rng.choice((1, 1, 2, 3, 0))):
                setting, value = self._setting(kind)
                weights = [10.0, 3.0, 0.3, 0.3]
                if setting in LISTS:
                    # Kafka adds and removes items with the spaces around them, and also empty ones.
                    weights[2:] = [5.0, 5.0] if value and not re.search(r" |,$", value) else [0.0, 0.0]
                if kind == CLIENT_METRICS or (kind, name) in INVALID or setting.endswith("throttled.rate"):
                    weights[2:] = [0.0, 0.0]
                changes.append((setting, rng.choices((SET, DELETE, APPEND, SUBTRACT), weights)[0], value))
            wanted.append((kind, name, changes))
        validate, version = rng.random() < 0.2, rng.choice((0, 1))

        def make(wire: Wire, _: int) -> Request:
            resources = [
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=_full(wire, name),
                    configs=[
                        AlterableConfig(name=key, config_operation=how, value=value)
                        for key, how, value in changes
                    ],
                )
                for kind, name, changes in wanted
            ]
            return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate)

        self.pair.ask(make, f"alter {wanted} validate {validate}", _codes, version=version)
        self._settle([(kind, name) for kind, name, _ in wanted])

    def replace(self) -> None:
        rng = self.random
        wanted = [
            (kind, name, [self._setting(kind) for _ in range(rng.choice((1, 1, 2, 0)))])
            for kind, name in dict.fromkeys(self._resources())  # Kafka gives no answer to a duplicate
        ]
        validate, version = rng.random() < 0.2, rng.choice((0, 1, 2))

        def make(wire: Wire, _: int) -> Request:
            resources = [
                whole.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=_full(wire, name),
                    configs=[whole.AlterableConfig(name=key, value=value) for key, value in settings],
                )
                for kind, name, settings in wanted
            ]
            return whole.AlterConfigsRequest(resources=resources, validate_only=validate)

        self.pair.ask(make, f"replace {wanted} validate {validate}", _codes, version=version)
        self._settle([(kind, name) for kind, name, _ in wanted])

    def _settle(self, resources: list[Resource]) -> None:
        """Wait until both brokers know the same settings of the resources, and of a topic, which inherits."""
        known = {each for each in resources if each[0] in VALUES}
        self._describe([*known, (TOPIC, "t")], None, version=4, synonyms=True)

    def describe(self) -> None:
        rng = self.random
        kind, name = self._resource()
        keys = None
        if rng.random() < 0.4:
            keys = [self._setting(kind)[0] for _ in range(rng.randint(0, 3))]
        resources = [(kind, name)]
        if kind in VALUES:
            resources += [each for each in self._resources() if each[0] in VALUES and rng.random() < 0.5]
        self._describe(resources, keys, version=rng.choice((1, 2, 3, 4)), synonyms=rng.random() < 0.5)

    def _describe(
        self, resources: list[Resource], keys: list[str] | None, *, version: int, synonyms: bool
    ) -> None:
        def make(wire: Wire, _: int) -> Request:
            asked = [
                DescribeConfigsResource(
                    resource_type=kind, resource_name=_full(wire, name), configuration_keys=keys
                )
                for kind, name in resources
            ]
            return DescribeConfigsRequest(resources=asked, include_synonyms=synonyms)

        told = f"describe v{version} {resources} keys {keys} synonyms {synonyms}"
        self.pair.ask(make, told, _by_name, version=version, patient=True)

    def list_resources(self) -> None:
        kinds = self.random.choice(
            ([], [GROUP], [CLIENT_METRICS], [BROKER], [99], [GROUP, CLIENT_METRICS], [TOPIC])
        )
        version = self.random.choice((0, 1))
        self.pair.ask(
            lambda *_: ListConfigResourcesRequest(resource_types=kinds if version else []),
            f"list v{version} {kinds}",
            self._of_this_walk,
            version=version,
            patient=True,
        )

    def _of_this_walk(self, answer: Any) -> Any:
        start = self.pair.wires[0].name("")
        # Kafka also lists groups that had settings.
        kept = [
            each
            for each in answer["config_resources"]
            if each["resource_name"].startswith(start) and each.get("resource_type") != GROUP
        ]
        return {**answer, "config_resources": kept}

    def restore(self, pair: Pair) -> None:
        """Remove what the walk has set for brokers and client metrics, for the walks after this one.

        `pair` has the permission to do so.
        """

        def removed(kind: int, name: str, *kept: str) -> AlterConfigsResource:
            gone = [
                AlterableConfig(name=setting, config_operation=DELETE, value=None)
                for setting in VALUES[kind]
                if setting not in kept
            ]
            return AlterConfigsResource(resource_type=kind, resource_name=name, configs=gone)

        def restore(wire: Wire) -> None:
            cluster = removed(BROKER, "", MIN_ISR)
            cluster.configs.append(AlterableConfig(name=MIN_ISR, value="1"))
            # There can be at most 100 resources of client metrics.
            metrics = [removed(CLIENT_METRICS, wire.name(name)) for name in ("m", "n")]
            wire.ask(
                IncrementalAlterConfigsRequest(resources=[cluster, removed(BROKER, "1", MIN_ISR), *metrics])
            )

        pair.each(restore)


def _full(wire: Wire, name: str) -> str:
    return name[1:] if name.startswith("=") else wire.name(name)


def _codes(answer: Any) -> Any:
    """Return the error codes by resource."""
    found: dict[str, list[int]] = defaultdict(list)
    for response in answer["responses"]:
        found[f"{response['resource_type']} {response['resource_name']}"].append(response["error_code"])
    return {"codes": {name: sorted(codes) for name, codes in found.items()}, "which": sorted(found)}


def _by_name(answer: Any) -> Any:
    """Return the settings by resource and name. Each broker has settings that the other one does not have."""
    found: dict[str, Any] = defaultdict(list)
    for result in answer["results"]:
        kind = result["resource_type"]
        configs = {each["name"]: each for each in result["configs"]}
        if kind == BROKER:
            configs = {name: config for name, config in configs.items() if name in DESCRIBED}
        for config in configs.values():
            names = set() if kind == GROUP else {each["name"] for each in config["synonyms"]} - COARSER
            config["synonyms"] = [each for each in config["synonyms"] if each["name"] in names]
        result["configs"] = configs
        found[f"{kind} {result['resource_name']}"].append(result)
    return {"results": dict(found), "which": sorted(found)}
