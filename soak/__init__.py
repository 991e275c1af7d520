"""The soak test: many clients use a broker that is killed, paused and restarted. A checker then examines
their histories.

It is a tool for the developers of this project. It needs every client library, and a broker that it may kill.
So it is not in the package that users install.
"""
