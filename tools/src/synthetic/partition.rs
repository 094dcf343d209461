//! One partition: who leads it, its log of either kind, and the trouble it makes.

use wire::api::ErrorCode;
use wire::batch::{Batch, BatchFault};
use wire::fetch::{AbortedTransaction, IsolationLevel};
use wire::ids::{BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use wire::record::ControlKind;

use super::batch::NewBatch;
use super::chunk::Chunks;
use super::endless::Endless;
use super::epochs::Epochs;
use super::stored::{self, Damage, EmptyBatch, Stored};

/// A partition of a topic.
#[derive(Clone, Debug)]
pub struct Partition {
    pub(super) leader: Option<BrokerId>,
    pub(super) epoch: LeaderEpoch,
    pub(super) replicas: Vec<BrokerId>,
    epochs: Epochs,
    log: Log,
    pub(super) trouble: Trouble,
}

/// The two kinds of log.
#[derive(Clone, Debug)]
pub enum Log {
    Stored(Stored),
    Endless(Endless),
}

/// What a partition does to those who fetch it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Answers every fetch with this error.
    pub error: Option<ErrorCode>,
    /// Holds every response that carries this partition's records back by as much.
    pub delay_ms: i64,
    /// Gives no more than this at a time, whatever is asked for.
    pub bytes_max: Option<usize>,
}

impl Partition {
    pub(super) fn new(replicas: Vec<BrokerId>, log: Log) -> Self {
        let mut epochs = Epochs::default();
        epochs.begin(LeaderEpoch(0), log.start());
        let leader = replicas.first().copied();
        Self { leader, epoch: LeaderEpoch(0), replicas, epochs, log, trouble: Trouble::default() }
    }

    /// The broker that leads it, if one does.
    #[must_use]
    pub const fn leader(&self) -> Option<BrokerId> {
        self.leader
    }

    /// How often the leader has changed.
    #[must_use]
    pub const fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// Where its epochs begin.
    #[must_use]
    pub const fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// The log, for all that can happen to batches. Those that were there before keep their epochs.
    ///
    /// # Panics
    /// When the log is endless.
    pub fn stored(&mut self) -> &mut Stored {
        match &mut self.log {
            Log::Stored(log) => log,
            Log::Endless(_) => panic!("an endless log takes no such command"),
        }
    }

    /// The log, where it is endless.
    ///
    /// # Panics
    /// When it is not.
    pub fn endless(&mut self) -> &mut Endless {
        match &mut self.log {
            Log::Endless(log) => log,
            Log::Stored(_) => panic!("not an endless log"),
        }
    }

    /// Appends a batch under the current epoch; gives its base offset.
    pub fn append(&mut self, batch: &NewBatch) -> Offset {
        let epoch = self.epoch;
        let log = self.stored();
        let base = log.end();
        log.append_built(batch.build(base, epoch));
        base
    }

    /// Appends batches that a producer built; gives the base offset of the first.
    pub fn append_produced(&mut self, mut bytes: &[u8]) -> Result<Offset, BatchFault> {
        let first = self.stored().end();
        while !bytes.is_empty() {
            let size = Batch::read(bytes, 0).map_err(|error| error.fault)?.size();
            let (batch, rest) = bytes.split_at(size);
            let mut batch = batch.to_vec();
            let epoch = self.epoch;
            let log = self.stored();
            stored::place(&mut batch, log.end(), epoch)?;
            log.append_built(batch);
            bytes = rest;
        }
        Ok(first)
    }

    /// Ends the open transaction of a producer with a marker; gives the marker's offset.
    pub fn end_transaction(
        &mut self,
        producer: (ProducerId, ProducerEpoch),
        kind: ControlKind,
        timestamp: i64,
    ) -> Offset {
        let epoch = self.epoch;
        self.stored().append_marker(kind, epoch, producer, timestamp)
    }

    /// Makes `leader` the leader under the next epoch. Nothing is lost.
    pub fn move_leader(&mut self, leader: BrokerId, now_ms: i64) {
        self.leader = Some(leader);
        self.epoch = LeaderEpoch(self.epoch.0 + 1);
        if !self.replicas.contains(&leader) {
            self.replicas.push(leader);
        }
        let end = self.log.end(now_ms);
        self.epochs.begin(self.epoch, end);
    }

    /// Leaves the partition without a leader, under the next epoch.
    pub const fn lose_leader(&mut self) {
        self.leader = None;
        self.epoch = LeaderEpoch(self.epoch.0 + 1);
    }

    /// Makes a broker the leader that never had what stands at `end` and after it.
    pub fn elect_unclean(&mut self, leader: BrokerId, end: Offset) {
        self.stored().truncate(end);
        self.epochs.truncate(end);
        self.move_leader(leader, 0);
    }

