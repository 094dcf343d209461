//! What the batches of a log say about their producers: who wrote last, which transactions are open,
//! and how far a reader of committed records may go. Follows Kafka's `ProducerStateManager` for
//! batches that come by replication: nothing is refused, the source has checked them.
//!
//! A snapshot file, version 1:
//!
//! ```text
//!  version (2) | CRC32C of what follows (4) | count (4) | entries
//!  entry: producer id (8) | epoch (2) | last sequence (4) | last offset (8) | offset delta (4)
//!         | timestamp (8) | coordinator epoch (4) | first offset of the open transaction (8)  = 46
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use wire::batch::crc32c;
use wire::codec::{Reader, Writer};
use wire::ids::{Offset, ProducerEpoch, ProducerId};
use wire::record::ControlKind;

use super::damage::Damage;
use super::transactions::AbortedTransaction;
use crate::admitted::{AdmittedBatch, Control};

/// One producer, as its last batch left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub epoch: ProducerEpoch,
    /// Of the last data batch of this epoch; -1 where there is none.
    pub last_sequence: i32,
    /// Of the last data batch of this epoch; -1 where there is none.
    pub last_offset: i64,
    /// Last minus first offset of that batch.
    pub offset_delta: i32,
    /// Of the last batch or marker.
    pub timestamp: i64,
    /// Of the last marker; -1 where there is none.
    pub coordinator_epoch: i32,
    /// Where the open transaction begins.
    pub transaction: Option<Offset>,
}

/// The producers of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    producers: BTreeMap<ProducerId, Producer>,
    /// Open transactions by their first offset.
    open: BTreeMap<Offset, ProducerId>,
    /// Transactions whose marker is planned but not written, by their first offset, with the
    /// marker's offset.
    ending: BTreeMap<Offset, Offset>,
}

/// Everything of a snapshot before the bytes under the CRC.
const HEAD_SIZE: usize = 6;
/// The only version there is.
const VERSION: i16 = 1;

impl Producers {
    /// Takes a batch along. Gives the transaction that it aborts.
    pub fn append(&mut self, batch: &AdmittedBatch) -> Option<AbortedTransaction> {
        let marker = match batch.control {
            None => {
                if batch.producer_id.0 >= 0 {
                    self.append_data(batch);
                }
                return None;
            }
            Some(Control::Abort { coordinator_epoch }) => (coordinator_epoch, true),
            Some(Control::Commit { coordinator_epoch }) => (coordinator_epoch, false),
            Some(Control::Other(kind)) => {
                if kind == ControlKind::MirrorPidReset.code() {
                    self.forget_all();
                }
                return None;
            }
        };
        if batch.producer_id.0 < 0 {
            return None;
        }
        self.append_marker(batch, marker)
    }

    fn append_data(&mut self, batch: &AdmittedBatch) {
        let producer = self.entry(batch.producer_id, batch.producer_epoch);
        producer.last_sequence = batch.last_sequence;
        producer.last_offset = batch.last_offset.0;
        let delta = batch.last_offset.0 - batch.base_offset.0;
        producer.offset_delta = i32::try_from(delta).unwrap_or(i32::MAX);
        producer.timestamp = batch.max_timestamp;
        if batch.is_transactional && producer.transaction.is_none() {
            producer.transaction = Some(batch.base_offset);
            self.open.insert(batch.base_offset, batch.producer_id);
        }
    }

    fn append_marker(
        &mut self,
        batch: &AdmittedBatch,
        (coordinator_epoch, is_abort): (i32, bool),
    ) -> Option<AbortedTransaction> {
        let producer = self.entry(batch.producer_id, batch.producer_epoch);
        producer.coordinator_epoch = coordinator_epoch;
        producer.timestamp = batch.max_timestamp;
        let first_offset = producer.transaction.take()?;
        self.open.remove(&first_offset);
        let last_offset = batch.base_offset;
        self.ending.insert(first_offset, last_offset);
        let last_stable_offset = self.first_open().unwrap_or(last_offset.next());
        is_abort.then_some(AbortedTransaction {
            producer_id: batch.producer_id,
            first_offset,
            last_offset,
            last_stable_offset,
        })
    }

