"""Measures the cost of TLS and authorization for a broker, in CPU time of the broker's process.

    python -m bench.security [--megabytes 512] [--rounds 3] [--kafka]

The first broker has one listener without TLS and one with TLS (TLS 1.3, a P-256 key). The second broker has
an authorizer with 1,000 rules for other users. One client sends blocks of requests to them in turn, so that
all run under the same load of the machine. Ratios are medians of the rounds. Latencies include the TLS of the
client: one figure is with Python's TLS, the other with librdkafka's (as in `make bench`).

With `--kafka`, a KRaft node of Apache Kafka has the same two listeners and the same certificate. The same
client uses it in the same run.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import Producer

from barnabas.base.tls.certificates import Authority
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.records import Record, encode_batch
from bench.peers import Kafka, cpu_nanoseconds, free_port
from bench.workloads import WARM_RECORDS, WARM_SECONDS

VERSIONS = {0: 9, 1: 12, 19: 7, 30: 3}
SECONDS = 120.0
#: synchronous requests of one block
BLOCK = 500
IN_FLIGHT = 4
IDLE = 1000
RULES = 1000
#: the time of all records: those of another year would be deleted by retention during the run
NOW_MS = int(time.time() * 1000)


class Broker(NamedTuple):
    pid: int
    ports: dict[str, int]


class Client:
    """A blocking connection, with or without TLS."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def ask(self, request: Request) -> Response:
        header, frame = framed(request)
        self.send(frame)
        return parse_response(header, self.receive())

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        filled = 0
        while filled < size:
            received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError("the broker has closed the connection")
            filled += received
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


def framed(request: Request) -> tuple[RequestHeader, bytes]:
    header = RequestHeader(request.api_key, VERSIONS[request.api_key], 7, "bench")
    return header, b"".join(map(bytes, encode_request(header, request)))


def produce(records: bytes, topic: str = "bench") -> bytes:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return framed(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data))[1]


def fetch(offset: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="bench", partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    return framed(request)[1]


@contextmanager
def broker(folder: Path, listeners: dict[str, str], **settings: str) -> Iterator[Broker]:
    """Run a broker in its own process, with a port for each listener name."""
    chosen = {}
    for name in listeners:
        with socket.create_server(("127.0.0.1", 0)) as free:
            chosen[name] = free.getsockname()[1]
    given = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in chosen.items()),
        "connections.max.idle.ms": "3600000",
        **settings,
    }
    command = [sys.executable, "-m", "barnabas.cli", "start", "--data", str(folder)]
    command += [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready.startswith("ready "):
            raise RuntimeError("the broker did not start")
        yield Broker(process.pid, chosen)
    finally:
        process.terminate()
        process.wait(SECONDS)


class SecuredKafka(Kafka):
    """Apache Kafka with a second listener, which uses TLS."""

    def __init__(self, directory: Path, certificate: Path) -> None:
        super().__init__(directory)
        self._certificate = certificate
        self.tls_port = free_port()

    def prepare(self) -> None:
        controller = free_port()
        self.controllers = {self.node_id: controller}
        outside = f"PLAINTEXT://{self.bootstrap},SSL://127.0.0.1:{self.tls_port}"
        self.settings = (
            f"listeners={outside},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners={outside}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self._certificate}",
            "ssl.enabled.protocols=TLSv1.3",
        )
        super().prepare()

    @property
    def broker(self) -> Broker:
        return Broker(self.pid, {"PLAINTEXT": self.port, "SSL": self.tls_port})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512, help="each way and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--kafka", action="store_true", help="beside Apache Kafka's TLS")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="."))).resolve()
        authority = Authority.create("bench", datetime.now(UTC))
        (folder / "broker.pem").write_bytes(authority.issue("broker", ["127.0.0.1"], datetime.now(UTC)).pem)
        (folder / "ca.pem").write_bytes(authority.certificate)
        tls = ssl.create_default_context(cadata=authority.certificate.decode())
        secured = stack.enter_context(
            broker(
                folder / "tls",
                {"PLAINTEXT": "", "SSL": ""},
                **{"ssl.keystore.location": str(folder / "broker.pem")},
            )
        )
        clients = _prepared(secured, tls)
        memory(secured, tls)
        transfers(secured, clients, options.megabytes, options.rounds)
        librdkafka(secured, folder / "ca.pem", options.rounds)
        if options.kafka:
            kafka = SecuredKafka(folder / "kafka", folder / "broker.pem")
            stack.callback(kafka.kill)
            kafka.start()
            print("the same of Apache Kafka:", flush=True)
            transfers(kafka.broker, _prepared(kafka.broker, tls), options.megabytes, options.rounds)
            librdkafka(kafka.broker, folder / "ca.pem", options.rounds)
            kafka.stop()
        # Fresh as the one it is compared with: what a broker has served before shows in its cost, too.
        without = stack.enter_context(broker(folder / "no-acls", {"PLAINTEXT": ""}))
        authorised = stack.enter_context(
            broker(
                folder / "acls",
                {"PLAINTEXT": ""},
                **{
                    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                    "allow.everyone.if.no.acl.found": "true",
                },
            )
        )
        authorisation(without, authorised, options.rounds)


