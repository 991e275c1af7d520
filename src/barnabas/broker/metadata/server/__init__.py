"""The embedded store, served to the brokers of one machine in ZooKeeper's protocol, over a Unix socket."""
