//! DescribeTopicPartitions: topics in pages, as admin tools ask for them.

use alloc::string::String;
use alloc::vec::Vec;

use super::ErrorCode;
use super::metadata::OPERATIONS_UNKNOWN;
use crate::ids::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};
use crate::message::{message, structure};

message! {
    pub struct DescribeTopicPartitionsRequest: DESCRIBE_TOPIC_PARTITIONS 0..=0, flexible 0.. {
        /// None means every topic.
        topics: Vec<TopicRequest> [0..],
        response_partition_limit: i32 [0.., default 2000],
        /// Where this page starts.
        cursor: Option<Cursor> [0..],
    }
}

structure! {
    pub struct TopicRequest {
        name: String [0..],
    }
}

structure! {
    /// The first partition of a page.
    pub struct Cursor {
        topic_name: String [0..],
        partition_index: PartitionIndex [0..],
    }
}

message! {
    pub struct DescribeTopicPartitionsResponse: DESCRIBE_TOPIC_PARTITIONS 0..=0, flexible 0.. {
        throttle_time_ms: i32 [0..],
        topics: Vec<DescribeTopicPartitionsResponseTopic> [0..],
        /// Where the next page starts; none after the last page.
        next_cursor: Option<Cursor> [0..],
    }
}

structure! {
    pub struct DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode [0..],
        name: Option<String> [0..],
        topic_id: TopicId [0..],
        is_internal: bool [0..],
        partitions: Vec<DescribeTopicPartitionsResponsePartition> [0..],
        topic_authorized_operations: i32 [0.., default OPERATIONS_UNKNOWN],
    }
}

structure! {
    pub struct DescribeTopicPartitionsResponsePartition {
        error_code: ErrorCode [0..],
        partition_index: PartitionIndex [0..],
        leader_id: BrokerId [0..],
        leader_epoch: LeaderEpoch [0.., default LeaderEpoch::UNKNOWN],
        replica_nodes: Vec<BrokerId> [0..],
        isr_nodes: Vec<BrokerId> [0..],
        eligible_leader_replicas: Option<Vec<BrokerId>> [0..],
        last_known_elr: Option<Vec<BrokerId>> [0..],
        offline_replicas: Vec<BrokerId> [0..],
    }
}
