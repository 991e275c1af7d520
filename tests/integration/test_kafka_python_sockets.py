"""Sockets that kafka-python does not close must not fail later tests (tests/conftest.py)."""

from __future__ import annotations

import gc
from contextlib import suppress

from barnabas.testing import BarnabasBroker


def _ask_a_broker_that_is_gone() -> None:
    from kafka import KafkaAdminClient, errors

    with BarnabasBroker() as gone:
        address = gone.bootstrap_servers
    with suppress(errors.KafkaError):
        KafkaAdminClient(bootstrap_servers=address, bootstrap_timeout_ms=500)


def test_no_socket_of_a_refused_connection_stays_open() -> None:
    _ask_a_broker_that_is_gone()
    gc.collect()  # an unclosed socket warns now, and a warning is an error
