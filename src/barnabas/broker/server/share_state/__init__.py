"""Reads and writes the state of share groups at the share coordinators, and prunes the log of this state."""
