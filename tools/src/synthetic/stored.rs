//! A log whose batches are held in memory, and all that can happen to one.

use std::sync::Arc;

use wire::batch::{Batch, BatchBuilder, BatchFault, BatchMut, Compression, NewRecord};
use wire::fetch::AbortedTransaction;
use wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use wire::record::{ControlKind, Records};

use super::chunk::Chunks;
use super::payload;

/// The batches of one partition.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// In the order of their offsets, with holes where compaction removed some.
    batches: Vec<StoredBatch>,
    start: Offset,
    end: Offset,
    /// Where followers are behind, the offset up to which they are not.
    replicated: Option<Offset>,
    transactions: Vec<Transaction>,
}

/// A batch and what the log knows of it, whatever its bytes say after they were damaged.
#[derive(Clone, Debug)]
struct StoredBatch {
    next: Offset,
    max_timestamp: i64,
    bytes: Arc<[u8]>,
    /// The sound bytes of a batch that was damaged.
    sound: Option<Arc<[u8]>>,
}

#[derive(Clone, Copy, Debug)]
struct Transaction {
    producer_id: ProducerId,
    first: Offset,
    /// Its marker, once it has ended.
    end: Option<(ControlKind, Offset)>,
}

/// A way to damage a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit of the records, so that the CRC no longer fits.
    Crc,
    /// The format byte.
    Magic(i8),
    /// The length field, the batch's bytes staying as they are.
    Length(i32),
    /// The base offset.
    BaseOffset(Offset),
    /// The leader epoch.
    LeaderEpoch(LeaderEpoch),
}

/// Whether compaction keeps the header of a batch that lost all of its records, as Kafka does for
/// the last batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyBatch {
    Keep,
    Remove,
}

impl Stored {
    /// A log that starts at `start` and holds nothing.
    #[must_use]
    pub fn starting_at(start: Offset) -> Self {
        Self { start, end: start, ..Self::default() }
    }

    /// The offset of the first record that is served.
    #[must_use]
    pub const fn start(&self) -> Offset {
        self.start
    }

    /// The offset that the next record gets.
    #[must_use]
    pub const fn end(&self) -> Offset {
        self.end
    }

