//! Where the next batches go, and what they change in the books.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use wire::ids::Offset;

use super::damage::{Damage, DamageKind};
use super::log::{Log, Pending, Spot, Written};
use super::names::{FileKind, LOG_START};
use super::segment::{Active, Segment, fits};
use crate::admitted::AdmittedBatch;
use crate::io::Disk;

/// A write to be carried out: bytes of the admitted range to a place in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendPiece {
    pub path: Arc<Path>,
    pub position: u64,
    /// Which of the admitted bytes.
    pub range: Range<usize>,
    /// Hand it to [`Log::appended`] once they are written.
    pub next: Offset,
    /// A segment that was closed before these bytes: it is to be flushed some time soon.
    pub rolled: Option<Arc<Path>>,
}

impl Log {
    /// Plans where batches go that follow one another in a range of bytes, and takes along what they
    /// say. The shard writes the pieces in this order or any other and reports each of them.
    pub fn append(
        &mut self,
        disk: &mut dyn Disk,
        batches: &[AdmittedBatch],
        wall_ms: i64,
    ) -> Result<Vec<AppendPiece>, Damage> {
        if self.poisoned {
            return Err(self.refuse(DamageKind::Poisoned, "a write failed before".into()));
        }
        self.check_order(batches)?;
        let planned = self.plan(disk, batches, wall_ms);
        // A plan that broke off half-way left the books ahead of the files.
        self.poisoned = planned.is_err();
        planned
    }

    /// Looks at all batches before the first is taken, so that a refusal changes nothing.
    fn check_order(&self, batches: &[AdmittedBatch]) -> Result<(), Damage> {
        let mut end = self.planned_end;
        for (index, batch) in batches.iter().enumerate() {
            // The source may have its log start inside a batch, and so have we: then the first batch
            // begins below it.
            let reaches_in = index == 0 && self.is_empty() && batch.last_offset >= end;
            let (first, last) = (batch.base_offset, batch.last_offset);
            if last < first || last.0 - first.0 > i64::from(i32::MAX) || first < end && !reaches_in
            {
                let wrong = format!("batch of offsets {first} to {last} after {end}");
                return Err(self.refuse(DamageKind::Order, wrong));
            }
            end = last.next();
        }
        Ok(())
    }

    fn refuse(&self, kind: DamageKind, wrong: String) -> Damage {
        Damage {
            kind,
            file: self.folder.to_path_buf(),
            position: None,
            wrong,
            remedy: "open the log again and go on from the end that it has then",
        }
    }

    fn plan(
        &mut self,
        disk: &mut dyn Disk,
        batches: &[AdmittedBatch],
        wall_ms: i64,
    ) -> Result<Vec<AppendPiece>, Damage> {
        let mut pieces: Vec<AppendPiece> = Vec::new();
        for batch in batches {
            let rolled = self.make_room(disk, batch, wall_ms)?;
            self.epochs.assign(batch.leader_epoch, batch.base_offset);
            let segment = self.segments.last_mut().expect("a log has a segment");
            let position = segment.size;
            let spot = Spot {
                offset: self.planned_end,
                base: segment.base,
                position,
                size: batch.size as u64,
            };
            self.active.append(segment, batch, self.config.index_interval_bytes);
            segment.modified_ms = wall_ms;
            self.active.spill_if_many(disk, &self.folder, segment)?;
            if let Some(aborted) = self.producers.append(batch) {
                self.active.aborted.push(aborted);
            }
            self.planned_end = batch.last_offset.next();
            let until =
                Written { end: self.planned_end, base: segment.base, position: segment.size };
            let end = batch.position + batch.size;
            match pieces.last_mut() {
                Some(piece) if rolled.is_none() && piece.range.end == batch.position => {
                    piece.range.end = end;
                    piece.next = self.planned_end;
                    let pending = self.pending.back_mut().expect("one for each piece");
                    pending.until = until;
                }
                _ => {
                    let path = segment.log_path(&self.folder);
                    let (range, next) = (batch.position..end, self.planned_end);
                    pieces.push(AppendPiece { path, position, range, next, rolled });
                    self.pending.push_back(Pending { until, hint: spot, is_written: false });
                }
            }
        }
        Ok(pieces)
    }

