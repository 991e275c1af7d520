"""Following: copies the partitions that other brokers lead, with one fetcher for each of those brokers.

manager: who is followed, as the cluster image says.
fetcher: the requests to one leader, and what becomes of their replies.
session: what the leader knows by the fetch session, and so what the next request must name (KIP-227).
"""

from barnabas.broker.replication.following.manager import Following

__all__ = ["Following"]
