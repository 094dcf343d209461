//! What producers and operators do at the source.

use std::collections::BTreeMap;

use tools::synthetic::{EmptyBatch, NewBatch};
use wire::batch::Compression;
use wire::ids::{Offset, ProducerEpoch, ProducerId};
use wire::record::ControlKind;

use super::random::Random;
use super::source::Source;
use super::truth::Fate;

/// Producers with their memory.
#[derive(Debug, Default)]
pub struct Workload {
    sequences: BTreeMap<(String, i32, i64), i32>,
    /// Transactions under way.
    open: Vec<(String, i32, i64)>,
    next_producer: i64,
    topics_made: u32,
}

/// Which partition, chosen among all that there are.
fn any_partition(source: &Source, random: &mut Random) -> Option<(String, i32)> {
    let all: Vec<_> = source
        .cluster
        .topics()
        .flat_map(|(name, topic)| {
            (0..).take(topic.partitions().len()).map(move |index| (name.to_owned(), index))
        })
        .collect();
    (!all.is_empty()).then(|| random.pick(&all).clone())
}

fn any_topic(source: &Source, random: &mut Random) -> Option<String> {
    let all: Vec<_> = source.cluster.topics().map(|(name, _)| name.to_owned()).collect();
    (!all.is_empty()).then(|| random.pick(&all).clone())
}

impl Workload {
    /// Appends something somewhere.
    pub fn produce(&mut self, source: &mut Source, random: &mut Random, now_ms: i64) {
        let Some((topic, index)) = any_partition(source, random) else { return };
        let count = match random.below(20) {
            0 => 1 + random.below(100),
            _ => 1 + random.below(8),
        };
        for _ in 0..1 + random.below(4) {
            match random.below(10) {
                0..=4 => self.plain(source, random, (&topic, index), now_ms, count as usize),
                5..=6 => self.idempotent(source, random, (&topic, index), now_ms, count as usize),
                7..=8 => self.transactional(source, random, (&topic, index), now_ms),
                _ => self.end_some(source, random, now_ms),
            }
        }
        source.resume_all();
    }

    fn batch(random: &mut Random, count: usize, now_ms: i64) -> NewBatch {
        let bytes = match random.below(40) {
            0 => random.size(2_000, 6_000),
            _ => random.size(1, 300),
        };
        let batch = NewBatch::filled(count, bytes, now_ms, random.next());
        let kinds = [Compression::None, Compression::None, Compression::Lz4, Compression::Gzip];
        batch.compressed(*random.pick(&kinds))
    }

    fn append(source: &mut Source, (topic, index): (&str, i32), batch: &NewBatch) {
        if source.cluster.partition(topic, index).leader().is_none() {
            // Nobody takes it.
            return;
        }
        source.cluster.partition(topic, index).append(batch);
        source.truth.appended(&mut source.cluster, topic, index);
    }

    fn plain(
        &mut self,
        source: &mut Source,
        random: &mut Random,
        at: (&str, i32),
        now_ms: i64,
        count: usize,
    ) {
        Self::append(source, at, &Self::batch(random, count, now_ms));
    }

    fn idempotent(
        &mut self,
        source: &mut Source,
        random: &mut Random,
        at: (&str, i32),
        now_ms: i64,
        count: usize,
    ) {
        let producer = 10 + random.below(4) as i64;
        let batch = Self::batch(random, count, now_ms);
        self.numbered(source, at, producer, batch, false);
    }

    fn numbered(
        &mut self,
        source: &mut Source,
        (topic, index): (&str, i32),
        producer: i64,
        batch: NewBatch,
        is_transactional: bool,
    ) {
        let key = (topic.to_owned(), index, producer);
        let sequence = self.sequences.entry(key).or_default();
        let count = i32::try_from(batch.records.len()).unwrap_or(1);
        let mut batch = batch.producer(producer, 0, *sequence);
        *sequence += count;
        if is_transactional {
            batch = batch.transactional();
        }
        Self::append(source, (topic, index), &batch);
    }

    /// Begins a transaction or goes on with one.
    fn transactional(
        &mut self,
        source: &mut Source,
        random: &mut Random,
        (topic, index): (&str, i32),
        now_ms: i64,
    ) {
        let open = self.open.iter().find(|open| open.0 == topic && open.1 == index);
        let producer = match open {
            Some(open) if random.chance(600) => open.2,
            _ => {
                self.next_producer += 1;
                let producer = 1_000 + self.next_producer;
                self.open.push((topic.to_owned(), index, producer));
                producer
            }
        };
        let batch = Self::batch(random, random.clone().size(1, 5), now_ms);
        self.numbered(source, (topic, index), producer, batch, true);
        if self.open.len() > 4 || random.chance(400) {
            self.end_some(source, random, now_ms);
        }
    }

