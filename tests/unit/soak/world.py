"""A simulated world without faults: logs, transactions and groups in memory, and clients with histories.

The histories are those of the soak's clients, without anomalies. A test then changes them.
"""

from __future__ import annotations

import itertools
from typing import Any

Place = tuple[str, int]
SECOND = 1_000_000_000


class World:
    def __init__(self, *places: Place, compacted: tuple[str, ...] = ()) -> None:
        self.now = 0
        self.histories: dict[str, list[dict[str, Any]]] = {}
        #: each log: (id, key, transaction or None); a marker is (None, None, transaction)
        self.logs: dict[Place, list[tuple[str | None, str | None, Any]]] = {place: [] for place in places}
        self.starts: dict[Place, int] = dict.fromkeys(places, 0)
        self.committed: dict[tuple[str, Place], int] = {}
        self._compacted = compacted
        #: what a topic may lose: retention_ms, retention_bytes
        self.retention: dict[str, dict[str, int]] = {}
        self._deletes = itertools.count(1)
        self.note("soak", "process", name="soak")

    def note(self, process: str, what: str, **fields: Any) -> dict[str, Any]:
        self.now += SECOND
        event = {"what": what, "at": self.now, **fields}
        self.histories.setdefault(process, []).append(event)
        return event

    def events(self, process: str, what: str) -> list[dict[str, Any]]:
        return [event for event in self.histories[process] if event["what"] == what]

    def producer(self, name: str = "p", **about: Any) -> Producer:
        return Producer(self, name, **about)

    def consumer(self, name: str = "c", group: str = "", **about: Any) -> Consumer:
        return Consumer(self, name, group, **about)

    def visible(self, place: Place, isolation: str) -> list[tuple[int, str, str | None]]:
        """Return the records that a reader may receive now."""
        found = []
        for offset, (identity, key, transaction) in enumerate(self.logs[place]):
            if isolation == "read_committed" and transaction is not None and transaction["state"] == "open":
                break
            if identity is None or offset < self.starts[place]:
                continue
            if isolation == "read_uncommitted" or transaction is None or transaction["state"] == "committed":
                found.append((offset, identity, key))
        return found

    def expire(self, place: Place, offset: int) -> None:
        """Delete records before `offset` by retention, up to the last stable offset."""
        self.retention[place[0]] = {"retention_bytes": 0}
        self.starts[place] = max(self.starts[place], min(offset, self._stable(place)))

    def _stable(self, place: Place) -> int:
        log = self.logs[place]
        return next((o for o, (_, _, t) in enumerate(log) if t and t["state"] == "open"), len(log))

    def delete(self, place: Place, offset: int, *, answered: bool = True, undone: bool = False) -> None:
        """Let an administrator delete the records before `offset`.

        An `undone` deletion has failed, and the next leader has the records again.
        """
        number = next(self._deletes)
        self.note("keep", "delete", number=number, offsets=[[*place, offset]])
        if undone:
            self.note("keep", "deleted", number=number, ok=False, error="REQUEST_TIMED_OUT")
            return
        self.starts[place] = max(self.starts[place], min(offset, len(self.logs[place])))
        if answered:
            self.note("keep", "deleted", number=number, ok=True, error=None)

    def look(self, place: Place) -> dict[str, Any]:
        """Let an administrator request the start and the end of the log. Return the event, which a test can
        change.
        """
        self.now += SECOND
        bounds = [*place, self.starts[place], len(self.logs[place])]
        return self.note("keep", "bounds", asked=self.now, bounds=[bounds])

    def create(self, place: Place, topic_id: str | None = None) -> dict[str, Any]:
        """Create a topic of one partition. Return the event, which a test can change."""
        self.note("recycle", "create", topic=place[0])
        self.logs[place] = []
        self.starts[place] = 0
        return self.note("recycle", "created", topic=place[0], ok=True, topic_id=topic_id, existed=False)

    def remove(self, place: Place) -> dict[str, Any]:
        """Delete a topic. Return the event, which a test can change."""
        self.note("recycle", "remove", topic=place[0])
        del self.logs[place]
        return self.note("recycle", "removed", topic=place[0], ok=True, existed=True)

    def scan(self, place: Place) -> dict[str, Any]:
        """Read all present records. Return the event, which a test can change."""
        self.now += SECOND
        records = [list(record) for record in self.visible(place, "read_uncommitted")]
        return self.note(
            "recycle", "scan", asked=self.now, topic=place[0], partition=place[1], records=records
        )

    def survey(self) -> World:
        """Add the events of the soak's final reads."""
        for topic in {topic for topic, _ in self.logs}:
            self.note(
                "soak",
                "topic",
                name=topic,
                compacted=topic in self._compacted,
                **self.retention.get(topic, {}),
            )
        for place, log in self.logs.items():
            for isolation in ("read_uncommitted", "read_committed"):
                end = len(log) if isolation == "read_uncommitted" else self._stable(place)
                self.note(
                    "soak",
                    "log",
                    topic=place[0],
                    partition=place[1],
                    isolation=isolation,
                    start=self.starts[place],
                    end=end,
                    records=[list(record) for record in self.visible(place, isolation)],
                )
        for group in sorted({group for group, _ in self.committed}):
            offsets = [[*place, offset] for (g, place), offset in self.committed.items() if g == group]
            self.note("soak", "group", group=group, offsets=offsets)
        return self

    def shown(self, place: Place, isolation: str = "read_uncommitted") -> dict[str, Any]:
        """Return the event of the final read of a log, which a test can change."""
        (event,) = [
            event
            for event in self.events("soak", "log")
            if (event["topic"], event["partition"]) == place and event["isolation"] == isolation
        ]
        return event


