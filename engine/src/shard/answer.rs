//! Answers to questions about partitions that this shard owns, and who waits for more of them.

use std::collections::{BTreeMap, BTreeSet};

use wire::api::ErrorCode;
use wire::fetch::{AbortedTransaction, EpochEndOffset, IsolationLevel};
use wire::ids::{LeaderEpoch, Offset};

use crate::ids::{PartitionKey, ShardId};
use crate::io::Io;
use crate::serve::{
    Answer, Asked, CallId, EpochAnswer, FilePiece, OffsetAnswer, OffsetTarget, Question,
    QuestionId, Read, ReadAnswer, Watched, check_leader_epoch,
};
use crate::store::{Damage, Isolation, ReadError, TimestampedOffset};

use super::Shard;
use super::cell::{Cell, Watcher};

impl<I: Io> Shard<I> {
    pub(super) fn answer_all(&mut self, questions: &[Asked]) -> Vec<(QuestionId, Answer)> {
        questions.iter().map(|asked| (asked.id, self.answer(asked))).collect()
    }

    fn answer(&mut self, asked: &Asked) -> Answer {
        let key = self.key(&asked.topic, asked.partition);
        match asked.question {
            Question::Read(read) => Answer::Read(self.read_records(key, &read)),
            Question::Offset { target, current_leader_epoch, isolation } => Answer::Offset(
                self.owned(key, current_leader_epoch)
                    .and_then(|key| self.offset_of(key, target, isolation)),
            ),
            Question::EndOfEpoch { current_leader_epoch, epoch } => Answer::EndOfEpoch(
                self.owned(key, current_leader_epoch).map(|key| self.end_of(key, epoch)),
            ),
        }
    }

    /// The partition, where it is served here and the client's idea of its leader is ours.
    fn owned(
        &self,
        key: Option<PartitionKey>,
        current_leader_epoch: LeaderEpoch,
    ) -> Result<PartitionKey, ErrorCode> {
        let key = key.ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        let epoch = self.cells[key.0 as usize].leader_epoch();
        check_leader_epoch(epoch, current_leader_epoch)?;
        Ok(key)
    }

    fn read_records(
        &mut self,
        key: Option<PartitionKey>,
        read: &Read,
    ) -> Result<ReadAnswer, ErrorCode> {
        let key = self.owned(key, read.current_leader_epoch)?;
        let cell = &mut self.cells[key.0 as usize];
        let mut answer = ReadAnswer {
            high_watermark: cell.log.high_watermark(),
            last_stable_offset: cell.log.last_stable_offset(),
            log_start_offset: cell.log.log_start(),
            ..ReadAnswer::default()
        };
        // The end of the client's epoch comes before the range: a log that was cut answers with the
        // place where the two part, not with an offset out of range (KIP-595).
        if let Some(diverging) = divergence(cell, read)? {
            answer.diverging_epoch = Some(diverging);
            return Ok(answer);
        }
        let isolation = isolation_of(read.isolation);
        let disk = self.io.disk();
        let plan = match cell.log.read(disk, read.offset, read.bytes_max, true, isolation) {
            Ok(plan) => plan,
            Err(ReadError::OutOfRange { .. }) => return Err(ErrorCode::OFFSET_OUT_OF_RANGE),
            Err(ReadError::Damage(damage)) => return Err(told(cell, &damage)),
        };
        if isolation == Isolation::ReadCommitted {
            let aborted = cell.log.aborted_transactions(self.io.disk(), read.offset, &plan);
            let aborted = aborted.map_err(|damage| told(cell, &damage))?;
            let shown = |aborted: &crate::store::AbortedTransaction| AbortedTransaction {
                producer_id: aborted.producer_id,
                first_offset: aborted.first_offset,
            };
            answer.aborted_transactions = aborted.iter().map(shown).collect();
        }
        answer.first_batch_bytes = plan.first_batch;
        if plan.length > 0 {
            let (position, length) = (plan.position, plan.length);
            answer.pieces = vec![FilePiece { path: plan.path, position, length }];
        }
        Ok(answer)
    }

    fn offset_of(
        &mut self,
        key: PartitionKey,
        target: OffsetTarget,
        isolation: IsolationLevel,
    ) -> Result<OffsetAnswer, ErrorCode> {
        let cell = &mut self.cells[key.0 as usize];
        let epoch_at = |epoch: Option<LeaderEpoch>| epoch.unwrap_or(LeaderEpoch::UNKNOWN);
        let plain = |offset, leader_epoch| OffsetAnswer { offset, timestamp: -1, leader_epoch };
        let found = match target {
            OffsetTarget::Earliest => {
                let (offset, epoch) = cell.log.earliest();
                return Ok(plain(offset, epoch_at(epoch)));
            }
            OffsetTarget::Latest => {
                let (end, epoch) = cell.log.latest();
                let offset = match isolation_of(isolation) {
                    Isolation::ReadCommitted => cell.log.last_stable_offset(),
                    Isolation::ReadUncommitted => end,
                };
                return Ok(plain(offset, epoch_at(epoch)));
            }
            OffsetTarget::MaxTimestamp => cell.log.offset_of_max_timestamp(self.io.disk()),
            OffsetTarget::AtOrAfter(timestamp) => {
                cell.log.offset_for_time(self.io.disk(), timestamp)
            }
        };
        let readable = readable(cell, isolation);
        match found.map_err(|damage| told(cell, &damage))? {
            Some(TimestampedOffset { offset, timestamp, leader_epoch }) if offset < readable => {
                Ok(OffsetAnswer { offset, timestamp, leader_epoch })
            }
            _ => Ok(plain(Offset(-1), LeaderEpoch::UNKNOWN)),
        }
    }

