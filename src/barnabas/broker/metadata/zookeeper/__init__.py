"""The metadata store in a ZooKeeper ensemble, and a real ZooKeeper to run beside brokers.

`store` needs kazoo, which takes a while to import: nothing imports it before a broker is to use it.
"""
