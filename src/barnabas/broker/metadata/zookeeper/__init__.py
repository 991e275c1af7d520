"""The metadata store in a ZooKeeper ensemble, and a real ZooKeeper server that can run beside brokers.

`store` needs kazoo, which takes a while to import. So nothing imports it until a broker uses it.
"""
