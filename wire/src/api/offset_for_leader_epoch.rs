//! OffsetForLeaderEpoch: where a leader epoch ended, so that a log can be cut where it diverged.

use alloc::string::String;
use alloc::vec::Vec;

use super::ErrorCode;
use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex};
use crate::message::{message, structure};

message! {
    /// Versions 0 and 1 left Kafka with 4.0; clusters before 2.1 know no other.
    pub struct OffsetForLeaderEpochRequest: OFFSET_FOR_LEADER_EPOCH 0..=4, flexible 4.. {
        /// The follower that asks; -1 for a consumer, -2 for one that looks without being either.
        replica_id: BrokerId [3.., default BrokerId(-2)],
        topics: Vec<OffsetForLeaderTopic> [0..],
    }
}

structure! {
    pub struct OffsetForLeaderTopic {
        topic: String [0..],
        partitions: Vec<OffsetForLeaderPartition> [0..],
    }
}

structure! {
    pub struct OffsetForLeaderPartition {
        partition: PartitionIndex [0..],
        /// The epoch the asker believes in: the broker refuses when it is not its own.
        current_leader_epoch: LeaderEpoch [2.., default LeaderEpoch::UNKNOWN],
        /// The epoch whose end is asked for.
        leader_epoch: LeaderEpoch [0..],
    }
}

message! {
    pub struct OffsetForLeaderEpochResponse: OFFSET_FOR_LEADER_EPOCH 0..=4, flexible 4.. {
        throttle_time_ms: i32 [2..],
        topics: Vec<OffsetForLeaderTopicResult> [0..],
    }
}

structure! {
    pub struct OffsetForLeaderTopicResult {
        topic: String [0..],
        partitions: Vec<EpochEndOffset> [0..],
    }
}

structure! {
    pub struct EpochEndOffset {
        error_code: ErrorCode [0..],
        partition: PartitionIndex [0..],
        /// The greatest epoch known that is not above the one asked for.
        leader_epoch: LeaderEpoch [1.., default LeaderEpoch::UNKNOWN],
        /// The offset after the last one of that epoch; -1 where nothing is known.
        end_offset: Offset [0.., default Offset(-1)],
    }
}
