"""Changes the dynamic settings of topics, groups, brokers and client-metrics resources.

KIP-133, KIP-226, KIP-339, KIP-714.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.base.errors import ConfigError, ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.broker.config import (
    BrokerConfig,
    ClientMetricsConfig,
    GroupConfig,
    Setting,
    Settings,
    TopicConfig,
    Type,
    Update,
)
from barnabas.broker.config.client_metrics import parse_match
from barnabas.broker.config.layers import Layer, Source
from barnabas.broker.config.listener_settings import ListenerSetting
from barnabas.broker.controller.elections import state_of
from barnabas.broker.controller.names import check_topic_name
from barnabas.broker.controller.partition_changes import with_isr
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.logins.kerberos import ShortNames
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import ALL_BROKERS, ClusterImage, ImageDelta, PartitionState
from barnabas.broker.metadata.store import Create, Delete, Operation, Set

log = logger_of(__name__)

_MIN_ISR = "min.insync.replicas"
_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_KERBEROS_RULES = "sasl.kerberos.principal.to.local.rules"
#: settings that a broker's next start may be unable to use
_OF_KERBEROS = frozenset({_KERBEROS_RULES, "sasl.kerberos.service.name"})
#: the most client-metrics resources: each client is compared with all of them
_MAX_CLIENT_METRICS = 100


class ResourceType(IntEnum):
    """Types of resources that can have settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """The owner of a setting, by its type and its name.

    The name of a group or a broker is its id. The name of all brokers together is empty.
    """

    type: int
    name: str


