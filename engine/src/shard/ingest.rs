//! From a fetched frame to planned writes: the gate, the mirror, the log, in this order. The next
//! fetch is asked for before the bytes of this one are written, so that the source works meanwhile.

use std::sync::Arc;

use wire::api::ErrorCode;
use wire::ids::{LeaderEpoch, Offset};

use crate::ids::{Now, PartitionKey};
use crate::io::{Buffer, Io};
use crate::mirror::admit::{Admission, admit};
use crate::mirror::{Effect, Partition, Phase};
use crate::source::{EndOfEpoch, Fetched, FetchedPartition, OffsetAt, PartitionAt, Question};
use crate::store::AppendPiece;

use super::Shard;
use super::cell::Located;
use super::mail::DeskLetter;

/// A partition that gets this much at once was behind, also where it no longer is.
const BEHIND_BYTES_LEAST: usize = 1 << 20;

/// What one partition adds to the sums of the lag at most: a source may tell any high watermark.
const LAG_MAX: u64 = 1 << 45;

/// A write that was planned while the frame could still be changed.
pub(super) struct Planned {
    pub key: PartitionKey,
    /// Where in the frame the admitted bytes begin.
    pub start: usize,
    pub piece: AppendPiece,
    /// Whether nobody is likely to read the bytes soon.
    pub backfill: bool,
}

impl<I: Io> Shard<I> {
    pub(super) fn ingest(&mut self, fetched: Fetched) {
        let Fetched { peer, frame, partitions, .. } = fetched;
        self.metrics.source_fetches.add(1);
        let mut planned = Vec::new();
        for partition in &partitions {
            self.ingest_partition(partition, &frame, &mut planned);
        }
        let now = self.io.now();
        let mut effects = Vec::new();
        if let Some(link) = &mut self.link {
            link.resume(peer, now, &mut effects);
        }
        self.run_link(effects);
        let frame = frame.share();
        for Planned { key, start, piece, backfill } in planned {
            let bytes = frame.slice(start + piece.range.start..start + piece.range.end);
            self.write(key, &piece, bytes, backfill);
        }
    }

    fn ingest_partition(
        &mut self,
        fetched: &FetchedPartition,
        frame: &Buffer,
        planned: &mut Vec<Planned>,
    ) {
        let key = fetched.key;
        let now = self.io.now();
        let mut effects = Vec::new();
        let cell = &mut self.cells[key.0 as usize];
        let Some(mirror) = &mut cell.mirror else { return };
        if fetched.error != ErrorCode::NONE {
            mirror.refused(fetched.error, now, &mut effects);
            return self.run_mirror(key, effects);
        }
        if let Some((epoch, end)) = fetched.diverging {
            mirror.diverging(epoch, end, &mut effects);
            return self.run_mirror(key, effects);
        }
        mirror.leader(fetched.leader_epoch);
        if mirror.phase() != Phase::Recording {
            mirror.watermarks(fetched.high_watermark, fetched.log_start_offset, &mut effects);
        }
        if !fetched.records.is_empty() {
            let records = &frame[fetched.records.clone()];
            self.admitted.clear();
            let admission = admit(records, &mirror.expectation(), &mut self.admitted);
            if mirror.phase() == Phase::Recording {
                let first = self.admitted.first().map(|batch| batch.base_offset);
                mirror.first_batch(first, &admission, now, &mut effects);
                return self.run_mirror(key, effects);
            }
            mirror.admitted(&admission, now, &mut effects);
            let start = fetched.records.start + admission.skipped;
            // Where the plan fails the mirror stops, and what it wanted before is out of date.
            self.plan(key, start, &admission, planned);
        }
        self.run_mirror(key, effects);
    }

    /// Plans the writes of what was admitted, and counts it.
    fn plan(
        &mut self,
        key: PartitionKey,
        start: usize,
        admission: &Admission,
        planned: &mut Vec<Planned>,
    ) {
        if let Some(refusal) = &admission.refusal {
            let cell = &self.cells[key.0 as usize];
            self.metrics.refused_batches.add(1);
            tracing::warn!("partition {}: refused {refusal}", cell.name);
        }
        let (Some(first), false) = (self.admitted.first(), admission.length == 0) else { return };
        let (first, wall_ms) = (first.base_offset, self.io.wall_clock_ms());
        let cell = &mut self.cells[key.0 as usize];
        let offsets = u64::try_from(admission.next.0 - first.0).unwrap_or(1).max(1);
        cell.accounts.offset_bytes_16 = admission.length as u64 * 16 / offsets;
        self.metrics.admitted_batches.add(self.admitted.len() as u64);
        self.metrics.admitted_bytes.add(admission.length as u64);
        match cell.log.append(self.io.disk(), &self.admitted, wall_ms) {
            Ok(pieces) => {
                cell.is_new = false;
                let was_behind = cell.is_behind() || admission.length >= BEHIND_BYTES_LEAST;
                let backfill = was_behind && cell.watchers.is_empty();
                let plan = |piece| Planned { key, start, piece, backfill };
                planned.extend(pieces.into_iter().map(plan));
            }
            Err(damage) => self.damaged(key, &damage),
        }
    }

