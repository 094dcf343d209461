//! May these batches enter the log? Decided per range of bytes, from headers and CRCs alone.
//!
//! A batch is admitted when it is whole, in format 2, with the CRC of every byte right, its offsets
//! after those already taken, and its leader epoch neither below the last one nor above the one that
//! the source's leader has. Holes between offsets are legal: compaction leaves them (KIP-1279, 3.8).

use std::fmt;

use wire::batch::{Batch, BatchError, Batches};
use wire::ids::{LeaderEpoch, Offset};

use crate::admitted::{AdmittedBatch, Control};

/// What a range of fetched bytes is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The offset after the last one taken.
    pub next: Offset,
    /// Whether nothing has been taken yet: then the first batch may begin below `next`, as it does
    /// where the source's log start lies inside a batch.
    pub log_is_empty: bool,
    /// The epoch of the last batch taken, or unknown.
    pub last_epoch: LeaderEpoch,
    /// The epoch of the source's leader, or unknown.
    pub source_epoch: LeaderEpoch,
}

/// What became of a range of fetched bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Bytes at the front that hold only offsets taken before.
    pub skipped: usize,
    /// Bytes after those that may enter. Positions of the admitted batches count from their start.
    pub length: usize,
    /// The offset after the last one admitted; as before where nothing was.
    pub next: Offset,
    /// The epoch of the last batch admitted; as before where nothing was.
    pub last_epoch: LeaderEpoch,
    /// The first batch was cut short by a byte limit, and is this large: ask for as much.
    pub wanted: Option<usize>,
    /// Why the walk ended before the bytes did. What was admitted before stays admitted.
    pub refusal: Option<Refusal>,
}

/// A batch that may not enter, and why. Nothing of it was written; the batches before it were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The offset at which it claims to begin.
    pub base_offset: Offset,
    pub fault: RefusalFault,
}

/// What is wrong with a refused batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalFault {
    /// The bytes are no sound batch. The source's log or the way here is damaged.
    Batch(BatchError),
    /// A length or count in the header is below zero.
    Header(&'static str),
    /// It begins within what was taken and ends beyond: the two logs have different batches.
    Overlap { next: Offset, last_offset: Offset },
    /// Its epoch is below that of a batch before it.
    EpochWentBack { epoch: LeaderEpoch, last_epoch: LeaderEpoch },
    /// Its epoch is above the leader's: our metadata is older than the bytes. Asking again after a
    /// refresh mends it.
    EpochAhead { epoch: LeaderEpoch, source_epoch: LeaderEpoch },
    /// A control batch without a control record that can be read.
    Control(String),
}

impl RefusalFault {
    /// Whether newer metadata will mend it.
    #[must_use]
    pub const fn is_stale_metadata(&self) -> bool {
        matches!(self, Self::EpochAhead { .. })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch at offset {}: ", self.base_offset)?;
        match &self.fault {
            RefusalFault::Batch(error) => write!(f, "{}", error.fault),
            RefusalFault::Header(what) => write!(f, "{what} is negative"),
            RefusalFault::Overlap { next, last_offset } => write!(
                f,
                "it ends at {last_offset}, but offsets below {next} were taken in other batches"
            ),
            RefusalFault::EpochWentBack { epoch, last_epoch } => {
                write!(f, "leader epoch {epoch} after a batch of epoch {last_epoch}")
            }
            RefusalFault::EpochAhead { epoch, source_epoch } => {
                write!(f, "leader epoch {epoch}, but the source's leader has {source_epoch}")
            }
            RefusalFault::Control(what) => write!(f, "control batch: {what}"),
        }
    }
}

/// Walks `records` and appends to `admitted` what may enter. Nothing is allocated but in `admitted`.
pub fn admit(
    records: &[u8],
    expectation: &Expectation,
    admitted: &mut Vec<AdmittedBatch>,
) -> Admission {
    let mut gate = Gate { expectation: *expectation, skipped: 0, length: 0 };
    let mut batches = Batches::new(records);
    let mut refusal = None;
    for walked in batches.by_ref() {
        let verdict = match walked {
            Ok((position, batch)) => gate.pass(position, &batch),
            Err(error) => {
                Err(Refusal { base_offset: error.base_offset, fault: RefusalFault::Batch(error) })
            }
        };
        match verdict {
            Ok(Some(batch)) => admitted.push(batch),
            Ok(None) => {}
            Err(refused) => {
                refusal = Some(refused);
                break;
            }
        }
    }
    let rest = batches.rest();
    let nothing_whole = gate.length == 0 && gate.skipped == 0 && refusal.is_none();
    Admission {
        skipped: gate.skipped,
        length: gate.length,
        next: gate.expectation.next,
        last_epoch: gate.expectation.last_epoch,
        wanted: (nothing_whole && rest.left > 0)
            .then(|| rest.announced.unwrap_or(records.len().saturating_mul(2))),
        refusal,
    }
}

