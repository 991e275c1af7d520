"""Whole brokers in one process, from a seed: their environment in memory and in virtual time.

    async def scenario():
        loop = asyncio.get_running_loop()
        network = SimulatedNetwork(Random(f"{seed} network"))
        disk = FaultyDisk(VirtualClock(loop))               # the machine's disk outlives its processes
        process, host = VirtualProcess("broker"), network.host("broker")
        threads = VirtualThreads(Random(f"{seed} threads"))
        environment = Environment(
            clock=VirtualClock(loop, threads), filesystem=disk, blocking=threads, network=host,
            random=Random(f"{seed} broker"),
        )
        broker = Broker(BrokerConfig.from_text({"listeners": "PLAINTEXT://broker:9092"}), environment)
        await process.run(broker.start())                   # all that it begins belongs to the process
        ...                                                 # clients: `barnabas.broker.interbroker.Channel`
        await asyncio.sleep(86_400)                         # takes as long as what happens in that day
        process.kill()                                      # kill -9: not even `finally` blocks go on
        network.power_off("broker")                         # or host.kill() where only the process ends
        disk.crash(Random(f"{seed} crash"))                 # a power cut; or disk.process_ended()
        network.power_on("broker")                          # next: another process, host, threads and broker

    run_virtual(scenario())

`tests/unit/simulation/whole_broker.py` is a complete example. A seed gives the same run each time as long as
nothing is done in an order of addresses or hashes: iterate over dictionaries, or over sorted sets.

virtual_time: the event loop, and processes on it that can be killed.
network: hosts, listening and connecting, cuts, slow links, machines that lose their power.
connection: one connection of that network, as two asyncio transports.
faulty_disk: a file system that fails and forgets as disks do.
blocking: threads that are none.
clocks: wall time in virtual time, or by hand.
ensemble: a metadata store that brokers share: it lags, loses answers, breaks connections, ends sessions.
environment: an environment of all these for tests of a broker's parts.
"""
