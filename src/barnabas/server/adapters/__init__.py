"""What connects coordinators, replication and controller, which do not know one another."""
