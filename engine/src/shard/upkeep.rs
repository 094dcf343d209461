//! What time asks of a shard: retries, checkpoints, retention, figures for whoever looks; and the
//! way to its end. Each turn does a part of it.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Now, PartitionKey, Token, TopicPartition};
use crate::io::Io;
use crate::mirror::Phase;
use crate::source::SourceImage;
use crate::store::Removed;

use super::answer::WatchedBy;
use super::cell::Cell;
use super::mail::{DeskLetter, PartitionCheckpoint};
use super::{Ending, Shard, ShardOptions};

/// Partitions whose retention one tick looks at.
const RETENTION_PER_TICK_MAX: usize = 256;
/// Partitions in one letter to the desk.
const CHECKPOINTS_IN_LETTER_MAX: usize = 4_096;
/// Between two updates of the gauges and two portions of retention.
const TICK: Duration = Duration::from_millis(250);
/// How soon letters that a full box did not take are sent again.
const MAIL_AGAIN: Duration = Duration::from_millis(1);

/// What is due when.
#[derive(Debug)]
pub(super) struct Upkeep {
    tick_at: Now,
    checkpoint_at: Now,
    retention_at: Now,
    /// Partitions that moved since the last checkpoint.
    moved: BTreeSet<PartitionKey>,
    /// Partitions that are to be looked at for segments that may go.
    retain: VecDeque<PartitionKey>,
    retaining: BTreeSet<PartitionKey>,
    /// Files that may be unlinked, oldest first.
    removed: VecDeque<(Now, PathBuf)>,
    /// Names that segment files had which were removed: who reads them reads on until then.
    pub(super) gone: VecDeque<(Now, std::sync::Arc<std::path::Path>)>,
    /// Partitions that are left out for now, and when they are tried again.
    pub(super) open_again: VecDeque<(Now, TopicPartition)>,
    /// Metadata that could not be taken when it came, and when it is tried again.
    pub(super) image_again: Option<(Now, Arc<SourceImage>)>,
    /// It is written down that a flush has failed.
    pub(super) flush_failed: bool,
    mail_waits: bool,
    /// The taking of clients has failed, and none was taken since.
    pub accept_fails: bool,
    /// Under which token clients are to be taken again.
    pub accept_again: Option<Token>,
    pub watched: WatchedBy,
}

impl Upkeep {
    pub(super) fn new(now: Now, options: &ShardOptions) -> Self {
        Self {
            tick_at: now,
            checkpoint_at: now.plus(options.checkpoint_interval),
            retention_at: now.plus(options.retention_check_interval),
            moved: BTreeSet::new(),
            retain: VecDeque::new(),
            retaining: BTreeSet::new(),
            removed: VecDeque::new(),
            gone: VecDeque::new(),
            open_again: VecDeque::new(),
            image_again: None,
            flush_failed: false,
            mail_waits: false,
            accept_fails: false,
            accept_again: None,
            watched: WatchedBy::new(),
        }
    }

    /// Whether letters wait for room in somebody's box.
    pub(super) const fn mail_waits(&self) -> bool {
        self.mail_waits
    }

    /// Forgets every partition.
    fn clear(&mut self) {
        self.moved.clear();
        self.retain.clear();
        self.retaining.clear();
        self.watched = WatchedBy::new();
    }

    /// A partition has moved: the next checkpoint takes it along.
    pub(super) fn touched(&mut self, key: PartitionKey) {
        self.moved.insert(key);
    }

    /// Something of a partition may go.
    pub(super) fn retain_soon(&mut self, key: PartitionKey) {
        if self.retaining.insert(key) {
            self.retain.push_back(key);
        }
    }

    /// Files with their last names are unlinked once nobody reads them any more.
    pub(super) fn remove_at(&mut self, removed: Vec<Removed>, at: Now) {
        self.removed.extend(removed.into_iter().flat_map(|one| one.files).map(|file| (at, file)));
    }
}

