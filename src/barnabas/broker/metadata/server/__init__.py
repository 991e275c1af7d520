"""Serves the embedded store to the brokers of one machine, in ZooKeeper's protocol over a Unix socket."""
