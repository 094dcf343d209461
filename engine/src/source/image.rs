//! What the source cluster consists of, as its metadata says: brokers, topics, leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::api::ErrorCode;
use wire::api::metadata::{MetadataResponse, MetadataResponsePartition, MetadataResponseTopic};
use wire::ids::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};

use super::doubt::Told;
use super::filter::{Exclusion, TopicFilter};

/// After how many full listings in a row that tell something older than what is known the older is
/// believed: a broker may lag behind, but not for that long.
const OLDER_LISTINGS_MAX: u8 = 3;

/// How many replaced topic ids are remembered.
const REPLACED_MAX: usize = 10_000;

/// The source cluster at one moment. Plain data: shards share it, nobody changes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceImage {
    pub cluster_id: Option<Arc<str>>,
    pub brokers: BTreeMap<BrokerId, SourceBroker>,
    /// The topics that the filter wants. An unchanged topic is the same allocation as before.
    pub topics: BTreeMap<Arc<str>, Arc<SourceTopic>>,
    /// The topics that the filter does not want, and why.
    pub excluded: BTreeMap<Arc<str>, Exclusion>,
    /// When topics were told last, for the links of other shards.
    pub(super) told: Told,
}

/// A broker, where it says that it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceBroker {
    pub host: Arc<str>,
    pub port: u16,
    pub rack: Option<Arc<str>>,
}

/// A topic and who leads its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopic {
    pub name: Arc<str>,
    /// Zero where the cluster knows no topic ids (before Kafka 2.8).
    pub id: TopicId,
    /// Why the topic cannot be read, as `TOPIC_AUTHORIZATION_FAILED`; it is kept as it was known.
    pub error: ErrorCode,
    /// By partition index, without a hole.
    pub partitions: Vec<Leadership>,
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// None while there is no leader.
    pub leader: BrokerId,
    pub epoch: LeaderEpoch,
    pub error: ErrorCode,
}

impl Leadership {
    const UNKNOWN: Self = Self {
        leader: BrokerId::NONE,
        epoch: LeaderEpoch::UNKNOWN,
        error: ErrorCode::LEADER_NOT_AVAILABLE,
    };
}

impl SourceImage {
    /// Who leads a partition of the topic of this name and id; `None` where there is no such
    /// partition. A zero id, on either side, matches by name alone.
    #[must_use]
    pub fn leadership(
        &self,
        topic: &str,
        id: TopicId,
        partition: PartitionIndex,
    ) -> Option<Leadership> {
        let topic = self.topics.get(topic)?;
        if topic.id != id && !topic.id.is_zero() && !id.is_zero() {
            return None;
        }
        topic.partitions.get(usize::try_from(partition.0).ok()?).copied()
    }
}

/// What makes an answer unusable as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The broker belongs to another cluster than the one we began with.
    OtherCluster { expected: Arc<str>, found: Arc<str> },
    /// The broker lists no brokers: it has not caught up with its own cluster.
    NoBrokers,
    /// A topic whose partitions are not numbered from 0 on.
    Partitions { topic: String, index: i32 },
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherCluster { expected, found } => {
                write!(
                    f,
                    "it belongs to cluster {found}, and what is here is a mirror of cluster \
                     {expected}; give --from brokers of that one, or another --data"
                )
            }
            Self::NoBrokers => f.write_str("knows no brokers of its cluster"),
            Self::Partitions { topic, index } => {
                write!(f, "names partition {index} of topic {topic}, far beyond the others")
            }
        }
    }
}

/// Builds images out of answers, one after the other, without going back: neither in a partition's
/// leader epoch nor from a topic id to the one it replaced.
#[derive(Debug, Default)]
pub(super) struct Atlas {
    /// Ids that were replaced by another under the same name. Ids are never used again.
    replaced: BTreeSet<TopicId>,
    /// Full listings in a row that told an older topic: a replaced id or, without ids, lower epochs.
    older: BTreeMap<Arc<str>, u8>,
    /// Topics that the last full listing left out: deleted, or no longer ours to see.
    doubted: BTreeSet<Arc<str>>,
}

