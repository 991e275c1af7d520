"""ShareAcknowledge (key 79): acknowledge records that a member of a share group has acquired (KIP-932).

v2 adds the renewal of acquisition locks (KIP-1222). v0 was an early-access version.
"""

from barnabas.kafka.protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from barnabas.kafka.protocol.messages.share_fetch import AcknowledgementBatch
from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
)


class AcknowledgePartition(Struct):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgeTopic(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[AcknowledgePartition] = []


class ShareAcknowledgeRequest(Request, key=79, versions=(1, 2), flexible=0):
    group_id: String | None = None
    member_id: String | None = ""
    # -1 closes the session; any other counts the requests of the session.
    share_session_epoch: Int32 = 0
    # Whether an acknowledgement has the type 4.
    is_renew_ack: Bool = since(2, default=False)
    topics: list[AcknowledgeTopic] = []


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class ShareAcknowledgeResponse(Response, to=ShareAcknowledgeRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = since(2, default=0)
    responses: list[ShareAcknowledgeTopicResponse] = []
    # The addresses of the brokers in current_leader.
    node_endpoints: list[NodeEndpoint] = []
