"""The soak in virtual time: a whole broker and its clients in one process, from a seed (`make simulate`).

The broker is a whole one: sessions, dispatch, handlers, coordinators, logs, cleaner, metadata. Its network,
disk, threads, clock and random numbers are simulated (`simulation`): the same seed is the same run.

stage: what the clients share: the network, the histories, random numbers, complaints.
client, fetcher, sender, transaction, members: what clients are made of.
writers, readers, admins, rude: the clients, by their role.
plan: the topics, the broker's settings, and who takes part in a seed's run.
broker: the broker's lives: started, stopped, killed, without power.
faults: which faults a seed brings, and when.
invariants: what must hold within the broker at all times.
survey: what is left in the end.
run: one seed, from the start to the checker's findings.
bugs: bugs to plant, one at a time, to see which of them the checks catch.
"""
