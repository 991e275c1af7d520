"""Reads the balance of every account from the compacted topic, as a service does at its start.

python balances.py
"""

from __future__ import annotations

import argparse

from barnabas.client import Consumer

TOPIC = "balances"


def restore(servers: str) -> dict[str, int]:
    """Return the balance of each account in cents: the latest committed record with its key."""
    balances = {}
    with Consumer(
        servers, TOPIC
    ) as consumer:  # librdkafka reads committed records only, if not told otherwise
        ends = {place: consumer.watermarks(place)[1] for place in consumer.partitions(TOPIC)}
        for batch in consumer.read_until(ends):
            for record in batch:
                balances[record.key_text or ""] = record.json()["balance"]
    return balances


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    balances = restore(parser.parse_args().bootstrap_server)
    for account, cents in sorted(balances.items()):
        print(f"{account:12} {cents / 100:12,.2f}")
    in_flight = -sum(balances.values())
    print(f"{'sum':12} {-in_flight / 100:12,.2f}   ({in_flight / 100:,.2f} on its way from payer to payee)")


if __name__ == "__main__":
    main()
