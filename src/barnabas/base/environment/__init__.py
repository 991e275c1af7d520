"""The environment of a broker: interfaces to the system, and their real implementations.

A broker receives these from its caller and has no other access to the system. Thus several brokers can run
in virtual time, from a seed, in one process: `simulation` implements the interfaces for that.

blocking: pools of threads for blocking calls.
clock: wall time.
filesystem: files and folders.
network: listening, connecting, the name of this machine.
machine: facts about this machine that the real network needs.
randomness: random numbers and unique ids.
"""
