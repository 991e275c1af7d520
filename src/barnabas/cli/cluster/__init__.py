"""`barnabas cluster`: brokers and a ZooKeeper on this machine."""
