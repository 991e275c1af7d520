"""The format of the embedded store's file: a snapshot of the tree, then every later transaction.

It is text. Each line is a checksum of 8 hexadecimal digits, a space and a JSON object:

    0f3a… {"format":2,"store":ID,"generation":G,"transaction":T,"nodes":[[path,version,created,data],…]}
    91c2… {"generation":G+1,"transaction":T,"changes":[[path,version,created,data],[deleted path],…]}

The checksum is the CRC-32C of the previous checksum (zero at the start, as four bytes) and of the object. So
it reveals a line that was changed, cut, dropped, repeated or moved. A file cannot show that lines at its end
are missing. The other copy shows that by its higher generation. Each commit raises the generation by one.
Node data is stored as one character for each byte (ISO 8859-1).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.broker.metadata.store import StoreNode, shared_node
from barnabas.broker.metadata.tree import Change
from barnabas.kafka.records.crc import crc32c

#: the version of the format; it grows with each change, so that an older Barnabas rejects a newer file
FORMAT = 2
_DIGITS = 8
_encode = json.JSONEncoder(separators=(",", ":")).encode


class UnknownFormatError(ValueError):
    """The file is from another version of Barnabas."""


@dataclass(slots=True)
class Journal:
    """The content of a journal file, up to its first damage."""

    store_id: str
    generation: int
    #: the number of the store's last transaction
    transaction: int
    nodes: dict[str, StoreNode] = field(default_factory=dict)
    #: bytes of the whole lines, and the last one's checksum
    size: int = 0
    checksum: int = 0
    #: bytes of the first line, the snapshot
    snapshot_size: int = 0
    #: the damage after these lines; None for a whole file
    damage: str | None = None


def encode_snapshot(
    store_id: str, generation: int, transaction: int, nodes: Mapping[str, StoreNode]
) -> tuple[bytes, int]:
    """Encode a snapshot of a store. Return the first line of a journal file, and its checksum.

    Args:
        store_id: id of the store.
        generation: number of the last commit in the snapshot.
        transaction: number of the last transaction in the snapshot.
        nodes: permanent nodes of the store, by path.
    """
    head = {"format": FORMAT, "store": store_id, "generation": generation, "transaction": transaction}
    # one by one, since the encoder lets no other thread run before it returns
    entries = ",".join([_encode(_entry(path, node)) for path, node in nodes.items()])
    return encode_line(f'{_encode(head)[:-1]},"nodes":[{entries}]}}'.encode(), 0)


def encode_commit(generation: int, transaction: int, changes: Iterable[Change]) -> bytes:
    """Encode a commit as a JSON object, for `encode_line`.

    Changes of ephemeral nodes are left out, because these nodes end with the process. So a commit can have no
    changes.

    Args:
        generation: number of the commit.
        transaction: number of the last transaction in the commit.
        changes: changes of nodes, in order.
    """
    entries: list[Any] = []
    for change in changes:
        if change.after is None:
            entries.append([change.path])
        elif not change.after.owner:
            entries.append(_entry(change.path, change.after))
    return _encode({"generation": generation, "transaction": transaction, "changes": entries}).encode()


def encode_line(body: bytes, before: int) -> tuple[bytes, int]:
    """Return the line for the encoded object `body`, and its checksum. `before` is the previous checksum."""
    checksum = _checksum(before, body)
    return b"%08x %b\n" % (checksum, body), checksum


def decode(content: bytes) -> Journal:
    """Decode a journal file up to its first damaged line. `Journal.damage` describes that damage.

    Raises:
        UnknownFormatError: the file is from another version.
        ValueError: even the snapshot is damaged.
    """
    journal: Journal | None = None
    for number, line in enumerate(content.splitlines(keepends=True) if content else (), 1):
        before = 0 if journal is None else journal.checksum
        value, checksum = _decode_line(line, before)
        if value is None:
            if journal is None:
                break
            left = len(content) - journal.size
            journal.damage = f"its last {left} bytes, from line {number} on, do not match their checksum"
            break
        if journal is None:
            journal = _snapshot(value)
            journal.snapshot_size = len(line)
        else:
            _apply(journal, value)
        journal.size += len(line)
        journal.checksum = checksum
    if journal is None:
        raise ValueError("its first line does not match its checksum" if content else "it is empty")
    return journal


def furthest_generation(content: bytes) -> int:
    """Return the highest generation in the lines with a valid checksum; -1 if there is no such line.

    Lines after a damaged line count, too. The checksum of a line depends on the checksum at the beginning of
    the previous line, and not on the rest of the previous line.
    """
    furthest = -1
    before = 0
    for line in content.splitlines(keepends=True):
        value, _ = _decode_line(line, before)
        if value is not None:
            furthest = max(furthest, value.get("generation", -1))
        with contextlib.suppress(ValueError):
            before = int(line[:_DIGITS], 16) & 0xFFFFFFFF
    return furthest


def _decode_line(line: bytes, before: int) -> tuple[dict[str, Any] | None, int]:
    body = line[_DIGITS + 1 : -1]
    checksum = _checksum(before, body)
    if line[: _DIGITS + 1] != b"%08x " % checksum or line[-1:] != b"\n":
        return None, 0
    return json.loads(body), checksum


def _snapshot(value: Mapping[str, Any]) -> Journal:
    if value.get("format") != FORMAT:
        raise UnknownFormatError(f"has format {value.get('format')}, this Barnabas reads {FORMAT}")
    nodes = {entry[0]: _node(entry) for entry in value["nodes"]}
    return Journal(value["store"], value["generation"], value["transaction"], nodes)


def _apply(journal: Journal, value: Mapping[str, Any]) -> None:
    journal.generation = value["generation"]
    journal.transaction = value["transaction"]
    for entry in value["changes"]:
        if len(entry) == 1:
            journal.nodes.pop(entry[0], None)
        else:
            journal.nodes[entry[0]] = _node(entry)


def _entry(path: str, node: StoreNode) -> list[Any]:
    return [path, node.version, node.created, node.data.decode("latin-1")]


def _node(entry: Sequence[Any]) -> StoreNode:
    _, version, created, data = entry
    return shared_node(data.encode("latin-1"), version, created)


def _checksum(before: int, body: bytes) -> int:
    return crc32c(before.to_bytes(4) + body)
