//! What admission learned of a batch and the store needs to know: plain data, so that the header is
//! read once.

use wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

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
