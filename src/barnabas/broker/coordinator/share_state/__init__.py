"""The share coordinator: the delivery states of share groups, in `__share_group_state` (KIP-932)."""
