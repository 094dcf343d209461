//! One segment: a run of batches in a file, with its indexes. And the one that is appended to.
//! Follows `org.apache.kafka.storage.internals.log.LogSegment`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::ids::Offset;

use super::config::LogConfig;
use super::damage::Damage;
use super::index::{Entry, Index, OffsetEntry, TAIL_MAX, TimeEntry, spill};
use super::names::FileKind;
use super::scan::Headers;
use super::transactions::AbortedTransaction;
use crate::admitted::AdmittedBatch;
use crate::io::{Disk, DiskError};

/// Kafka counts positions in 31 bits.
const SEGMENT_BYTES_MAX: u32 = i32::MAX.cast_unsigned();

/// The newest timestamp of a segment and the last offset of the first batch that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newest {
    /// -1 where no record has one.
    pub timestamp: i64,
    pub offset: Offset,
}

/// What is known of a segment without reading it.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub base: Offset,
    /// Bytes of batches, those that are planned but not written among them.
    pub size: u64,
    /// Entries in the files of its indexes.
    pub stored: Stored,
    /// Read from the time index when it is first asked for.
    pub newest: Option<Newest>,
    /// When it was last appended to, as far as this process knows: Kafka's file time.
    pub modified_ms: i64,
    path: Option<Arc<Path>>,
    /// Whether a snapshot of its base offset was written and not flushed.
    pub snapshot_unflushed: bool,
}

/// How many entries the files of a segment's indexes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub offsets: u32,
    pub times: u32,
    pub aborted: u32,
}

/// What only the segment that is appended to has. `Default` is that of an empty segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Active {
    /// Entries that are not in the files.
    pub offsets: Vec<OffsetEntry>,
    pub times: Vec<TimeEntry>,
    pub aborted: Vec<AbortedTransaction>,
    /// The newest timestamp that the time index has; -1 where it has none.
    pub time_indexed: i64,
    /// The newest timestamp of the first batch; it decides when the segment is old.
    pub first_timestamp: Option<i64>,
    /// Bytes since the last entry of the offset index.
    pub bytes_since_index: u64,
    /// When the segment was made or opened.
    pub created_ms: i64,
    /// Whether what stands in the files was looked at, so that it can be appended to.
    pub is_loaded: bool,
}

impl Segment {
    /// A segment without batches.
    pub(super) fn empty(base: Offset, wall_ms: i64) -> Self {
        Self {
            base,
            size: 0,
            stored: Stored::default(),
            newest: Some(Newest { timestamp: -1, offset: base }),
            modified_ms: wall_ms,
            path: None,
            snapshot_unflushed: false,
        }
    }

    /// A segment that was found on disk, with bytes and entries as the lengths of its files say.
    pub(super) fn found(base: Offset, size: u64, stored: Stored, wall_ms: i64) -> Self {
        Self { size, stored, newest: None, ..Self::empty(base, wall_ms) }
    }

    /// The file of its batches.
    pub(super) fn log_path(&mut self, folder: &Path) -> Arc<Path> {
        let base = self.base;
        let path = self.path.get_or_insert_with(|| FileKind::Log.path(folder, base).into());
        Arc::clone(path)
    }

    /// Its offset index.
    pub(super) fn offsets<'a>(
        &self,
        path: &'a Path,
        tail: &'a [OffsetEntry],
    ) -> Index<'a, OffsetEntry> {
        Index { path, stored: self.stored.offsets, tail }
    }

    /// An offset, as its indexes count.
    pub(super) fn relative(&self, offset: Offset) -> u32 {
        u32::try_from((offset.0 - self.base.0).max(0)).unwrap_or(u32::MAX)
    }

    /// An offset of its indexes.
    pub(super) fn absolute(&self, relative: u32) -> Offset {
        Offset(self.base.0 + i64::from(relative))
    }

    /// The newest timestamp that it has.
    pub(super) fn newest(
        &mut self,
        disk: &mut dyn Disk,
        folder: &Path,
        times: &[TimeEntry],
    ) -> Result<Newest, Damage> {
        if let Some(newest) = self.newest {
            return Ok(newest);
        }
        let path = FileKind::TimeIndex.path(folder, self.base);
        let index = Index { path: &path, stored: self.stored.times, tail: times };
        let newest = match index.last(disk)? {
            Some(last) => {
                Newest { timestamp: last.timestamp, offset: self.absolute(last.relative) }
            }
            None => Newest { timestamp: -1, offset: self.base },
        };
        self.newest = Some(newest);
        Ok(newest)
    }

    /// All paths that go when the segment goes.
    pub(super) fn paths(&self, folder: &Path) -> [PathBuf; 4] {
        FileKind::OF_SEGMENT.map(|kind| kind.path(folder, self.base))
    }

    /// Makes the indexes durable, at once: where the recovery point may lie at the segment's end
    /// already, so that no flush and no recovery would look at them again.
    pub(super) fn sync_indexes(&self, disk: &mut dyn Disk, folder: &Path) -> Result<(), DiskError> {
        disk.sync(&FileKind::Index.path(folder, self.base))?;
        disk.sync(&FileKind::TimeIndex.path(folder, self.base))?;
        match self.stored.aborted {
            0 => Ok(()),
            _ => disk.sync(&FileKind::TxnIndex.path(folder, self.base)),
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self, folder: &Path) -> usize {
        match self.path {
            Some(_) => folder.as_os_str().len() + 1 + 20 + 4 + 2 * size_of::<usize>(),
            None => 0,
        }
    }
}