    /// The producer in this epoch. What a former epoch wrote says nothing about this one.
    fn entry(&mut self, id: ProducerId, epoch: ProducerEpoch) -> &mut Producer {
        let producer = self.producers.entry(id).or_insert(Producer {
            epoch,
            last_sequence: -1,
            last_offset: -1,
            offset_delta: 0,
            timestamp: -1,
            coordinator_epoch: -1,
            transaction: None,
        });
        if producer.epoch != epoch {
            producer.epoch = epoch;
            producer.last_sequence = -1;
            producer.last_offset = -1;
            producer.offset_delta = 0;
        }
        producer
    }

    /// The period of mirroring ends here (KIP-1279): only open transactions are still of interest.
    fn forget_all(&mut self) {
        self.producers.retain(|_, producer| producer.transaction.is_some());
    }

    /// Where the first open transaction begins.
    fn first_open(&self) -> Option<Offset> {
        self.open.first_key_value().map(|(&first, _)| first)
    }

    /// The first offset that is not decided for a reader of committed records.
    #[must_use]
    pub fn first_unstable(&self) -> Option<Offset> {
        let ending = self.ending.first_key_value().map(|(&first, _)| first);
        match (self.first_open(), ending) {
            (Some(open), Some(ending)) => Some(open.min(ending)),
            (open, ending) => open.or(ending),
        }
    }

    /// Markers below `end` are written.
    pub fn written(&mut self, end: Offset) {
        if !self.ending.is_empty() {
            self.ending.retain(|_, marker| *marker >= end);
        }
    }

    /// Forgets producers that were silent too long and have no open transaction.
    pub fn expire(&mut self, wall_ms: i64, expiration_ms: i64) {
        self.producers.retain(|_, producer| !is_expired(producer, wall_ms, expiration_ms));
    }

    /// Each producer by its id.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> {
        self.producers.iter().map(|(&id, producer)| (id, producer))
    }

    /// How many producers are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// The bytes of a snapshot file.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.i32(i32::try_from(self.producers.len()).expect("producers fit into memory"));
        for (id, producer) in &self.producers {
            writer.i64(id.0);
            writer.i16(producer.epoch.0);
            writer.i32(producer.last_sequence);
            writer.i64(producer.last_offset);
            writer.i32(producer.offset_delta);
            writer.i64(producer.timestamp);
            writer.i32(producer.coordinator_epoch);
            writer.i64(producer.transaction.map_or(-1, |first| first.0));
        }
        let mut head = Writer::new();
        head.i16(VERSION);
        head.u32(crc32c(writer.bytes()));
        head.raw(writer.bytes());
        head.into_bytes()
    }

    /// Reads a snapshot file, leaving out who has expired.
    pub fn read(
        bytes: &[u8],
        file: &Path,
        wall_ms: i64,
        expiration_ms: i64,
    ) -> Result<Self, Damage> {
        let damage = |position: usize, wrong: String| Damage {
            remedy: "remove the file: producers are read from an older one and the log",
            ..Damage::corrupt(file, position as u64, wrong)
        };
        let mut reader = Reader::new(bytes);
        let wire = |error: wire::WireError| damage(error.position, error.to_string());
        let version = reader.i16().map_err(wire)?;
        if version != VERSION {
            return Err(damage(0, format!("version {version} of a snapshot is not known")));
        }
        let (stored, computed) = (reader.u32().map_err(wire)?, crc32c(&bytes[HEAD_SIZE..]));
        if stored != computed {
            return Err(damage(2, format!("CRC {stored:#x} does not match {computed:#x}")));
        }
        let mut producers = Self::default();
        for _ in 0..reader.count(false).map_err(wire)? {
            let (id, producer) = read_entry(&mut reader).map_err(wire)?;
            if is_expired(&producer, wall_ms, expiration_ms) {
                continue;
            }
            // Twice, one of them would stay open for ever and hold the last stable offset.
            let known = producer.transaction.and_then(|first| producers.open.insert(first, id));
            if known.is_some() || producers.producers.insert(id, producer).is_some() {
                let wrong = format!("producer {id} or its transaction stands here twice");
                return Err(damage(HEAD_SIZE, wrong));
            }
        }
        reader.finish().map_err(wire)?;
        Ok(producers)
    }
}

fn read_entry(reader: &mut Reader<'_>) -> Result<(ProducerId, Producer), wire::WireError> {
    let id = ProducerId(reader.i64()?);
    let producer = Producer {
        epoch: ProducerEpoch(reader.i16()?),
        last_sequence: reader.i32()?,
        last_offset: reader.i64()?,
        offset_delta: reader.i32()?,
        timestamp: reader.i64()?,
        coordinator_epoch: reader.i32()?,
        transaction: Some(reader.i64()?).filter(|&first| first >= 0).map(Offset),
    };
    Ok((id, producer))
}