impl<I: Io> Shard<I> {
    pub(super) fn deadline(&self) -> Option<Now> {
        let upkeep = &self.upkeep;
        let mail = upkeep.mail_waits.then(|| self.io.now().plus(MAIL_AGAIN));
        let link = self.link.as_ref().and_then(crate::source::Link::deadline);
        let retry = self.retries.first().map(|&(at, _)| at);
        [Some(upkeep.tick_at), mail, link, self.server.deadline(), retry]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn on_time(&mut self) {
        let now = self.io.now();
        self.retry(now);
        if self.server.deadline().is_some_and(|at| at <= now) {
            let mut effects = Vec::new();
            self.server.on_time(&self.catalog, now, &mut effects);
            self.run_server(effects);
        }
        let mut effects = Vec::new();
        if let Some(link) = &mut self.link
            && link.deadline().is_some_and(|at| at <= now)
        {
            link.on_time(now, &mut effects);
        }
        self.run_link(effects);
        if self.upkeep.tick_at <= now {
            self.upkeep.tick_at = now.plus(TICK);
            self.tick(now);
        }
        self.end_if_drained();
        let mut waits = self.post.desk.flush();
        for slot in &mut self.post.shards {
            waits |= slot.flush();
        }
        self.upkeep.mail_waits = waits;
    }

    fn tick(&mut self, now: Now) {
        self.show();
        self.accept_again();
        if self.upkeep.checkpoint_at <= now {
            self.upkeep.checkpoint_at = now.plus(self.options.checkpoint_interval);
            self.checkpoint();
        }
        if self.upkeep.retention_at <= now {
            self.upkeep.retention_at = now.plus(self.options.retention_check_interval);
            for index in 0..self.cells.len() {
                self.upkeep.retain_soon(PartitionKey(index as u32));
            }
        }
        for _ in 0..RETENTION_PER_TICK_MAX {
            let Some(key) = self.upkeep.retain.pop_front() else { break };
            self.upkeep.retaining.remove(&key);
            self.retain(key, now);
        }
        let mut gone = Vec::new();
        while let Some((_, file)) = self.upkeep.gone.pop_front_if(|(at, _)| *at <= now) {
            gone.push(file);
        }
        self.forget_files(gone);
        if self.ending == Ending::No {
            self.image_again(now);
            self.open_left_out(now);
        }
        while let Some((at, file)) = self.upkeep.removed.pop_front() {
            if at > now {
                self.upkeep.removed.push_front((at, file));
                break;
            }
            if let Err(error) = self.io.disk().remove(&file) {
                tracing::warn!("a segment that was given up is still there: {error}");
            }
        }
    }

    fn retain(&mut self, key: PartitionKey, now: Now) {
        let wall_ms = self.io.wall_clock_ms();
        let cell = &mut self.cells[key.0 as usize];
        if cell.log.is_poisoned() {
            return;
        }
        let trimmed = cell.log.trim(self.io.disk());
        match trimmed.and_then(|()| cell.log.retain(self.io.disk(), wall_ms)) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => {
                cell.file = None;
                self.metrics.segments_deleted.add(removed.len() as u64);
                self.remove_later(removed, now);
                self.upkeep.touched(key);
            }
            Err(damage) => self.damaged(key, &damage),
        }
    }

    /// Writes at once what is true of a partition whose log was made anew.
    pub(super) fn checkpoint_now(&mut self, key: PartitionKey) {
        self.send_checkpoint(vec![checkpoint_of(&self.cells[key.0 as usize])]);
    }

    /// Writes the partitions that moved to the desk.
    fn checkpoint(&mut self) {
        let moved = std::mem::take(&mut self.upkeep.moved);
        let cells = moved.iter().map(|key| &self.cells[key.0 as usize]);
        self.send_checkpoint(cells.map(checkpoint_of).collect());
    }