    /// Ends a transaction.
    fn end_some(&mut self, source: &mut Source, random: &mut Random, now_ms: i64) {
        if self.open.is_empty() {
            return;
        }
        let at = random.below(self.open.len() as u64) as usize;
        let (topic, index, producer) = self.open[at].clone();
        if source.cluster.partition(&topic, index).leader().is_none() {
            return;
        }
        self.open.swap_remove(at);
        let kind = *random.pick(&[ControlKind::Commit, ControlKind::Abort]);
        let producer = (ProducerId(producer), ProducerEpoch(0));
        source.cluster.partition(&topic, index).end_transaction(producer, kind, now_ms);
        source.truth.appended(&mut source.cluster, &topic, index);
    }

    /// Ends all transactions, so that readers of committed records reach the end.
    pub fn end_all(&mut self, source: &mut Source, random: &mut Random, now_ms: i64) {
        while !self.open.is_empty() {
            self.end_some(source, random, now_ms);
        }
        source.resume_all();
    }

    /// Makes a topic.
    pub fn new_topic(&mut self, source: &mut Source, random: &mut Random) {
        self.topics_made += 1;
        let name = format!("topic-{}", self.topics_made);
        source.cluster.create_topic(&name, 1 + random.below(3) as i32);
        source.truth.topics(&source.cluster);
    }

    /// Gives a topic more partitions.
    pub fn more_partitions(&mut self, source: &mut Source, random: &mut Random) {
        let Some(topic) = any_topic(source, random) else { return };
        let count = source.cluster.topic(&topic).map_or(0, |topic| topic.partitions().len());
        source.cluster.add_partitions(&topic, count + 1);
        source.truth.topics(&source.cluster);
    }

    /// Deletes a topic and makes another one of the same name, or none.
    pub fn replace_topic(&mut self, source: &mut Source, random: &mut Random, again: bool) {
        let Some(topic) = any_topic(source, random) else { return };
        self.open.retain(|open| open.0 != topic);
        self.sequences.retain(|key, _| key.0 != topic);
        if again {
            source.cluster.recreate_topic(&topic);
        } else if source.cluster.topics().count() > 1 {
            source.cluster.delete_topic(&topic);
        }
        source.truth.topics(&source.cluster);
        source.resume_all();
    }

    /// Moves a log's start, as retention and DeleteRecords do.
    pub fn delete_records(&mut self, source: &mut Source, random: &mut Random, now_ms: i64) {
        let Some((topic, index)) = any_partition(source, random) else { return };
        let partition = source.cluster.partition(&topic, index);
        let (start, end) = (partition.stored().start().0, partition.stored().end().0);
        let span = (end - start).max(0) as u64;
        let to = match random.below(4) {
            // All of it: whoever is behind loses something.
            0 => end,
            1 => start + random.below(span + 1) as i64,
            _ => start + random.below(span / 2 + 1) as i64,
        };
        partition.delete_records_before(Offset(to), now_ms);
        source.truth.changed(&mut source.cluster, &topic, index, Fate::Deleted);
        source.resume_all();
    }

    /// Compacts a log. The newest batches stay, as in Kafka, whose active segment is not compacted.
    pub fn compact(&mut self, source: &mut Source, random: &mut Random) {
        let Some((topic, index)) = any_partition(source, random) else { return };
        let stored = source.cluster.partition(&topic, index).stored();
        let last = stored.batches(stored.start(), stored.end()).last();
        let Some(last) = last.map(|bytes| i64::from_be_bytes(bytes[..8].try_into().expect("8")))
        else {
            return;
        };
        let empty = *random.pick(&[EmptyBatch::Keep, EmptyBatch::Remove]);
        let kept = *random.pick(&[100, 500, 900]);
        let mut dice = random.fork();
        source
            .cluster
            .partition(&topic, index)
            .compact(empty, |offset| offset.0 >= last || dice.chance(kept));
        source.truth.changed(&mut source.cluster, &topic, index, Fate::Compacted);
        source.resume_all();
    }

    /// Moves a partition's leader.
    pub fn move_leader(&mut self, source: &mut Source, random: &mut Random, now_ms: i64) {
        let Some((topic, index)) = any_partition(source, random) else { return };
        source.cluster.move_leader(&topic, index, now_ms);
        source.resume_all();
    }

    /// Elects a leader that lacks the newest records.
    pub fn elect_unclean(&mut self, source: &mut Source, random: &mut Random) {
        let Some((topic, index)) = any_partition(source, random) else { return };
        let ids: Vec<_> =
            source.cluster.broker_ids().filter(|id| source.cluster.is_up(*id)).collect();
        if ids.is_empty() {
            return;
        }
        let leader = *random.pick(&ids);
        let partition = source.cluster.partition(&topic, index);
        let stored = partition.stored();
        let bases: Vec<_> = stored
            .batches(stored.start(), stored.end())
            .map(|bytes| i64::from_be_bytes(bytes[..8].try_into().expect("8")))
            .collect();
        if bases.is_empty() {
            return;
        }
        let from = bases.len().saturating_sub(10);
        let end = *random.pick(&bases[from..]);
        let end = end.max(stored.start().0);
        partition.elect_unclean(leader, Offset(end));
        self.open.retain(|open| open.0 != topic || open.1 != index);
        source.truth.changed(&mut source.cluster, &topic, index, Fate::Lost);
        source.resume_all();
    }
}
