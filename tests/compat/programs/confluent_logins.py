"""Logins with confluent-kafka. Users and files are those of `logins`."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.compat.programs.confluent_clients import admin, producer, until
from tests.compat.programs.logins import file
from tests.compat.programs.peers import MECHANISMS, PASSWORD
from tests.compat.programs.trace import Trace


def passwords_with_confluent_kafka(see: Trace) -> None:
    clients = admin(see)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion("ann", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        clients.alter_user_scram_credentials([change])["ann"].result(20)
    for mechanism in MECHANISMS:
        right = _options(see, "SASL_PLAINTEXT", mechanism)
        until(lambda right=right: _opened(see, **right) == "delivered")  # a broker learns of a password later
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS:
            for label, options in (
                ("right", {}),
                ("wrong password", {"sasl_password": "guess"}),
                ("unknown user", {"sasl_username": "bob"}),
                ("odd user", {"sasl_username": "a,=b"}),
            ):
                usual = _options(see, protocol, mechanism)
                see.call(f"{protocol} {mechanism} {label}", _opened, see, **{**usual, **options})
        options = _options(see, protocol, "OAUTHBEARER")
        see.call(
            f"{protocol} with a mechanism that the listener does not have",
            _opened,
            see,
            enable_sasl_oauthbearer_unsecure_jwt=True,
            **options,
        )


def _options(see: Trace, protocol: str, mechanism: str) -> dict[str, str]:
    return {
        "bootstrap_servers": see.addresses[protocol],
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_username": "ann",
        "sasl_password": PASSWORD,
        "ssl_ca_location": file("authority"),
    }


def _opened(see: Trace, **options: Any) -> Any:
    """Produce a record. Return whether it arrives, or the first error of the client."""
    seen: list[Any] = []
    writer = producer(
        see,
        error_cb=lambda error: seen.append(error) if error.name() != "_ALL_BROKERS_DOWN" else None,
        **options,
    )
    writer.produce(see.name("t"), b"v", on_delivery=lambda error, _: seen.append(error or "delivered"))
    until(lambda: (writer.poll(0.1), seen)[-1])
    writer.purge()
    return seen[0]
