"""The authorizer that a broker's settings ask for."""

from __future__ import annotations

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.view import BrokerView
from barnabas.kafka.security.acls import Authorizer, Operation, SubjectRules
from barnabas.kafka.security.principal import Principal

_SUBJECTS = ("super.users", "allow.everyone.if.no.acl.found")


def open_authorizer(config: BrokerConfig, view: BrokerView) -> Authorizer | None:
    """The authorizer, which reads the rules of the current image; None where there is to be none.

    Raises:
        ConfigError: a setting of the authorizer cannot be honoured.
    """
    subjects = SubjectRules(_super_users(config), config.allow_everyone_if_no_acl_found)
    if config.authorizer_class_name is not None:
        return Authorizer(lambda: view.image.acls, subjects)
    for name in _SUBJECTS:
        if name in config.given:
            raise ConfigError(
                f"{name} is set, and there is no authorizer: set authorizer.class.name, or remove {name}"
            )
    return None


def require_own_access(authorizer: Authorizer | None, principal: Principal, host: str) -> None:
    """Check that this broker may do what brokers do: otherwise the others would refuse its requests.

    Args:
        principal: as whom it reaches them.
        host: where it is.

    Raises:
        ConfigError: it lacks CLUSTER_ACTION on the cluster.
    """
    if authorizer is None:
        return
    if not authorizer.access(principal, host).on_cluster(Operation.CLUSTER_ACTION):
        raise ConfigError(
            f"brokers reach each other as {principal}, who may not do what brokers do: add {principal} to "
            "super.users, or allow it CLUSTER_ACTION on the cluster"
        )


def _super_users(config: BrokerConfig) -> frozenset[str]:
    """Raises ConfigError for a name that is no principal."""
    names = [name.strip() for name in (config.super_users or "").split(";")]
    try:
        return frozenset(str(Principal.parse(name)) for name in names if name)
    except ValueError as error:
        raise ConfigError(f"super.users={config.super_users} is not allowed: {error}") from error