def _prepared(one: Broker, tls: ssl.SSLContext) -> dict[str, Client]:
    """Create the topic on a broker, and return the clients for it."""
    clients = {"plaintext": Client(one.ports["PLAINTEXT"]), "TLS": Client(one.ports["SSL"], tls)}
    topic = CreatableTopic(name="bench", num_partitions=1, replication_factor=1)
    clients["plaintext"].ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    return clients


def transfers(one: Broker, clients: dict[str, Client], megabytes: int, rounds: int) -> None:
    throughput(one, clients, megabytes, rounds)
    latency(one, clients, rounds)
    for client in clients.values():
        client.close()


def throughput(one: Broker, clients: dict[str, Client], megabytes: int, rounds: int) -> None:
    """Measure the CPU seconds for each GB of produce and of fetch."""
    records = [Record(None, os.urandom(1000), NOW_MS) for _ in range(900)]
    batch = encode_batch(records)
    requests = max(1, megabytes * 1_000_000 // len(batch))
    total = requests * len(batch) / 1e9
    costs: dict[str, list[float]] = {f"{way} {name}": [] for way in ("in", "out") for name in clients}
    rates: dict[str, list[float]] = {case: [] for case in costs}
    _warm_up(one, clients, batch, len(records))
    for _ in range(rounds):
        for name, client in clients.items():
            began = time.perf_counter()
            costs[f"in {name}"].append(_cost(one, client, [produce(batch)] * requests) / total)
            rates[f"in {name}"].append(1000 * total / (time.perf_counter() - began))
        for name, client in clients.items():
            frames = [fetch(number * len(records)) for number in range(requests)]
            began = time.perf_counter()
            costs[f"out {name}"].append(_cost(one, client, frames, len(batch)) / total)
            rates[f"out {name}"].append(1000 * total / (time.perf_counter() - began))
    for way in ("in", "out"):
        plain, with_tls = costs[f"{way} plaintext"], costs[f"{way} TLS"]
        ratio = median(b / a for a, b in zip(plain, with_tls, strict=True))
        print(
            f"{way}: {median(plain):.2f} s of broker CPU a GB in plaintext, {median(with_tls):.2f} with TLS: "
            f"{ratio:.2f} times as much; {median(rates[f'{way} plaintext']):.0f} and "
            f"{median(rates[f'{way} TLS']):.0f} MB/s",
            flush=True,
        )


def _warm_up(one: Broker, clients: dict[str, Client], batch: bytes, records: int) -> None:
    """Run each kind of work without counting it, so that a JVM compiles the code."""
    ends = time.monotonic() + WARM_SECONDS
    batches = -(-WARM_RECORDS // records)
    for client in clients.values():  # these come first: `throughput` fetches whole batches from the beginning
        _cost(one, client, [produce(batch)] * batches)
    small = produce(encode_batch([Record(None, bytes(100), NOW_MS)]))
    while time.monotonic() < ends:
        for client in clients.values():
            _cost(one, client, [fetch(number * records) for number in range(50)])
            _synchronous(client, small)


def _cost(one: Broker, client: Client, frames: list[bytes], least: int = 0) -> float:
    """Return the CPU seconds of the broker for some requests, several of them in flight.

    Raises:
        RuntimeError: a response has fewer bytes than `least`.
    """
    before = cpu_nanoseconds(one.pid)
    sizes = []
    for number, frame in enumerate(frames):
        client.send(frame)
        if number >= IN_FLIGHT:
            sizes.append(len(client.receive()))
    sizes.extend(len(client.receive()) for _ in range(min(IN_FLIGHT, len(frames))))
    if min(sizes) < least:
        raise RuntimeError(f"a response has {min(sizes)} bytes, and at least {least} are expected")
    return (cpu_nanoseconds(one.pid) - before) / 1e9


def latency(one: Broker, clients: dict[str, Client], rounds: int) -> None:
    """Measure synchronous produce requests of one record of 100 B, with Python's connection."""
    frame = produce(encode_batch([Record(None, bytes(100), NOW_MS)]))
    taken: dict[str, list[float]] = {name: [] for name in clients}
    cpu: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(10 * rounds):
        for name, client in clients.items():
            before = cpu_nanoseconds(one.pid)
            taken[name] += _synchronous(client, frame)
            cpu[name].append((cpu_nanoseconds(one.pid) - before) / BLOCK / 1e3)
    plain, with_tls = (median(taken[name]) * 1e6 for name in ("plaintext", "TLS"))
    print(
        f"synchronous produce, p50: {plain:.0f} us in plaintext, {with_tls:.0f} us with TLS: "
        f"{with_tls / plain:.2f} times as much; broker CPU a request {median(cpu['plaintext']):.0f} and "
        f"{median(cpu['TLS']):.0f} us",
        flush=True,
    )


def _synchronous(client: Client, frame: bytes) -> list[float]:
    taken = []
    for _ in range(BLOCK):
        began = time.perf_counter()
        client.send(frame)
        client.receive()
        taken.append(time.perf_counter() - began)
    return taken


def librdkafka(one: Broker, authority: Path, rounds: int) -> None:
    """Measure synchronous produce requests of one record of 100 B, with librdkafka."""
    producers = {}
    for name, protocol in (("plaintext", "PLAINTEXT"), ("TLS", "SSL")):
        producers[name] = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{one.ports[protocol]}",
                "security.protocol": protocol,
                "linger.ms": 0,
                **({"ssl.ca.location": str(authority)} if protocol == "SSL" else {}),
            }
        )
    taken: dict[str, list[float]] = {name: [] for name in producers}
    for number in range(10 * rounds + 1):
        for name, producer in producers.items():
            latencies = _acknowledged(producer)
            if number:  # the first ones make the connection
                taken[name] += latencies
    plain, with_tls = (median(taken[name]) * 1e6 for name in ("plaintext", "TLS"))
    print(
        f"the same by librdkafka, p50: {plain:.0f} us in plaintext, {with_tls:.0f} us with TLS: "
        f"{with_tls / plain:.2f} times as much",
        flush=True,
    )


