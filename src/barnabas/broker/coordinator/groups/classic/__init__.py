"""Classic groups: their members rebalance in rounds, and the leader among them assigns (KIP-62, KIP-345)."""
