"""The soak in virtual time: whole brokers and their clients in one process, from a seed (`make simulate`).

The broker's code is the real one: sessions, dispatch, handlers, coordinators, logs, cleaner, metadata. Only
its network, disk, threads, clock and random numbers are simulated (package `simulation`), so the same seed
gives the same run.

- stage: objects that the clients share: the network, the histories, random numbers, findings.
- client, fetcher, sender, transaction, members: parts of clients.
- share_member, share_sessions: parts of the members of share groups.
- writers, readers, workers, admins, rude: the clients, by their role.
- plan: the topics, the broker's settings, and the clients of a seed's run.
- broker: the processes of a broker: start, stop, kill, power cut.
- faults: the faults of a seed, and their times.
- invariants: conditions that are always true within the broker.
- survey, share_survey: the final reads of all partitions.
- run: one seed, from the start to the checker's findings.
- bugs, cluster_bugs, share_bugs: bugs to plant, one at a time, to test the checks.
"""
