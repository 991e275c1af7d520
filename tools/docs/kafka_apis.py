"""The requests that a broker of Apache Kafka 4.2 serves, and why Barnabas leaves some of them out.

The keys and versions are those of Kafka's own ``ApiKeys.brokerApis()``, stable versions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class KafkaApi(NamedTuple):
    """One API, and the versions of it that Kafka 4.2 supports."""

    name: str
    oldest: int
    latest: int


KAFKA_APIS: Mapping[int, KafkaApi] = {
    0: KafkaApi("Produce", 3, 13),
    1: KafkaApi("Fetch", 4, 18),
    2: KafkaApi("ListOffsets", 1, 11),
    3: KafkaApi("Metadata", 0, 13),
    8: KafkaApi("OffsetCommit", 2, 10),
    9: KafkaApi("OffsetFetch", 1, 10),
    10: KafkaApi("FindCoordinator", 0, 6),
    11: KafkaApi("JoinGroup", 0, 9),
    12: KafkaApi("Heartbeat", 0, 4),
    13: KafkaApi("LeaveGroup", 0, 5),
    14: KafkaApi("SyncGroup", 0, 5),
    15: KafkaApi("DescribeGroups", 0, 6),
    16: KafkaApi("ListGroups", 0, 5),
    17: KafkaApi("SaslHandshake", 0, 1),
    18: KafkaApi("ApiVersions", 0, 4),
    19: KafkaApi("CreateTopics", 2, 7),
    20: KafkaApi("DeleteTopics", 1, 6),
    21: KafkaApi("DeleteRecords", 0, 2),
    22: KafkaApi("InitProducerId", 0, 5),
    23: KafkaApi("OffsetForLeaderEpoch", 2, 4),
    24: KafkaApi("AddPartitionsToTxn", 0, 5),
    25: KafkaApi("AddOffsetsToTxn", 0, 4),
    26: KafkaApi("EndTxn", 0, 5),
    27: KafkaApi("WriteTxnMarkers", 1, 2),
    28: KafkaApi("TxnOffsetCommit", 0, 5),
    29: KafkaApi("DescribeAcls", 1, 3),
    30: KafkaApi("CreateAcls", 1, 3),
    31: KafkaApi("DeleteAcls", 1, 3),
    32: KafkaApi("DescribeConfigs", 1, 4),
    33: KafkaApi("AlterConfigs", 0, 2),
    34: KafkaApi("AlterReplicaLogDirs", 1, 2),
    35: KafkaApi("DescribeLogDirs", 1, 4),
    36: KafkaApi("SaslAuthenticate", 0, 2),
    37: KafkaApi("CreatePartitions", 0, 3),
    38: KafkaApi("CreateDelegationToken", 1, 3),
    39: KafkaApi("RenewDelegationToken", 1, 2),
    40: KafkaApi("ExpireDelegationToken", 1, 2),
    41: KafkaApi("DescribeDelegationToken", 1, 3),
    42: KafkaApi("DeleteGroups", 0, 2),
    43: KafkaApi("ElectLeaders", 0, 2),
    44: KafkaApi("IncrementalAlterConfigs", 0, 1),
    45: KafkaApi("AlterPartitionReassignments", 0, 1),
    46: KafkaApi("ListPartitionReassignments", 0, 0),
    47: KafkaApi("OffsetDelete", 0, 0),
    48: KafkaApi("DescribeClientQuotas", 0, 1),
    49: KafkaApi("AlterClientQuotas", 0, 1),
    50: KafkaApi("DescribeUserScramCredentials", 0, 0),
    51: KafkaApi("AlterUserScramCredentials", 0, 0),
    55: KafkaApi("DescribeQuorum", 0, 2),
    57: KafkaApi("UpdateFeatures", 0, 2),
    60: KafkaApi("DescribeCluster", 0, 2),
    61: KafkaApi("DescribeProducers", 0, 0),
    64: KafkaApi("UnregisterBroker", 0, 0),
    65: KafkaApi("DescribeTransactions", 0, 0),
    66: KafkaApi("ListTransactions", 0, 2),
    68: KafkaApi("ConsumerGroupHeartbeat", 0, 1),
    69: KafkaApi("ConsumerGroupDescribe", 0, 1),
    71: KafkaApi("GetTelemetrySubscriptions", 0, 0),
    72: KafkaApi("PushTelemetry", 0, 0),
    74: KafkaApi("ListConfigResources", 0, 1),
    75: KafkaApi("DescribeTopicPartitions", 0, 0),
    76: KafkaApi("ShareGroupHeartbeat", 1, 1),
    77: KafkaApi("ShareGroupDescribe", 1, 1),
    78: KafkaApi("ShareFetch", 1, 2),
    79: KafkaApi("ShareAcknowledge", 1, 2),
    80: KafkaApi("AddRaftVoter", 0, 1),
    81: KafkaApi("RemoveRaftVoter", 0, 0),
    83: KafkaApi("InitializeShareGroupState", 0, 0),
    84: KafkaApi("ReadShareGroupState", 0, 0),
    85: KafkaApi("WriteShareGroupState", 0, 1),
    86: KafkaApi("DeleteShareGroupState", 0, 0),
    87: KafkaApi("ReadShareGroupStateSummary", 0, 1),
    88: KafkaApi("StreamsGroupHeartbeat", 0, 0),
    89: KafkaApi("StreamsGroupDescribe", 0, 0),
    90: KafkaApi("DescribeShareGroupOffsets", 0, 1),
    91: KafkaApi("AlterShareGroupOffsets", 0, 0),
    92: KafkaApi("DeleteShareGroupOffsets", 0, 0),
}

_REASONS: Mapping[str, tuple[int, ...]] = {
    "there is no KRaft quorum; the metadata store takes its place": (55, 80, 81),
    "streams groups (KIP-1071) are not implemented yet": (88, 89),
}

#: why a request is not served, by its key
WHY_ABSENT: Mapping[int, str] = {key: why for why, keys in _REASONS.items() for key in keys}