    /// Carries out what a mirror decided, and keeps the sums over all partitions.
    pub(super) fn run_mirror(&mut self, key: PartitionKey, effects: Vec<Effect>) {
        for effect in effects {
            self.run_mirror_effect(key, effect);
        }
        self.account(key);
    }

    fn run_mirror_effect(&mut self, key: PartitionKey, effect: Effect) {
        let cell = &mut self.cells[key.0 as usize];
        match effect {
            Effect::Locate => {
                cell.located = Located::default();
                self.look_up(key, Question::Earliest);
                self.look_up(key, Question::Latest);
            }
            Effect::AskEndOfEpoch(epoch) => self.look_up(key, Question::EndOfEpoch(epoch)),
            Effect::Fetch { offset, last_fetched_epoch } => {
                // What came before it may have failed at the disk: then the mirror has stopped.
                let phase = cell.mirror.as_ref().map(Partition::phase);
                if !matches!(phase, Some(Phase::Mirroring | Phase::Recording)) {
                    return;
                }
                let leader_epoch =
                    cell.topic.leader_epoch(cell.name.partition).unwrap_or(LeaderEpoch::UNKNOWN);
                let source = cell.source();
                let at = PartitionAt { source, offset, last_fetched_epoch, leader_epoch };
                if let Some(link) = &mut self.link {
                    link.fetch(key, &at);
                }
            }
            Effect::StopFetching => {
                if let Some(link) = &mut self.link {
                    link.unfetch(key);
                }
            }
            Effect::StartAt(offset) => self.start_at(key, offset),
            Effect::RaiseLogStart => self.follow_log_start(key),
            Effect::RecordLoss(loss) => {
                let (shard, partition) = (self.options.id, cell.name.clone());
                let wall_clock_ms = self.io.wall_clock_ms();
                self.post.desk.send(DeskLetter::Loss { shard, partition, loss, wall_clock_ms });
            }
            Effect::Refresh => {
                let topics = [Arc::clone(&cell.name.topic)];
                if let Some(link) = &mut self.link {
                    link.refresh(&topics);
                }
            }
            Effect::Waits(reason) => {
                tracing::warn!("partition {} waits: {reason}; it is tried again", cell.name);
            }
            Effect::Failed(failure) => {
                tracing::error!("partition {} has stopped: {failure}", cell.name);
            }
            Effect::DiskFailed(reason) => {
                tracing::error!(
                    "partition {} takes nothing until its log can be opened again: {reason}",
                    cell.name
                );
            }
            Effect::Reopen => {
                cell.reopening = true;
                self.reopen(key);
            }
        }
    }

    fn look_up(&mut self, key: PartitionKey, question: Question) {
        let cell = &self.cells[key.0 as usize];
        let epoch = cell.topic.leader_epoch(cell.name.partition).unwrap_or(LeaderEpoch::UNKNOWN);
        if let Some(link) = &mut self.link {
            link.look_up(key, &cell.source(), epoch, question);
        }
    }

    /// Raises our log start to the source's, as far as the log is written: what is on its way is
    /// looked at again when it has arrived.
    pub(super) fn follow_log_start(&mut self, key: PartitionKey) {
        let cell = &mut self.cells[key.0 as usize];
        let Some(mirror) = &cell.mirror else { return };
        let start = mirror.start().min(cell.log.log_end());
        if start > cell.log.log_start()
            && cell.log.raise_log_start(start).is_ok_and(|raised| raised)
        {
            self.upkeep.touched(key);
            self.upkeep.retain_soon(key);
        }
    }

    /// The log begins anew at another offset, after the last write to it has ended.
    fn start_at(&mut self, key: PartitionKey, offset: Offset) {
        let wall_ms = self.io.wall_clock_ms();
        let cell = &mut self.cells[key.0 as usize];
        assert_eq!(cell.writes, 0, "a log is emptied when no write to it is under way");
        cell.file = None;
        cell.closed.clear();
        let removed = cell.log.truncate_fully_and_start_at(self.io.disk(), offset, wall_ms);
        match removed {
            Ok(removed) => {
                let now = self.io.now();
                self.remove_replaced(removed, now);
                self.upkeep.touched(key);
                self.wake_all_watchers(key);
            }
            Err(damage) => self.damaged(key, &damage),
        }
    }