/// The walk's memory: what the next batch is held against.
struct Gate {
    expectation: Expectation,
    skipped: usize,
    length: usize,
}

impl Gate {
    /// Admits, skips (`None`) or refuses one batch.
    fn pass(
        &mut self,
        position: usize,
        batch: &Batch<'_>,
    ) -> Result<Option<AdmittedBatch>, Refusal> {
        let header = batch.header();
        let base_offset = header.base_offset();
        let refuse = |fault| Refusal { base_offset, fault };
        for (number, what) in [
            (base_offset.0, "the base offset"),
            (header.next_offset().0, "the offset after the batch"),
            (i64::from(header.last_offset_delta()), "the last offset delta"),
            (i64::from(header.record_count()), "the record count"),
        ] {
            if number < 0 {
                return Err(refuse(RefusalFault::Header(what)));
            }
        }
        batch
            .verify_crc()
            .map_err(|fault| refuse(RefusalFault::Batch(batch.error(position, fault))))?;
        let expectation = self.expectation;
        let last_offset = header.last_offset();
        if last_offset < expectation.next && self.length == 0 {
            self.skipped += header.size();
            return Ok(None);
        }
        if base_offset < expectation.next && !expectation.log_is_empty {
            let next = expectation.next;
            return Err(refuse(RefusalFault::Overlap { next, last_offset }));
        }
        let epoch = header.partition_leader_epoch();
        self.check_epoch(epoch).map_err(refuse)?;
        let control = header.attributes().is_control().then(|| Control::of(batch)).transpose();
        let control = control.map_err(|error| refuse(RefusalFault::Control(error.to_string())))?;
        self.length += header.size();
        self.expectation.next = header.next_offset();
        self.expectation.log_is_empty = false;
        self.expectation.last_epoch = epoch.max(expectation.last_epoch);
        Ok(Some(AdmittedBatch {
            position: position - self.skipped,
            size: header.size(),
            base_offset,
            last_offset,
            leader_epoch: epoch,
            max_timestamp: header.max_timestamp(),
            producer_id: header.producer_id(),
            producer_epoch: header.producer_epoch(),
            base_sequence: header.base_sequence(),
            last_sequence: header.last_sequence(),
            is_transactional: header.attributes().is_transactional(),
            control,
        }))
    }

    /// Epochs never fall within a log. Logs from before Kafka 0.11 have batches without one.
    fn check_epoch(&self, epoch: LeaderEpoch) -> Result<(), RefusalFault> {
        let Expectation { last_epoch, source_epoch, .. } = self.expectation;
        if epoch != LeaderEpoch::UNKNOWN && epoch < last_epoch {
            return Err(RefusalFault::EpochWentBack { epoch, last_epoch });
        }
        if source_epoch != LeaderEpoch::UNKNOWN && epoch > source_epoch {
            return Err(RefusalFault::EpochAhead { epoch, source_epoch });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::batch::{BatchBuilder, NewRecord};
    use wire::ids::{ProducerEpoch, ProducerId};
    use wire::record::{ControlKind, end_txn_marker};

    fn batch(base: i64, count: i32, epoch: i32) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Offset(base), 1_000).leader_epoch(LeaderEpoch(epoch));
        for offset_delta in 0..count {
            let value = Some(&b"value"[..]);
            builder = builder.record(NewRecord { offset_delta, value, ..NewRecord::default() });
        }
        builder.build()
    }

    fn expect(next: i64) -> Expectation {
        Expectation {
            next: Offset(next),
            log_is_empty: false,
            last_epoch: LeaderEpoch(1),
            source_epoch: LeaderEpoch(5),
        }
    }

    fn admit_all(records: &[u8], expectation: Expectation) -> (Admission, Vec<AdmittedBatch>) {
        let mut admitted = Vec::new();
        let admission = admit(records, &expectation, &mut admitted);
        (admission, admitted)
    }

