//! What must be durable before the recovery point may move, and how a log is closed.

use std::path::Path;
use std::sync::Arc;

use wire::ids::Offset;

use super::damage::Damage;
use super::log::{Checkpointed, Log};
use super::names::{EPOCHS, FileKind};
use crate::io::Disk;

/// Files to flush, in any order; then [`Log::flushed`] is told so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushPlan {
    pub files: Vec<Arc<Path>>,
    /// What is durable then.
    pub up_to: Offset,
}

impl Log {
    /// What must be flushed so that everything that is written now is durable. Nothing, where it is, and
    /// where the disk has refused something: a flush that fails is told of once, and the next one of the
    /// same bytes has nothing to do.
    pub fn flush_plan(&mut self, disk: &mut dyn Disk) -> Result<FlushPlan, Damage> {
        let up_to = self.written.end;
        if up_to <= self.recovery_point || self.poisoned {
            return Ok(FlushPlan { files: Vec::new(), up_to: self.recovery_point });
        }
        self.write_epochs(disk)?;
        let first = self.segment_at(self.recovery_point);
        let last = self.segment_at(self.written.base);
        let mut files = Vec::new();
        for index in first..=last {
            let is_closed = index + 1 < self.segments.len();
            let segment = &mut self.segments[index];
            files.push(segment.log_path(&self.folder));
            let mut add = |kind: FileKind| files.push(kind.path(&self.folder, segment.base).into());
            if segment.snapshot_unflushed {
                add(FileKind::Snapshot);
            }
            // The indexes of the active segment are made anew in recovery.
            if is_closed {
                add(FileKind::Index);
                add(FileKind::TimeIndex);
                if segment.stored.aborted > 0 {
                    add(FileKind::TxnIndex);
                }
            }
        }
        // The last batch of the active segment stays unbelieved: where the point stood at the
        // segment's end and the next segment began there, recovery would believe indexes that
        // nobody has flushed.
        let is_active = last + 1 == self.segments.len();
        let up_to = if is_active { Offset(up_to.0 - 1).max(self.recovery_point) } else { up_to };
        Ok(FlushPlan { files, up_to })
    }

    /// The files of a plan were flushed.
    pub fn flushed(&mut self, disk: &mut dyn Disk, up_to: Offset) -> Result<(), Damage> {
        if up_to <= self.recovery_point || self.poisoned {
            return Ok(());
        }
        if self.folder_dirty {
            disk.sync(&self.folder)?;
            self.folder_dirty = false;
        }
        for segment in &mut self.segments {
            segment.snapshot_unflushed &= segment.base >= up_to;
        }
        self.recovery_point = up_to;
        Ok(())
    }

    /// The offset below which everything is durable.
    #[must_use]
    pub fn recovery_point(&self) -> Offset {
        self.recovery_point
    }

    /// What belongs into the checkpoint files of the data folder.
    #[must_use]
    pub fn checkpointed(&self) -> Checkpointed {
        Checkpointed {
            recovery_point: self.recovery_point,
            log_start: self.log_start,
            high_watermark: self.written.end,
        }
    }

    /// Whether the log start says more than the name of the first segment: Kafka writes only such
    /// log starts into their checkpoint. While the folder is not flushed it may still have segments
    /// below.
    #[must_use]
    pub fn log_start_needs_saying(&self) -> bool {
        self.log_start > self.segments[0].base || self.folder_dirty && self.log_start > Offset(0)
    }

    /// Gives back what an idle log does not need: entries of indexes that can lie in their files.
    pub fn trim(&mut self, disk: &mut dyn Disk) -> Result<(), Damage> {
        let segment = self.segments.last_mut().expect("a log has a segment");
        self.active.spill(disk, &self.folder, segment)?;
        self.active.offsets = Vec::new();
        self.active.times = Vec::new();
        self.active.aborted = Vec::new();
        self.hints.clear();
        self.page = None;
        self.pending.shrink_to_fit();
        self.segments.shrink_to_fit();
        Ok(())
    }

    /// Closes the log for good: everything durable, indexes as Kafka leaves them, a snapshot of the
    /// producers at the end. What it gives belongs into the checkpoint files.
    ///
    /// # Panics
    /// When writes are under way: their end is what is closed.
    pub fn close(mut self, disk: &mut dyn Disk) -> Result<Checkpointed, Damage> {
        if self.poisoned {
            // What is in memory is ahead of the disk, and writes that failed are still pending:
            // recovery has to look.
            return Ok(self.checkpointed());
        }
        assert!(self.pending.is_empty(), "a log is closed after its last write");
        let plan = self.flush_plan(disk)?;
        self.write_epochs(disk)?;
        let segment = self.segments.last_mut().expect("a log has a segment");
        self.active.seal(disk, &self.folder, segment)?;
        for file in &plan.files {
            disk.sync(file)?;
        }
        self.segments[self.segments.len() - 1].sync_indexes(disk, &self.folder)?;
        let end = self.written.end;
        if end > self.last_snapshot {
            let path = FileKind::Snapshot.path(&self.folder, end);
            disk.replace(&path, &self.producers.snapshot())?;
        }
        disk.sync(&self.folder)?;
        self.recovery_point = end;
        Ok(self.checkpointed())
    }

    /// Puts the leader epochs into their file where it does not have them.
    pub(super) fn write_epochs(&mut self, disk: &mut dyn Disk) -> Result<(), Damage> {
        if self.epochs.dirty {
            disk.replace(&self.folder.join(EPOCHS), self.epochs.format().as_bytes())?;
            self.epochs.dirty = false;
        }
        Ok(())
    }
}
