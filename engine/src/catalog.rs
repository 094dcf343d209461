//! What exists here: the node, its topics and their partitions. Every shard holds the same catalog;
//! topics are shared, and the one thing in them that changes by itself is a partition's leader epoch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use wire::ids::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};

/// The longest name of a topic (`org.apache.kafka.common.internals.Topic`).
const NAME_BYTES_MAX: usize = 249;

/// Whether a topic may have this name. Any other would not be safe in a path or a checkpoint file.
#[must_use]
pub fn is_legal_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX && name.bytes().all(legal)
}

/// This node and what it holds.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub cluster_id: Arc<str>,
    pub node_id: BrokerId,
    /// Where clients reach this node, as told in Metadata responses.
    pub host: Arc<str>,
    pub port: u16,
    topics: BTreeMap<Arc<str>, Arc<Topic>>,
    names: BTreeMap<TopicId, Arc<str>>,
}

/// A topic, under the name and the id that it has at the source.
#[derive(Debug)]
pub struct Topic {
    pub name: Arc<str>,
    pub id: TopicId,
    /// Configs that differ from Kafka's defaults, by Kafka's names.
    pub configs: BTreeMap<String, String>,
    leader_epochs: Vec<AtomicI32>,
}

impl Topic {
    /// A topic with `partition_count` partitions whose leader epochs are not known yet.
    #[must_use]
    pub fn new(
        name: Arc<str>,
        id: TopicId,
        partition_count: usize,
        configs: BTreeMap<String, String>,
    ) -> Self {
        let leader_epochs = (0..partition_count).map(|_| AtomicI32::new(-1)).collect();
        Self { name, id, configs, leader_epochs }
    }

    /// How many partitions the topic has.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.leader_epochs.len()
    }

    /// The leader epoch that clients are told, or `None` where there is no such partition.
    #[must_use]
    pub fn leader_epoch(&self, partition: PartitionIndex) -> Option<LeaderEpoch> {
        let epoch = self.leader_epochs.get(usize::try_from(partition.0).ok()?)?;
        Some(LeaderEpoch(epoch.load(Ordering::Relaxed)))
    }

    /// Raises a partition's leader epoch; a lower one changes nothing, since clients never go back.
    pub fn raise_leader_epoch(&self, partition: PartitionIndex, epoch: LeaderEpoch) {
        let index = usize::try_from(partition.0).ok();
        if let Some(known) = index.and_then(|index| self.leader_epochs.get(index)) {
            known.fetch_max(epoch.0, Ordering::Relaxed);
        }
    }
}

impl Catalog {
    /// A node without topics.
    #[must_use]
    pub fn new(cluster_id: Arc<str>, node_id: BrokerId, host: Arc<str>, port: u16) -> Self {
        Self { cluster_id, node_id, host, port, topics: BTreeMap::new(), names: BTreeMap::new() }
    }

    /// Adds a topic, or puts a newer shape of it (more partitions) in place of the older.
    pub fn put(&mut self, topic: Arc<Topic>) {
        if let Some(older) = self.topics.get(&topic.name) {
            for (index, epoch) in older.leader_epochs.iter().enumerate() {
                let index = PartitionIndex(i32::try_from(index).unwrap_or(i32::MAX));
                topic.raise_leader_epoch(index, LeaderEpoch(epoch.load(Ordering::Relaxed)));
            }
        }
        if !topic.id.is_zero() {
            self.names.insert(topic.id, Arc::clone(&topic.name));
        }
        self.topics.insert(Arc::clone(&topic.name), topic);
    }

    /// The topic of this name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// The topic of this id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics.get(self.names.get(&id)?)
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// How many topics there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether there is no topic.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }
}
