"""Common parts of AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.controller import ConfigResource


class _Named(Protocol):
    resource_type: int
    resource_name: str
    configs: Any


R = TypeVar("R", bound=_Named)
T = TypeVar("T")


def resources_once(
    resources: Sequence[R], needs_value: Callable[[Any], bool] = lambda config: True
) -> tuple[dict[ConfigResource, R], dict[ConfigResource, KafkaError]]:
    """Return the valid resources by key, and the errors of the others by key.

    A resource is valid if the request has it only once, and has each of its settings only once, with a value.
    `needs_value` returns whether a setting needs one. The error of the others is INVALID_REQUEST. A key is
    the type and the name of a resource.
    """
    named = Counter(map(_key, resources))
    once: dict[ConfigResource, R] = {}
    errors: dict[ConfigResource, KafkaError] = {}
    for resource in resources:
        key = _key(resource)
        settings = Counter(config.name for config in resource.configs)
        twice = [name for name, times in settings.items() if times > 1]
        without = [each.name for each in resource.configs if each.value is None and needs_value(each)]
        if named[key] > 1:
            errors[key] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"the request names '{key.name}' {named[key]} times"
            )
        elif twice:
            errors[key] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"the request names {', '.join(twice)} more than once"
            )
        elif without:
            errors[key] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"{', '.join(without)} has no value: give one, or delete it"
            )
        else:
            once[key] = resource
    return once, errors


def results(
    result: Callable[..., T],
    resources: Sequence[_Named],
    error_of: Callable[[ConfigResource], KafkaError | None],
) -> list[T]:
    """Return a result for each resource, in the request's order.

    Args:
        result: message class of a result, with the fields for an error and for the name of a resource.
        resources: resources of the request.
        error_of: returns the error of a resource; None if the controller has changed it.
    """
    made = []
    for resource in resources:
        error = error_of(_key(resource))
        made.append(
            result(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return made


def _key(resource: _Named) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.resource_name)
