"""What AlterConfigs and IncrementalAlterConfigs have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from barnabas.controller import ConfigResource
from barnabas.errors import ErrorCode, KafkaError


class _Named(Protocol):
    resource_type: int
    resource_name: str
    configs: Any


R = TypeVar("R", bound=_Named)


def resources_once(
    resources: Sequence[R],
) -> tuple[dict[ConfigResource, R], dict[ConfigResource, KafkaError]]:
    """The resources that are named once and name each setting once; the errors of the others."""
    named = Counter(ConfigResource(r.resource_type, r.resource_name) for r in resources)
    once: dict[ConfigResource, R] = {}
    errors: dict[ConfigResource, KafkaError] = {}
    for resource in resources:
        key = ConfigResource(resource.resource_type, resource.resource_name)
        settings = Counter(config.name for config in resource.configs)
        twice = [name for name, times in settings.items() if times > 1]
        if named[key] > 1:
            errors[key] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"the request names '{key.name}' {named[key]} times"
            )
        elif twice:
            errors[key] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"the request names {', '.join(twice)} more than once"
            )
        else:
            once[key] = resource
    return once, errors