class Producer:
    """A producer, which is transactional if it has a `transactional_id`."""

    def __init__(self, world: World, name: str, **about: Any) -> None:
        self._world = world
        self.name = name
        self._numbers = itertools.count(1)
        self._transactions = itertools.count(1)
        self._open: dict[str, Any] | None = None
        world.note(name, "process", **{"name": name, "role": "produce", "client": "test", **about})
        if "transactional_id" in about:
            world.note(name, "init")
            world.note(name, "inited")

    def send(
        self,
        place: Place,
        key: str = "k",
        *,
        source: Any = None,
        answered: bool = True,
        tombstone: bool = False,
    ) -> str:
        """Send a record and return its id. With `answered=False` its outcome is unknown."""
        world = self._world
        identity = f"{self.name}:{next(self._numbers)}"
        txn = self._open["number"] if self._open else None
        about = {"id": identity, "to": list(place), "key": key, "txn": txn, "source": source}
        world.note(self.name, "send", **about, tombstone=tombstone)
        world.logs[place].append((identity, key, self._open))
        if self._open is not None:
            self._open["places"].add(place)
        if answered:
            world.note(self.name, "ack", id=identity, offset=len(world.logs[place]) - 1)
        return identity

    def begin(self) -> None:
        self._open = {"number": next(self._transactions), "state": "open", "places": set(), "offsets": []}
        self._world.note(self.name, "begin", txn=self._open["number"])

    def offsets(self, group: str, offsets: dict[Place, int]) -> None:
        assert self._open is not None
        flat = [[*place, offset] for place, offset in offsets.items()]
        self._world.note(self.name, "offsets", txn=self._open["number"], group=group, offsets=flat)
        self._open["offsets"] += [((group, place), offset) for place, offset in offsets.items()]

    def end(self, *, commit: bool = True, answered: bool = True) -> None:
        world, transaction = self._world, self._open
        assert transaction is not None
        self._open = None
        world.note(self.name, "end", txn=transaction["number"], commit=commit)
        transaction["state"] = "committed" if commit else "aborted"
        for place in transaction["places"]:
            world.logs[place].append((None, None, transaction))
        if commit:
            world.committed |= dict(transaction["offsets"])
        if answered:
            world.note(self.name, "ended", txn=transaction["number"], commit=commit, ok=True, error=None)


class Consumer:
    def __init__(self, world: World, name: str, group: str, **about: Any) -> None:
        self._world = world
        self.name = name
        self._group = group
        self._isolation = about.setdefault("isolation", "read_committed")
        self.positions: dict[Place, int] = {}
        self._commits = itertools.count(1)
        self.process = {"name": name, "role": "consume", "client": "test", "group": group, **about}
        world.note(name, "process", **self.process)

    def assign(self, *places: Place) -> None:
        self._world.note(self.name, "assigned", partitions=[list(place) for place in places])
        for place in places:
            self.positions[place] = self._world.committed.get((self._group, place), 0)

    def revoke(self) -> None:
        self._world.note(self.name, "revoked", partitions=[list(place) for place in self.positions])
        self.positions.clear()

    def rewind(self) -> None:
        """Go back to the committed offsets, as a loop does after an abort."""
        for place in self.positions:
            self.positions[place] = self._world.committed.get((self._group, place), 0)
        offsets = [[*place, offset] for place, offset in self.positions.items()]
        self._world.note(self.name, "seek", offsets=offsets)

    def poll(self, max_records: int = 1000) -> list[tuple[Place, int, str]]:
        taken: list[tuple[Place, int, str]] = []
        for place, position in self.positions.items():
            for offset, identity, _ in self._world.visible(place, self._isolation):
                if offset >= position and len(taken) < max_records:
                    taken.append((place, offset, identity))
                    self.positions[place] = offset + 1
        if taken:
            records = [[*place, offset, identity] for place, offset, identity in taken]
            self._world.note(self.name, "poll", records=records)
        return taken

    def commit(self, *, answered: bool = True) -> None:
        number = next(self._commits)
        offsets = [[*place, offset] for place, offset in self.positions.items()]
        self._world.note(self.name, "commit", number=number, offsets=offsets)
        for place, offset in self.positions.items():
            self._world.committed[self._group, place] = offset
        if answered:
            self._world.note(self.name, "committed", number=number, ok=True, error=None)
