"""The environment of a broker: interfaces to the system, and their real implementations.

The code that creates a broker passes the implementations to it. The broker has no other access to the system.
The top-level package `simulation` has other implementations. With them several brokers run in one process, in
virtual time, and a seed determines all random numbers and delays.

blocking: pools of threads for blocking calls.
clock: wall time.
filesystem: files and folders.
network: listening, connecting, the name of this machine.
machine: facts about this machine that the real network needs.
randomness: random numbers and unique ids.
"""
