//! Control records: markers in the log that consumers do not see.
//!
//! The key is version (INT16, 0) and kind (INT16). The value depends on the kind; for the end of a
//! transaction it is version (INT16, 0) and the coordinator's epoch (INT32).

use alloc::vec::Vec;

use super::{Record, Records};
use crate::batch::{Attributes, Batch, BatchBuilder, NewRecord};
use crate::codec::{Reader, Writer};
use crate::error::{Fault, WireError};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// The producer's open transaction is undone.
    Abort,
    /// The producer's open transaction is done.
    Commit,
    /// A KRaft quorum has a new leader.
    LeaderChange,
    /// A KRaft snapshot begins.
    SnapshotHeader,
    /// A KRaft snapshot ends.
    SnapshotFooter,
    /// The version of the KRaft protocol.
    KraftVersion,
    /// The voters of a KRaft quorum.
    KraftVoters,
    /// The period of mirroring ends here: whoever has a producer's state forgets it (KIP-1279).
    MirrorPidReset,
    /// A kind given out after this was written.
    Other(i16),
}

/// One control record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlRecord<'a> {
    /// Version of the key.
    pub version: i16,
    /// What it says.
    pub kind: ControlKind,
    /// The rest of what it says, in a shape of the kind's own.
    pub value: Option<&'a [u8]>,
}

/// The value of an [`ControlKind::Abort`] or [`ControlKind::Commit`] record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTxnMarker {
    pub version: i16,
    pub coordinator_epoch: i32,
}

impl ControlKind {
    /// Kafka's number for it.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::LeaderChange => 2,
            Self::SnapshotHeader => 3,
            Self::SnapshotFooter => 4,
            Self::KraftVersion => 5,
            Self::KraftVoters => 6,
            Self::MirrorPidReset => 7,
            Self::Other(code) => code,
        }
    }

    /// The kind with Kafka's number `code`.
    #[must_use]
    pub const fn from_code(code: i16) -> Self {
        match code {
            0 => Self::Abort,
            1 => Self::Commit,
            2 => Self::LeaderChange,
            3 => Self::SnapshotHeader,
            4 => Self::SnapshotFooter,
            5 => Self::KraftVersion,
            6 => Self::KraftVoters,
            7 => Self::MirrorPidReset,
            other => Self::Other(other),
        }
    }
}

impl<'a> ControlRecord<'a> {
    /// Reads a record of a control batch. Later versions of the key may be longer.
    pub fn read(record: &Record<'a>) -> Result<Self, WireError> {
        let mut key = Reader::new(record.key.unwrap_or_default());
        let version = key.i16()?;
        Ok(Self { version, kind: ControlKind::from_code(key.i16()?), value: record.value })
    }

    /// Reads the first record of a control batch: all that a broker ever puts into one outside KRaft.
    /// Control batches are never compressed there.
    pub fn of(batch: &Batch<'a>) -> Result<Self, WireError> {
        match Records::of(batch).next() {
            Some(record) => Self::read(&record?),
            None => Err(WireError { fault: Fault::Truncated { needed: 1, left: 0 }, position: 0 }),
        }
    }

    /// Reads the value of an abort or a commit. Later versions of it may be longer.
    pub fn end_txn_marker(&self) -> Result<EndTxnMarker, WireError> {
        let mut value = Reader::new(self.value.unwrap_or_default());
        Ok(EndTxnMarker { version: value.i16()?, coordinator_epoch: value.i32()? })
    }
}

/// A batch that ends the open transaction of `producer`, as a broker appends it for a coordinator.
/// `kind` is an abort or a commit.
///
/// # Panics
/// On any other kind: it would be a marker that no consumer understands.
#[must_use]
pub fn end_txn_marker(
    kind: ControlKind,
    base_offset: Offset,
    timestamp: i64,
    leader_epoch: LeaderEpoch,
    producer: (ProducerId, ProducerEpoch),
    coordinator_epoch: i32,
) -> Vec<u8> {
    assert!(matches!(kind, ControlKind::Abort | ControlKind::Commit));
    let mut value = Writer::new();
    value.i16(0);
    value.i32(coordinator_epoch);
    let attributes = Attributes::default().with_transactional(true).with_control(true);
    let batch = BatchBuilder::new(base_offset, timestamp)
        .leader_epoch(leader_epoch)
        .attributes(attributes)
        .producer(producer.0, producer.1, -1);
    marker(batch, kind, value.bytes())
}

/// A batch that makes every replica and every replay forget all producers of the partition (KIP-1279).
#[must_use]
pub fn mirror_pid_reset(base_offset: Offset, timestamp: i64, leader_epoch: LeaderEpoch) -> Vec<u8> {
    let mut value = Writer::new();
    value.i16(0);
    value.unsigned_varint(0);
    let batch = BatchBuilder::new(base_offset, timestamp)
        .leader_epoch(leader_epoch)
        .attributes(Attributes::default().with_control(true));
    marker(batch, ControlKind::MirrorPidReset, value.bytes())
}

fn marker(batch: BatchBuilder, kind: ControlKind, value: &[u8]) -> Vec<u8> {
    let mut key = Writer::new();
    key.i16(0);
    key.i16(kind.code());
    let record = NewRecord { key: Some(key.bytes()), value: Some(value), ..NewRecord::default() };
    batch.record(record).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_marker_reads_back() {
        let bytes = end_txn_marker(
            ControlKind::Abort,
            Offset(5),
            1_000,
            LeaderEpoch(4),
            (ProducerId(9), ProducerEpoch(1)),
            12,
        );
        assert_eq!(bytes.len(), 78);
        let batch = Batch::read(&bytes, 0).expect("a batch");
        assert_eq!(batch.verify_crc(), Ok(()));
        assert_eq!(batch.attributes(), Attributes(0x30));
        assert_eq!((batch.producer_id(), batch.base_sequence()), (ProducerId(9), -1));
        let control = ControlRecord::of(&batch).expect("a control record");
        assert_eq!(control.kind, ControlKind::Abort);
        let marker = EndTxnMarker { version: 0, coordinator_epoch: 12 };
        assert_eq!(control.end_txn_marker(), Ok(marker));
    }

    #[test]
    fn a_pid_reset_belongs_to_no_producer() {
        let bytes = mirror_pid_reset(Offset(6), 1_000, LeaderEpoch(4));
        let batch = Batch::read(&bytes, 0).expect("a batch");
        assert_eq!(batch.attributes(), Attributes(0x20));
        assert_eq!(batch.producer_id(), ProducerId::NONE);
        let control = ControlRecord::of(&batch).expect("a control record");
        assert_eq!(control.kind, ControlKind::MirrorPidReset);
        assert_eq!(control.value, Some(&[0, 0, 0][..]));
    }

    #[test]
    fn kinds_keep_their_numbers() {
        for code in [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, i16::MAX] {
            assert_eq!(ControlKind::from_code(code).code(), code);
        }
    }

    #[test]
    fn a_batch_without_records_or_with_a_short_key_is_refused() {
        let empty = BatchBuilder::new(Offset(0), 0).build();
        assert!(ControlRecord::of(&Batch::read(&empty, 0).expect("a batch")).is_err());
        let short = BatchBuilder::new(Offset(0), 0)
            .record(NewRecord { key: Some(&[0, 0, 0]), ..NewRecord::default() })
            .build();
        assert!(ControlRecord::of(&Batch::read(&short, 0).expect("a batch")).is_err());
    }
}
