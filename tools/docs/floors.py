"""Draws rooms (packages) on floors. Each room is above all rooms that it uses, with an arrow to each.

The drawing leaves out an arrow that follows from others: if A uses B and B uses C, then A may use C, too.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

_ROOM_WIDTH, _ROOM_HEIGHT = 196, 66
_GAP, _FLOOR_HEIGHT, _MARGIN = 22, 118, 26
#: the width of a place where an arrow passes a floor
_PASSAGE_WIDTH = 16
_SWEEPS = 24
_COLOURS = ("#e8eef7", "#eaf3ea", "#fbf3e2", "#f7e9e9", "#efe9f5", "#e6f2f3")


class Room(NamedTuple):
    """The title and the text of a room in the drawing."""

    name: str
    caption: str


class _Passage(NamedTuple):
    """The point at which an arrow to a lower floor passes a floor between."""

    source: str
    target: str
    floor: int


def levels(uses: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Return the floor of each room: 0 if it uses no room, otherwise one above the highest room that it uses.

    Raises:
        ValueError: rooms use each other in a circle.
    """
    found: dict[str, int] = {}
    while len(found) < len(uses):
        ready = [room for room in uses if room not in found and all(other in found for other in uses[room])]
        if not ready:
            raise ValueError(f"a circle: {', '.join(sorted(uses.keys() - found.keys()))}")
        found.update({room: max((found[other] + 1 for other in uses[room]), default=0) for room in ready})
    return found


