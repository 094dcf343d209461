//! One partition on its shard: its log, its life as a mirror, and who waits for it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use wire::ids::{LeaderEpoch, Offset, TopicId};

use crate::catalog::Topic;
use crate::ids::{FileId, Now, ShardId, TopicPartition};
use crate::mirror::{LogPosition, Partition, Phase};
use crate::serve::Watched;
use crate::source::SourcePartition;
use crate::store::{Left, Log};

/// A partition that this shard owns.
#[derive(Debug)]
pub(super) struct Cell {
    pub name: TopicPartition,
    pub topic: Arc<Topic>,
    pub log: Log,
    /// Whether the log has never held a batch: wherever the source begins is then no loss.
    pub is_new: bool,
    /// None where the source is not mirrored, or has no such topic.
    pub mirror: Option<Partition>,
    /// What the source said of its log's ends, until both are known.
    pub located: Located,
    /// Whether the log is to be opened again as soon as nothing is under way in it.
    pub reopening: bool,
    /// How it is opened then.
    pub left: Left,
    /// What a full disk had no room for: nothing is opened again before it has.
    pub room_bytes: usize,
    /// The file that was written to last.
    pub file: Option<(Arc<Path>, FileId)>,
    /// Segments that were closed and are to be flushed once they are written.
    pub closed: VecDeque<Offset>,
    /// Flushes under way, and up to where everything is on disk once they are done.
    pub flushing: Option<Flushing>,
    pub watchers: Vec<Watcher>,
    pub accounts: Accounts,
    /// Writes under way.
    pub writes: u32,
}

/// Answers to the two questions about the ends of the source's log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Located {
    pub earliest: Option<Offset>,
    pub latest: Option<Offset>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Flushing {
    pub left: u32,
    pub up_to: Offset,
    pub failed: bool,
}

/// A client's fetch that waits for more.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    pub from: ShardId,
    pub seen: Watched,
}

/// What this partition has contributed to the shard's sums, so that they can be kept without ever
/// going over all partitions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accounts {
    pub lag_records: u64,
    pub lag_bytes: u64,
    pub behind_since: Option<Now>,
    pub retry_at: Option<Now>,
    pub phase: Option<Phase>,
    /// Bytes per offset of what was taken last, in 1/16 bytes.
    pub offset_bytes_16: u64,
}

impl Cell {
    pub(super) fn new(name: TopicPartition, topic: Arc<Topic>, log: Log, is_new: bool) -> Self {
        Self {
            name,
            topic,
            log,
            is_new,
            mirror: None,
            located: Located::default(),
            reopening: false,
            left: Left::Unclean,
            room_bytes: 0,
            file: None,
            closed: VecDeque::new(),
            flushing: None,
            watchers: Vec::new(),
            accounts: Accounts::default(),
            writes: 0,
        }
    }

    /// Where the log stands, for the mirror.
    pub(super) fn position(&self) -> LogPosition {
        LogPosition {
            start: self.log.log_start(),
            end: self.log.log_end(),
            last_epoch: self.log.last_epoch().unwrap_or(LeaderEpoch::UNKNOWN),
            is_new: self.is_new,
        }
    }

    /// Whether the source has more than what we have taken.
    pub(super) fn is_behind(&self) -> bool {
        self.mirror.as_ref().and_then(Partition::lag).is_some_and(|lag| lag > 0)
    }

    /// What the source calls this partition.
    pub(super) fn source(&self) -> SourcePartition {
        SourcePartition {
            topic: Arc::clone(&self.name.topic),
            topic_id: self.topic.id,
            partition: self.name.partition,
        }
    }

    /// The leader epoch that clients are told: the source leader's, or that of the last batch where
    /// the source was not heard of yet.
    pub(super) fn leader_epoch(&self) -> LeaderEpoch {
        let told = self.topic.leader_epoch(self.name.partition).unwrap_or(LeaderEpoch::UNKNOWN);
        told.max(self.log.last_epoch().unwrap_or(LeaderEpoch::UNKNOWN)).max(LeaderEpoch(0))
    }

    /// Whether the topic of this id is another one than this.
    pub(super) fn is_other(&self, id: TopicId) -> bool {
        !id.is_zero() && !self.topic.id.is_zero() && id != self.topic.id
    }
}