    /// Sees to it that the active segment can take a batch. Gives the segment that was closed for it.
    fn make_room(
        &mut self,
        disk: &mut dyn Disk,
        batch: &AdmittedBatch,
        wall_ms: i64,
    ) -> Result<Option<Arc<Path>>, Damage> {
        let segment = self.segments.last_mut().expect("a log has a segment");
        if segment.size == 0 {
            if batch.base_offset < segment.base || !fits(segment, batch.last_offset) {
                self.rebase_empty(disk, batch.base_offset, wall_ms)?;
            }
            return Ok(None);
        }
        self.active.load(disk, &self.folder, segment)?;
        if std::mem::take(&mut self.may_end_in_gap) && fits(segment, batch.last_offset) {
            return Ok(None);
        }
        if !self.active.must_roll(segment, batch, &self.config, wall_ms) {
            return Ok(None);
        }
        let closed = segment.log_path(&self.folder);
        // Named by the end of the one before, not by what it begins with: after a crash a hole
        // between the two names shows that something is missing.
        let is_near = batch.last_offset.0 - self.planned_end.0 <= i64::from(i32::MAX);
        let base = if is_near { self.planned_end } else { batch.base_offset };
        self.roll(disk, base, wall_ms)?;
        Ok(Some(closed))
    }

    /// Gives the active segment, which is empty, another base offset.
    fn rebase_empty(
        &mut self,
        disk: &mut dyn Disk,
        base: Offset,
        wall_ms: i64,
    ) -> Result<(), Damage> {
        let last = self.segments.len() - 1;
        if self.segments[last].base != base {
            if base < self.log_start {
                // The batch begins below the log start. A crash before it is written would leave a log
                // that is empty from its base on, and what lies between would be told to be lost.
                let text = format!("{}\n", self.log_start);
                disk.replace(&self.folder.join(LOG_START), text.as_bytes())?;
            }
            // The new one first: a crash in between must not find a folder without any.
            self.start_segment(disk, base, wall_ms)?;
            let old = self.segments.remove(last);
            for path in old.paths(&self.folder) {
                disk.remove(&path)?;
            }
        }
        if self.pending.is_empty() {
            self.written.base = base;
            self.written.position = 0;
        }
        Ok(())
    }

    /// Closes the active segment and starts the next one at `base`.
    pub(super) fn roll(
        &mut self,
        disk: &mut dyn Disk,
        base: Offset,
        wall_ms: i64,
    ) -> Result<(), Damage> {
        let segment = self.segments.last_mut().expect("a log has a segment");
        self.active.seal(disk, &self.folder, segment)?;
        if self.recovery_point >= self.planned_end {
            // No flush would look at this segment again, nor would recovery, once the next one holds a
            // batch. Recovery may have cut its end or made its indexes anew.
            segment.sync_indexes(disk, &self.folder)?;
            if self.folder_dirty {
                disk.sync(&segment.log_path(&self.folder))?;
                disk.sync(&self.folder)?;
            }
        }
        self.start_segment(disk, base, wall_ms)?;
        // Recovery of the new segment begins with the producers as they are now.
        self.write_snapshot(disk, base)?;
        self.segments.last_mut().expect("just started").snapshot_unflushed = true;
        Ok(())
    }

    /// Adds an empty segment; its files do not exist.
    pub(super) fn start_segment(
        &mut self,
        disk: &mut dyn Disk,
        base: Offset,
        wall_ms: i64,
    ) -> Result<(), Damage> {
        let segment = Segment::empty(base, wall_ms);
        for path in segment.paths(&self.folder) {
            disk.remove(&path)?;
        }
        disk.write(&FileKind::Log.path(&self.folder, base), 0, &[])?;
        self.segments.push(segment);
        self.active = Active::new(wall_ms);
        self.folder_dirty = true;
        Ok(())
    }

    /// Writes the producers as they are now, under the offset up to which they were taken along.
    pub(super) fn write_snapshot(&mut self, disk: &mut dyn Disk, at: Offset) -> Result<(), Damage> {
        let path = FileKind::Snapshot.path(&self.folder, at);
        let bytes = self.producers.snapshot();
        disk.write(&path, 0, &bytes)?;
        disk.truncate(&path, bytes.len() as u64)?;
        self.last_snapshot = at;
        Ok(())
    }

    /// The piece whose `next` this is was written.
    ///
    /// # Panics
    /// When no such piece is under way: then the shard reports what was never planned.
    pub fn appended(&mut self, next: Offset) {
        let piece = self.pending.iter_mut().find(|piece| piece.until.end == next);
        piece.expect("a piece is reported once, after it was planned").is_written = true;
        while let Some(piece) = self.pending.pop_front_if(|piece| piece.is_written) {
            self.written = piece.until;
            self.hints.add(piece.hint);
        }
        self.producers.written(self.written.end);
    }

    /// A write failed: nothing more is appended until the log was opened again.
    pub fn append_failed(&mut self) {
        self.poisoned = true;
    }
}
