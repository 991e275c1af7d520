"""The audit log records logins, denied operations and changes, each with its user."""
