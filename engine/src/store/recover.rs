//! Opening a log: what is true after a clean shutdown, and what is true after a crash.
//! Follows Kafka's `LogLoader`.
//!
//! Everything below the recovery point was flushed and is believed. The segment that has the
//! recovery point and those after it are read whole: the first batch that is not whole ends the log.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use wire::ids::Offset;

use super::config::LogConfig;
use super::damage::Damage;
use super::epochs::LeaderEpochs;
use super::index::{Index, OffsetEntry};
use super::log::{Checkpointed, Log, Place, folder_of};
use super::names::FileKind;
use super::producers::Producers;
use super::scan::{Headers, Scan, Step, admitted, misplaced};
use super::segment::{Active, Newest, Segment, Stored};
use crate::io::Disk;

mod cut;
mod find;
mod replay;
mod sweep;

pub use cut::Cut;
pub(super) use replay::{load_producers, remove_snapshot, snapshot_offsets};

/// What opening a log found out and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of batches whose CRC was computed.
    pub bytes_scanned: u64,
    /// Segments that were read whole.
    pub segments_scanned: usize,
    /// Segments below the recovery point whose indexes were missing or broken and were made anew.
    pub indexes_rebuilt: usize,
    /// Files of removals and of a cleaner that did not end, which were removed or put in place.
    pub leftovers: usize,
    /// What the end of the log lost.
    pub cut: Option<Cut>,
}

/// A log that is being opened.
struct Opening<'a> {
    disk: &'a mut dyn Disk,
    folder: Arc<Path>,
    config: &'a LogConfig,
    wall_ms: i64,
    log_start: Offset,
    /// Below it, all was durable.
    recovery_point: Offset,
    /// Whether what is found whole is written again.
    writes_again: bool,
    segments: Vec<Segment>,
    /// Whether the index files of each segment are there and have whole entries.
    are_indexed: Vec<bool>,
    snapshots: BTreeSet<Offset>,
    epochs: LeaderEpochs,
    recovery: Recovery,
}

/// How a log was left by its last owner, and so how much of it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Closed: all of it.
    Clean,
    /// Not closed: what lies below the recovery point.
    Unclean,
    /// A flush of it may have failed since. The kernel counts what a flush could not write as written,
    /// and goes on to show it, also to the next process: recovery would find all of it whole, and the
    /// next flush would have nothing to do. So what is found above the recovery point is written again.
    FlushFailed,
}

impl Log {
    /// Opens a log, with recovery where it was not closed.
    pub fn open(
        disk: &mut dyn Disk,
        place: Place<'_>,
        checkpointed: Checkpointed,
        left: Left,
        wall_ms: i64,
    ) -> Result<(Self, Recovery), Damage> {
        let was_clean = left == Left::Clean;
        let folder: Arc<Path> = folder_of(place.data, place.partition).into();
        let recovery = Recovery { leftovers: sweep::sweep(disk, &folder)?, ..Recovery::default() };
        let mut opening = Opening {
            disk,
            folder: Arc::clone(&folder),
            config: place.config,
            wall_ms,
            log_start: checkpointed.log_start,
            recovery_point: checkpointed.recovery_point,
            writes_again: left == Left::FlushFailed,
            segments: Vec::new(),
            are_indexed: Vec::new(),
            snapshots: BTreeSet::new(),
            epochs: LeaderEpochs::default(),
            recovery,
        };
        opening.find_segments()?;
        opening.read_epochs()?;
        let ended = opening.find_end(checkpointed.recovery_point, was_clean)?;
        let Ended { end, producers, active } = opening.start_at_log_start(ended)?;
        let log_start = opening.log_start;
        opening.epochs.truncate_from_end(end);
        opening.epochs.truncate_from_start(log_start);
        opening.remove_strays(end)?;
        let Opening { segments, epochs, recovery, snapshots, .. } = opening;
        let mut log = Self::assemble(place, folder, segments, active, end);
        log.log_start = log_start;
        // What recovery has read, cut or put right is not flushed, and may not have been all that clean.
        let is_untouched = was_clean && recovery == Recovery::default();
        let flushed = checkpointed.recovery_point.min(end);
        log.recovery_point = if is_untouched { end } else { flushed };
        log.epochs = epochs;
        log.producers = producers;
        log.last_snapshot = snapshots.last().copied().unwrap_or(Offset(0));
        log.folder_dirty = !is_untouched;
        log.segments.shrink_to_fit();
        log.write_epochs(disk)?;
        Ok((log, recovery))
    }
}

/// Where a log ends, and what is known there.
struct Ended {
    end: Offset,
    producers: Producers,
    active: Active,
}

