"""Makes transfers: opens accounts with deposits, then moves money between them at random.

    python teller.py --accounts 20 --transfers 1000

Only --seed determines the transfers. You can kill the program and start it again: it reads in the topic how
many transfers it has made, and continues there.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator

from confluent_kafka import Producer

from barnabas.client import Consumer

TOPIC = "transfers"
AT_ONCE = 20  # transfers of one transaction
DEPOSIT = 100_00  # cents


def transfers(seed: int, accounts: int, count: int) -> Iterator[dict[str, object]]:
    """Yield a deposit for each account, then `count` transfers. Some are above the payer's balance."""
    chance = random.Random(seed)
    names = [f"account-{number:03}" for number in range(accounts)]
    for number, name in enumerate(names):
        yield {"id": f"{seed}-{number}", "payer": "cash", "payee": name, "amount": DEPOSIT}
    for number in range(accounts, accounts + count):
        payer, payee = chance.sample(names, 2)
        amount = chance.randint(1, 80_00)
        yield {"id": f"{seed}-{number}", "payer": payer, "payee": payee, "amount": amount}


def committed(servers: str, seed: int) -> int:
    """Return the number of transfers of this seed in the topic."""
    with Consumer(servers, TOPIC) as consumer:
        ends = {place: consumer.watermarks(place)[1] for place in consumer.partitions(TOPIC)}
        records = (record for batch in consumer.read_until(ends) for record in batch)
        return sum(record.json()["id"].startswith(f"{seed}-") for record in records)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accounts", type=int, default=20)
    parser.add_argument("--transfers", type=int, default=1000)
    parser.add_argument("--a-second", type=float, default=200.0, help="how many, about")
    given = parser.parse_args()
    servers = given.bootstrap_server
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"teller-{given.seed}"})
    producer.init_transactions()  # aborts what a teller before has left open: now the topic's word is final
    done = committed(servers, given.seed)
    todo = list(transfers(given.seed, given.accounts, given.transfers))[done:]
    for start in range(0, len(todo), AT_ONCE):
        producer.begin_transaction()
        for transfer in todo[start : start + AT_ONCE]:
            producer.produce(TOPIC, json.dumps(transfer), transfer["payer"])  # one payer's keep their order
        producer.commit_transaction()
        time.sleep(AT_ONCE / given.a_second)
    print(f"{len(todo)} transfers made, {done} were there already")


if __name__ == "__main__":
    main()