fn is_expired(producer: &Producer, wall_ms: i64, expiration_ms: i64) -> bool {
    producer.transaction.is_none() && wall_ms.saturating_sub(producer.timestamp) >= expiration_ms
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Making, data, marker};
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    #[test]
    fn a_transaction_is_unstable_until_its_marker_is_written() {
        let mut producers = Producers::default();
        assert_eq!(producers.first_unstable(), None);
        producers.append(&data(0, 4).by(7, 1, 0).transactional());
        producers.append(&data(5, 9).by(8, 0, 0).transactional());
        producers.append(&data(10, 12).by(9, 0, 0));
        assert_eq!(producers.first_unstable(), Some(Offset(0)));
        let aborted = producers.append(&marker(13, 7, 1, true)).expect("it was open");
        assert_eq!((aborted.first_offset, aborted.last_offset), (Offset(0), Offset(13)));
        assert_eq!(aborted.last_stable_offset, Offset(5));
        assert_eq!(producers.first_unstable(), Some(Offset(0)));
        producers.written(Offset(14));
        assert_eq!(producers.first_unstable(), Some(Offset(5)));
        assert_eq!(producers.append(&marker(14, 8, 0, false)), None);
        producers.written(Offset(15));
        assert_eq!(producers.first_unstable(), None);
    }

    #[test]
    fn a_marker_of_another_epoch_forgets_what_the_former_wrote() {
        let mut producers = Producers::default();
        producers.append(&data(0, 4).by(7, 1, 0).transactional());
        producers.append(&marker(5, 7, 1, false));
        assert_eq!(
            producers.iter().next().map(|(_, p)| (p.last_sequence, p.last_offset)),
            Some((4, 4))
        );
        producers.append(&marker(6, 7, 2, false));
        let (_, producer) = producers.iter().next().expect("still known");
        assert_eq!((producer.epoch.0, producer.last_sequence, producer.last_offset), (2, -1, -1));
        assert_eq!(producer.coordinator_epoch, 3);
    }

    #[test]
    fn a_snapshot_is_read_back_and_damage_is_seen() {
        let mut producers = Producers::default();
        producers.append(&data(0, 4).by(7, 1, 0).transactional());
        producers.append(&data(5, 5).by(3, 0, 9));
        let bytes = producers.snapshot();
        assert_eq!(bytes.len(), HEAD_SIZE + 4 + 2 * 46);
        let read = |bytes: &[u8]| Producers::read(bytes, Path::new("s"), 0, DAY_MS);
        assert_eq!(read(&bytes).as_ref(), Ok(&producers));
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 4;
            assert!(read(&broken).is_err(), "byte {at}");
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    /// A producer that stood in a snapshot twice, first with a transaction and then without, kept the
    /// last stable offset at the transaction for ever. Found by the fuzzer.
    #[test]
    fn a_snapshot_that_names_a_producer_twice_is_damaged() {
        let mut producers = Producers::default();
        producers.append(&data(0, 4).by(7, 1, 0).transactional());
        let once = producers.snapshot();
        let entry = &once[HEAD_SIZE + 4..];
        let body = [&2_i32.to_be_bytes()[..], entry, entry].concat();
        let crc = crc32c(&body).to_be_bytes();
        let twice = [&VERSION.to_be_bytes()[..], &crc, &body].concat();
        let damage = Producers::read(&twice, Path::new("s"), 0, DAY_MS).expect_err("it is refused");
        assert!(damage.wrong.contains("producer 7"), "{}", damage.wrong);
    }

    #[test]
    fn silent_producers_are_forgotten_but_for_open_transactions() {
        let mut producers = Producers::default();
        producers.append(&data(0, 4).by(7, 1, 0).transactional().at(1_000));
        producers.append(&data(5, 5).by(3, 0, 9).at(1_000));
        producers.append(&data(6, 6).by(4, 0, 9).at(2_000));
        producers.expire(DAY_MS + 1_000, DAY_MS);
        let left: Vec<_> = producers.iter().map(|(id, _)| id.0).collect();
        assert_eq!(left, [4, 7]);
    }

    #[test]
    fn the_end_of_mirroring_forgets_all_producers() {
        let mut producers = Producers::default();
        producers.append(&data(5, 5).by(3, 0, 9));
        let mut reset = data(6, 6);
        reset.control = Some(Control::Other(7));
        producers.append(&reset);
        assert!(producers.is_empty());
    }
}
