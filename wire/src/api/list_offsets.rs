//! ListOffsets: which offset stands at a time, at the start or at the end of a partition.

use alloc::string::String;
use alloc::vec::Vec;

use super::ErrorCode;
use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex};
use crate::message::{message, structure};

/// Asks for the end of the log: the high watermark, or the last stable offset.
pub const LATEST_TIMESTAMP: i64 = -1;
/// Asks for the start of the log.
pub const EARLIEST_TIMESTAMP: i64 = -2;
/// Asks for the record with the highest timestamp (from version 7 on).
pub const MAX_TIMESTAMP: i64 = -3;
/// Asks for the start of what the broker holds on its own disks (from version 8 on).
pub const EARLIEST_LOCAL_TIMESTAMP: i64 = -4;
/// Asks for the last offset in tiered storage (from version 9 on).
pub const LATEST_TIERED_TIMESTAMP: i64 = -5;
/// Asks for the first offset that waits for its way into tiered storage (from version 11 on).
pub const EARLIEST_PENDING_UPLOAD_TIMESTAMP: i64 = -6;

message! {
    pub struct ListOffsetsRequest: LIST_OFFSETS 1..=11, flexible 6.. {
        /// The follower that asks; none where it is a consumer.
        replica_id: BrokerId [1.., default BrokerId::NONE],
        /// 1 hides what open transactions wrote.
        isolation_level: i8 [2..],
        topics: Vec<ListOffsetsTopic> [1..],
        /// How long the broker may wait for tiered storage.
        timeout_ms: i32 [10..],
    }
}

structure! {
    pub struct ListOffsetsTopic {
        name: String [1..],
        partitions: Vec<ListOffsetsPartition> [1..],
    }
}

structure! {
    pub struct ListOffsetsPartition {
        partition_index: PartitionIndex [1..],
        current_leader_epoch: LeaderEpoch [4.., default LeaderEpoch::UNKNOWN],
        /// Milliseconds since 1970, or one of the negative questions above.
        timestamp: i64 [1..],
    }
}

message! {
    pub struct ListOffsetsResponse: LIST_OFFSETS 1..=11, flexible 6.. {
        throttle_time_ms: i32 [2..],
        topics: Vec<ListOffsetsTopicResponse> [1..],
    }
}

structure! {
    pub struct ListOffsetsTopicResponse {
        name: String [1..],
        partitions: Vec<ListOffsetsPartitionResponse> [1..],
    }
}

structure! {
    pub struct ListOffsetsPartitionResponse {
        partition_index: PartitionIndex [1..],
        error_code: ErrorCode [1..],
        /// -1 where the question was not about time.
        timestamp: i64 [1.., default -1],
        /// -1 where no record answers the question.
        offset: Offset [1.., default Offset(-1)],
        leader_epoch: LeaderEpoch [4.., default LeaderEpoch::UNKNOWN],
    }
}
