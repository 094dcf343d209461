//! What Kafka says of topics: which names are legal, which are its own, what may be done to one here.

use std::sync::Arc;

use wire::api::ErrorCode;
use wire::ids::PartitionIndex;

use crate::catalog::{Catalog, Topic, is_legal_name};

/// Operations on a topic as bits (`AclOperation`): READ 3, DESCRIBE 8, DESCRIBE_CONFIGS 10. All
/// others would change it, and nobody may do that here.
pub(super) const TOPIC_OPERATIONS: i32 = 1 << 3 | 1 << 8 | 1 << 10;

/// Operations on the cluster: DESCRIBE 8, DESCRIBE_CONFIGS 10.
pub(super) const CLUSTER_OPERATIONS: i32 = 1 << 8 | 1 << 10;

/// Whether clients hide this topic from their users.
pub(super) fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

/// Why a topic that is asked for by this name is not known.
pub(super) fn unknown(name: &str) -> ErrorCode {
    if is_legal_name(name) {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    } else {
        ErrorCode::INVALID_TOPIC_EXCEPTION
    }
}

/// The topic, where it is known and has the partition.
pub(super) fn find<'c>(
    catalog: &'c Catalog,
    name: &str,
    partition: PartitionIndex,
) -> Option<&'c Arc<Topic>> {
    catalog.topic(name).filter(|topic| topic.leader_epoch(partition).is_some())
}

/// The partitions of a topic in their order.
pub(super) fn partitions(topic: &Topic) -> impl Iterator<Item = PartitionIndex> {
    (0..topic.partition_count()).map(|index| {
        PartitionIndex(i32::try_from(index).expect("a topic has fewer than 2^31 partitions"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_legal_names_from_others_as_kafka_does() {
        for name in ["a", "A.b_c-1", "...", "__consumer_offsets", &"x".repeat(249)] {
            assert!(is_legal_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a b", "ü", &"x".repeat(250)] {
            assert!(!is_legal_name(name), "{name}");
        }
    }
}
