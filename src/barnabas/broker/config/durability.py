"""Settings with which a cluster of a few brokers survives the loss of any one of them."""

from __future__ import annotations


def replicated_settings(brokers: int) -> dict[str, str]:
    """Three replicas of every topic, of which two must be in sync; fewer where `brokers` are fewer."""
    replicas, in_sync = str(min(3, brokers)), str(min(2, brokers))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }
