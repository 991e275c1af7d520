"""Sends the codes in the topic `codes` by one channel, as a member of a group of such processes.

    python sender.py sms --name sms-1 --gateway http://127.0.0.1:8001

You can kill it at any moment. An error that it cannot handle also ends it. So let systemd, Kubernetes or a
shell loop start it again, under the same name.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

CODES, SENT = "codes", "codes-sent"
ADDRESS = {"sms": "phone", "email": "email"}  # the field of a code that says where a channel sends to
AT_ONCE = 20  # how many codes one transaction is about

SESSION_MS = 6_000  # a consumer that is silent for so long is dead, and the others take over its partitions
TRANSACTION_MS = 10_000  # what it left open is aborted after this time, or when it is back


class Sender:
    """One member of a channel's group. `name` must be unique, and stays the same after a restart."""

    def __init__(self, servers: str, channel: str, name: str, gateway: str) -> None:
        self._channel = channel
        self._name = name
        self._gateway = f"{gateway}/{channel}"
        self._stopping = False
        client = {"bootstrap.servers": servers, "client.id": name}
        self._producer = Producer(
            {
                **client,
                "transactional.id": f"otp-{name}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "connections.max.idle.ms": 10_000,  # or it may wait for a coordinator that died
            }
        )
        self._consumer = Consumer(
            {
                **client,
                "group.id": f"otp-{channel}",  # members of one group share the codes; each group gets all
                "group.instance.id": name,  # back within the session timeout, it has its partitions at once
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": SESSION_MS // 3,
                "auto.offset.reset": "earliest",  # if the next code is no longer there
                "enable.auto.commit": False,  # the offsets are committed in the transactions
            }
        )

    def run(self) -> None:
        """Send until stopped.

        Raises:
            KafkaException: another process has its name or its partitions, or no broker answers.
        """
        self._producer.init_transactions()  # aborts what this name has left open
        self._consumer.subscribe([CODES], on_assign=_begin)
        try:
            while not self._stopping:
                codes = self._consumer.consume(AT_ONCE, timeout=0.5)
                # taken before the sending, which may last: a group that has given the partitions to others
                # meanwhile knows by it that this commit comes from the past
                membership = self._consumer.consumer_group_metadata()
                if codes:
                    self._record([(code, self._send(code)) for code in codes], membership)
        finally:
            self._consumer.close()

    def stop(self, *_: object) -> None:
        """Stop when the current codes are done."""
        self._stopping = True

    def _send(self, message: Message) -> str:
        """Send a code to the gateway until it answers. Return `sent`, `expired` or `refused`."""
        if message.error():
            raise KafkaException(message.error())
        code = json.loads(message.value())
        text = f"Your code is {code['code']}"
        body = {"to": code[ADDRESS[self._channel]], "text": text, "valid_until": code["expires_at"]}
        headers = {"Idempotency-Key": code["id"], "User-Agent": self._name}
        request = Request(self._gateway, json.dumps(body).encode(), headers)
        wait = 0.1
        while True:
            try:
                with urlopen(request, timeout=10):
                    return "sent"
            except HTTPError as answer:
                if answer.code == 410:
                    return "expired"
                if 400 <= answer.code < 500 and answer.code not in (408, 429):
                    return "refused"
            except (OSError, HTTPException):
                pass  # no answer: it may have been sent or not, and the key makes it safe to ask again
            time.sleep(wait)
            wait = min(2 * wait, 5)

    def _record(self, done: list[tuple[Message, str]], membership: object) -> None:
        """Write the results of the codes and the offsets in one transaction."""
        self._producer.begin_transaction()
        next_offsets: dict[int, int] = {}
        for message, outcome in done:
            record = {"id": json.loads(message.value())["id"], "channel": self._channel, "outcome": outcome}
            self._producer.produce(SENT, json.dumps({**record, "by": self._name}), message.key())
            next_offsets[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(CODES, partition, offset) for partition, offset in next_offsets.items()]
        self._producer.send_offsets_to_transaction(offsets, membership)
        self._producer.commit_transaction()


def _begin(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Start at the group's committed offsets, when they are known.

    They are unknown while a transaction with offsets of the partition is open. librdkafka 2.16 then waits,
    but if the group rebalances meanwhile, it begins with the first code. An explicit request for the offsets
    always waits.
    """
    committed = consumer.committed(partitions, timeout=3 * TRANSACTION_MS / 1000)
    for partition in committed:
        if partition.error:
            raise KafkaException(partition.error)
        if partition.offset < 0:
            partition.offset = OFFSET_BEGINNING
    consumer.assign(committed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("channel", choices=sorted(ADDRESS))
    parser.add_argument("--name", required=True, help="this process's own, the same at each start: sms-1")
    parser.add_argument("--gateway", default="http://127.0.0.1:8001")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    given = parser.parse_args()
    sender = Sender(given.bootstrap_server, given.channel, given.name, given.gateway)
    signal.signal(signal.SIGTERM, sender.stop)
    signal.signal(signal.SIGINT, sender.stop)
    sender.run()


if __name__ == "__main__":
    main()
