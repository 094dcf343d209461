//! What a mirror has to tell a person: offsets that are lost, and why a partition stopped.

use std::fmt;

use wire::ids::{LeaderEpoch, Offset, TopicId};

use super::admit::Refusal;

/// Offsets that the source no longer had when we came for them. Recorded, never silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The first offset that is missing here.
    pub first: Offset,
    /// The offset after the last one missing.
    pub next: Offset,
    pub reason: LossReason,
}

/// Why offsets were gone at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The log start moved to the beginning of a batch, as retention moves it. DeleteRecords with
    /// an offset that is a batch's first looks the same from outside.
    Retention,
    /// The log start moved into the middle of a batch, as only DeleteRecords moves it.
    DeleteRecords,
    /// The log start moved past all that the source has; nothing tells by whom.
    LogStartMoved,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retention => "retention",
            Self::DeleteRecords => "DeleteRecords",
            Self::LogStartMoved => "the log start moved past the last record",
        })
    }
}

/// Why a partition stopped and what a person can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An answer that brings one batch has more bytes than a shard may have in memory.
    TooLarge { bytes: usize },
    /// The source sent bytes that may not enter. Nothing of them was written.
    Refused(Refusal),
    /// Our log has batches of an epoch that ended earlier at the source: the source elected a
    /// leader that had lost them.
    Diverged { epoch: LeaderEpoch, source_end: Offset, log_end: Offset },
    /// The source's log ends before ours.
    SourceShorter { source_end: Offset, log_end: Offset },
    /// The topic at the source is another one under the same name.
    Recreated { ours: TopicId, theirs: TopicId },
    /// The topic is gone at the source. What was mirrored stays.
    SourceDeleted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes } => write!(
                f,
                "its next batch comes in an answer of {bytes} bytes, and a shard may use less memory \
                 than that; stop farspan, and start it with more --memory, which all shards share, or \
                 with fewer --shards"
            ),
            Self::Refused(refusal) => {
                write!(f, "refused {refusal}; check the source's log with its own tools")
            }
            Self::Diverged { epoch, source_end, log_end } => write!(
                f,
                "epoch {epoch} ends at {source_end} at the source but our log goes on to {log_end}: \
                 an unclean leader election lost records there; compare both logs; to \
                 mirror it anew, stop farspan, move the partition's folder away, and start it again"
            ),
            Self::SourceShorter { source_end, log_end } => write!(
                f,
                "the source's log ends at {source_end}, ours at {log_end}: records were lost there; \
                 compare both logs; to mirror it anew, stop farspan, move the partition's folder away, and \
                 start it again"
            ),
            Self::Recreated { ours, theirs } => write!(
                f,
                "the topic was created again at the source (id {theirs}, ours is {ours}); to \
                 mirror the new one, stop farspan, move the topic's folders away, and start it again"
            ),
            Self::SourceDeleted => f.write_str(
                "the topic was deleted at the source; what was mirrored is kept, and served, until \
                 farspan is stopped and the topic's folders are moved away",
            ),
        }
    }
}