/// What an answer changed.
pub(super) struct Surveyed {
    /// `None` where all is as before.
    pub(super) image: Option<Arc<SourceImage>>,
    /// Topics to ask for by name: a full listing left them out.
    pub(super) ask: Vec<Arc<str>>,
}

impl Atlas {
    /// Whether hearing the same listing again would change nothing.
    pub(super) fn is_settled(&self) -> bool {
        self.older.is_empty() && self.doubted.is_empty()
    }

    /// Whether something older was told of a topic, and not believed.
    pub(super) fn is_in_dispute(&self, topic: &str) -> bool {
        self.older.contains_key(topic)
    }

    /// The image after `answer`, which listed all topics or (`full` is false) those that were named.
    pub(super) fn survey(
        &mut self,
        old: &SourceImage,
        answer: &MetadataResponse,
        full: bool,
        filter: &TopicFilter,
    ) -> Result<Surveyed, Unusable> {
        let mut image = SourceImage {
            cluster_id: same_cluster(old, answer)?,
            brokers: brokers(answer)?,
            // No news by itself.
            told: old.told.clone(),
            ..SourceImage::default()
        };
        if !full {
            image.topics.clone_from(&old.topics);
            image.excluded.clone_from(&old.excluded);
        }
        let mut ask = Vec::new();
        for topic in &answer.topics {
            self.topic(old, &mut image, topic, full, filter)?;
        }
        if full {
            for (name, topic) in &old.topics {
                if !image.topics.contains_key(name) {
                    image.topics.insert(Arc::clone(name), Arc::clone(topic));
                    self.doubted.insert(Arc::clone(name));
                    ask.push(Arc::clone(name));
                }
            }
        }
        let image = (image != *old).then(|| Arc::new(image));
        Ok(Surveyed { image, ask })
    }

    fn topic(
        &mut self,
        old: &SourceImage,
        image: &mut SourceImage,
        answer: &MetadataResponseTopic,
        full: bool,
        filter: &TopicFilter,
    ) -> Result<(), Unusable> {
        let Some(name) = answer.name.as_deref() else {
            return Ok(());
        };
        let known = old.topics.get_key_value(name);
        let name = known.map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name));
        if let Err(exclusion) = filter.check(&name, answer.is_internal) {
            image.topics.remove(&name);
            image.excluded.insert(name, exclusion);
            return Ok(());
        }
        let known = known.map(|(_, topic)| topic);
        if !answer.error_code.is_none() {
            self.failed(image, name, known, answer.error_code);
            return Ok(());
        }
        self.doubted.remove(&name);
        let topic = self.merged(known, &name, answer, full)?;
        image.topics.insert(name, topic);
        Ok(())
    }

    /// A topic that the broker has an error for keeps what is known of it, and carries the error;
    /// it goes where a full listing left it out and the broker, asked by name, knows none.
    fn failed(
        &mut self,
        image: &mut SourceImage,
        name: Arc<str>,
        known: Option<&Arc<SourceTopic>>,
        error: ErrorCode,
    ) {
        let Some(known) = known else {
            return;
        };
        let unknown = error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            || error == ErrorCode::INVALID_TOPIC_EXCEPTION;
        if unknown && self.doubted.remove(&name) {
            image.topics.remove(&name);
            self.older.remove(&name);
            return;
        }
        // That leaders or topics are unknown for a moment is no news; that reading is forbidden is.
        let topic = if error.retriable() || known.error == error {
            Arc::clone(known)
        } else {
            Arc::new(SourceTopic { error, ..SourceTopic::clone(known) })
        };
        image.topics.insert(name, topic);
    }

    /// What is known of a topic and what the answer says, without going back.
    fn merged(
        &mut self,
        known: Option<&Arc<SourceTopic>>,
        name: &Arc<str>,
        answer: &MetadataResponseTopic,
        full: bool,
    ) -> Result<Arc<SourceTopic>, Unusable> {
        let mut topic = SourceTopic {
            name: Arc::clone(name),
            id: answer.topic_id,
            error: ErrorCode::NONE,
            partitions: leaderships(&answer.partitions)
                .map_err(|index| Unusable::Partitions { topic: name.to_string(), index })?,
        };
        let Some(known) = known else {
            return Ok(Arc::new(topic));
        };
        if topic.id.is_zero() && !known.id.is_zero() {
            // A broker that does not know of ids yet.
            return Ok(Arc::clone(known));
        }
        let other = known.id != topic.id && !known.id.is_zero();
        let older = if other { self.replaced.contains(&topic.id) } else { is_older(known, &topic) };
        let believed = self.is_believed(name, older, full);
        if other && !believed {
            return Ok(Arc::clone(known));
        }
        if other {
            self.replaced.remove(&topic.id);
            self.replaced.insert(known.id);
            if self.replaced.len() > REPLACED_MAX {
                self.replaced.pop_first();
            }
        }
        if other || (older && believed) {
            return Ok(Arc::new(topic));
        }
        for (index, known) in known.partitions.iter().enumerate() {
            match topic.partitions.get_mut(index) {
                Some(told) if told.epoch < known.epoch => *told = *known,
                Some(_) => {}
                None => topic.partitions.push(*known),
            }
        }
        Ok(if **known == topic { Arc::clone(known) } else { Arc::new(topic) })
    }

    /// Whether a topic is to be taken as it is told: it is not older than what is known, or was told
    /// so often enough.
    fn is_believed(&mut self, name: &Arc<str>, older: bool, full: bool) -> bool {
        if !older {
            self.older.remove(name);
            return true;
        }
        let times = self.older.entry(Arc::clone(name)).or_insert(0);
        *times += u8::from(full);
        if *times < OLDER_LISTINGS_MAX {
            return false;
        }
        self.older.remove(name);
        true
    }
}

