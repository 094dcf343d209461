//! Forgetting the end of a log: what the source's new leader never had.

use wire::ids::Offset;

use super::damage::Damage;
use super::index::{Entry, Index, OffsetEntry, TimeEntry};
use super::log::{Log, Written};
use super::names::{FileKind, LOG_START};
use super::producers::Producers;
use super::recover::{load_producers, remove_snapshot, snapshot_offsets};
use super::retain::Removed;
use super::scan::Headers;
use super::segment::{Active, Newest, Segment, Stored};
use super::transactions::AbortedTransaction;
use crate::io::{Disk, IoErrorKind};

impl Log {
    /// Cuts the log so that it ends at `offset`, or at the base of the batch that has it: what is
    /// asked of the source next must not be below the end. The recovery point moves back with it and
    /// must be in its checkpoint file before anything that is appended next is relied upon.
    ///
    /// # Panics
    /// When writes are under way.
    pub fn truncate_to(
        &mut self,
        disk: &mut dyn Disk,
        offset: Offset,
        wall_ms: i64,
    ) -> Result<Vec<Removed>, Damage> {
        assert!(self.pending.is_empty(), "a log is truncated after its last write");
        if offset >= self.written.end {
            // An epoch may have been noted of which no batch came.
            self.epochs.truncate_from_end(self.written.end);
            self.write_epochs(disk)?;
            return Ok(Vec::new());
        }
        if offset < self.segments[0].base {
            return self.truncate_fully_and_start_at(disk, offset, wall_ms);
        }
        let kept = self.segment_at(offset) + 1;
        let segments = self.segments.split_off(kept);
        if !segments.is_empty() {
            self.active = Active::found(wall_ms);
        }
        let removed: Result<Vec<_>, _> =
            segments.into_iter().map(|segment| self.remove_segment(disk, segment)).collect();
        let end = self.cut_active(disk, offset, wall_ms)?;
        self.end_at(end);
        self.log_start = self.log_start.min(end);
        self.may_end_in_gap = true;
        self.epochs.truncate_from_end(end);
        self.write_epochs(disk)?;
        self.reload_producers(disk, wall_ms)?;
        removed
    }

    /// Forgets everything and goes on from `offset`.
    ///
    /// # Panics
    /// When writes are under way.
    pub fn truncate_fully_and_start_at(
        &mut self,
        disk: &mut dyn Disk,
        offset: Offset,
        wall_ms: i64,
    ) -> Result<Vec<Removed>, Damage> {
        assert!(self.pending.is_empty(), "a log is truncated after its last write");
        let removed = self.replace_segments(disk, offset, wall_ms);
        if self.segments.is_empty() {
            // Even a log that failed is asked: a log always has a segment.
            self.segments.push(Segment::empty(offset, wall_ms));
        }
        let removed = removed?;
        for at in snapshot_offsets(disk, &self.folder)? {
            disk.remove(&FileKind::Snapshot.path(&self.folder, at))?;
        }
        self.end_at(offset);
        if offset < self.log_start {
            disk.remove(&self.folder.join(LOG_START))?;
        }
        self.log_start = offset;
        self.last_snapshot = Offset(0);
        self.producers = Producers::default();
        self.epochs.clear();
        self.write_epochs(disk)?;
        Ok(removed)
    }

    /// Puts an empty segment in place of all that there are. It comes first: a crash in between must
    /// not find a folder without any, whose log would begin at 0 again.
    fn replace_segments(
        &mut self,
        disk: &mut dyn Disk,
        offset: Offset,
        wall_ms: i64,
    ) -> Result<Vec<Removed>, Damage> {
        let segments = std::mem::take(&mut self.segments);
        // Only one that has the same name goes before it.
        let (same, others): (Vec<_>, Vec<_>) =
            segments.into_iter().partition(|segment| segment.base == offset);
        let mut removed = Vec::new();
        for segment in same {
            removed.push(self.remove_segment(disk, segment)?);
        }
        self.start_segment(disk, offset, wall_ms)?;
        disk.sync(&self.folder)?;
        for segment in others {
            removed.push(self.remove_segment(disk, segment)?);
        }
        Ok(removed)
    }

    /// The log ends at `end`, which is the end of the last segment.
    fn end_at(&mut self, end: Offset) {
        let last = self.segments.last().expect("a log has a segment");
        self.written = Written { end, base: last.base, position: last.size };
        self.planned_end = end;
        self.recovery_point = self.recovery_point.min(end);
        self.hints.clear();
        self.page = None;
        self.stable = None;
    }