    fn send_checkpoint(&mut self, partitions: Vec<PartitionCheckpoint>) {
        for portion in partitions.chunks(CHECKPOINTS_IN_LETTER_MAX) {
            self.post.desk.send(DeskLetter::Checkpoint { partitions: portion.to_vec() });
        }
    }

    /// Brings the gauges up to date.
    fn show(&mut self) {
        let metrics = &self.metrics;
        metrics.partitions_mirroring.set(self.phase_count(Phase::Mirroring));
        let failed = [Phase::Failed, Phase::DiskFailed].map(|phase| self.phase_count(phase));
        metrics.partitions_failed.set(failed.iter().sum::<u64>() + self.left_out.len() as u64);
        let beginning = [Phase::Locating, Phase::Aligning, Phase::Recording, Phase::Waiting];
        metrics.partitions_waiting.set(beginning.map(|phase| self.phase_count(phase)).iter().sum());
        metrics.lag_records.set(self.sums.lag_records);
        metrics.lag_bytes.set(self.sums.lag_bytes);
        let now = self.io.now();
        let behind = self.sums.behind.first().map_or(Duration::ZERO, |&(at, _)| now.since(at));
        metrics.lag_seconds.set(behind.as_secs());
        metrics.buffer_bytes.set(self.io.buffers().bytes_lent() as u64);
        metrics.client_connections.set(self.server.connection_count() as u64);
        // A source that could not be written down is not taken, and so as good as lost.
        let is_lost = self.link.as_ref().is_some_and(crate::source::Link::is_lost)
            || self.upkeep.image_again.is_some();
        metrics.source_lost.set(u64::from(is_lost));
        let unreachable = self.link.as_ref().map_or(0, crate::source::Link::unreachable);
        metrics.source_brokers_unreachable.set(unreachable as u64);
    }

    /// Begins nothing new; ends once the writes under way are done.
    pub(super) fn stop(&mut self) {
        if self.ending != Ending::No {
            return;
        }
        self.ending = Ending::Draining;
        self.link = None;
        let peers: Vec<_> = self.peers.keys().copied().collect();
        for peer in peers {
            self.drop_peer(peer);
        }
    }

    fn end_if_drained(&mut self) {
        let is_drained = |cell: &Cell| cell.writes == 0 && cell.flushing.is_none();
        if self.ending != Ending::Draining || !self.cells.iter().all(is_drained) {
            return;
        }
        // A log that could not be opened was perhaps left half-way through its recovery.
        let mut clean = self.left_out.is_empty();
        let mut is_in_doubt = false;
        let mut partitions = Vec::new();
        for cell in self.cells.drain(..) {
            let mut checkpoint = checkpoint_of(&cell);
            clean &= !cell.log.is_poisoned();
            match cell.log.close(self.io.disk()) {
                Ok(at) => {
                    checkpoint.recovery_point = at.recovery_point;
                    partitions.push(checkpoint);
                }
                Err(damage) => {
                    clean = false;
                    is_in_doubt = true;
                    let name = checkpoint.partition;
                    tracing::error!("partition {name} could not be closed: {damage}");
                }
            }
        }
        if is_in_doubt {
            self.mark_flush_failed();
        }
        // Nothing is left that a letter or a moment could be about.
        self.keys.clear();
        self.retries.clear();
        self.upkeep.clear();
        self.send_checkpoint(partitions);
        let shard = self.options.id;
        self.post.desk.send(DeskLetter::Stopped { shard, clean });
        self.ending = Ending::Ended;
    }
}

/// What the checkpoint files say of a partition.
fn checkpoint_of(cell: &Cell) -> PartitionCheckpoint {
    let at = cell.log.checkpointed();
    PartitionCheckpoint {
        partition: cell.name.clone(),
        recovery_point: at.recovery_point,
        log_start: cell.log.log_start_needs_saying().then_some(at.log_start),
        high_watermark: at.high_watermark,
        leader_epoch: cell.leader_epoch(),
    }
}