/// Whether a topic without an id shows a lower epoch than before. With ids no guess is needed.
fn is_older(known: &SourceTopic, told: &SourceTopic) -> bool {
    let mut pairs = known.partitions.iter().zip(&told.partitions);
    told.id.is_zero() && pairs.any(|(known, told)| told.epoch < known.epoch)
}

fn same_cluster(
    old: &SourceImage,
    answer: &MetadataResponse,
) -> Result<Option<Arc<str>>, Unusable> {
    match (&old.cluster_id, &answer.cluster_id) {
        (Some(expected), Some(found)) if **expected != **found => Err(Unusable::OtherCluster {
            expected: Arc::clone(expected),
            found: found.as_str().into(),
        }),
        (Some(known), _) => Ok(Some(Arc::clone(known))),
        (None, found) => Ok(found.as_deref().map(Arc::from)),
    }
}

fn brokers(answer: &MetadataResponse) -> Result<BTreeMap<BrokerId, SourceBroker>, Unusable> {
    if answer.brokers.is_empty() {
        return Err(Unusable::NoBrokers);
    }
    let brokers = answer.brokers.iter().filter_map(|broker| {
        // A port that is none makes the broker unreachable, and its partitions wait.
        let port = u16::try_from(broker.port).ok()?;
        let rack = broker.rack.as_deref().map(Arc::from);
        Some((broker.node_id, SourceBroker { host: broker.host.as_str().into(), port, rack }))
    });
    Ok(brokers.collect())
}

/// The partitions by their index; what the answer leaves out is unknown. An index far beyond the
/// number of partitions would cost memory that the answer did not pay for, and is refused.
fn leaderships(partitions: &[MetadataResponsePartition]) -> Result<Vec<Leadership>, i32> {
    let mut leaderships = vec![Leadership::UNKNOWN; partitions.len()];
    for partition in partitions {
        let told = partition.partition_index.0;
        let index = usize::try_from(told).map_err(|_| told)?;
        if index > 2 * partitions.len() + 16 {
            return Err(told);
        }
        if index >= leaderships.len() {
            leaderships.resize(index + 1, Leadership::UNKNOWN);
        }
        let (leader, epoch) = (partition.leader_id, partition.leader_epoch);
        leaderships[index] = Leadership { leader, epoch, error: partition.error_code };
    }
    Ok(leaderships)
}
#[cfg(test)]
mod tests;
