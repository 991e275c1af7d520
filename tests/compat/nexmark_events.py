"""Events of an auction site, as in "NEXMark: A Benchmark for Queries over Data Streams".

Persons join, open auctions and bid on those of others (Tucker, Tufte, Papadimos, Maier, 2002). The seed
determines the events.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

#: All times are in ms since 1970; windows of minutes begin with START.
START = 1_767_225_600_000
STEP = 200
#: The longest that an auction is open: by it Spark knows when no bid on one can come any more.
LONGEST = 50_000
#: How much later than its successor an event may come.
DISORDER = 4_000
CATEGORIES = range(8, 13)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Boise", "Kent", "Phoenix", "Portland", "Redmond", "Seattle")
_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn")


@dataclass(frozen=True)
class Person:
    id: int
    name: str
    city: str
    state: str
    at: int


@dataclass(frozen=True)
class Auction:
    """An auction. `expires` is its last moment: a bid at that time still counts."""

    id: int
    seller: int
    category: int
    expires: int
    at: int


@dataclass(frozen=True)
class Bid:
    """A bid. `price` is in cents."""

    auction: int
    bidder: int
    price: int
    at: int


Event = Person | Auction | Bid


@dataclass
class Events:
    """All events in order, and the moment after the last."""

    persons: list[Person]
    auctions: list[Auction]
    bids: list[Bid]
    end: int


def generate(seed: int, count: int) -> Events:
    """Return `count` events: a tenth are persons, two tenths auctions, and the rest bids."""
    chance = random.Random(seed)
    events = Events([], [], [], START + count * STEP)
    for number in range(count):
        at = START + number * STEP
        if number % 10 == 0:
            events.persons.append(
                Person(
                    1000 + number,
                    chance.choice(_NAMES),
                    chance.choice(_CITIES),
                    chance.choice(STATES),
                    at,
                )
            )
        elif number % 10 in (3, 7):
            seller = chance.choice(events.persons[-12:]).id
            lasts = chance.randrange(10_000, LONGEST, 1000)
            events.auctions.append(Auction(1000 + number, seller, chance.choice(CATEGORIES), at + lasts, at))
        elif events.auctions:
            # some bids come too late, and few prices make for many of the same height
            auction = chance.choice(events.auctions[-40:])
            bidder = chance.choice(events.persons).id
            events.bids.append(Bid(auction.id, bidder, 100 * chance.randrange(1, 60), at))
    return events


def in_disorder(events: list[Any], seed: int) -> list[dict[str, Any]]:
    """Return the events in the order of their arrival, each up to DISORDER late."""
    chance = random.Random(seed)
    late = [(event.at + chance.randrange(DISORDER), number) for number, event in enumerate(events)]
    return [asdict(events[number]) for _, number in sorted(late)]
