"""The results of NEXMark's queries in plain Python, each a list of rows as in Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tests.compat.nexmark_events import START, Auction, Bid, Events

MINUTE = 60_000
SLIDE = 20_000
#: dollars to euros
RATE = Decimal("0.908")
NEAR = ("OR", "ID", "CA")
LAST_SOLD = 10

Rows = list[tuple[Any, ...]]


def q0(events: Events) -> Rows:
    return [(bid.auction, bid.bidder, bid.price, bid.at) for bid in events.bids]


def q1(events: Events) -> Rows:
    return [(bid.auction, bid.bidder, bid.price * RATE, bid.at) for bid in events.bids]


def q2(events: Events) -> Rows:
    return [(bid.auction, bid.price) for bid in events.bids if bid.auction % 7 == 0]


def q3(events: Events) -> Rows:
    persons = {person.id: person for person in events.persons if person.state in NEAR}
    return [
        (person.name, person.city, person.state, auction.id)
        for auction in events.auctions
        if auction.category == 10 and (person := persons.get(auction.seller))
    ]


def q4(events: Events) -> Rows:
    prices: defaultdict[int, list[int]] = defaultdict(list)
    for auction, bid in _winners(events):
        prices[auction.category].append(bid.price)
    return [(category, sum(sold) / len(sold)) for category, sold in prices.items()]


def q5(events: Events) -> Rows:
    counts: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for bid in events.bids:
        newest = bid.at - (bid.at - START) % SLIDE
        for start in range(newest, newest - MINUTE, -SLIDE):
            counts[start][bid.auction] += 1
    return [
        (start, auction, count)
        for start, of in counts.items()
        for auction, count in of.items()
        if count == max(of.values())
    ]


def q6(events: Events) -> Rows:
    sold: defaultdict[int, Rows] = defaultdict(list)
    for auction, bid in _winners(events):
        sold[auction.seller].append((auction.expires, auction.id, bid.price))
    means = []
    for seller, sales in sold.items():
        last = [price for _, _, price in sorted(sales)[-LAST_SOLD:]]
        means.append((seller, len(sales), sum(last) / len(last)))
    return means


def q7(events: Events) -> Rows:
    of: defaultdict[int, list[Bid]] = defaultdict(list)
    for bid in events.bids:
        of[bid.at - (bid.at - START) % MINUTE].append(bid)
    return [
        (start, bid.auction, bid.bidder, bid.price)
        for start, bids in of.items()
        for bid in bids
        if bid.price == max(each.price for each in bids)
    ]


def q8(events: Events) -> Rows:
    joined = {(person.id, (person.at - START) // MINUTE): person for person in events.persons}
    opened = {(auction.seller, (auction.at - START) // MINUTE) for auction in events.auctions}
    return [
        (person.id, person.name, START + minute * MINUTE)
        for (seller, minute), person in joined.items()
        if (seller, minute) in opened
    ]


def q9(events: Events) -> Rows:
    return [
        (auction.id, auction.seller, auction.category, auction.expires, bid.bidder, bid.price, bid.at)
        for auction, bid in _winners(events)
    ]


def _winners(events: Events) -> Iterator[tuple[Auction, Bid]]:
    """Yield each auction with its highest bid before its end; of several equal bids, the first."""
    bids: defaultdict[int, list[Bid]] = defaultdict(list)
    for bid in events.bids:
        bids[bid.auction].append(bid)
    for auction in events.auctions:
        valid = [bid for bid in bids[auction.id] if auction.at <= bid.at <= auction.expires]
        if valid:
            yield auction, min(valid, key=lambda bid: (-bid.price, bid.at))
