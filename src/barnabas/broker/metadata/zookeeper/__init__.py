"""The metadata store in a ZooKeeper ensemble, and a real ZooKeeper server that can run beside brokers.

The module `store` imports kazoo, which takes a while. So `store` is imported only when a broker uses
ZooKeeper.
"""