class AlterOperation(IntEnum):
    """Kinds of changes of a setting, with Kafka's numbers. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None = None


#: function that returns a resource's new own settings, as text
Change = Callable[["_Resource"], dict[str, str]]


#: function that loads the keys of listeners as in some settings; raises ConfigError if they cannot be used
TryKeys = Callable[[BrokerConfig], Awaitable[None]]


class _Resource(NamedTuple):
    """The settings of one resource, from the metadata image."""

    settings: type[Settings]
    #: the error code for a setting or value that is not allowed
    refusal: ErrorCode
    path: str
    texts: Mapping[str, str]
    #: the sources of its values; the first is the resource itself
    layers: Sequence[Layer]

    def find(self, name: str) -> Setting:
        """Return the setting with this name.

        Raises:
            KafkaError: if the setting is unknown, with the code in `refusal`; INVALID_REQUEST, the setting is
                not dynamic, or cannot be set for all brokers together.
        """
        try:
            setting = self.settings.find(name)
        except ConfigError as error:
            raise KafkaError(self.refusal, str(error)) from error
        if setting.update is Update.READ_ONLY:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is read at start only: set it for `barnabas start` and restart the broker"
                + (", or alter listener.name.NAME." + name if _may_change_by_listener(name) else ""),
            )
        if setting.update is Update.PER_BROKER and self.path == znodes.broker_config(ALL_BROKERS):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name} can be set for a single broker only: name the broker"
            )
        return setting

    def check_min_isr(self, names: Iterable[str]) -> None:
        """Raise KafkaError INVALID_CONFIG if ``min.insync.replicas`` is one of `names`, for a single broker.

        A request can neither set nor delete it there. The controller and all leaders must use the same value,
        because this value decides which replicas can lead. Kafka 4.1 rejects the same requests if it uses
        eligible leader replicas (KIP-966). Like Kafka, check this after the values.
        """
        is_one_broker = self.settings is BrokerConfig and self.path != znodes.broker_config(ALL_BROKERS)
        if is_one_broker and _MIN_ISR in names:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{_MIN_ISR} of a single broker is not allowed: it decides which replicas may lead; "
                "set it for all brokers, or for a topic",
            )

    def parse(self, setting: Setting, text: str | None) -> Any:
        """Parse the text of a value.

        Raises:
            KafkaError: INVALID_REQUEST, `text` is None; if the text is invalid or the value is not allowed,
                the code in `refusal`.
        """
        if text is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{setting.name} has no value: give one, or delete it"
            )
        try:
            return setting.parse(text)
        except ConfigError as error:
            raise KafkaError(self.refusal, str(error)) from error

    def check_together(self, texts: Mapping[str, str]) -> None:
        """Check that the resource's new settings are valid together.

        `texts` are all settings that the resource itself will have. Values that it inherits also count.

        Raises:
            KafkaError: INVALID_CONFIG, the combination is invalid; INVALID_REQUEST, Kerberos rules of a
                broker are invalid.
        """
        if self.settings is TopicConfig:
            own, *others = self.layers
            _check_lags([own._replace(texts=texts), *others])
        elif self.settings is BrokerConfig:
            _check_kerberos_rules(texts)
        elif self.settings is ClientMetricsConfig and "match" in texts:
            try:
                parse_match(ClientMetricsConfig.find("match").parse(texts["match"]))
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


class ConfigControl:
    """The part of the controller that changes settings of topics, groups, brokers and client metrics.

    Args:
        writes: writes to the metadata store while this broker is the controller.
        configs: resolves the effective settings.
        broker_id: id of this broker.
        try_keys: called with this broker's new settings. Loads the keys and certificates of its listeners,
            and raises ConfigError if they cannot be used. None: new keys and certificates are not tried.
    """

    def __init__(
        self,
        writes: ControllerWrites,
        configs: ConfigResolver,
        broker_id: BrokerId,
        try_keys: TryKeys | None = None,
    ) -> None:
        self._writes = writes
        self._own_name = str(broker_id)
        self._try_keys = try_keys
        self._configs = configs
        #: the damaged partition that has postponed the end of `settle_min_isr`
        self._postponed_by: TopicPartition | None = None

    async def replace(
        self, resources: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError]:
        """Give each resource exactly the given settings, and remove all its others (AlterConfigs).

        Return the errors of rejected resources, which do not change. A setting without a value (None) is
        rejected. With `validate_only`, change nothing.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR.
        """
        changes = {resource: _replacing(texts) for resource, texts in resources.items()}
        return await self._change(changes, validate_only)

    async def alter(
        self, resources: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError]:
        """Change only the named settings (IncrementalAlterConfigs).

        Return the errors of rejected resources, which do not change. With `validate_only`, change nothing.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR.
        """
        changes = {resource: _altering(steps) for resource, steps in resources.items()}
        return await self._change(changes, validate_only)

    async def settle_min_isr(self) -> None:
        """Store one value of ``min.insync.replicas`` for the whole cluster, which KIP-966 requires.

        If the cluster has no value, it gets the value with which this broker was started. Values of single
        brokers, which earlier versions allowed, are removed. If this changes the value for a topic, some ELRs
        are emptied first (see `_empty_elrs`). If the state of such a partition is damaged, nothing is stored
        yet: `must_settle_min_isr` says when to call this method again.

        Raises:
            KafkaError: NOT_CONTROLLER, KAFKA_STORAGE_ERROR or POLICY_VIOLATION, as in
                `ControllerWrites.write`.
        """
        async with self._writes.deciding() as image:
            after = image
            for name, texts in image.broker_configs.items():
                if name != ALL_BROKERS and _MIN_ISR in texts:
                    left = {key: text for key, text in texts.items() if key != _MIN_ISR}
                    after = _with_texts(after, ConfigResource(ResourceType.BROKER, name), left)
            if _MIN_ISR not in image.broker_config(ALL_BROKERS):
                value = str(self._configs.static.min_insync_replicas)
                texts = {**image.broker_config(ALL_BROKERS), _MIN_ISR: value}
                after = _with_texts(after, ConfigResource(ResourceType.BROKER, ""), texts)
            postponed_by, self._postponed_by = self._postponed_by, None
            if after is image:
                return
            for partition, _ in self._with_empty_elrs(image, after, image.topics):
                try:
                    state_of(image, partition)
                except KafkaError as error:
                    if partition != postponed_by:
                        log.warning("%s of the cluster is not stored yet: %s", _MIN_ISR, error.message)
                    self._postponed_by = partition
                    return
            value = after.broker_config(ALL_BROKERS)[_MIN_ISR]
            log.info(
                "%s of the cluster is %s, and single brokers have no value of their own", _MIN_ISR, value
            )
            await self._empty_elrs(image, after, image.topics)
            await self._writes.write(
                [
                    operation
                    for name, texts in after.broker_configs.items()
                    if texts is not image.broker_configs.get(name)
                    for operation in _write(znodes.broker_config(name), image.broker_config(name), texts)
                ]
            )
            await self._writes.settled()

    def must_settle_min_isr(self, delta: ImageDelta) -> bool:
        """Whether the controller must call `settle_min_isr` after a change of the metadata.

        It must if the cluster has no value. If a damaged partition has postponed the end of `settle_min_isr`,
        it must only when the partition is mended or deleted, or when settings change.
        """
        if self._postponed_by is None:
            return _MIN_ISR not in delta.after.broker_config(ALL_BROKERS)
        state = delta.after.partition(self._postponed_by)
        is_over = state is None or not state.is_damaged
        return is_over or delta.broker_configs or bool(delta.topic_configs)

    def warn_of_min_isr(self, image: ClusterImage) -> None:
        """Log a warning if this broker was started with another ``min.insync.replicas`` than the cluster has.

        Then the broker's value has no effect.
        """
        own, held = self._configs.static, self._configs.broker_config(image).min_insync_replicas
        if _MIN_ISR in own.given and own.min_insync_replicas != held:
            log.warning(
                "%s=%d of this broker's start has no effect: the cluster has %d, which "
                "`barnabas configs alter` changes for all brokers",
                _MIN_ISR,
                own.min_insync_replicas,
                held,
            )

    async def _change(
        self, changes: Mapping[ConfigResource, Change], validate_only: bool
    ) -> dict[ConfigResource, KafkaError]:
        async with self._writes.answering() as image:
            errors: dict[ConfigResource, KafkaError] = {}
            writes: dict[ConfigResource, list[Operation]] = {}
            after = image
            topics: set[str] = set()  # those whose ELRs may become empty
            for resource, change in changes.items():
                try:
                    found = self._find(resource, image)
                    texts = change(found)
                    found.check_together(texts)
                    self._check_limits(found, texts, image)
                    _check_min_isr(resource, found.texts, texts)
                    _check_listeners(resource, found.texts, texts, image)
                    await self._check_keys(resource, found, texts)
                    _check_existence(resource, image)
                    if found.texts.get(_MIN_ISR) != texts.get(_MIN_ISR):
                        changed = _with_texts(after, resource, texts)
                        concerned = [resource.name] if resource.type == ResourceType.TOPIC else image.topics
                        self._check_elrs(image, changed, concerned)
                        after = changed
                        topics.update(concerned)
                except KafkaError as error:
                    errors[resource] = error
                else:
                    writes[resource] = _write(found.path, found.texts, texts)
            if not validate_only:
                await self._empty_elrs(image, after, topics)
                errors |= await self._writes.write_each(writes)
            return errors

    async def _empty_elrs(self, image: ClusterImage, after: ClusterImage, topics: Collection[str]) -> None:
        """Empty the ELR of each partition whose ISR has enough members for the settings in `after`.

        Only partitions of `topics` change. `image` is the present metadata image, and `after` is a copy with
        the new settings. With a lower ``min.insync.replicas``, the high watermark can advance without the
        members of an ELR. So the members may then lack committed records (KIP-966). Call this before the new
        settings are stored, and after `_check_elrs`.
        """
        operations = [
            self._writes.state_change(partition, state_of(image, partition), changed)
            for partition, changed in self._with_empty_elrs(image, after, topics)
        ]
        await self._writes.write_batches(operations)

    def _check_elrs(self, image: ClusterImage, after: ClusterImage, topics: Collection[str]) -> None:
        """Check that `_empty_elrs` knows the states of the partitions of `topics` that it must change.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the state of such a partition is damaged.
        """
        for partition, _ in self._with_empty_elrs(image, after, topics):
            state_of(image, partition)

    def _with_empty_elrs(
        self, image: ClusterImage, after: ClusterImage, topics: Collection[str]
    ) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Yield the partitions of `topics` that `_empty_elrs` must change, each with its new state."""
        for name in sorted(topics):
            min_isr = self._configs.topic_config(after, name).min_insync_replicas
            for number, state in enumerate(image.topics[name].partitions):
                changed = with_isr(state, state.isr, min_isr) if state.elr or state.last_known_elr else state
                if changed != state:
                    yield TopicPartition(name, number), changed

    def _find(self, resource: ConfigResource, image: ClusterImage) -> _Resource:
        if resource.type == ResourceType.TOPIC:
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no settings in common: name one")
            check_topic_name(resource.name)
            return _Resource(
                TopicConfig,
                ErrorCode.INVALID_CONFIG,
                znodes.topic_config(resource.name),
                image.topic_config(resource.name),
                self._configs.topic_layers(image, resource.name),
            )
        if resource.type == ResourceType.BROKER:
            layers = self._configs.broker_layers(image)
            name = resource.name
            if not name:
                name, layers = ALL_BROKERS, layers[1:]  # without what the one broker sets for itself
            elif name not in map(str, {*image.brokers, *image.admitted}):  # a dead one's throttle is lifted
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"there is no broker '{name}': give a broker's id, or nothing for all brokers",
                )
            return _Resource(
                BrokerConfig,
                ErrorCode.INVALID_REQUEST,
                znodes.broker_config(name),
                image.broker_config(name),
                layers,
            )
        if resource.type == ResourceType.GROUP:
            check_group_name(resource.name)
            return _Resource(
                GroupConfig,
                ErrorCode.INVALID_CONFIG,
                znodes.group_config(resource.name),
                image.group_config(resource.name),
                self._configs.group_layers(image, resource.name),
            )
        if resource.type == ResourceType.CLIENT_METRICS:
            check_client_metrics_name(resource.name)
            texts = image.client_metrics.get(resource.name, {})
            if not texts and len(image.client_metrics) >= _MAX_CLIENT_METRICS:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"there are {len(image.client_metrics)} client-metrics resources: delete one first",
                )
            return _Resource(
                ClientMetricsConfig,
                ErrorCode.INVALID_REQUEST,
                znodes.client_metrics_config(resource.name),
                texts,
                [Layer(Source.DYNAMIC_CLIENT_METRICS_CONFIG, texts)],
            )
        raise KafkaError(ErrorCode.INVALID_REQUEST, unserved(resource.type))

    async def _check_keys(self, resource: ConfigResource, found: _Resource, texts: Mapping[str, str]) -> None:
        """Raise KafkaError INVALID_REQUEST for keys and certificates that this broker's listeners cannot use.

        `found` has the present settings of `resource`, and `texts` are its new own settings. Settings of
        other brokers are not checked, because their files are on other machines.
        """
        if self._try_keys is None or resource != (ResourceType.BROKER, self._own_name):
            return
        if _keys_in(texts) == _keys_in(found.texts):
            return
        own, *others = found.layers
        config = BrokerConfig.from_layers([own._replace(texts=texts), *others], texts)
        try:
            await self._try_keys(config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _check_limits(self, resource: _Resource, texts: Mapping[str, str], image: ClusterImage) -> None:
        """Raise KafkaError INVALID_CONFIG if `GroupConfig.check_limits` rejects a group's new settings.

        `texts` are the group's new own settings, and `image` has the settings of the brokers. Settings of
        other resources are not checked.
        """
        if resource.settings is GroupConfig:
            layers = [Layer(Source.DYNAMIC_GROUP_CONFIG, texts), *self._configs.broker_layers(image)]
            try:
                GroupConfig.from_layers(layers, texts).check_limits(self._configs.broker_config(image))
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _check_existence(resource: ConfigResource, image: ClusterImage) -> None:
    """Raise KafkaError UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist.

    Kafka checks this after the settings. Other resources need not exist before their settings.
    """
    if resource.type == ResourceType.TOPIC and resource.name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{resource.name}'")


def _check_min_isr(resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise KafkaError INVALID_CONFIG if a change would remove the cluster's ``min.insync.replicas``.

    `before` and `after` are the own settings of `resource` before and after the change.
    """
    if resource == (ResourceType.BROKER, "") and _MIN_ISR in before and _MIN_ISR not in after:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{_MIN_ISR} of all brokers cannot be removed: brokers may have started with different ones; set "
            "another value",
        )


def _check_listeners(
    resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str], image: ClusterImage
) -> None:
    """Reject changes of settings that a broker applies only when it opens a listener, as Kafka does.

    `before` and `after` are the own settings of `resource`, as text. If `resource` is not a running broker,
    do nothing.

    Raises:
        KafkaError: INVALID_REQUEST, a changed setting is for a listener that the broker has.
    """
    broker = image.brokers.get(int(resource.name)) if _is_one_broker(resource) else None
    if broker is None:
        return
    present = {endpoint.listener.lower() for endpoint in broker.endpoints}
    for name in sorted(before.keys() | after.keys()):
        setting = ListenerSetting.parse(name) if before.get(name) != after.get(name) else None
        if setting is not None and setting.may_precede and setting.listener in present:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name} cannot be updated dynamically for an existing listener: set it for `barnabas start` "
                "and restart the broker",
            )


def _is_one_broker(resource: ConfigResource) -> bool:
    return resource.type == ResourceType.BROKER and bool(resource.name)


def _check_kerberos_rules(texts: Mapping[str, str]) -> None:
    """Raise KafkaError INVALID_REQUEST for Kerberos rules with which the broker could not start again.

    `texts` are the broker's new own settings.
    """
    for name, text in texts.items():
        if name.endswith(_KERBEROS_RULES):
            try:
                ShortNames(BrokerConfig.find(name).parse(text), default_realm="")
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _with_texts(image: ClusterImage, resource: ConfigResource, texts: Mapping[str, str]) -> ClusterImage:
    """Return a copy of the image in which a topic, a broker or all brokers have the settings `texts`."""
    if resource.type == ResourceType.TOPIC:
        return image._replace(topic_configs={**image.topic_configs, resource.name: texts})
    name = resource.name or ALL_BROKERS
    return image._replace(broker_configs={**image.broker_configs, name: texts})


def _keys_in(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in `texts` that `_check_keys` must check: those of one listener, and Kerberos."""
    return {
        name: text
        for name, text in texts.items()
        if name in _OF_KERBEROS or ListenerSetting.parse(name) is not None
    }


def _may_change_by_listener(name: str) -> bool:
    setting = ListenerSetting.parse(f"listener.name.any.{name}")
    return setting is not None and setting.may_change


def check_group_name(name: str) -> None:
    """Raise KafkaError INVALID_REQUEST if the name of a group is empty."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "groups have no settings in common: name one")


def check_client_metrics_name(name: str) -> None:
    """Raise KafkaError INVALID_REQUEST if the name of a client-metrics resource is empty."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a client-metrics resource needs a name")


def unserved(resource_type: int) -> str:
    """Return the error message for a type of resource whose settings the broker neither shows nor changes."""
    try:
        name = ResourceType(resource_type).name
    except ValueError:
        return f"there is no resource type {resource_type}"
    return f"resources of type {name} have no settings here: topics, groups, brokers, client metrics have"


def check_topic_config(texts: Mapping[str, str | None]) -> None:
    """Raise KafkaError INVALID_CONFIG unless a topic can have these settings; None is not a valid value."""
    if not texts:
        return
    for name, text in texts.items():
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} has no value: give one, or leave it out")
        try:
            TopicConfig.find(name).parse(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    given = {name: text for name, text in texts.items() if text is not None}
    _check_lags(TopicConfig.from_text(given).layers)


def _check_lags(layers: Sequence[Layer]) -> None:
    min_lag_ms, max_lag_ms = (TopicConfig.read_one(name, layers) for name in _LAGS)
    if min_lag_ms > max_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms={min_lag_ms} is more than max.compaction.lag.ms={max_lag_ms}: lower it",
        )


