"""The broker's network side: listeners, connections, TLS and logins."""
