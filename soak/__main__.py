"""`python -m soak`: runs clients and faults for some minutes, ends the faults, and checks the clients'
histories.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import secrets
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.artifacts import Unavailable
from bench.peers import PEERS, BarnabasMachine, Peer

from barnabas.base.system.orphans import environment_that_ends
from soak import cluster_nemesis, java, nemesis, report
from soak.checker import check, sift
from soak.clients import Client
from soak.cluster import Cluster, await_whole
from soak.cluster_nemesis import KINDS, ClusterFaults, kinds_of
from soak.copies import with_epochs
from soak.disk import LimitedDisk, NoDiskError, unmount
from soak.history import Recorder, read
from soak.namespaces import NoNetworkError
from soak.nemesis import Fault
from soak.plan import settings, slots
from soak.storm import Machine, OneBroker, Storm, Target
from soak.survey import Survey, serves

CALM_SECONDS = 25.0
#: in which a cluster has all replicas in sync again
WHOLE_SECONDS = 60.0
CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT = 68, 76
#: bytes; Apache Kafka allows no smaller ones
LEAST_SEGMENT = {"barnabas": 0, "barnabas-2": 0, "barnabas-4": 0, "kafka": 1024 * 1024}
FOLDER = Path(__file__).resolve().parent.parent / ".soak"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long the storm lasts (%(default)g)")
    parser.add_argument(
        "--seed", type=int, help="of the faults and the records (default: a new one, printed)"
    )
    parser.add_argument(
        "--gap", type=float, default=6, help="seconds between two faults, about (%(default)g)"
    )
    parser.add_argument(
        "--only", default="", help="only clients whose name has one of these words, with commas"
    )
    parser.add_argument(
        "--faults",
        default="",
        help="of a cluster's faults only those with one of these words, with commas, even if they last long",
    )
    parser.add_argument(
        "--fsync", action="store_true", help="acknowledge what has been fsynced, not page cache"
    )
    parser.add_argument(
        "--brokers", type=int, default=1, help="several form a cluster on a real ZooKeeper (1)"
    )
    parser.add_argument("--broker", choices=tuple(LEAST_SEGMENT), default="barnabas", help="(%(default)s)")
    parser.add_argument(
        "--workers", type=int, default=10, help="members of a share group on three partitions (%(default)s)"
    )
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds that groups and transactions get to finish (120)"
    )
    parser.add_argument(
        "--check", type=Path, metavar="DIR", help="only check the histories of an earlier soak"
    )
    parser.add_argument("--keep", action="store_true", help="keep the histories though nothing was found")
    parser.add_argument("--json", action="store_true", help="print a line of JSON at the end, too")
    options = parser.parse_args(arguments)
    options.faults = [word for word in options.faults.split(",") if word]
    if options.faults and options.brokers < 2:
        parser.error("--faults chooses among the faults of a cluster: give --brokers 3, too")
    if not kinds_of(options.minutes * 60, options.faults):
        parser.error(f"--faults: none of this name is over within the soak; there are: {', '.join(KINDS)}")
    options.seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    return options


@contextmanager
def running(options: argparse.Namespace, directory: Path) -> Iterator[Peer]:
    """Run the broker under test, with its data in `directory`. Yield it."""
    peer = PEERS[options.broker](directory)
    fsync = ("barnabas.acks.fsync=true",) if options.fsync else ()
    peer.settings = (*settings(LEAST_SEGMENT[options.broker]), *fsync)
    peer.start()
    try:
        yield peer
    finally:
        peer.kill()


class Soak:
    """One soak test in its own directory, with the folders `histories/` and `broker/`."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.histories = directory / "histories"
        self.data = directory / "broker" / "data"
        unmount(self.data)
        shutil.rmtree(directory, ignore_errors=True)
        self.histories.mkdir(parents=True)
        self.recorder = Recorder(self.histories / "soak.jsonl", name="soak")
        self.clients: dict[str, Client] = {}
        self.faults: dict[str, int] = {}
        self.seconds = options.minutes * 60
        #: of a cluster: brokers that ended by themselves, and what was not in sync in the end
        self.deaths: list[str] = []
        self.failed_starts: list[str] = []
        self.not_whole: list[str] = []
        self.outputs = [directory / "broker" / "output.log"]

    @property
    def crashes(self) -> list[str]:
        return [crash for client in self.clients.values() for crash in client.crashes]

    def run(self) -> None:
        """Run the faults, the calm after them, and the final reads. Leave no process and no mounted disk
        behind.
        """
        if self.options.brokers > 1:
            try:
                self._run_cluster()
            except (NoNetworkError, NoDiskError) as reason:
                sys.exit(f"the brokers of a soak need root, for network namespaces and disks: {reason}")
            return
        if self.options.broker != "barnabas":  # others halt when their only disk is full
            self._run(None)
            return
        try:
            disk = LimitedDisk(self.data)
        except NoDiskError as reason:
            say(f"the broker's disk does not fill up, since none can be mounted: {reason}")
            self._run(None)
            return
        try:
            self._run(disk)
        finally:
            disk.close()

    def _run(self, disk: LimitedDisk | None) -> None:
        with running(self.options, self.directory / "broker") as peer:
            survey = Survey(peer.bootstrap)
            survey.create_topics(LEAST_SEGMENT[self.options.broker])
            self._engage(peer.bootstrap)
            taking_part = [client.slot for client in self.clients.values()]
            brokers = peer.brokers if isinstance(peer, BarnabasMachine) else 1
            faults = nemesis.schedule(
                self.options.seed,
                self.seconds,
                taking_part,
                self.options.gap,
                has_disk=disk is not None,
                brokers=brokers,
            )
            kind = Machine if brokers > 1 else OneBroker
            try:
                self._storm(kind(peer, self.recorder, disk), faults)
                if brokers > 1:
                    self.not_whole.append(await_whole(peer.bootstrap, WHOLE_SECONDS))
                self._calm(survey)
            finally:
                self._destroy_clients()
            peer.kill()
            peer.start()
            if brokers > 1:  # they serve before the controller has elected all leaders
                self.not_whole.append(await_whole(peer.bootstrap, WHOLE_SECONDS))
            self._record(peer.bootstrap)

    def _run_cluster(self) -> None:
        fsync = ("barnabas.acks.fsync=true",) if self.options.fsync else ()
        given = (*settings(0), *fsync)
        options = self.options
        cluster = Cluster(self.directory / "broker", options.brokers, given, options.seed, options.minutes)
        try:
            cluster.start()
            survey = Survey(cluster.bootstrap)
            survey.create_topics(0)
            self._engage(cluster.bootstrap)
            taking_part = [client.slot for client in self.clients.values()]
            faults = cluster_nemesis.schedule(
                self.options.seed, self.seconds, taking_part, self.options.gap, self.options.faults
            )
            try:
                self._storm(ClusterFaults(cluster, self.options.seed), faults, cluster.await_ready)
                self._calm(survey)
                self.not_whole.append(cluster.await_whole(WHOLE_SECONDS))
            finally:
                self._destroy_clients()
            cluster.restart_all()
            self.not_whole.append(cluster.await_whole(WHOLE_SECONDS))
            self._record(cluster.bootstrap, cluster.max_ahead_ms)
        finally:
            self.deaths, self.failed_starts = cluster.deaths, cluster.failed_starts
            self.outputs = cluster.outputs
            cluster.close()

    def _destroy_clients(self) -> None:
        for client in self.clients.values():
            client.destroy()

    def _engage(self, bootstrap: str) -> None:
        try:
            java_command = java.command(self.directory)
        except Unavailable as reason:
            say(f"no client in Java: {reason}")
            java_command = []
        first = bootstrap.split(",")[0]
        is_new = serves(first, CONSUMER_GROUP_HEARTBEAT)
        workers = self.options.workers if serves(first, SHARE_GROUP_HEARTBEAT) else 0
        words = self.options.only.split(",")
        for slot in slots(has_java=bool(java_command), has_consumer_protocol=is_new, workers=workers):
            if any(word in f"{slot.name} {slot.client}" for word in words):
                self.clients[slot.name] = Client(
                    slot,
                    self.histories,
                    self.recorder,
                    java_command,
                    bootstrap=bootstrap,
                    seed=self.options.seed,
                    is_alone=self.options.brokers == 1 and self.options.broker != "barnabas-2",
                )
        if self._has_workers:
            Survey(bootstrap).configure_workers(self.recorder)

    def _storm(self, target: Target, faults: Sequence[Fault], then: Callable[[], object] = list) -> None:
        storm = Storm(target, self.clients, self.recorder)
        self.faults = storm.counts
        for client in self.clients.values():
            client.start()
        storm.run(faults, self.seconds)
        say(f"the storm is over: {sum(storm.counts.values())} faults")
        then()
        self.recorder.note("calm")
        storm.run([], CALM_SECONDS)

    def _calm(self, survey: Survey) -> None:
        """Stop the producers, wait until the consumers reach the end of their topics, and stop them, too."""
        writers = [client for client in self.clients.values() if client.slot.writes]
        others = [client for client in self.clients.values() if not client.slot.writes]
        _stop(writers)
        topics = survey.topics()
        loops = [client.slot for client in others if client.slot.role == "transform"]
        readers = [client.slot for client in others if client.slot.role == "consume"]
        for stage in (loops, readers):  # the loops' outputs are read by others
            survey.await_groups(stage, topics, self.options.patience, lambda: _tend(others))
        survey.await_stable(topics, self.options.patience)
        if self._has_workers:
            survey.await_workers(self.options.patience, lambda: _tend(others))
        _stop(others)

    @property
    def _has_workers(self) -> bool:
        return any(client.slot.role == "work" for client in self.clients.values())

    def _record(self, bootstrap: str, ahead_ms: int = 0) -> None:
        """Read everything that is left, and write it into the history."""
        survey = Survey(bootstrap)
        survey.record(self.recorder, self._groups(), ahead_ms)
        if self._has_workers:
            survey.record_workers(self.recorder)

    def _groups(self) -> set[str]:
        return {client.slot.group for client in self.clients.values() if client.slot.group}


