"""Creates the authorizer that a broker's settings select."""

from __future__ import annotations

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.view import BrokerView
from barnabas.kafka.security.acls import Authorizer, Operation, SubjectRules
from barnabas.kafka.security.principal import Principal

_SUBJECTS = ("super.users", "allow.everyone.if.no.acl.found")


def open_authorizer(config: BrokerConfig, view: BrokerView) -> Authorizer | None:
    """Create the authorizer that the settings select; None if they select none.

    The authorizer always uses the ACLs of the current cluster image.

    Raises:
        ConfigError: ``super.users`` is invalid, or a setting of the authorizer is set without an authorizer.
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
    """Check that the ACLs allow this broker to send requests to other brokers.

    Args:
        authorizer: authorizer of this broker; None allows everything.
        principal: principal with which this broker logs in to other brokers.
        host: address from which this broker connects.

    Raises:
        ConfigError: the principal lacks CLUSTER_ACTION on the cluster.
    """
    if authorizer is None:
        return
    if not authorizer.access(principal, host).on_cluster(Operation.CLUSTER_ACTION):
        raise ConfigError(
            f"the brokers log in to each other as {principal}, which lacks permissions: add {principal} to "
            "super.users, or allow it CLUSTER_ACTION on the cluster"
        )


def _super_users(config: BrokerConfig) -> frozenset[str]:
    """Parse ``super.users``. Raises ConfigError for an invalid principal."""
    names = [name.strip() for name in (config.super_users or "").split(";")]
    try:
        return frozenset(str(Principal.parse(name)) for name in names if name)
    except ValueError as error:
        raise ConfigError(f"super.users={config.super_users} is not allowed: {error}") from error
