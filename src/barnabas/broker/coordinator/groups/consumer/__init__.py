"""Groups of the consumer protocol (KIP-848).

The coordinator assigns partitions, and each member adopts its assignment at its own pace.
"""
