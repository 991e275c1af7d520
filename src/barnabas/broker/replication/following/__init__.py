"""Following: copies the partitions that other brokers lead, with one fetcher for each of those brokers.

manager: decides which leaders to follow, from the cluster image.
fetcher: sends requests to one leader, and applies the responses.
fetch_session: tracks the partitions that the leader knows, so that requests have only changes (KIP-227).
"""

from barnabas.broker.replication.following.manager import Following

__all__ = ["Following"]
