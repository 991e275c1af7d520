"""What a broker reaches outside of itself: interfaces, each with its implementation by the operating system.

A broker is given these from the top and reaches around them nowhere. So a whole broker runs in virtual time,
from a seed, in one process with many others: `barnabas.simulation` has the implementations for that.

blocking: pools of threads for what blocks.
clock: wall time.
filesystem: files and folders.
network: listening, connecting, the name of this machine.
machine: what the real network asks the system about this machine.
randomness: random numbers and unique ids.
"""
