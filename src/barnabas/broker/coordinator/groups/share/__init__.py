"""Share groups: members, assignments, and the initialization of share partitions (KIP-932)."""