    fn end_of(&self, key: PartitionKey, epoch: LeaderEpoch) -> EpochAnswer {
        let log = &self.cells[key.0 as usize].log;
        let (epoch, end_offset) =
            log.end_offset_for_epoch(epoch).unwrap_or((LeaderEpoch::UNKNOWN, Offset(-1)));
        EpochAnswer { epoch, end_offset }
    }

    /// Notes who waits for more; tells at once where there is more already.
    pub(super) fn watch(&mut self, from: ShardId, partitions: Vec<Watched>) {
        let mut news = Vec::new();
        for seen in partitions {
            let id = seen.id;
            match self.key(&seen.topic, seen.partition) {
                Some(key) => {
                    let cell = &mut self.cells[key.0 as usize];
                    if is_news(cell, &seen) {
                        news.push(id);
                    } else {
                        cell.watchers.push(Watcher { from, seen });
                        self.upkeep.watched.entry((from, id.call)).or_default().insert(key);
                    }
                }
                None => news.push(id),
            }
        }
        for id in news {
            self.tell_progress(from, id);
        }
    }

    pub(super) fn unwatch(&mut self, from: ShardId, call: CallId) {
        for key in self.upkeep.watched.remove(&(from, call)).unwrap_or_default() {
            let watchers = &mut self.cells[key.0 as usize].watchers;
            watchers.retain(|watcher| (watcher.from, watcher.seen.id.call) != (from, call));
        }
    }

    /// What was read of a partition no longer holds: all who wait are told.
    pub(super) fn wake_all_watchers(&mut self, key: PartitionKey) {
        for Watcher { from, seen } in std::mem::take(&mut self.cells[key.0 as usize].watchers) {
            self.tell_progress(from, seen.id);
        }
    }

    /// More can be read of a partition: those who waited for that are told, once.
    pub(super) fn wake_watchers(&mut self, key: PartitionKey) {
        let cell = &mut self.cells[key.0 as usize];
        if cell.watchers.is_empty() {
            return;
        }
        let (told, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut cell.watchers)
            .into_iter()
            .partition(|watcher| is_news(cell, &watcher.seen));
        cell.watchers = kept;
        for Watcher { from, seen } in told {
            self.tell_progress(from, seen.id);
        }
    }
}

/// Calls that wait, by who watches which partitions.
pub(super) type WatchedBy = BTreeMap<(ShardId, CallId), BTreeSet<PartitionKey>>;

const fn isolation_of(level: IsolationLevel) -> Isolation {
    match level {
        IsolationLevel::READ_COMMITTED => Isolation::ReadCommitted,
        _ => Isolation::ReadUncommitted,
    }
}

/// Up to where a reader of this isolation may read.
fn readable(cell: &Cell, isolation: IsolationLevel) -> Offset {
    match isolation_of(isolation) {
        Isolation::ReadCommitted => cell.log.last_stable_offset(),
        Isolation::ReadUncommitted => cell.log.high_watermark(),
    }
}

/// Whether there is more than was seen.
fn is_news(cell: &Cell, seen: &Watched) -> bool {
    readable(cell, seen.isolation) > seen.end
}

/// Where the client's log and ours part, if they do (Kafka's `Partition.readRecords`).
fn divergence(cell: &Cell, read: &Read) -> Result<Option<EpochEndOffset>, ErrorCode> {
    if read.last_fetched_epoch == LeaderEpoch::UNKNOWN {
        return Ok(None);
    }
    let end = cell.log.end_offset_for_epoch(read.last_fetched_epoch);
    let (epoch, end_offset) = end.ok_or(ErrorCode::OFFSET_OUT_OF_RANGE)?;
    let parted = epoch < read.last_fetched_epoch || end_offset < read.offset;
    Ok(parted.then_some(EpochEndOffset { epoch, end_offset }))
}

/// Says loudly what is damaged; the client gets the code that Kafka gives for it.
fn told(cell: &Cell, damage: &Damage) -> ErrorCode {
    tracing::error!("partition {}: {damage}", cell.name);
    ErrorCode::KAFKA_STORAGE_ERROR
}