def _replacing(texts: Mapping[str, str | None]) -> Change:
    def change(resource: _Resource) -> dict[str, str]:
        changed = {}
        for name, text in texts.items():
            setting = resource.find(name)
            changed[setting.name] = _render(setting, resource.parse(setting, text))
        resource.check_min_isr(texts)
        return changed

    return change


def _altering(steps: Sequence[ConfigChange]) -> Change:
    def change(resource: _Resource) -> dict[str, str]:
        texts = dict(resource.texts)
        _check_lists(resource, steps)
        for step in steps:
            if step.operation == AlterOperation.DELETE:  # also of settings that this version does not know
                texts.pop(step.name, None)
            else:
                setting = resource.find(step.name)
                texts[setting.name] = _render(setting, _altered(setting, step, resource))
        resource.check_min_isr(step.name for step in steps)
        return texts

    return change


def _check_lists(resource: _Resource, steps: Sequence[ConfigChange]) -> None:
    """Raise KafkaError INVALID_CONFIG if a step appends to a setting that is no list, or subtracts from one.

    Like Kafka, check this for all steps before their values.
    """
    for step in steps:
        if step.operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            setting = resource.settings.declared.get(step.name)
            if setting is None or setting.type is not Type.LIST:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{step.name} is not a list, so it has no values to append or subtract: set it",
                )


def _altered(setting: Setting, step: ConfigChange, resource: _Resource) -> Any:
    """Return the value of `setting` after one alteration, `step`: SET, APPEND or SUBTRACT.

    A list that the resource does not set itself has its default at first. Values of brokers do not count, as
    in Kafka.

    Raises:
        KafkaError: INVALID_REQUEST, the operation is unknown; the errors of `_Resource.parse` for an invalid
            value.
    """
    if step.operation == AlterOperation.SET:
        return resource.parse(setting, step.value)
    if step.operation not in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{step.name}: there is no operation {step.operation}")
    text = resource.texts.get(setting.name)
    now = setting.default if text is None else resource.parse(setting, text)
    if step.operation == AlterOperation.APPEND:
        return (*now, *(item for item in resource.parse(setting, step.value) if item not in now))
    gone = [item.strip() for item in (step.value or "").split(",")]
    return tuple(item for item in now if item not in gone)


def _render(setting: Setting, value: Any) -> str:
    return setting.render(value) or ""


def _write(path: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Operation]:
    data = znodes.encode_config(after)
    if not before:
        return [Create(path, data)] if after else []
    return [Set(path, data)] if after else [Delete(path)]