def _tend(clients: list[Client]) -> None:
    for client in clients:
        client.tend()


def _stop(clients: list[Client]) -> None:
    for client in clients:
        client.stop()
    for client in clients:
        client.wait()


def main() -> int:
    options = parse()
    os.environ.update(environment_that_ends())  # even a soak that is killed leaves no process behind
    faulthandler.register(signal.SIGUSR1)  # shows where it waits
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    directory = options.check or FOLDER / str(options.seed)
    crashes: list[str] = []
    faults: dict[str, int] = {}
    soak = None
    if options.check is None:
        say(f"seed {options.seed}, {options.minutes:g} minutes; histories in {directory}")
        soak = Soak(options, directory)
        soak.run()
        crashes, faults = soak.crashes, soak.faults
    histories = directory / "histories"
    findings, excused = sift(with_epochs(check(read(histories)), directory / "broker"))
    outputs = soak.outputs if soak is not None else sorted((directory / "broker").rglob("*.log"))
    said = report.complaints(outputs)
    report.write(findings, directory / "findings.jsonl")
    operations = report.operations(read(histories))
    print(report.text(operations, faults, crashes, findings, excused, said))
    failed = [] if soak is None else [*soak.deaths, *filter(None, soak.not_whole)]
    for line in failed:
        print(f"the cluster: {line}")
    for failure in [] if soak is None else soak.failed_starts:
        print(f"while faults went on, a start failed: {failure}")
    if options.json:
        found = [(finding.kind, finding.text) for finding in findings] + [
            ("cluster", text) for text in failed
        ]
        counts = operations | Counter({f"fault {kind}": count for kind, count in faults.items()})
        print(report.json_line(options.seed, options.minutes * 60, found, counts))
    print(f"seed {options.seed}" if options.check is None else f"{directory}")
    if not findings and not options.keep and options.check is None:
        shutil.rmtree(directory)
    return 1 if findings or failed else 0


if __name__ == "__main__":
    sys.exit(main())