    /// Cuts the last segment and its indexes. Gives the offset at which the log ends then.
    fn cut_active(
        &mut self,
        disk: &mut dyn Disk,
        offset: Offset,
        wall_ms: i64,
    ) -> Result<Offset, Damage> {
        let index = self.segments.len() - 1;
        let path = self.segments[index].log_path(&self.folder);
        let size = self.segments[index].size;
        self.written = Written { end: offset, base: self.segments[index].base, position: size };
        self.hints.clear();
        self.page = None;
        let Some(spot) = self.locate(disk, offset)? else {
            // Compaction has left nothing from there on: there is nothing to cut.
            return Ok(offset);
        };
        let mut headers = Headers::new(&path, spot.position, size);
        let first = headers.next(disk)?.map_or(offset, |(_, header)| header.base_offset());
        disk.truncate(&path, spot.position)?;
        let segment = &mut self.segments[index];
        self.active.spill(disk, &self.folder, segment)?;
        segment.size = spot.position;
        cut_indexes(disk, &self.folder, segment, offset)?;
        if segment.size == 0 {
            self.active = Active::new(wall_ms);
            segment.newest = Some(Newest { timestamp: -1, offset: segment.base });
        } else {
            let first_timestamp = self.active.first_timestamp;
            self.active = Active { first_timestamp, ..Active::found(self.active.created_ms) };
            segment.newest = None;
            self.find_newest(disk, index)?;
        }
        self.segments[index].modified_ms = wall_ms;
        Ok(first.min(offset))
    }

    /// The newest timestamp of what is left: the time index knows it up to its last entry.
    fn find_newest(&mut self, disk: &mut dyn Disk, index: usize) -> Result<(), Damage> {
        let segment = &mut self.segments[index];
        self.active.load(disk, &self.folder, segment)?;
        let mut newest = segment.newest(disk, &self.folder, &[])?;
        let from = self.indexed_below(disk, index, newest.offset)?.map_or(0, |e| e.position);
        let segment = &mut self.segments[index];
        let path = segment.log_path(&self.folder);
        let mut headers = Headers::new(&path, u64::from(from), segment.size);
        while let Some((_, header)) = headers.next(disk)? {
            if header.max_timestamp() > newest.timestamp {
                let (timestamp, offset) = (header.max_timestamp(), header.last_offset());
                newest = Newest { timestamp, offset };
            }
        }
        segment.newest = Some(newest);
        Ok(())
    }

    /// Reads the producers anew: those of the newest snapshot, then what the log has after it.
    fn reload_producers(&mut self, disk: &mut dyn Disk, wall_ms: i64) -> Result<(), Damage> {
        let end = self.written.end;
        for at in snapshot_offsets(disk, &self.folder)? {
            if at > end || at <= self.log_start {
                remove_snapshot(disk, &self.folder, &mut self.segments, at)?;
            }
        }
        let folder = std::sync::Arc::clone(&self.folder);
        let expiration_ms = self.config.producer_id_expiration_ms;
        let range = (self.log_start, end);
        let segments = &mut self.segments;
        let loaded = load_producers(disk, &folder, segments, range, (wall_ms, expiration_ms))?;
        self.producers = loaded.producers;
        self.last_snapshot = loaded.snapshot.unwrap_or(Offset(0));
        Ok(())
    }
}

/// Cuts the files of the indexes so that they say nothing of `offset` and what came after.
fn cut_indexes(
    disk: &mut dyn Disk,
    folder: &std::path::Path,
    segment: &mut Segment,
    offset: Offset,
) -> Result<(), Damage> {
    let (relative, size) = (segment.relative(offset), segment.size);
    let Stored { offsets, times, aborted } = segment.stored;
    let path = |kind: FileKind| kind.path(folder, segment.base);
    let offsets = cut::<OffsetEntry>(disk, &path(FileKind::Index), offsets, |entry| {
        u64::from(entry.position) < size
    })?;
    let times = cut::<TimeEntry>(disk, &path(FileKind::TimeIndex), times, |entry| {
        entry.relative < relative
    })?;
    let aborted = cut::<AbortedTransaction>(disk, &path(FileKind::TxnIndex), aborted, |entry| {
        entry.last_offset < offset
    })?;
    segment.stored = Stored { offsets, times, aborted };
    Ok(())
}

fn cut<E: Entry>(
    disk: &mut dyn Disk,
    path: &std::path::Path,
    stored: u32,
    stays: impl FnMut(&E) -> bool,
) -> Result<u32, Damage> {
    let place = Index { path, stored, tail: &[] }.search(disk, stays, None)?;
    let left = u32::try_from(place.count).expect("no more than were stored");
    match disk.truncate(path, u64::from(left) * E::SIZE as u64) {
        Ok(()) => Ok(left),
        // Nothing was ever written into it.
        Err(error) if error.kind == IoErrorKind::NotFound && left == 0 => Ok(0),
        Err(error) => Err(error.into()),
    }
}
