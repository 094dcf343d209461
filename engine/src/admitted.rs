//! What admission learned of a batch and the store needs to know: plain data, so that the header is
//! read once.

use wire::batch::Batch;
use wire::error::WireError;
use wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use wire::record::{ControlKind, ControlRecord};

/// A record batch that may enter a log, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmittedBatch {
    /// Where it begins, in the range of bytes that was admitted.
    pub position: usize,
    /// Its size in bytes, header included.
    pub size: usize,
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub leader_epoch: LeaderEpoch,
    /// In milliseconds since 1970; -1 where no record has one.
    pub max_timestamp: i64,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub last_sequence: i32,
    pub is_transactional: bool,
    /// Set for control batches.
    pub control: Option<Control>,
}

/// What a control batch says (`org.apache.kafka.common.record.ControlRecordType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The producer's transaction ends and its records do not count.
    Abort { coordinator_epoch: i32 },
    /// The producer's transaction ends and its records count.
    Commit { coordinator_epoch: i32 },
    /// Any other kind, by its number: none that says anything about transactions.
    Other(i16),
}

impl Control {
    /// Reads what a control batch says.
    ///
    /// # Errors
    /// Where its record is not one that Kafka writes.
    pub fn of(batch: &Batch<'_>) -> Result<Self, WireError> {
        if batch.header().record_count() == 0 {
            // The cleaner keeps the last batch of a producer that is active and empties it, a marker too
            // (`LogCleaner`, `MemoryRecords.writeEmptyHeader`). It says nothing any more.
            return Ok(Self::Other(-1));
        }
        let record = ControlRecord::of(batch)?;
        Ok(match record.kind {
            ControlKind::Abort => {
                Self::Abort { coordinator_epoch: record.end_txn_marker()?.coordinator_epoch }
            }
            ControlKind::Commit => {
                Self::Commit { coordinator_epoch: record.end_txn_marker()?.coordinator_epoch }
            }
            other => Self::Other(other.code()),
        })
    }
}
