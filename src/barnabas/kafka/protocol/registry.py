"""The APIs that have messages, by number: from a key on the wire to its request and response classes."""

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Any

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol.schema import Request, Response


class ApiKey(IntEnum):
    """The APIs that Barnabas has messages for; lower-case names are the modules of `messages`."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    GET_REPLICA_LOG_INFO = 93

    @property
    def title(self) -> str:
        """The API's name as the protocol writes it: ``ListOffsets``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


@cache
def request_class(api_key: int) -> type[Request]:
    """The request of an API. Raises ProtocolError for a key without messages."""
    cls: type[Request] = _load(api_key, "Request")
    return cls


@cache
def response_class(api_key: int) -> type[Response]:
    """The response of an API. Raises ProtocolError for a key without messages."""
    cls: type[Response] = _load(api_key, "Response")
    return cls


def _load(api_key: int, suffix: str) -> Any:
    try:
        api = ApiKey(api_key)
    except ValueError:
        raise ProtocolError(f"unknown API key {api_key}") from None
    # Imported when first needed: a broker that only produces and fetches never pays for the rest.
    module = import_module(f"barnabas.kafka.protocol.messages.{api.name.lower()}")
    return getattr(module, api.title + suffix)
