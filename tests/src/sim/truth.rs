//! What the source ever had: every version of every batch, and what became of it. The measure for
//! everything that the engine holds or tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use tools::synthetic::{Cluster, Log};
use wire::batch::Batch;
use wire::ids::{Offset, TopicId};
use wire::record::{ControlKind, ControlRecord};

/// What became of a batch at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Present,
    /// The log start moved past it.
    Deleted,
    /// Compaction removed it: whoever comes later sees a hole.
    Compacted,
    /// An unclean election lost it.
    Lost,
}

/// Offsets at which a batch once began.
#[derive(Clone, Debug)]
pub struct Entry {
    pub next: i64,
    pub versions: Vec<Arc<[u8]>>,
    /// Of these, so many were lost to elections: no mirror that goes on may hold them.
    pub lost: usize,
    pub fate: Fate,
}

/// A transaction of the source.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    pub producer: i64,
    pub first: i64,
    pub end: Option<(ControlKind, i64)>,
}

/// One partition of one topic, by the topic's id.
#[derive(Clone, Debug, Default)]
pub struct PartitionTruth {
    pub entries: BTreeMap<i64, Entry>,
    pub start: i64,
    pub end: i64,
    pub transactions: Vec<Transaction>,
    /// Records were lost by an election: mirrors that had them stop.
    pub was_cut: bool,
    /// The topic is gone or another one by now.
    pub is_past: bool,
}

/// Everything that the source ever had.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub partitions: BTreeMap<(TopicId, i32), PartitionTruth>,
    pub ids: BTreeMap<String, TopicId>,
}

impl Truth {
    /// Learns of topics that are new, have grown, or are gone.
    pub fn topics(&mut self, cluster: &Cluster) {
        self.ids = cluster.topics().map(|(name, topic)| (name.to_owned(), topic.id())).collect();
        for (_, topic) in cluster.topics() {
            for index in (0..).take(topic.partitions().len()) {
                self.partitions.entry((topic.id(), index)).or_default();
            }
        }
        for ((id, _), partition) in &mut self.partitions {
            partition.is_past = !self.ids.values().any(|known| known == id);
        }
    }

    /// The partition of this name as it is now.
    #[must_use]
    pub fn now(&self, topic: &str, index: i32) -> Option<&PartitionTruth> {
        self.partitions.get(&(*self.ids.get(topic)?, index))
    }

    /// Learns what was appended to a partition.
    ///
    /// # Panics
    /// When there is no such partition.
    pub fn appended(&mut self, cluster: &mut Cluster, topic: &str, index: i32) {
        let id = cluster.topic(topic).expect("the topic exists").id();
        let truth = self.partitions.get_mut(&(id, index)).expect("it was learnt of");
        let stored = cluster.partition(topic, index).stored();
        for bytes in stored.batches(Offset(truth.end), stored.end()) {
            truth.append(bytes);
        }
        truth.end = stored.end().0;
    }

    /// Learns what became of a partition after something was removed from it.
    ///
    /// # Panics
    /// When there is no such partition.
    pub fn changed(&mut self, cluster: &mut Cluster, topic: &str, index: i32, fate: Fate) {
        let id = cluster.topic(topic).expect("the topic exists").id();
        let truth = self.partitions.get_mut(&(id, index)).expect("it was learnt of");
        let partition = cluster.partition(topic, index);
        let Log::Stored(stored) = partition.log() else { return };
        truth.start = truth.start.max(stored.start().0);
        let there: BTreeMap<i64, &Arc<[u8]>> = stored
            .batches(stored.start(), stored.end())
            .map(|bytes| (base_of(bytes), bytes))
            .collect();
        for (base, entry) in &mut truth.entries {
            match there.get(base) {
                Some(bytes)
                    if entry.fate == Fate::Present
                        && !entry.versions.iter().any(|known| known == *bytes) =>
                {
                    entry.versions.push(Arc::clone(bytes));
                }
                None if entry.fate == Fate::Present => {
                    entry.fate = fate;
                    if fate == Fate::Lost {
                        entry.lost = entry.versions.len();
                        truth.was_cut = true;
                    }
                }
                _ => {}
            }
        }
        truth.end = stored.end().0;
        if fate == Fate::Lost {
            let end = truth.end;
            truth.transactions.retain(|each| each.first < end);
            for each in &mut truth.transactions {
                each.end = each.end.filter(|(_, marker)| *marker < end);
            }
        }
    }
}

fn base_of(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes[..8].try_into().expect("a batch has a base offset"))
}

impl PartitionTruth {
    fn append(&mut self, bytes: &Arc<[u8]>) {
        let batch = Batch::read(bytes, 0).expect("the source appends sound batches");
        let (base, next) = (batch.base_offset().0, batch.next_offset().0);
        let new = Entry { next, versions: Vec::new(), lost: 0, fate: Fate::Present };
        let entry = self.entries.entry(base).or_insert(new);
        entry.versions.push(Arc::clone(bytes));
        (entry.next, entry.fate) = (next, Fate::Present);
        let producer = batch.producer_id().0;
        if !batch.attributes().is_transactional() {
            return;
        }
        let is_open = |each: &&mut Transaction| each.producer == producer && each.end.is_none();
        let open = self.transactions.iter_mut().rev().find(is_open);
        if batch.attributes().is_control() {
            let control = ControlRecord::of(&batch).expect("a control record");
            if let Some(open) = open {
                open.end = Some((control.kind, base));
            }
        } else if open.is_none() {
            self.transactions.push(Transaction { producer, first: base, end: None });
        }
    }

    /// Whether these bytes are a batch that the source had there; gives the offset after it.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check_batch(&self, base: i64, bytes: &[u8]) -> Result<i64, String> {
        let entry = self.entries.get(&base);
        let entry = entry.ok_or_else(|| format!("the source never had a batch at {base}"))?;
        if entry.versions.iter().any(|known| **known == *bytes) {
            return Ok(Batch::read(bytes, 0).expect("it is one of the source's").next_offset().0);
        }
        Err(format!("the batch at {base} is not what the source had"))
    }

    /// Whether nothing that the source still has, or deleted only later, lies in `from..to`.
    ///
    /// # Errors
    /// The first batch that is missing.
    pub fn check_hole(&self, from: i64, to: i64) -> Result<(), String> {
        let missing = self.first_in(from, to, &[Fate::Present, Fate::Deleted]);
        match missing {
            Some((base, entry)) => Err(format!(
                "offsets {from} to {to} are left out, but the source had {base} to {} ({:?})",
                entry.next, entry.fate
            )),
            None => Ok(()),
        }
    }

    /// The first batch of one of these fates that reaches into `from..to`.
    #[must_use]
    pub fn first_in(&self, from: i64, to: i64, fates: &[Fate]) -> Option<(i64, &Entry)> {
        let fits = |(_, entry): &(&i64, &Entry)| entry.next > from && fates.contains(&entry.fate);
        self.entries
            .range(..to)
            .filter(|(_, entry)| entry.next > from)
            .find(fits)
            .map(|(b, e)| (*b, e))
    }
}
