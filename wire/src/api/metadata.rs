//! Metadata: the brokers of a cluster, its topics, and who leads which partition.

use alloc::string::String;
use alloc::vec::Vec;

use super::ErrorCode;
use crate::ids::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};
use crate::message::{message, structure};

/// Authorized operations where they were not asked for.
pub const OPERATIONS_UNKNOWN: i32 = i32::MIN;

message! {
    pub struct MetadataRequest: METADATA 0..=13, flexible 9.. {
        /// The topics asked for; see [`MetadataRequest::asks_all_topics`].
        topics: Option<Vec<MetadataRequestTopic>> [0.., null 1..],
        /// Before version 4 the broker decides by its configuration.
        allow_auto_topic_creation: bool [4.., default true],
        include_cluster_authorized_operations: bool [8..=10],
        include_topic_authorized_operations: bool [8..],
    }
}

structure! {
    pub struct MetadataRequestTopic {
        topic_id: TopicId [10..],
        /// Null where the topic is asked for by its id (from version 12 on).
        name: Option<String> [0.., null 10..],
    }
}

impl MetadataRequest {
    /// Whether every topic is asked for: by null, or in version 0 by naming none.
    #[must_use]
    pub fn asks_all_topics(&self, version: i16) -> bool {
        self.topics.as_ref().is_none_or(|topics| version == 0 && topics.is_empty())
    }
}

message! {
    pub struct MetadataResponse: METADATA 0..=13, flexible 9.. {
        throttle_time_ms: i32 [3..],
        brokers: Vec<MetadataResponseBroker> [0..],
        cluster_id: Option<String> [2..],
        controller_id: BrokerId [1.., default BrokerId::NONE],
        topics: Vec<MetadataResponseTopic> [0..],
        cluster_authorized_operations: i32 [8..=10, default OPERATIONS_UNKNOWN],
        error_code: ErrorCode [13..],
    }
}

structure! {
    pub struct MetadataResponseBroker {
        node_id: BrokerId [0..],
        host: String [0..],
        port: i32 [0..],
        rack: Option<String> [1..],
    }
}

structure! {
    pub struct MetadataResponseTopic {
        error_code: ErrorCode [0..],
        /// Null where the topic was asked for by an id that the broker does not know.
        name: Option<String> [0.., null 12..],
        topic_id: TopicId [10..],
        is_internal: bool [1..],
        partitions: Vec<MetadataResponsePartition> [0..],
        topic_authorized_operations: i32 [8.., default OPERATIONS_UNKNOWN],
    }
}

structure! {
    pub struct MetadataResponsePartition {
        error_code: ErrorCode [0..],
        partition_index: PartitionIndex [0..],
        leader_id: BrokerId [0..],
        leader_epoch: LeaderEpoch [7.., default LeaderEpoch::UNKNOWN],
        replica_nodes: Vec<BrokerId> [0..],
        isr_nodes: Vec<BrokerId> [0..],
        offline_replicas: Vec<BrokerId> [5..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Reader, Writer};
    use crate::error::{Fault, WireError};
    use alloc::vec;

    #[test]
    fn every_topic_is_asked_for_by_none_in_version_0_and_by_null_later() {
        let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
        let nothing = MetadataRequest { topics: Some(vec![]), ..MetadataRequest::default() };
        for (version, hex) in [(0, [0, 0, 0, 0]), (1, [0xff; 4])] {
            let mut writer = Writer::new();
            all.write(&mut writer, version);
            assert_eq!(writer.bytes(), hex);
            let read = MetadataRequest::read(&mut Reader::new(writer.bytes()), version).unwrap();
            assert!(read.asks_all_topics(version));
        }
        assert!(!nothing.asks_all_topics(1));
    }

    #[test]
    fn null_is_refused_in_a_version_where_it_may_not_stand() {
        assert_eq!(
            MetadataRequest::read(&mut Reader::new(&[0xff; 4]), 0),
            Err(WireError { fault: Fault::UnexpectedNull, position: 0 })
        );
    }
}
