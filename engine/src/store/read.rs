//! From which place in which file an offset is served, and how far.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use wire::ids::Offset;

use super::damage::Damage;
use super::index::{Index, OffsetEntry};
use super::log::{Log, Spot};
use super::names::FileKind;
use super::scan::Headers;
use super::segment::Segment;
use super::transactions::{AbortedTransaction, collect};
use crate::io::Disk;

/// Which records a reader may see (`isolation.level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All that are written.
    ReadUncommitted,
    /// Those before the first open transaction.
    ReadCommitted,
}

/// Bytes of a file to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    pub path: Arc<Path>,
    /// Where the batch begins that has the offset.
    pub position: u64,
    /// How many bytes; 0 where there is nothing to read yet, or where the first batch is larger than
    /// was asked for. They may end inside a batch: clients leave that out.
    pub length: u64,
    /// Base offset of the segment.
    pub base: Offset,
    /// Bytes of the first batch, 0 where there is none yet.
    pub first_batch: u64,
}

/// Why nothing can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The log starts above the offset or ends below it.
    OutOfRange { start: Offset, end: Offset },
    /// The log is broken.
    Damage(Damage),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { start, end } => write!(f, "offset outside of {start} to {end}"),
            Self::Damage(damage) => damage.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<Damage> for ReadError {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl Log {
    /// Plans a read of at most `bytes_max` bytes from the batch that has `from`, within one segment.
    /// With `at_least_one` the first batch is read whole even where it is larger than that.
    pub fn read(
        &mut self,
        disk: &mut dyn Disk,
        from: Offset,
        bytes_max: u64,
        at_least_one: bool,
        isolation: Isolation,
    ) -> Result<ReadPlan, ReadError> {
        let end = self.written.end;
        if from < self.log_start || from > end {
            return Err(ReadError::OutOfRange { start: self.log_start, end });
        }
        let upper = match isolation {
            Isolation::ReadUncommitted => end,
            Isolation::ReadCommitted => self.last_stable_offset(),
        };
        let spot = if from < upper { self.locate(disk, from)? } else { None };
        let Some(spot) = spot else { return Ok(self.nothing()) };
        let limit = self.limit(disk, spot.base, upper)?;
        let wanted = if at_least_one { bytes_max.max(spot.size) } else { bytes_max };
        let mut length = limit.saturating_sub(spot.position).min(wanted);
        if length < spot.size {
            length = 0;
        }
        let index = self.segment_at(spot.base);
        let path = self.segments[index].log_path(&self.folder);
        let Spot { position, base, size, .. } = spot;
        Ok(ReadPlan { path, position, length, base, first_batch: size })
    }

    fn nothing(&mut self) -> ReadPlan {
        let (base, position) = (self.written.base, self.written.position);
        let index = self.segment_at(base);
        let path = self.segments[index].log_path(&self.folder);
        ReadPlan { path, position, length: 0, base, first_batch: 0 }
    }

    /// How far a segment may be read by one who must not see `upper` or more.
    fn limit(&mut self, disk: &mut dyn Disk, base: Offset, upper: Offset) -> Result<u64, Damage> {
        let written = self.written_bytes(self.segment_at(base));
        if upper >= self.written.end {
            return Ok(written);
        }
        let known = self.stable.filter(|spot| spot.offset == upper);
        let stable = match known {
            Some(_) => known,
            None => self.locate(disk, upper)?,
        };
        self.stable = stable;
        Ok(stable.filter(|spot| spot.base == base).map_or(written, |spot| spot.position))
    }

    /// Bytes of a segment that are written.
    pub(super) fn written_bytes(&self, index: usize) -> u64 {
        let segment = &self.segments[index];
        match segment.base.cmp(&self.written.base) {
            std::cmp::Ordering::Less => segment.size,
            std::cmp::Ordering::Equal => self.written.position,
            std::cmp::Ordering::Greater => 0,
        }
    }

    /// The segment that has an offset, if any has.
    pub(super) fn segment_at(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base <= offset).saturating_sub(1)
    }

    /// Finds the first written batch whose last offset is not below `offset`.
    pub(super) fn locate(
        &mut self,
        disk: &mut dyn Disk,
        offset: Offset,
    ) -> Result<Option<Spot>, Damage> {
        if let Some(spot) = self.hints.find(offset) {
            return Ok(Some(spot));
        }
        let first = self.segment_at(offset);
        for index in first..self.segments.len() {
            if let Some(spot) = self.locate_in(disk, index, offset)? {
                return Ok(Some(spot));
            }
        }
        Ok(None)
    }

    /// The same in one segment.
    fn locate_in(
        &mut self,
        disk: &mut dyn Disk,
        index: usize,
        offset: Offset,
    ) -> Result<Option<Spot>, Damage> {
        let end = self.written_bytes(index);
        if end == 0 {
            return Ok(None);
        }
        let from = self.indexed_below(disk, index, offset)?.map_or(0, |entry| entry.position);
        let base = self.segments[index].base;
        let path = self.segments[index].log_path(&self.folder);
        let mut headers = Headers::new(&path, u64::from(from), end);
        while let Some((position, header)) = headers.next(disk)? {
            if header.last_offset() >= offset {
                let size = header.size() as u64;
                return Ok(Some(Spot { offset, base, position, size }));
            }
        }
        Ok(None)
    }

    /// The last entry of a segment's offset index that is not above `offset`.
    pub(super) fn indexed_below(
        &mut self,
        disk: &mut dyn Disk,
        index: usize,
        offset: Offset,
    ) -> Result<Option<OffsetEntry>, Damage> {
        let mut page = self.page.take();
        let segment = &self.segments[index];
        let path = FileKind::Index.path(&self.folder, segment.base);
        let relative = segment.relative(offset);
        let offsets = segment.offsets(&path, self.offsets_in_memory(index));
        let kept = Some((segment.base.0, &mut page));
        let place = offsets.search(disk, |entry| entry.relative <= relative, kept);
        self.page = page;
        Ok(place?.below)
    }

    /// Entries of a segment's offset index that are not on disk.
    pub(super) fn offsets_in_memory(&self, index: usize) -> &[OffsetEntry] {
        if index + 1 == self.segments.len() { &self.active.offsets } else { &[] }
    }

    /// The aborted transactions that a reader of committed records must know of for what `plan`
    /// sends him from `from` on. There may be some that begin after it: they do no harm.
    pub fn aborted_transactions(
        &mut self,
        disk: &mut dyn Disk,
        from: Offset,
        plan: &ReadPlan,
    ) -> Result<Vec<AbortedTransaction>, Damage> {
        let mut found = Vec::new();
        if plan.length == 0 {
            return Ok(found);
        }
        let first = self.segment_at(plan.base);
        let upper = self.upper_bound(disk, first, plan)?;
        for index in first..self.segments.len() {
            let segment = &self.segments[index];
            let path = FileKind::TxnIndex.path(&self.folder, segment.base);
            let is_active = index + 1 == self.segments.len();
            let tail = if is_active { self.active.aborted.as_slice() } else { &[] };
            let aborted = Index { path: &path, stored: segment.stored.aborted, tail };
            if collect(disk, &aborted, from, upper, &mut found)? {
                break;
            }
        }
        Ok(found)
    }

    /// An offset that is not below the end of what is sent, without reading batches.
    fn upper_bound(
        &mut self,
        disk: &mut dyn Disk,
        index: usize,
        plan: &ReadPlan,
    ) -> Result<Offset, Damage> {
        let segment = &self.segments[index];
        let path = FileKind::Index.path(&self.folder, segment.base);
        let end = plan.position + plan.length;
        let offsets = segment.offsets(&path, self.offsets_in_memory(index));
        let below = |entry: &OffsetEntry| u64::from(entry.position) < end;
        let above = offsets.search(disk, below, None)?.above;
        Ok(match above {
            Some(entry) => segment.absolute(entry.relative),
            None => self.segments.get(index + 1).map_or(self.written.end, Segment::first_offset),
        })
    }
}

impl Segment {
    /// The offset that its name says.
    pub(super) const fn first_offset(&self) -> Offset {
        self.base
    }
}
