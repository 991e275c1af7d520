"""Secrets do not appear in a broker's log at any level, nor in its audit log."""

from __future__ import annotations

import base64
import hashlib
import logging
import uuid

from tests.integration.acl_broker import AclBroker, log_in
from tests.integration.conftest import Wire

from barnabas.kafka.protocol.messages.alter_configs import (
    AlterableConfig as WholeConfig,
)
from barnabas.kafka.protocol.messages.alter_configs import (
    AlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.alter_configs import (
    AlterConfigsResource as WholeResource,
)
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex}"


def forms(secret: str | bytes) -> list[str]:
    """Return the forms in which a log could contain a secret."""
    raw = secret.encode() if isinstance(secret, str) else secret
    return [repr(raw)[2:-1], raw.hex(), base64.b64encode(raw).decode().rstrip("=")]


def test_no_log_has_a_secret_that_the_broker_was_told(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    key, password, wrong, setting = (unique(name) for name in ("key", "password", "wrong", "setting"))
    audit = tmp_path / "audit.log"
    settings = {
        "delegation.token.secret.key": key,
        "barnabas.audit.file": str(audit),
        "connection.failed.authentication.delay.ms": "0",
    }
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt of this test", 4096)
    with AclBroker(tmp_path / "data", **settings) as broker:
        admin = Wire(broker.open_address)
        upsertion = ScramCredentialUpsertion(
            name="carol", mechanism=1, iterations=4096, salt=b"salt of this test", salted_password=salted
        )
        unusable = ScramCredentialUpsertion(
            name="dave", mechanism=1, iterations=1, salt=b"salt of this test", salted_password=salted
        )
        answer = admin(AlterUserScramCredentialsRequest(upsertions=[upsertion, unusable]))
        assert [each.error_code == 0 for each in answer.results] == [True, False]
        login = Wire(broker.address)
        login(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        refused = login(SaslAuthenticateRequest(auth_bytes=f"\0carol\0{wrong}".encode()), 2)
        assert refused.error_code
        login.close()
        carol = log_in(broker.address, "carol", password)
        token = carol(CreateDelegationTokenRequest())
        assert token.error_code == 0
        value = f'org.example.Module required password="{setting}";'
        for name in ("sasl.jaas.config", "ssl.keystore.password", "no.such.password"):
            changed = AlterableConfig(name=name, value=value)
            for kind, resource in ((4, "1"), (4, ""), (2, "nobodys")):
                one = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[changed])
                admin(IncrementalAlterConfigsRequest(resources=[one]))
                carol(IncrementalAlterConfigsRequest(resources=[one]))
                configs = [WholeConfig(name=name, value=value)]
                whole = WholeResource(resource_type=kind, resource_name=resource, configs=configs)
                admin(AlterConfigsRequest(resources=[whole]))
        admin.close()
        carol.close()
    logged = "\n".join([*(record.getMessage() for record in caplog.records), caplog.text, audit.read_text()])
    assert '"login failed"' in logged
    for secret in (key, password, wrong, setting, salted, token.hmac):
        for form in forms(secret):
            assert form not in logged
