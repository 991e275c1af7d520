"""Share groups on the leader of a partition (KIP-932): deliveries, acknowledgements, sessions and fetches."""