    pub(super) fn end_of_epoch(
        &mut self,
        key: PartitionKey,
        asked: LeaderEpoch,
        answer: Result<EndOfEpoch, ErrorCode>,
    ) {
        let now = self.io.now();
        let mut effects = Vec::new();
        if let Some(mirror) = &mut self.cells[key.0 as usize].mirror
            // The log may have been opened again since, and end in another epoch.
            && mirror.expectation().last_epoch == asked
        {
            match answer {
                Ok(end) => mirror.end_of_epoch(end.epoch, end.end_offset, &mut effects),
                Err(error) => mirror.refused(error, now, &mut effects),
            }
        }
        self.run_mirror(key, effects);
    }

    pub(super) fn offset_at(
        &mut self,
        key: PartitionKey,
        question: Question,
        answer: Result<OffsetAt, ErrorCode>,
    ) {
        let now = self.io.now();
        let mut effects = Vec::new();
        let cell = &mut self.cells[key.0 as usize];
        let Some(mirror) = &mut cell.mirror else { return };
        match (answer, question) {
            (Err(error), _) => mirror.refused(error, now, &mut effects),
            (Ok(at), Question::Earliest) => cell.located.earliest = Some(at.offset),
            (Ok(at), _) => cell.located.latest = Some(at.offset),
        }
        self.run_mirror(key, effects);
        self.located(key);
    }

    /// Goes on where both ends of the source's log are known. A log that writes are under way to may
    /// have to be emptied: that waits for the last of them.
    pub(super) fn located(&mut self, key: PartitionKey) {
        let cell = &mut self.cells[key.0 as usize];
        let Located { earliest: Some(earliest), latest: Some(latest) } = cell.located else {
            return;
        };
        let Some(mirror) = cell.mirror.as_mut().filter(|_| cell.writes == 0) else { return };
        cell.located = Located::default();
        let mut effects = Vec::new();
        mirror.offsets(earliest, latest, &mut effects);
        self.run_mirror(key, effects);
    }

    pub(super) fn leader_moved(&mut self, key: PartitionKey, epoch: LeaderEpoch) {
        let cell = &mut self.cells[key.0 as usize];
        cell.topic.raise_leader_epoch(cell.name.partition, epoch);
        if let Some(mirror) = &mut cell.mirror {
            mirror.leader(epoch);
        }
        self.upkeep.touched(key);
    }

    /// Brings the sums over all partitions up to date with one that changed.
    pub(super) fn account(&mut self, key: PartitionKey) {
        let now = self.io.now();
        let cell = &mut self.cells[key.0 as usize];
        let Some(mirror) = &cell.mirror else { return };
        let accounts = &mut cell.accounts;
        let lag = mirror.lag().unwrap_or(0).min(LAG_MAX);
        let lag_bytes = lag.saturating_mul(accounts.offset_bytes_16) / 16;
        let lag_bytes = lag_bytes.min(LAG_MAX);
        self.sums.lag_records = self.sums.lag_records + lag - accounts.lag_records;
        self.sums.lag_bytes = self.sums.lag_bytes + lag_bytes - accounts.lag_bytes;
        (accounts.lag_records, accounts.lag_bytes) = (lag, lag_bytes);
        match (lag > 0, accounts.behind_since) {
            (true, None) => {
                accounts.behind_since = Some(now);
                self.sums.behind.insert((now, key));
            }
            (false, Some(since)) => {
                accounts.behind_since = None;
                self.sums.behind.remove(&(since, key));
            }
            _ => {}
        }
        if mirror.deadline() != accounts.retry_at {
            if let Some(at) = accounts.retry_at {
                self.retries.remove(&(at, key));
            }
            accounts.retry_at = mirror.deadline();
            self.retries.extend(accounts.retry_at.map(|at| (at, key)));
        }
        let phase = mirror.phase();
        if accounts.phase != Some(phase) {
            if let Some(count) = accounts.phase.and_then(|old| self.sums.phases.get_mut(&old)) {
                *count -= 1;
            }
            *self.sums.phases.entry(phase).or_default() += 1;
            accounts.phase = Some(phase);
        }
    }

    /// Partitions whose time to begin again has come.
    pub(super) fn retry(&mut self, now: Now) {
        while let Some(&(at, key)) = self.retries.first()
            && at <= now
        {
            self.retries.pop_first();
            self.cells[key.0 as usize].accounts.retry_at = None;
            let mut effects = Vec::new();
            if let Some(mirror) = &mut self.cells[key.0 as usize].mirror {
                mirror.on_time(now, &mut effects);
            }
            let reads_a_log = effects.contains(&Effect::Reopen);
            self.run_mirror(key, effects);
            if reads_a_log {
                // Others wait for this thread: the next one has the next turn.
                return;
            }
        }
    }

    /// How many partitions are in a phase.
    pub(super) fn phase_count(&self, phase: Phase) -> u64 {
        self.sums.phases.get(&phase).copied().unwrap_or(0)
    }
}
