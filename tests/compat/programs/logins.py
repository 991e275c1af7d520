"""Logins and TLS with kafka-python and aiokafka, one program a function.

The user is "ann", and the files are those of `tests.certificates` in the folder `FOLDER`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion
from tests.compat.programs.peers import MECHANISMS, PASSWORD
from tests.compat.programs.trace import Trace

#: the environment variable with the folder of the certificates
FOLDER = "BARNABAS_PROGRAM_CERTIFICATES"


def file(name: str) -> str:
    """Return the path of a PEM file of `tests.certificates`."""
    return str(Path(os.environ[FOLDER]) / f"{name}.pem")


def _user(see: Trace) -> None:
    """Give the user passwords for SCRAM, and wait until they apply."""
    admin = KafkaAdminClient(bootstrap_servers=see.bootstrap)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("ann", mechanism, PASSWORD, iterations=4096)]
        )
    admin.close()
    time.sleep(1)


#: label, and what differs from the right options
WRONG: dict[str, dict[str, Any]] = {
    "right": {},
    "wrong password": {"sasl_plain_password": "guess"},
    "unknown user": {"sasl_plain_username": "bob"},
    "empty user": {"sasl_plain_username": ""},
    "empty password": {"sasl_plain_password": ""},
    "odd user": {"sasl_plain_username": "a,=b"},
}


def kafka_python_by_password(see: Trace) -> None:
    _user(see)
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS[:2]:
            for label, options in WRONG.items():
                right = {
                    "bootstrap_servers": see.addresses[protocol],
                    "security_protocol": protocol,
                    "sasl_mechanism": mechanism,
                    "sasl_plain_username": "ann",
                    "sasl_plain_password": PASSWORD,
                    "ssl_cafile": file("authority"),
                    "bootstrap_timeout_ms": 1500,
                }
                name = f"{protocol} {mechanism} {label}"
                see.call(
                    name,
                    lambda right=right, options=options: _opened(see, KafkaProducer(**{**right, **options})),
                )


def _opened(see: Trace, writer: KafkaProducer) -> Any:
    try:
        return writer.send(see.name("t"), b"v").get(10).partition
    finally:
        writer.close(1)


def kafka_python_with_tls(see: Trace) -> None:
    usual = {"bootstrap_timeout_ms": 1500, "security_protocol": "SSL", "ssl_cafile": file("authority")}
    for label, listener, options in (
        ("right", "SSL", {}),
        ("other authority", "SSL", {"ssl_cafile": file("stranger")}),
        ("no authority", "SSL", {"ssl_cafile": None}),
        ("plaintext to tls", "SSL", {"security_protocol": "PLAINTEXT"}),
        (
            "sasl to tls",
            "SSL",
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "ann",
                "sasl_plain_password": PASSWORD,
            },
        ),
        ("tls to sasl", "SASL_SSL", {}),
        ("plaintext to sasl", "SASL_PLAINTEXT", {"security_protocol": "PLAINTEXT"}),
        ("own certificate", "MUTUAL", {"ssl_certfile": file("client"), "ssl_keyfile": file("client")}),
        ("no certificate", "MUTUAL", {}),
        (
            "certificate of a stranger",
            "MUTUAL",
            {"ssl_certfile": file("stranger"), "ssl_keyfile": file("stranger")},
        ),
    ):
        see.call(
            label,
            lambda listener=listener, options=options: _opened(
                see, KafkaProducer(bootstrap_servers=see.addresses[listener], **{**usual, **options})
            ),
        )


async def aiokafka_by_password(see: Trace) -> None:
    await asyncio.to_thread(_user, see)
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS:
            for label, options in WRONG.items():
                right = {
                    "bootstrap_servers": see.addresses[protocol],
                    "security_protocol": protocol,
                    "sasl_mechanism": mechanism,
                    "sasl_plain_username": "ann",
                    "sasl_plain_password": PASSWORD,
                    "request_timeout_ms": 4000,
                    "ssl_context": ssl.create_default_context(cafile=file("authority")),
                }
                await see.wait(f"{protocol} {mechanism} {label}", _started(see, **{**right, **options}))


async def _started(see: Trace, **options: Any) -> Any:
    writer = AIOKafkaProducer(**options)
    try:
        await writer.start()
        return (await writer.send_and_wait(see.name("t"), b"v")).partition
    finally:
        with suppress(Exception):
            await asyncio.wait_for(writer.stop(), 3)


async def aiokafka_with_tls(see: Trace) -> None:
    def context(authority: str = "authority", certificate: str = "") -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=file(authority))
        if certificate:
            made.load_cert_chain(file(certificate))
        return made

    for label, listener, options in (
        ("right", "SSL", {}),
        ("other authority", "SSL", {"ssl_context": context("stranger")}),
        ("plaintext to tls", "SSL", {"security_protocol": "PLAINTEXT"}),
        ("tls to sasl", "SASL_SSL", {}),
        ("plaintext to sasl", "SASL_PLAINTEXT", {"security_protocol": "PLAINTEXT"}),
        ("own certificate", "MUTUAL", {"ssl_context": context(certificate="client")}),
        ("no certificate", "MUTUAL", {}),
        ("certificate of a stranger", "MUTUAL", {"ssl_context": context(certificate="stranger")}),
    ):
        usual = {"security_protocol": "SSL", "ssl_context": context(), "request_timeout_ms": 4000}
        await see.wait(
            label, _started(see, bootstrap_servers=see.addresses[listener], **{**usual, **options})
        )