    #[test]
    fn takes_whole_batches_and_leaves_the_cut_one() {
        let mut records = [batch(10, 2, 1), batch(12, 3, 2), batch(15, 1, 2)].concat();
        records.truncate(records.len() - 1);
        let (admission, admitted) = admit_all(&records, expect(10));
        assert_eq!(admission.next, Offset(15));
        assert_eq!(admission.last_epoch, LeaderEpoch(2));
        assert_eq!(admission.refusal, None);
        assert_eq!(admission.wanted, None);
        assert_eq!(admitted.len(), 2);
        assert_eq!(admission.length, admitted.iter().map(|batch| batch.size).sum::<usize>());
    }

    #[test]
    fn asks_for_a_larger_range_when_the_first_batch_is_cut() {
        let whole = batch(10, 50, 1);
        let (admission, admitted) = admit_all(&whole[..whole.len() - 1], expect(10));
        assert_eq!(admission.wanted, Some(whole.len()));
        assert!(admitted.is_empty());
    }

    #[test]
    fn skips_batches_that_were_taken_before() {
        let records = [batch(5, 5, 1), batch(10, 2, 1)].concat();
        let (admission, admitted) = admit_all(&records, expect(10));
        assert_eq!(admission.skipped, batch(5, 5, 1).len());
        assert_eq!(admitted[0].position, 0);
        assert_eq!(admission.next, Offset(12));
    }

    #[test]
    fn takes_a_hole_that_compaction_left() {
        let records = [batch(10, 1, 1), batch(90, 1, 1)].concat();
        let (admission, admitted) = admit_all(&records, expect(10));
        assert_eq!((admission.next, admitted.len()), (Offset(91), 2));
    }

    #[test]
    fn takes_a_first_batch_around_the_log_start_only_into_an_empty_log() {
        let records = batch(5, 10, 1);
        let (admission, _) = admit_all(&records, Expectation { log_is_empty: true, ..expect(10) });
        assert_eq!(admission.next, Offset(15));
        let (admission, admitted) = admit_all(&records, expect(10));
        let refusal = admission.refusal.expect("an overlap");
        assert!(matches!(refusal.fault, RefusalFault::Overlap { .. }));
        assert!(admitted.is_empty());
    }

    #[test]
    fn keeps_what_came_before_a_batch_with_a_wrong_crc() {
        let mut records = [batch(10, 2, 1), batch(12, 2, 1)].concat();
        let last = records.len() - 1;
        records[last] ^= 1;
        let (admission, admitted) = admit_all(&records, expect(10));
        assert_eq!((admission.next, admitted.len()), (Offset(12), 1));
        let refusal = admission.refusal.expect("a wrong CRC");
        assert_eq!(refusal.base_offset, Offset(12));
        assert!(refusal.to_string().contains("CRC"), "{refusal}");
    }

    #[test]
    fn refuses_epochs_that_fall_and_tells_those_that_are_ahead_apart() {
        let (fallen, _) = admit_all(&batch(10, 1, 0), expect(10));
        let fault = fallen.refusal.expect("an epoch that fell").fault;
        assert!(!fault.is_stale_metadata());
        let (ahead, _) = admit_all(&batch(10, 1, 6), expect(10));
        assert!(ahead.refusal.expect("an epoch ahead").fault.is_stale_metadata());
    }

    #[test]
    fn reads_what_a_transaction_marker_says() {
        let records = end_txn_marker(
            ControlKind::Commit,
            Offset(10),
            1_000,
            LeaderEpoch(1),
            (ProducerId(9), ProducerEpoch(0)),
            7,
        );
        let (_, admitted) = admit_all(&records, expect(10));
        assert_eq!(admitted[0].control, Some(Control::Commit { coordinator_epoch: 7 }));
        assert!(admitted[0].is_transactional);
    }

    /// The cleaner had emptied the last marker of a producer that was still active, and the partition
    /// stopped for good.
    #[test]
    fn takes_a_marker_that_the_cleaner_has_emptied() {
        let (producer, epoch) = ((ProducerId(9), ProducerEpoch(0)), LeaderEpoch(1));
        let mut bytes = end_txn_marker(ControlKind::Abort, Offset(10), 1_000, epoch, producer, 7);
        bytes.truncate(61);
        bytes[8..12].copy_from_slice(&(61_i32 - 12).to_be_bytes());
        bytes[57..61].copy_from_slice(&0_i32.to_be_bytes());
        let crc = wire::batch::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let (admission, admitted) = admit_all(&bytes, expect(10));
        assert_eq!((admission.next, admission.refusal), (Offset(11), None));
        assert_eq!(admitted[0].control, Some(Control::Other(-1)));
    }
}
