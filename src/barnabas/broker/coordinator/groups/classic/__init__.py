"""Classic groups: all members join each rebalance, and the leader among them assigns (KIP-62, KIP-345)."""