def _acknowledged(producer: Producer) -> list[float]:
    taken = []
    errors: list[object] = []
    for number in range(BLOCK):
        began = time.perf_counter()
        producer.produce("bench", bytes(100), partition=0, callback=lambda error, _: errors.append(error))
        while len(errors) == number:
            producer.poll(SECONDS)
        taken.append(time.perf_counter() - began)
    if any(errors):
        raise RuntimeError(f"a record was not delivered: {next(filter(None, errors))}")
    return taken


def authorisation(without: Broker, authorised: Broker, rounds: int) -> None:
    """Measure the broker's CPU time of a produce request, with and without an authorizer."""
    clients = {name: Client(each.ports["PLAINTEXT"]) for name, each in (("0", without), ("1", authorised))}
    topic = CreatableTopic(name="allowed", num_partitions=1, replication_factor=1)
    for client in clients.values():
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    # operation 4 is WRITE, pattern 3 LITERAL and 4 PREFIXED, type 2 a topic, permission 3 ALLOW
    rules = [("User:ANONYMOUS", "allowed", 3)]
    rules += [(f"User:u{number}", f"t{number}", 3 + number % 2) for number in range(RULES)]
    clients["1"].ask(
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2,
                    resource_name=name,
                    resource_pattern_type=pattern,
                    principal=principal,
                    host="*",
                    operation=4,
                    permission_type=3,
                )
                for principal, name, pattern in rules
            ]
        )
    )
    frame = produce(encode_batch([Record(None, bytes(100), NOW_MS)]), "allowed")
    ratios, costs = [], []
    for _ in range(20 * rounds):
        spent = []
        for name, each in (("0", without), ("1", authorised)):
            before = cpu_nanoseconds(each.pid)
            _synchronous(clients[name], frame)
            spent.append((cpu_nanoseconds(each.pid) - before) / BLOCK / 1e3)
        costs.append(spent)
        ratios.append(spent[1] / spent[0])
    plain, checked = (median(each[side] for each in costs) for side in (0, 1))
    print(
        f"authorisation: {plain:.1f} us of broker CPU a produce request without, {checked:.1f} with an "
        f"authorizer: {100 * (median(ratios) - 1):+.1f} % (median of {len(ratios)} pairs)",
        flush=True,
    )
    for client in clients.values():
        client.close()


def memory(one: Broker, tls: ssl.SSLContext) -> None:
    """Measure the memory of idle connections, before and after each has transferred
    200 KB in both directions.
    """
    began = _rss(one.pid)
    idle = [Client(one.ports["SSL"], tls) for _ in range(IDLE)]
    time.sleep(1)
    fresh = _rss(one.pid) - began
    batch = encode_batch([Record(None, os.urandom(1000), NOW_MS) for _ in range(200)])
    for client in idle:
        client.send(produce(batch))
        client.receive()
        client.send(fetch(0))
        client.receive()
    used = _rss(one.pid) - began
    for client in idle:
        client.close()
    print(
        f"{IDLE} idle TLS connections: {fresh / 1e6:.1f} MB after the handshake, {used / 1e6:.0f} MB after "
        "200 KB in and out on each",
        flush=True,
    )


def _rss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no memory")


if __name__ == "__main__":
    main()
