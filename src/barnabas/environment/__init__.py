"""What a broker reaches outside of itself: interfaces, each with its implementation by the operating system.

`barnabas.simulation` has the implementations in virtual time.

network: listening, connecting, the name of this machine.
machine: what the real network asks the system about this machine.
"""
