"""The share coordinator: the delivery state of share groups' partitions, in `__share_group_state` (KIP-932)."""
