"""The audit log: who logged in, who was refused what, who changed what."""
