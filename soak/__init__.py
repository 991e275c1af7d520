"""The soak: many clients, a broker that is killed, paused and restarted, and a checker of what they saw.

A tool of this project's developers, so it lives beside `bench/` and `tests/`, and not in the package that
users install: it needs every client there is, and a broker that it may kill.
"""