    /// Up to where consumers see records.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.replicated.map_or(self.end, |replicated| replicated.min(self.end))
    }

    /// Up to where no transaction is open.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        let high_watermark = self.high_watermark();
        let is_open = |transaction: &&Transaction| {
            transaction.end.is_none_or(|(_, marker)| marker >= high_watermark)
        };
        let first_open = self.transactions.iter().filter(is_open).map(|open| open.first).min();
        first_open.map_or(high_watermark, |first| first.min(high_watermark))
    }

    /// Holds the high watermark at `offset`, or lets it follow the end again.
    pub const fn hold_high_watermark(&mut self, offset: Option<Offset>) {
        self.replicated = offset;
    }

    /// Appends a batch as it is, at its own offsets, which lie at or after the log's end. Keeps
    /// account of transactions.
    ///
    /// # Panics
    /// When the bytes are not one batch, or lie before the end.
    pub fn append_built(&mut self, bytes: Vec<u8>) {
        let batch = Batch::read(&bytes, 0).expect("one batch");
        let (base, next) = (batch.base_offset(), batch.next_offset());
        assert!(base >= self.end && batch.size() == bytes.len(), "one batch after the log's end");
        let producer_id = batch.producer_id();
        if batch.attributes().is_transactional() {
            let open = self
                .transactions
                .iter_mut()
                .rev()
                .find(|open| open.producer_id == producer_id && open.end.is_none());
            if batch.attributes().is_control() {
                let control = wire::record::ControlRecord::of(&batch).expect("a control record");
                if let Some(open) = open {
                    open.end = Some((control.kind, base));
                }
            } else if open.is_none() {
                self.transactions.push(Transaction { producer_id, first: base, end: None });
            }
        }
        let max_timestamp = batch.max_timestamp();
        self.end = next;
        let bytes = Arc::from(bytes);
        self.batches.push(StoredBatch { next, max_timestamp, bytes, sound: None });
    }

    /// Appends the marker that ends the open transaction of `producer`.
    pub fn append_marker(
        &mut self,
        kind: ControlKind,
        epoch: LeaderEpoch,
        producer: (ProducerId, ProducerEpoch),
        timestamp: i64,
    ) -> Offset {
        let base = self.end;
        self.append_built(wire::record::end_txn_marker(kind, base, timestamp, epoch, producer, 0));
        base
    }

    /// Moves the start, which may come to lie inside a batch: that batch stays whole.
    pub fn delete_records_before(&mut self, offset: Offset) {
        self.start = self.start.max(offset.min(self.high_watermark()));
        self.batches.retain(|batch| batch.next > self.start);
        let start = self.start;
        self.transactions.retain(|each| each.end.is_none_or(|(_, marker)| marker >= start));
    }

    /// Ends the log at `offset`, as a leader does that never had the rest. A batch over the cut goes
    /// whole and leaves a hole.
    pub fn truncate(&mut self, offset: Offset) {
        self.batches.retain(|batch| batch.next <= offset);
        self.end = self.end.min(offset.max(self.start));
        let held = self.batches.last().map_or(self.start, |batch| batch.next);
        self.transactions.retain(|each| each.first < held);
        for transaction in &mut self.transactions {
            transaction.end = transaction.end.filter(|(_, marker)| *marker < held);
        }
    }

    /// Leaves offsets out, as a log does whose batches were compacted away.
    pub fn skip_to(&mut self, end: Offset) {
        self.end = self.end.max(end);
    }

    /// Removes every record that `keep` refuses, as compaction does: offsets stay, a batch keeps its
    /// base offset, its last offset and its producer's fields. Markers stay.
    ///
    /// # Panics
    /// When a batch was damaged.
    pub fn compact(&mut self, empty: EmptyBatch, mut keep: impl FnMut(Offset) -> bool) {
        self.batches.retain_mut(|stored| {
            let batch = Batch::read(&stored.bytes, 0).expect("a sound batch");
            if batch.attributes().is_control() {
                return true;
            }
            let (bytes, record_count) = shrink(&batch, &mut keep);
            stored.bytes = Arc::from(bytes);
            record_count > 0 || empty == EmptyBatch::Keep
        });
    }

    /// Damages the batch that holds `offset`.
    ///
    /// # Panics
    /// When no batch does.
    pub fn damage(&mut self, offset: Offset, damage: Damage) {
        let place = self.place_of(offset);
        let stored = self.batches.get_mut(place).expect("a batch holds the offset");
        let mut bytes = stored.bytes.to_vec();
        match damage {
            Damage::Crc => *bytes.last_mut().expect("a batch has bytes") ^= 1,
            Damage::Magic(magic) => bytes[16] = magic.cast_unsigned(),
            Damage::Length(length) => bytes[8..12].copy_from_slice(&length.to_be_bytes()),
            Damage::BaseOffset(base) => bytes[..8].copy_from_slice(&base.0.to_be_bytes()),
            Damage::LeaderEpoch(epoch) => bytes[12..16].copy_from_slice(&epoch.0.to_be_bytes()),
        }
        let damaged = std::mem::replace(&mut stored.bytes, Arc::from(bytes));
        stored.sound.get_or_insert(damaged);
    }

    /// Gives every damaged batch its sound bytes back.
    pub fn heal(&mut self) {
        for batch in &mut self.batches {
            if let Some(sound) = batch.sound.take() {
                batch.bytes = sound;
            }
        }
    }

    /// The batches from the one that holds `from` on, up to `upper`, in order.
    pub fn batches(&self, from: Offset, upper: Offset) -> impl Iterator<Item = &Arc<[u8]>> {
        let rest = &self.batches[self.place_of(from)..];
        rest.iter().take_while(move |batch| batch.next <= upper).map(|batch| &batch.bytes)
    }

    /// Reads at most `bytes_max`, cutting the last batch where it must; see [`super::Partition::read`].
    pub(super) fn read(
        &self,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
        whole: bool,
    ) -> Chunks {
        let mut read = Chunks::default();
        let mut bytes_max = bytes_max;
        for bytes in self.batches(from, upper) {
            if read.is_empty() && bytes.len() > bytes_max {
                if !whole {
                    break;
                }
                bytes_max = bytes.len();
            }
            let left = bytes_max - read.len();
            read.share(bytes, 0..bytes.len().min(left));
            if bytes.len() >= left {
                break;
            }
        }
        read
    }

    /// The aborted transactions that reach into what was read.
    pub(super) fn aborted(&self, from: Offset, upper: Offset) -> Vec<AbortedTransaction> {
        let reaches = |transaction: &&Transaction| match transaction.end {
            Some((ControlKind::Abort, marker)) => marker >= from && transaction.first < upper,
            _ => false,
        };
        let aborted = self.transactions.iter().filter(reaches);
        aborted
            .map(|each| AbortedTransaction {
                producer_id: each.producer_id,
                first_offset: each.first,
            })
            .collect()
    }

    /// The first record at or after `timestamp` in the order of the log: its timestamp and offset.
    pub(super) fn at_time(&self, timestamp: i64) -> Option<(i64, Offset)> {
        let later = self.batches.iter().filter(|batch| batch.max_timestamp >= timestamp);
        later
            .flat_map(|batch| timestamps(&batch.bytes))
            .find(|(time, offset)| *time >= timestamp && *offset >= self.start)
    }

    /// The first of the records with the newest timestamp.
    pub(super) fn newest(&self) -> Option<(i64, Offset)> {
        let newest = self.batches.iter().map(|batch| batch.max_timestamp).max()?;
        self.at_time(newest)
    }

    fn place_of(&self, offset: Offset) -> usize {
        self.batches.partition_point(|batch| batch.next <= offset)
    }
}

