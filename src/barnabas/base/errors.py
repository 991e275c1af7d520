"""Every Kafka error code, and the exceptions that Barnabas raises.

The numbers and names are those of the Kafka protocol (https://kafka.apache.org/protocol, "Error Codes").
*Retriable* says whether Kafka's own clients try the request again. `KafkaError` is the one exception whose
code reaches the client. For any other exception of a handler the broker answers UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """An error code of the protocol: its number, whether clients retry (`retriable`), its meaning (`doc`)."""

    retriable: bool
    doc: str

    def __new__(cls, code: int, retriable: bool, doc: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.doc = doc
        return member

    UNKNOWN_SERVER_ERROR = (-1, False, "Something broke on the broker; its log says what.")
    NONE = (0, False, "No error.")
    OFFSET_OUT_OF_RANGE = (1, False, "The partition holds no such offset.")
    CORRUPT_MESSAGE = (2, True, "A batch is damaged: wrong CRC, size or layout.")
    UNKNOWN_TOPIC_OR_PARTITION = (3, True, "This broker hosts no such topic-partition.")
    INVALID_FETCH_SIZE = (4, False, "The fetch size cannot be used.")
    LEADER_NOT_AVAILABLE = (5, True, "The partition has no leader at the moment.")
    NOT_LEADER_OR_FOLLOWER = (6, True, "This broker does not lead, or does not replicate, the partition.")
    REQUEST_TIMED_OUT = (7, True, "The time the request allowed has passed.")
    BROKER_NOT_AVAILABLE = (8, False, "The broker is not available.")
    REPLICA_NOT_AVAILABLE = (9, True, "The replica is not available on this broker.")
    MESSAGE_TOO_LARGE = (10, False, "A batch is larger than max.message.bytes allows.")
    STALE_CONTROLLER_EPOCH = (11, False, "The controller has been replaced by a newer one.")
    OFFSET_METADATA_TOO_LARGE = (12, False, "The commit's metadata is longer than offset.metadata.max.bytes.")
    NETWORK_EXCEPTION = (13, True, "The connection broke before the answer came.")
    COORDINATOR_LOAD_IN_PROGRESS = (14, True, "The coordinator is still reading its state.")
    COORDINATOR_NOT_AVAILABLE = (15, True, "The coordinator is not available.")
    NOT_COORDINATOR = (16, True, "This broker is not the coordinator that was asked for.")
    INVALID_TOPIC_EXCEPTION = (17, False, "The topic's name is not allowed, or the topic is internal.")
    RECORD_LIST_TOO_LARGE = (18, False, "The batches are larger than a segment.")
    NOT_ENOUGH_REPLICAS = (19, True, "Fewer replicas are in sync than min.insync.replicas asks.")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (20, True, "Written, but to fewer in-sync replicas than asked.")
    INVALID_REQUIRED_ACKS = (21, False, "acks must be 0, 1 or -1 (all).")
    ILLEGAL_GENERATION = (22, False, "The group has moved on to another generation.")
    INCONSISTENT_GROUP_PROTOCOL = (23, False, "The member shares no protocol with the rest of the group.")
    INVALID_GROUP_ID = (24, False, "The group id is not allowed.")
    UNKNOWN_MEMBER_ID = (25, False, "The group knows no such member.")
    INVALID_SESSION_TIMEOUT = (26, False, "The session timeout is outside the broker's bounds.")
    REBALANCE_IN_PROGRESS = (27, False, "The group is rebalancing: join again.")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "The commit is larger than a batch may be.")
    TOPIC_AUTHORIZATION_FAILED = (29, False, "Not authorised for the topic.")
    GROUP_AUTHORIZATION_FAILED = (30, False, "Not authorised for the group.")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "Not authorised for the cluster.")
    INVALID_TIMESTAMP = (32, False, "A record's timestamp is out of the accepted range.")
    UNSUPPORTED_SASL_MECHANISM = (33, False, "The broker does not offer this SASL mechanism.")
    ILLEGAL_SASL_STATE = (34, False, "The request does not fit the state of authentication.")
    UNSUPPORTED_VERSION = (35, False, "The API is not served in this version.")
    TOPIC_ALREADY_EXISTS = (36, False, "A topic of this name exists, or its name collides with one.")
    INVALID_PARTITIONS = (37, False, "The number of partitions is not allowed.")
    INVALID_REPLICATION_FACTOR = (38, False, "The replication factor is below 1 or above the live brokers.")
    INVALID_REPLICA_ASSIGNMENT = (39, False, "The assignment of replicas is not allowed.")
    INVALID_CONFIG = (40, False, "A setting is unknown or its value is not allowed.")
    NOT_CONTROLLER = (41, True, "This broker is not the controller.")
    INVALID_REQUEST = (42, False, "The request contradicts itself or the protocol.")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, False, "The message format does not support the request.")
    POLICY_VIOLATION = (44, False, "A policy of the cluster forbids it.")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, False, "A producer's sequence number leaves a gap.")
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "A producer's sequence number was seen before.")
    INVALID_PRODUCER_EPOCH = (47, False, "The producer's epoch is older than the one known.")
    INVALID_TXN_STATE = (48, False, "The transaction is not in a state for this.")
    INVALID_PRODUCER_ID_MAPPING = (49, False, "The producer id does not belong to the transactional id.")
    INVALID_TRANSACTION_TIMEOUT = (50, False, "The timeout exceeds transaction.max.timeout.ms.")
    CONCURRENT_TRANSACTIONS = (51, True, "Another change to the transaction is under way.")
    TRANSACTION_COORDINATOR_FENCED = (52, False, "The transaction coordinator has been replaced.")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False, "Not authorised for the transactional id.")
    SECURITY_DISABLED = (54, False, "Security is switched off on this broker.")
    OPERATION_NOT_ATTEMPTED = (55, False, "Not tried, because another part of the request failed.")
    KAFKA_STORAGE_ERROR = (56, True, "The partition's log directory has failed.")
    LOG_DIR_NOT_FOUND = (57, False, "The broker has no such log directory.")
    SASL_AUTHENTICATION_FAILED = (58, False, "SASL authentication failed.")
    UNKNOWN_PRODUCER_ID = (59, False, "The producer's state is no longer held.")
    REASSIGNMENT_IN_PROGRESS = (60, False, "The partition is being reassigned.")
    DELEGATION_TOKEN_AUTH_DISABLED = (61, False, "Delegation tokens are switched off.")
    DELEGATION_TOKEN_NOT_FOUND = (62, False, "No such delegation token.")
    DELEGATION_TOKEN_OWNER_MISMATCH = (63, False, "The delegation token has another owner.")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (64, False, "Delegation tokens may not be asked for here.")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, False, "Not authorised for the delegation token.")
    DELEGATION_TOKEN_EXPIRED = (66, False, "The delegation token has expired.")
    INVALID_PRINCIPAL_TYPE = (67, False, "The kind of principal is not supported.")
    NON_EMPTY_GROUP = (68, False, "The group still has members.")
    GROUP_ID_NOT_FOUND = (69, False, "No such group.")
    FETCH_SESSION_ID_NOT_FOUND = (70, True, "No such fetch session; it may have been evicted.")
    INVALID_FETCH_SESSION_EPOCH = (71, True, "The fetch session's epoch does not follow the last.")
    LISTENER_NOT_FOUND = (72, True, "The leader has no listener of the name the request came by.")
    TOPIC_DELETION_DISABLED = (73, False, "delete.topic.enable is false.")
    FENCED_LEADER_EPOCH = (74, True, "The leader epoch is older than the broker's.")
    UNKNOWN_LEADER_EPOCH = (75, True, "The leader epoch is newer than the broker's.")
    UNSUPPORTED_COMPRESSION_TYPE = (76, False, "The compression is not supported in this version.")
    STALE_BROKER_EPOCH = (77, False, "The broker has registered again since.")
    OFFSET_NOT_AVAILABLE = (78, True, "The leader's high watermark has not caught up yet.")
    MEMBER_ID_REQUIRED = (79, False, "Join again with the member id that came with this answer.")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "The preferred leader is not available.")
    GROUP_MAX_SIZE_REACHED = (81, False, "The group has group.max.size members.")
    FENCED_INSTANCE_ID = (82, False, "Another member has taken this group.instance.id.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "No replica may become leader.")
    ELECTION_NOT_NEEDED = (84, True, "The leader need not change.")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "No reassignment is under way.")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "The group is subscribed to the topic.")
    INVALID_RECORD = (87, False, "A record failed the broker's validation.")
    UNSTABLE_OFFSET_COMMIT = (88, True, "Offsets wait for a transaction to end.")
    THROTTLING_QUOTA_EXCEEDED = (89, True, "The quota is used up.")
    PRODUCER_FENCED = (90, False, "A newer producer has taken the transactional id.")
    RESOURCE_NOT_FOUND = (91, False, "No such resource.")
    DUPLICATE_RESOURCE = (92, False, "The resource is named twice.")
    UNACCEPTABLE_CREDENTIAL = (93, False, "The credential does not meet the requirements.")
    INCONSISTENT_VOTER_SET = (94, False, "The voters differ between sender and receiver.")
    INVALID_UPDATE_VERSION = (95, False, "The update's version is not valid.")
    FEATURE_UPDATE_FAILED = (96, False, "The finalized features could not be updated.")
    PRINCIPAL_DESERIALIZATION_FAILURE = (97, False, "A forwarded principal could not be read.")
    SNAPSHOT_NOT_FOUND = (98, False, "No such snapshot.")
    POSITION_OUT_OF_RANGE = (99, False, "The position lies outside the snapshot.")
    UNKNOWN_TOPIC_ID = (100, True, "This broker hosts no topic of that id.")
    DUPLICATE_BROKER_REGISTRATION = (101, False, "A live broker holds this node id.")
    BROKER_ID_NOT_REGISTERED = (102, False, "The broker has not registered.")
    INCONSISTENT_TOPIC_ID = (103, True, "The topic's id differs from the one in the log.")
    INCONSISTENT_CLUSTER_ID = (104, False, "The request is meant for another cluster.")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "No such transactional id.")
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True, "The session mixes requests with and without topic ids.")
    INELIGIBLE_REPLICA = (107, False, "The replica may not join the ISR.")
    NEW_LEADER_ELECTED = (108, False, "The ISR change gave the partition a new leader.")
    OFFSET_MOVED_TO_TIERED_STORAGE = (109, False, "The offset lies in tiered storage.")
    FENCED_MEMBER_EPOCH = (110, False, "The coordinator has fenced the member's epoch.")
    UNRELEASED_INSTANCE_ID = (111, False, "Another member still holds the group.instance.id.")
    UNSUPPORTED_ASSIGNOR = (112, False, "The assignor is not available.")
    STALE_MEMBER_EPOCH = (113, False, "The member's epoch is out of date; try after the next heartbeat.")
    MISMATCHED_ENDPOINT_TYPE = (114, False, "The request was sent to the wrong kind of endpoint.")
    UNSUPPORTED_ENDPOINT_TYPE = (115, False, "This kind of endpoint is not supported.")
    UNKNOWN_CONTROLLER_ID = (116, False, "No such controller.")
    UNKNOWN_SUBSCRIPTION_ID = (117, False, "The telemetry subscription is out of date.")
    TELEMETRY_TOO_LARGE = (118, False, "The telemetry is larger than allowed.")
    INVALID_REGISTRATION = (119, False, "The controller refuses the registration.")
    TRANSACTION_ABORTABLE = (120, False, "The transaction has failed and must be aborted.")
    INVALID_RECORD_STATE = (121, False, "The record's delivery state does not allow it.")
    SHARE_SESSION_NOT_FOUND = (122, True, "No such share session.")
    INVALID_SHARE_SESSION_EPOCH = (123, True, "The share session's epoch does not follow the last.")
    FENCED_STATE_EPOCH = (124, False, "The share coordinator has fenced the state epoch.")
    INVALID_VOTER_KEY = (125, False, "The voter key does not match the receiver.")
    DUPLICATE_VOTER = (126, False, "The voter is there already.")
    VOTER_NOT_FOUND = (127, False, "No such voter.")
    INVALID_REGULAR_EXPRESSION = (128, False, "The regular expression cannot be compiled.")
    REBOOTSTRAP_REQUIRED = (129, False, "The client's metadata is stale: bootstrap again.")
    STREAMS_INVALID_TOPOLOGY = (130, False, "The streams topology is not valid.")
    STREAMS_INVALID_TOPOLOGY_EPOCH = (131, False, "The streams topology's epoch is not valid.")
    STREAMS_TOPOLOGY_FENCED = (132, False, "The streams topology's epoch is out of date.")
    SHARE_SESSION_LIMIT_REACHED = (133, True, "No more share sessions can be opened.")


_BY_NUMBER = {int(code): code for code in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """Return the `ErrorCode` with this number; UNKNOWN_SERVER_ERROR if there is none."""
    return _BY_NUMBER.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


class BarnabasError(Exception):
    """The base class of every exception that Barnabas raises on purpose."""


class KafkaError(BarnabasError):
    """A failure with a Kafka error code. The client receives `message` if the response has a field for it.

    Without a `message`, the attribute `message` is the meaning of the code (`ErrorCode.doc`).
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message or code.doc}")
        self.code = code
        self.message = message or code.doc


class ProtocolError(BarnabasError):
    """The bytes violate the protocol. The receiver closes the connection."""


class TooManyElements(ProtocolError):
    """A message has more elements in its arrays than the reader allows."""


class ConfigError(BarnabasError):
    """A setting is unknown or has an invalid value; the text names the setting, the value and a hint."""


def fenced_since(first_version: int, version: int, error: KafkaError) -> KafkaError:
    """Return `error`; in old versions of an API, INVALID_PRODUCER_EPOCH for PRODUCER_FENCED (KIP-588).

    The replacement has the message of `error`.

    Args:
        first_version: first version of the API that has PRODUCER_FENCED.
        version: version of the response.
        error: any error.
    """
    if error.code is ErrorCode.PRODUCER_FENCED and version < first_version:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    return error