def needed(uses: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the uses of each room that do not follow from others."""
    reached: dict[str, set[str]] = {}
    for room in sorted(uses, key=levels(uses).__getitem__):
        reached[room] = set(uses[room]).union(*(reached[other] for other in uses[room]))
    return {
        room: {target for target in targets if not any(target in reached[o] for o in targets)}
        for room, targets in uses.items()
    }


def draw(title: str, rooms: Mapping[str, Room], uses: Mapping[str, set[str]]) -> str:
    """Return an SVG of the rooms.

    Args:
        rooms: the rooms by key.
        uses: by key, the keys of the rooms that each room uses.
    """
    floor_of = levels(uses)
    arrows = sorted((source, target) for source, targets in needed(uses).items() for target in targets)
    routes = [_route(source, target, floor_of) for source, target in arrows]
    floors = _ordered(floor_of, routes)
    x_of, width = _placed(floors)
    height = _FLOOR_HEIGHT * (len(floors) - 1) + _ROOM_HEIGHT + 2 * _MARGIN

    def top_of(item: str | _Passage) -> int:
        floor = item.floor if isinstance(item, _Passage) else floor_of[item]
        return _MARGIN + (len(floors) - 1 - floor) * _FLOOR_HEIGHT

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#6b7684"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    lines += [_arrow(route, x_of, top_of) for route in routes]
    lines += [_box(rooms[room], x_of[room], top_of(room), floor_of[room]) for room in sorted(floor_of)]
    return "\n".join([*lines, "</svg>", ""])


def _route(source: str, target: str, floor_of: Mapping[str, int]) -> list[str | _Passage]:
    passed = range(floor_of[source] - 1, floor_of[target], -1)
    return [source, *(_Passage(source, target, floor) for floor in passed), target]


def _ordered(
    floor_of: Mapping[str, int], routes: Sequence[Sequence[str | _Passage]]
) -> list[list[str | _Passage]]:
    """Return the items of each floor from left to right, in an order in which few arrows cross."""
    floors: list[list[str | _Passage]] = [[] for _ in range(max(floor_of.values()) + 1)]
    for room in sorted(floor_of):
        floors[floor_of[room]].append(room)
    below: dict[str | _Passage, list[str | _Passage]] = {}
    above: dict[str | _Passage, list[str | _Passage]] = {}
    for route in routes:
        for passage in route[1:-1]:
            assert isinstance(passage, _Passage)
            floors[passage.floor].append(passage)
        for upper, lower in itertools.pairwise(route):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
    best, fewest = floors, _crossings(floors, below)
    for sweep in range(_SWEEPS):
        neighbours, order = (below, range(1, len(floors))) if sweep % 2 else (above, range(len(floors))[::-1])
        floors = [list(floor) for floor in floors]
        for number in order:
            other = number - 1 if sweep % 2 else number + 1
            if not 0 <= other < len(floors):
                continue
            at = {item: (place + 0.5) / len(floors[other]) for place, item in enumerate(floors[other])}
            own = {item: (place + 0.5) / len(floors[number]) for place, item in enumerate(floors[number])}
            centre = {
                item: sum(at[n] for n in near) / len(near) if (near := neighbours.get(item)) else own[item]
                for item in floors[number]
            }
            floors[number].sort(key=centre.__getitem__)
        crossings = _crossings(floors, below)
        if crossings < fewest:
            best, fewest = floors, crossings
    return best


def _crossings(
    floors: Sequence[Sequence[str | _Passage]],
    below: Mapping[str | _Passage, Sequence[str | _Passage]],
) -> int:
    place = {item: number for floor in floors for number, item in enumerate(floor)}
    crossings = 0
    for floor in floors:
        ends = [(place[item], place[lower]) for item in floor for lower in below.get(item, ())]
        crossings += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in itertools.combinations(ends, 2))
    return crossings


def _placed(floors: Sequence[Sequence[str | _Passage]]) -> tuple[dict[str | _Passage, float], int]:
    """Return the horizontal centre of each item, and the width of the drawing."""
    widths = [[_PASSAGE_WIDTH if isinstance(i, _Passage) else _ROOM_WIDTH for i in floor] for floor in floors]
    totals = [sum(floor) + _GAP * (len(floor) - 1) for floor in widths]
    width = max(totals) + 2 * _MARGIN
    x_of: dict[str | _Passage, float] = {}
    for floor, sizes, total in zip(floors, widths, totals, strict=True):
        # Floors with few rooms use the whole width: their arrows are less steep.
        spare = (width - 2 * _MARGIN - total) / (len(floor) + 1)
        x = _MARGIN + spare
        for item, size in zip(floor, sizes, strict=True):
            x_of[item] = round(x + size / 2, 1)
            x += size + _GAP + spare
    return x_of, width


def _arrow(
    route: Sequence[str | _Passage],
    x_of: Mapping[str | _Passage, float],
    top_of: Callable[[str | _Passage], int],
) -> str:
    source, target = route[0], route[-1]
    points: list[tuple[float, float]] = [(x_of[source], top_of(source) + _ROOM_HEIGHT)]
    points += [(x_of[item], top_of(item) + _ROOM_HEIGHT / 2) for item in route[1:-1]]
    points.append((x_of[target], top_of(target) - 2))
    path = f"M{points[0][0]} {points[0][1]}"
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        middle = round((y + next_y) / 2, 1)
        path += f" C{x} {middle} {next_x} {middle} {next_x} {next_y}"
    return f'<path d="{path}" fill="none" stroke="#6b7684" stroke-width="1.2" marker-end="url(#tip)"/>'


def _box(room: Room, x: float, top: int, floor: int) -> str:
    left = round(x - _ROOM_WIDTH / 2, 1)
    lines = textwrap.wrap(room.caption, 34, max_lines=3, placeholder=" …")
    caption = "".join(
        f'<text x="{x}" y="{top + 34 + 12 * number}" font-size="10" text-anchor="middle" '
        f'fill="#3c4650">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect x="{left}" y="{top}" width="{_ROOM_WIDTH}" height="{_ROOM_HEIGHT}" rx="8" '
        f'fill="{_COLOURS[floor % len(_COLOURS)]}" stroke="#8a94a1"/>'
        f'<text x="{x}" y="{top + 18}" font-size="13" font-weight="bold" text-anchor="middle" '
        f'fill="#16202a">{escape(room.name)}</text>{caption}'
    )
