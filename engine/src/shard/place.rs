//! Which shard owns which partition.

use crate::ids::{ShardId, TopicPartition};

/// The owner of a partition among `shard_count` shards: the same in every process with as many
/// shards, so that nothing has to be remembered or agreed upon.
#[must_use]
pub fn owner(partition: &TopicPartition, shard_count: u16) -> ShardId {
    // FNV-1a spreads topics; neighbouring partitions of one topic go to neighbouring shards, so that
    // a single topic loads all of them alike.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in partition.topic.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let index = u64::from(partition.partition.0.unsigned_abs());
    let shard = (hash >> 16).wrapping_add(index) % u64::from(shard_count.max(1));
    ShardId(u16::try_from(shard).expect("a remainder of a u16 is one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use wire::ids::PartitionIndex;

    #[test]
    fn the_partitions_of_a_topic_load_all_shards_alike() {
        for topic in ["a", "orders", "payments.eu-west-1"] {
            let mut owned = [0; 3];
            for index in 0..30 {
                let topic: Arc<str> = Arc::from(topic);
                let partition = TopicPartition { topic, partition: PartitionIndex(index) };
                owned[usize::from(owner(&partition, 3).0)] += 1;
            }
            assert_eq!(owned, [10, 10, 10]);
        }
    }
}
