"""Runs whole brokers in one process, in memory and in virtual time. A seed decides all chance.

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
        await process.run(broker.start())                   # all tasks it starts belong to the process
        ...                                                 # clients: `barnabas.broker.interbroker.Channel`
        await asyncio.sleep(86_400)                         # costs only the work done in that day
        process.kill()                                      # kill -9: not even `finally` blocks run
        network.power_off("broker")                         # or host.kill() if only the process ends
        disk.crash(Random(f"{seed} crash"))                 # a power cut; or disk.process_ended()
        network.power_on("broker")                          # next: another process, host, threads and broker

    run_virtual(scenario())

`tests/unit/simulation/whole_broker.py` is a complete example. A seed gives the same run each time, unless the
order of some work depends on addresses or hashes. So iterate over dictionaries, or over sorted sets.

virtual_time: the event loop, and processes on it that can be killed.
network: hosts, listening and connecting, cuts, slow links, and machines that lose power.
connection: one connection of that network, as two asyncio transports.
faulty_disk: a file system that fails, and loses writes at a power cut, as disks do.
blocking: thread pools that use no threads.
clocks: wall time that follows virtual time, or that a test sets.
ensemble: a metadata store that brokers share. It lags, loses responses, and ends connections and sessions.
environment: an environment of all these, for tests of parts of a broker.
"""