impl Active {
    /// That of a new segment.
    pub(super) fn new(created_ms: i64) -> Self {
        Self { time_indexed: -1, created_ms, is_loaded: true, ..Self::default() }
    }

    /// That of a segment that was found on disk; it is looked at before the first append.
    pub(super) fn found(created_ms: i64) -> Self {
        Self { is_loaded: false, ..Self::new(created_ms) }
    }

    /// Looks at what stands in the files, so that the segment can be appended to.
    pub(super) fn load(
        &mut self,
        disk: &mut dyn Disk,
        folder: &Path,
        segment: &mut Segment,
    ) -> Result<(), Damage> {
        if self.is_loaded {
            return Ok(());
        }
        self.time_indexed = segment.newest(disk, folder, &self.times)?.timestamp;
        if segment.size > 0 && self.first_timestamp.is_none() {
            let path = segment.log_path(folder);
            let mut headers = Headers::new(&path, 0, segment.size);
            self.first_timestamp = headers.next(disk)?.map(|(_, first)| first.max_timestamp());
        }
        self.is_loaded = true;
        Ok(())
    }

    /// Whether a batch has to go into a new segment. Kafka's rule, taken batch by batch; but a batch
    /// that is larger than a whole segment may be, is taken into an empty one instead of refused.
    pub(super) fn must_roll(
        &self,
        segment: &Segment,
        batch: &AdmittedBatch,
        config: &LogConfig,
        wall_ms: i64,
    ) -> bool {
        if segment.size == 0 {
            return false;
        }
        let size_after = segment.size + batch.size as u64;
        let waited_ms = match self.first_timestamp {
            Some(first) if first >= 0 => batch.max_timestamp.saturating_sub(first),
            _ => wall_ms.saturating_sub(self.created_ms),
        };
        size_after > u64::from(config.segment_bytes.min(SEGMENT_BYTES_MAX))
            || waited_ms > config.segment_ms
            || self.is_full(segment, config)
            || !fits(segment, batch.last_offset)
    }

    fn is_full(&self, segment: &Segment, config: &LogConfig) -> bool {
        let bytes = config.segment_index_bytes as usize;
        let offsets = segment.stored.offsets as usize + self.offsets.len();
        let times = segment.stored.times as usize + self.times.len();
        // One place of the time index is kept free for the entry that closes the segment.
        offsets >= bytes / OffsetEntry::SIZE || times + 1 >= bytes / TimeEntry::SIZE
    }

    /// Takes a batch along that comes to stand at the end of the segment.
    pub(super) fn append(&mut self, segment: &mut Segment, batch: &AdmittedBatch, interval: u32) {
        debug_assert!(self.is_loaded, "the files were looked at before");
        let newest = segment.newest.unwrap_or(Newest { timestamp: -1, offset: segment.base });
        if segment.size == 0 {
            self.first_timestamp = Some(batch.max_timestamp);
        }
        let newest = if batch.max_timestamp > newest.timestamp {
            Newest { timestamp: batch.max_timestamp, offset: batch.last_offset }
        } else {
            newest
        };
        segment.newest = Some(newest);
        if self.bytes_since_index > u64::from(interval) {
            let position = u32::try_from(segment.size).expect("a segment is below 2 GiB");
            let relative = segment.relative(batch.last_offset);
            self.offsets.push(OffsetEntry { relative, position });
            self.index_time(segment, newest);
            self.bytes_since_index = 0;
        }
        self.bytes_since_index += batch.size as u64;
        segment.size += batch.size as u64;
    }