    /// Moves the log's start; see [`Stored::delete_records_before`].
    pub fn delete_records_before(&mut self, offset: Offset, now_ms: i64) {
        match &mut self.log {
            Log::Stored(log) => log.delete_records_before(offset),
            Log::Endless(log) => log.delete_records_before(offset, now_ms),
        }
        self.epochs.advance_start(self.log.start());
    }

    /// Removes records; see [`Stored::compact`].
    pub fn compact(&mut self, empty: EmptyBatch, keep: impl FnMut(Offset) -> bool) {
        self.stored().compact(empty, keep);
    }

    /// Damages a batch; see [`Stored::damage`].
    pub fn damage(&mut self, offset: Offset, damage: Damage) {
        self.stored().damage(offset, damage);
    }

    /// Makes trouble from now on, or none.
    pub const fn trouble(&mut self, trouble: Trouble) {
        self.trouble = trouble;
    }

    /// Reads records from `from` up to `upper`: at most `bytes_max`, from the batch that holds
    /// `from` on. A first batch that does not fit is given whole where `whole` says so, and left out
    /// where not; a later one is cut.
    #[must_use]
    pub fn read(&self, from: Offset, upper: Offset, bytes_max: usize, whole: bool) -> Chunks {
        let bytes_max = self.trouble.bytes_max.map_or(bytes_max, |most| most.min(bytes_max));
        match &self.log {
            Log::Stored(log) => log.read(from, upper, bytes_max, whole),
            Log::Endless(log) => log.read(from, upper, bytes_max, whole, &self.epochs),
        }
    }

    /// Whether a request that knows `known` as the epoch may be answered by `broker`.
    pub(super) fn check(&self, broker: BrokerId, known: LeaderEpoch) -> Result<(), ErrorCode> {
        if !self.replicas.contains(&broker) {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        if known != LeaderEpoch::UNKNOWN && known < self.epoch {
            return Err(ErrorCode::FENCED_LEADER_EPOCH);
        }
        if known > self.epoch {
            return Err(ErrorCode::UNKNOWN_LEADER_EPOCH);
        }
        if self.leader == Some(broker) { Ok(()) } else { Err(ErrorCode::NOT_LEADER_OR_FOLLOWER) }
    }
}

impl Log {
    /// The offset of the first record that is served.
    #[must_use]
    pub const fn start(&self) -> Offset {
        match self {
            Self::Stored(log) => log.start(),
            Self::Endless(log) => log.start(),
        }
    }

    /// The offset that the next record gets.
    #[must_use]
    pub fn end(&self, now_ms: i64) -> Offset {
        match self {
            Self::Stored(log) => log.end(),
            Self::Endless(log) => log.end(now_ms),
        }
    }

    /// Up to where consumers see records.
    #[must_use]
    pub fn high_watermark(&self, now_ms: i64) -> Offset {
        match self {
            Self::Stored(log) => log.high_watermark(),
            Self::Endless(log) => log.end(now_ms),
        }
    }

    /// Up to where no transaction is open.
    #[must_use]
    pub fn last_stable_offset(&self, now_ms: i64) -> Offset {
        match self {
            Self::Stored(log) => log.last_stable_offset(),
            Self::Endless(log) => log.end(now_ms),
        }
    }

    /// Up to where a consumer of this isolation sees records.
    #[must_use]
    pub fn upper(&self, isolation: IsolationLevel, now_ms: i64) -> Offset {
        match isolation {
            IsolationLevel::READ_COMMITTED => self.last_stable_offset(now_ms),
            _ => self.high_watermark(now_ms),
        }
    }

    pub(super) fn grows_at_ms(&self, now_ms: i64) -> Option<i64> {
        match self {
            Self::Stored(_) => None,
            Self::Endless(log) => log.grows_at_ms(now_ms),
        }
    }

    pub(super) fn aborted(&self, from: Offset, upper: Offset) -> Vec<AbortedTransaction> {
        match self {
            Self::Stored(log) => log.aborted(from, upper),
            Self::Endless(_) => Vec::new(),
        }
    }

    pub(super) fn at_time(&self, timestamp: i64) -> Option<(i64, Offset)> {
        match self {
            Self::Stored(log) => log.at_time(timestamp),
            Self::Endless(log) => (timestamp <= 0).then_some((0, log.start())),
        }
    }

    pub(super) fn newest(&self) -> Option<(i64, Offset)> {
        match self {
            Self::Stored(log) => log.newest(),
            Self::Endless(log) => Some((0, log.start())),
        }
    }
}