impl Opening<'_> {
    /// Finds out where the log ends, reading as much of it as is not believed.
    fn find_end(&mut self, recovery_point: Offset, was_clean: bool) -> Result<Ended, Damage> {
        let last = self.segments.len() - 1;
        let mut first = self.segments.len();
        if !was_clean {
            let at = self.segments.partition_point(|segment| segment.base <= recovery_point);
            first = at.saturating_sub(1);
            // An empty segment tells nothing of where the one before it ends.
            while first > 0 && self.segments[first].size == 0 {
                first -= 1;
            }
        }
        self.rebuild_indexes(first)?;
        if was_clean {
            if let Ok(end) = self.end_of_last()
                && end >= recovery_point
            {
                let producers = self.producers_at(end)?;
                let active = match self.segments[last].size {
                    0 => Active::new(self.wall_ms),
                    _ => Active::found(self.wall_ms),
                };
                return Ok(Ended { end, producers, active });
            }
            // It was not that clean.
            first = last;
        }
        let mut ended = self.recover_from(first)?;
        // What was cut away wholly tells nothing of where the one before it ends.
        while first > 0 && first + 1 == self.segments.len() && self.segments[first].size == 0 {
            first -= 1;
            ended = self.recover_from(first)?;
        }
        if was_clean && ended.end < recovery_point && self.recovery.cut.is_none() {
            let segment = self.segments.last().expect("a log has a segment");
            let file = FileKind::Log.path(&self.folder, segment.base);
            let why = format!("it ends at {}, but all up to {recovery_point} was there", ended.end);
            let (position, bytes, segments) = (segment.size, 0, 0);
            self.recovery.cut = Some(Cut { file, position, bytes, segments, why });
        }
        Ok(ended)
    }

    /// The end of the last segment, by its index and the few batches after it.
    fn end_of_last(&mut self) -> Result<Offset, Damage> {
        let segment = self.segments.last_mut().expect("a log has a segment");
        let index_path = FileKind::Index.path(&self.folder, segment.base);
        let path = segment.log_path(&self.folder);
        let index =
            Index::<OffsetEntry> { path: &index_path, stored: segment.stored.offsets, tail: &[] };
        let from = index.last(self.disk)?.map_or(0, |entry| entry.position);
        if u64::from(from) >= segment.size && from > 0 {
            return Err(Damage::corrupt(&index_path, 0, "it leads beyond the segment's end"));
        }
        let mut headers = Headers::new(&path, u64::from(from), segment.size);
        let mut end = segment.base;
        while let Some((_, header)) = headers.next(self.disk)? {
            end = header.next_offset();
        }
        Ok(end)
    }

    /// Makes the indexes anew of segments below `first` that lack them. Their batches were flushed:
    /// where they are broken, the disk has lost what it promised to keep.
    fn rebuild_indexes(&mut self, first: usize) -> Result<(), Damage> {
        for index in 0..first {
            if self.are_indexed[index] {
                continue;
            }
            let base = self.segments[index].base;
            let mut producers = self.producers_at(base)?;
            // The sign that they are not whole stays until they are: whoever is stopped in between
            // begins anew.
            self.disk.remove(&FileKind::TimeIndex.path(&self.folder, base))?;
            self.disk.sync(&self.folder)?;
            let next = self.recover_segment(index, &mut producers, base, Entries::Kept)?;
            if let Some((position, why)) = next.torn {
                let path = self.segments[index].log_path(&self.folder);
                return Err(Damage::corrupt(&path, position, why));
            }
            let mut active = next.active;
            active.replace_files(self.disk, &self.folder, &mut self.segments[index])?;
            self.recovery.indexes_rebuilt += 1;
        }
        Ok(())
    }

    /// Whether something is missing between `next`, where the segment before this one ends, and this
    /// one. A segment is named by the end of the one before it, but where its first batch is so far
    /// away that the name would not reach it: then it is named by that batch. Where that batch is not
    /// whole either, a crash has taken both.
    fn is_missing_before(&mut self, index: usize, next: Offset) -> Result<bool, Damage> {
        let segment = &mut self.segments[index];
        let path = segment.log_path(&self.folder);
        let last = match Scan::new(&path, 0, segment.size).next(self.disk)? {
            Step::Batch(batch) if batch.verify_crc().is_ok() => batch.header().last_offset(),
            Step::End => segment.base,
            Step::Batch(_) | Step::Torn(_) => return Ok(true),
        };
        Ok(last.0 - next.0 <= i64::from(i32::MAX))
    }

    /// Removes an empty segment that begins before `next`, the end of the one before it: a crash left
    /// it when the segment that takes its place had been made already. With it the one before would
    /// count as ending where it begins, and go too early.
    fn remove_if_replaced(&mut self, index: usize, next: Offset) -> Result<(), Damage> {
        let segment = &self.segments[index];
        if segment.size > 0 || segment.base >= next {
            return Ok(());
        }
        for path in segment.paths(&self.folder) {
            self.disk.remove(&path)?;
        }
        self.segments.remove(index);
        self.are_indexed.remove(index);
        self.recovery.leftovers += 1;
        Ok(())
    }

    /// Reads the segments from `first` on whole, up to the first batch that is not.
    fn recover_from(&mut self, first: usize) -> Result<Ended, Damage> {
        let mut next = self.segments[first].base;
        let mut producers = self.producers_at(next)?;
        let mut index = first;
        loop {
            let base = self.segments[index].base;
            if index > first && base > next && self.is_missing_before(index, next)? {
                let why = format!("the next segment begins at {base}, this one ends at {next}");
                return self.end_before(index, next, producers, why);
            }
            if index > first && (self.writes_again || !self.snapshots.contains(&base)) {
                let path = FileKind::Snapshot.path(&self.folder, base);
                match self.writes_again {
                    true => self.disk.replace(&path, &producers.snapshot())?,
                    false => self.disk.write(&path, 0, &producers.snapshot())?,
                }
                self.snapshots.insert(base);
            }
            let before = next;
            let next_least = next.max(base);
            let read = self.recover_segment(index, &mut producers, next_least, Entries::Spilled)?;
            if let Some((0, why)) = &read.torn
                && index > first
                && base != before
            {
                // Nothing of it is whole, and its name is not where the one before it ends.
                return self.end_before(index, before, producers, why.clone());
            }
            next = read.end;
            producers.written(next);
            let mut active = read.active;
            if let Some((position, why)) = read.torn {
                self.cut(index, position, why)?;
                return Ok(Ended { end: next, producers, active });
            }
            if index + 2 == self.segments.len() {
                self.remove_if_replaced(index + 1, next)?;
            }
            if index + 1 == self.segments.len() {
                return Ok(Ended { end: next, producers, active });
            }
            let segment = &mut self.segments[index];
            active.seal(self.disk, &self.folder, segment)?;
            // Below the recovery point no flush looks at it, and once the next one holds a batch no
            // recovery either.
            if next <= self.recovery_point {
                segment.sync_indexes(self.disk, &self.folder)?;
                self.disk.sync(&self.folder)?;
            }
            index += 1;
        }
    }

    /// Reads a segment whole and makes its indexes anew. Its size is then what was found whole.
    fn recover_segment(
        &mut self,
        index: usize,
        producers: &mut Producers,
        next: Offset,
        entries: Entries,
    ) -> Result<Read, Damage> {
        let segment = &mut self.segments[index];
        let path = segment.log_path(&self.folder);
        let length = std::mem::take(&mut segment.size);
        segment.stored = Stored::default();
        segment.newest = Some(Newest { timestamp: -1, offset: segment.base });
        self.disk.remove(&FileKind::TxnIndex.path(&self.folder, segment.base))?;
        let mut active = Active::new(self.wall_ms);
        let mut end = next;
        let mut scan = Scan::new(&path, 0, length);
        let torn = loop {
            let batch = match scan.next(self.disk)? {
                Step::End => break None,
                Step::Torn(why) => break Some(why),
                Step::Batch(batch) => batch,
            };
            if let Err(fault) = batch.verify_crc() {
                break Some(fault.to_string());
            }
            if let Some(why) = misplaced(batch.header(), segment.base, end) {
                break Some(why);
            }
            if self.writes_again && batch.header().last_offset() >= self.recovery_point {
                self.disk.write(&path, segment.size, batch.as_bytes())?;
            }
            let batch = admitted(&batch);
            self.epochs.assign_if_newer(batch.leader_epoch, batch.base_offset);
            active.append(segment, &batch, self.config.index_interval_bytes);
            if let Some(aborted) = producers.append(&batch) {
                active.aborted.push(aborted);
            }
            if entries == Entries::Spilled {
                active.spill_if_many(self.disk, &self.folder, segment)?;
            }
            end = batch.last_offset.next();
        };
        self.recovery.bytes_scanned += segment.size;
        self.recovery.segments_scanned += 1;
        let torn = torn.map(|why| (segment.size, why));
        Ok(Read { end, active, torn })
    }

    fn producers_at(&mut self, at: Offset) -> Result<Producers, Damage> {
        let times = (self.wall_ms, self.config.producer_id_expiration_ms);
        let range = (self.log_start, at);
        let (folder, segments) = (Arc::clone(&self.folder), &mut self.segments);
        Ok(load_producers(self.disk, &folder, segments, range, times)?.producers)
    }
}

/// What becomes of the entries of indexes while a segment is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entries {
    /// They go into the files as they come.
    Spilled,
    /// They stay in memory.
    Kept,
}

/// What reading a segment gave.
struct Read {
    end: Offset,
    active: Active,
    /// Where it is no longer whole, and why.
    torn: Option<(u64, String)>,
}

/// Bytes read at once where headers of a whole log are walked.
pub(super) const LONG_WALK_CHUNK: usize = 64 << 10;
