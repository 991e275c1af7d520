"""A Pythonic producer, consumer and admin over confluent-kafka (librdkafka), and the log shipper.

    from barnabas.client import Consumer, Producer

    with Producer("127.0.0.1:9092") as producer:
        producer.send("orders", {"id": 1}, key="customer-7")
    with Consumer("127.0.0.1:9092", "orders", group="billing") as consumer:
        for record in consumer:
            print(record.key_text, record.json())
    with work("127.0.0.1:9092", "orders", group="billing") as jobs:  # a share group is a queue
        for job in jobs:
            print(job.text, job.attempt)

Each name is loaded when it is first used, because the import of librdkafka takes a tenth of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.consumer import Consumer
    from barnabas.client.errors import ClientError
    from barnabas.client.producer import Producer
    from barnabas.client.record import Record
    from barnabas.client.ship import Shipper
    from barnabas.client.worker import Job, Worker, work

_HOMES = {
    "Admin": "admin",
    "Consumer": "consumer",
    "Producer": "producer",
    "Record": "record",
    "Shipper": "ship",
    "Job": "worker",
    "Worker": "worker",
    "work": "worker",
    "ClientError": "errors",
}

__all__ = ["Admin", "ClientError", "Consumer", "Job", "Producer", "Record", "Shipper", "Worker", "work"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