/// The batch with the records only that `keep` accepts, and how many they are.
fn shrink(batch: &Batch<'_>, keep: &mut impl FnMut(Offset) -> bool) -> (Vec<u8>, i32) {
    let compression = batch.attributes().compression();
    if batch.record_count() == 0 {
        // Compaction left the header only; its payload is empty, not compressed emptiness.
        return (batch.as_bytes().to_vec(), 0);
    }
    let plain = payload::decompress(compression, batch.payload()).expect("a sound batch");
    let mut kept = BatchBuilder::new(batch.base_offset(), batch.base_timestamp());
    for record in Records::new(&plain, batch.record_count()) {
        let record = record.expect("a sound record");
        if keep(Offset(batch.base_offset().0 + i64::from(record.offset_delta))) {
            let headers: Vec<_> = record.headers.collect();
            kept = kept.record(NewRecord {
                offset_delta: record.offset_delta,
                timestamp_delta: record.timestamp_delta,
                key: record.key,
                value: record.value,
                headers: &headers,
            });
        }
    }
    let kept = kept.build();
    let kept = Batch::read(&kept, 0).expect("a batch that was just built");
    let record_count = kept.record_count();
    let payload = match (record_count, compression) {
        (0, _) | (_, Compression::None) => kept.payload().to_vec(),
        _ => payload::compress(compression, kept.payload()),
    };
    let bytes = BatchBuilder::new(batch.base_offset(), batch.base_timestamp())
        .leader_epoch(batch.partition_leader_epoch())
        .attributes(batch.attributes())
        .producer(batch.producer_id(), batch.producer_epoch(), batch.base_sequence())
        .payload(&payload, record_count, batch.last_offset_delta())
        .max_timestamp(if record_count == 0 { batch.max_timestamp() } else { kept.max_timestamp() })
        .build();
    (bytes, record_count)
}

/// The timestamps and offsets of a batch's records; none of a damaged batch.
fn timestamps(bytes: &[u8]) -> Vec<(i64, Offset)> {
    let Ok(batch) = Batch::read(bytes, 0) else { return Vec::new() };
    let Ok(plain) = payload::decompress(batch.attributes().compression(), batch.payload()) else {
        return Vec::new();
    };
    let log_append =
        batch.attributes().timestamp_type() == wire::batch::TimestampType::LogAppendTime;
    Records::new(&plain, batch.record_count())
        .map_while(Result::ok)
        .map(|record| {
            let timestamp = match log_append {
                true => batch.max_timestamp(),
                false => batch.base_timestamp() + record.timestamp_delta,
            };
            (timestamp, Offset(batch.base_offset().0 + i64::from(record.offset_delta)))
        })
        .collect()
}

/// Puts a batch at another offset and epoch, as a leader does with what a producer sent.
pub(super) fn place(bytes: &mut [u8], base: Offset, epoch: LeaderEpoch) -> Result<(), BatchFault> {
    let mut batch = BatchMut::read(bytes, 0).map_err(|error| error.fault)?;
    batch.as_batch().verify_crc()?;
    batch.set_base_offset(base);
    batch.set_partition_leader_epoch(epoch);
    Ok(())
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
