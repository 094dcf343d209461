//! Reads both sides as a Kafka client does, and compares them batch by batch, byte by byte.

use std::collections::BTreeMap;
use std::fmt;

use engine::ids::TopicPartition;
use wire::batch::Batch;
use wire::ids::Offset;

use crate::client::{Client, ClientError, Digest, Digester, Settings};
use crate::command::quantity::{Bytes, Exactly};

/// One partition on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    pub partition: TopicPartition,
    pub source: Digest,
    pub mirror: Digest,
    /// Where the bytes begin to differ: the offset of the first batch at the source that is another
    /// one here or not there. Beyond the source's end where the mirror has more.
    pub differs_at: Option<Offset>,
}

/// All partitions on both sides, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison(pub Vec<Compared>);

impl Comparison {
    /// Whether every partition is the same on both sides.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(Compared::is_equal)
    }

    /// Bytes of batches at the source.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|each| each.source.bytes).sum()
    }
}

impl Compared {
    /// Whether the bytes and their digests are the same on both sides.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differs_at.is_none() && self.source == self.mirror
    }
}

/// What one side has of a partition, read so far.
#[derive(Default)]
struct Read {
    digester: Digester,
    bytes: Vec<u8>,
}

/// The other side, on its way along the first.
#[derive(Default)]
struct Along {
    digester: Digester,
    position: usize,
    differs_at: Option<Offset>,
}

impl Along {
    fn add(&mut self, batch: &Batch<'_>, source: &[u8]) {
        self.digester.add(batch);
        let rest = source.get(self.position..).unwrap_or_default();
        if self.differs_at.is_none() && !rest.starts_with(batch.as_bytes()) {
            let there = Batch::read(rest, 0).map_or(batch.base_offset(), |b| b.base_offset());
            self.differs_at = Some(there);
        }
        self.position += batch.size();
    }

    fn finish(self, partition: TopicPartition, source: &Read) -> Compared {
        let left = source.bytes.get(self.position..).unwrap_or_default();
        let missing = Batch::read(left, 0).ok().map(|batch| batch.base_offset());
        Compared {
            partition,
            source: source.digester.finish(),
            mirror: self.digester.finish(),
            differs_at: self.differs_at.or(missing),
        }
    }
}

/// Compares topics on two clusters, given by their bootstrap addresses. Holds one topic of the
/// source in memory at a time.
///
/// # Errors
/// Where a side cannot be read.
pub fn compare(topics: &[&str], source: &str, mirror: &str) -> Result<Comparison, ClientError> {
    let settings = Settings { client_id: "farspan-demo".into(), ..Settings::default() };
    let mut source = Client::new(source, settings.clone());
    let mut mirror = Client::new(mirror, settings);
    let mut compared = Vec::new();
    for topic in topics {
        let topic = &[*topic][..];
        let mut read: BTreeMap<TopicPartition, Read> = partitions(&mut source, topic)?;
        source.read_to_end(Some(topic), |partition, batch| {
            let side = read.entry(partition.clone()).or_default();
            side.digester.add(batch);
            side.bytes.extend_from_slice(batch.as_bytes());
        })?;
        let mut along: BTreeMap<TopicPartition, Along> = partitions(&mut mirror, topic)?;
        mirror.read_to_end(Some(topic), |partition, batch| {
            let bytes = read.get(partition).map_or(&[][..], |side| &side.bytes);
            along.entry(partition.clone()).or_default().add(batch, bytes);
        })?;
        for (partition, side) in &read {
            let other = along.remove(partition).unwrap_or_default();
            compared.push(other.finish(partition.clone(), side));
        }
        // Partitions that only the mirror has.
        for (partition, other) in along {
            compared.push(other.finish(partition, &Read::default()));
        }
    }
    Ok(Comparison(compared))
}

/// The partitions of a topic, with nothing read of them yet.
fn partitions<T: Default>(
    client: &mut Client,
    topic: &[&str],
) -> Result<BTreeMap<TopicPartition, T>, ClientError> {
    let mut partitions = BTreeMap::new();
    for topic in client.metadata(Some(topic))? {
        for view in &topic.partitions {
            let (topic, partition) = (topic.name.clone(), view.index);
            partitions.insert(TopicPartition { topic, partition }, T::default());
        }
    }
    Ok(partitions)
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<14} {:>19} {:>10} {:>8} {:>9}  {:<16}  equal",
            "partition", "offsets", "records", "batches", "bytes", "digest"
        )?;
        for each in &self.0 {
            writeln!(f, "{each}")?;
        }
        let equal = self.0.iter().filter(|each| each.is_equal()).count();
        write!(f, "{equal} of {} partitions are equal byte for byte", self.0.len())
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = &self.source;
        let offsets = match (digest.first, digest.next) {
            (Some(first), Some(next)) => format!("{first}..{next}"),
            _ => "none".to_string(),
        };
        write!(
            f,
            "{:<14} {offsets:>19} {:>10} {:>8} {:>9}  {:016x}  ",
            self.partition.to_string(),
            Exactly(digest.record_count),
            Exactly(digest.batch_count),
            Bytes(digest.bytes),
            digest.exact
        )?;
        match self.differs_at {
            None if self.is_equal() => f.write_str("yes"),
            None => f.write_str("NO"),
            Some(offset) => {
                write!(f, "NO, from offset {offset} on: the mirror has {}", self.mirror)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::serve::serve;
    use crate::synthetic::{Cluster, NewBatch, Settings as ClusterSettings};

    /// Two clusters with the same topic; `change` makes the second differ.
    fn compared(change: impl FnOnce(&mut Cluster)) -> Comparison {
        let cluster = |change: Box<dyn FnOnce(&mut Cluster) + '_>| {
            let mut cluster = Cluster::new(ClusterSettings::default());
            cluster.create_topic("t", 2);
            for seed in 0..3 {
                cluster.partition("t", 0).append(&NewBatch::filled(2, 10, 0, seed));
            }
            change(&mut cluster);
            serve(cluster).expect("sockets")
        };
        let (one, other) = (cluster(Box::new(|_| ())), cluster(Box::new(change)));
        compare(&["t"], &one.bootstrap(), &other.bootstrap()).expect("both can be read")
    }

    #[test]
    fn equal_sides_are_equal_with_empty_partitions_among_them() {
        let comparison = compared(|_| ());
        assert!(comparison.is_equal());
        assert_eq!(comparison.0.len(), 2);
        let text = comparison.to_string();
        assert!(text.contains("0..6") && text.contains("none"), "{text}");
        assert!(text.ends_with("2 of 2 partitions are equal byte for byte"), "{text}");
    }

    #[test]
    fn sides_that_differ_are_told_from_which_offset_on() {
        let other = compared(|cluster| {
            cluster.partition("t", 0).stored().truncate(Offset(2));
            cluster.partition("t", 0).append(&NewBatch::filled(2, 10, 0, 9));
            cluster.partition("t", 0).append(&NewBatch::filled(2, 10, 0, 2));
        });
        assert_eq!(other.0[0].differs_at, Some(Offset(2)));
        let less = compared(|cluster| cluster.partition("t", 0).stored().truncate(Offset(4)));
        assert_eq!(less.0[0].differs_at, Some(Offset(4)));
        let more = compared(|cluster| {
            cluster.partition("t", 0).append(&NewBatch::filled(2, 10, 0, 9));
        });
        assert_eq!(more.0[0].differs_at, Some(Offset(6)));
        assert!(!other.is_equal() && !less.is_equal() && !more.is_equal());
        assert!(more.to_string().contains("NO, from offset 6 on"), "{more}");
    }
}