    /// Adds the newest timestamp to the time index where it is newer than what stands there.
    pub(super) fn index_time(&mut self, segment: &Segment, newest: Newest) {
        if newest.timestamp > self.time_indexed {
            let relative = segment.relative(newest.offset);
            self.times.push(TimeEntry { timestamp: newest.timestamp, relative });
            self.time_indexed = newest.timestamp;
        }
    }

    /// Writes the entries in memory into the files once there are many.
    pub(super) fn spill_if_many(
        &mut self,
        disk: &mut dyn Disk,
        folder: &Path,
        segment: &mut Segment,
    ) -> Result<(), Damage> {
        let many = self.offsets.len().max(self.times.len()).max(self.aborted.len());
        if many >= TAIL_MAX { self.spill(disk, folder, segment) } else { Ok(()) }
    }

    /// Writes the entries in memory into the files.
    pub(super) fn spill(
        &mut self,
        disk: &mut dyn Disk,
        folder: &Path,
        segment: &mut Segment,
    ) -> Result<(), Damage> {
        let path = |kind: FileKind| kind.path(folder, segment.base);
        let stored = &mut segment.stored;
        let index = path(FileKind::Index);
        stored.offsets = spill(disk, &index, stored.offsets, &mut self.offsets)?;
        let index = path(FileKind::TimeIndex);
        stored.times = spill(disk, &index, stored.times, &mut self.times)?;
        if !self.aborted.is_empty() {
            let index = path(FileKind::TxnIndex);
            stored.aborted = spill(disk, &index, stored.aborted, &mut self.aborted)?;
        }
        Ok(())
    }

    /// Puts the entries in memory in place of the files, each file at once and durable. The time index comes
    /// last: a segment that lacks it has no indexes yet, whatever else lies there.
    pub(super) fn replace_files(
        &mut self,
        disk: &mut dyn Disk,
        folder: &Path,
        segment: &mut Segment,
    ) -> Result<(), DiskError> {
        if let Some(newest) = segment.newest {
            self.index_time(segment, newest);
        }
        let path = |kind: FileKind| kind.path(folder, segment.base);
        let stored = &mut segment.stored;
        if !self.aborted.is_empty() {
            stored.aborted = replace(disk, &path(FileKind::TxnIndex), &mut self.aborted)?;
        }
        stored.offsets = replace(disk, &path(FileKind::Index), &mut self.offsets)?;
        stored.times = replace(disk, &path(FileKind::TimeIndex), &mut self.times)?;
        Ok(())
    }

    /// Brings the files of the indexes into the shape that a closed segment has: all entries, the
    /// newest timestamp as the last, and nothing after them.
    pub(super) fn seal(
        &mut self,
        disk: &mut dyn Disk,
        folder: &Path,
        segment: &mut Segment,
    ) -> Result<(), Damage> {
        self.load(disk, folder, segment)?;
        if let Some(newest) = segment.newest {
            self.index_time(segment, newest);
        }
        self.spill(disk, folder, segment)?;
        cut_to::<OffsetEntry>(disk, folder, segment, FileKind::Index, segment.stored.offsets)?;
        cut_to::<TimeEntry>(disk, folder, segment, FileKind::TimeIndex, segment.stored.times)
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.offsets.capacity() * size_of::<OffsetEntry>()
            + self.times.capacity() * size_of::<TimeEntry>()
            + self.aborted.capacity() * size_of::<AbortedTransaction>()
    }
}

/// Puts a file of just these entries in place, and gives their number.
fn replace<E: Entry>(
    disk: &mut dyn Disk,
    path: &Path,
    entries: &mut Vec<E>,
) -> Result<u32, DiskError> {
    let mut bytes = Vec::with_capacity(entries.len() * E::SIZE);
    for entry in entries.iter() {
        entry.encode(&mut bytes);
    }
    disk.replace(path, &bytes)?;
    let count = u32::try_from(entries.len()).expect("an index is below 4 Gi entries");
    entries.clear();
    Ok(count)
}

/// Creates the file where it is missing and cuts off what stands behind its entries.
fn cut_to<E: Entry>(
    disk: &mut dyn Disk,
    folder: &Path,
    segment: &Segment,
    kind: FileKind,
    stored: u32,
) -> Result<(), Damage> {
    let path = kind.path(folder, segment.base);
    let length = u64::from(stored) * E::SIZE as u64;
    disk.write(&path, length, &[])?;
    disk.truncate(&path, length)?;
    Ok(())
}

/// Whether the indexes of a segment can name an offset, and so a batch may stand in it.
pub(super) fn fits(segment: &Segment, offset: Offset) -> bool {
    offset.0 - segment.base.0 <= i64::from(i32::MAX)
}
