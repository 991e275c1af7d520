"""Whole brokers in one process, from a seed: their environment in memory and in virtual time.

virtual_time: the event loop, and processes on it that can be killed.
network: hosts, listening and connecting, cuts, slow links, machines that lose their power.
connection: one connection of that network, as two asyncio transports.
faulty_disk: a file system that fails and forgets as disks do.
blocking: threads that are none.
"""
