//! Forgetting the start of a log: by age, by size, by the log start. Kafka's rules.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::ids::{Offset, TopicId};

use super::damage::Damage;
use super::log::{Log, folder_of};
use super::names::{DELETED, FileKind};
use super::read::ReadError;
use super::segment::Segment;
use crate::ids::TopicPartition;
use crate::io::{Disk, IoErrorKind};

/// A segment that is no longer part of its log. Its files have other names already and are to be
/// unlinked after `file.delete.delay.ms`; who is reading them reads on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The file of batches under the name that it had: no more reads will be planned from it.
    pub log: Arc<Path>,
    /// The files under the names that they have now.
    pub files: Vec<PathBuf>,
    /// Bytes of batches.
    pub bytes: u64,
}

impl Log {
    /// Removes what may go by now: segments below the log start, and where the cleanup policy says
    /// `delete` the oldest ones beyond `retention.bytes` and `retention.ms`.
    pub fn retain(&mut self, disk: &mut dyn Disk, wall_ms: i64) -> Result<Vec<Removed>, Damage> {
        if self.poisoned {
            return Ok(Vec::new());
        }
        self.producers.expire(wall_ms, self.config.producer_id_expiration_ms);
        let below_start = self.count_below(self.log_start);
        let mut removed = self.remove_oldest(disk, below_start, wall_ms)?;
        if self.config.delete_policy {
            let too_many = self.count_too_large();
            removed.append(&mut self.remove_oldest(disk, too_many, wall_ms)?);
            let too_old = self.count_too_old(disk, wall_ms)?;
            removed.append(&mut self.remove_oldest(disk, too_old, wall_ms)?);
        }
        Ok(removed)
    }

    /// Raises the log start. The segments below it go with the next [`Log::retain`]. Gives whether
    /// anything changed.
    pub fn raise_log_start(&mut self, start: Offset) -> Result<bool, ReadError> {
        if start > self.written.end {
            // The source has removed what we never got: the caller starts the log anew there.
            let (start, end) = (self.log_start, self.written.end);
            return Err(ReadError::OutOfRange { start, end });
        }
        if start <= self.log_start {
            return Ok(false);
        }
        self.log_start = start;
        self.epochs.truncate_from_start(start);
        Ok(true)
    }

    /// How many of the oldest segments end at or below an offset. The last one never counts.
    fn count_below(&self, start: Offset) -> usize {
        self.segments.iter().skip(1).take_while(|next| next.base <= start).count()
    }

    fn count_too_large(&self) -> usize {
        let Ok(retained) = u64::try_from(self.config.retention_bytes) else { return 0 };
        let Some(mut excess) = self.size().checked_sub(retained) else { return 0 };
        let fits_excess = |segment: &&Segment| match excess.checked_sub(segment.size) {
            Some(left) => {
                excess = left;
                true
            }
            None => false,
        };
        self.segments.iter().take_while(fits_excess).count()
    }

    fn count_too_old(&mut self, disk: &mut dyn Disk, wall_ms: i64) -> Result<usize, Damage> {
        if self.config.retention_ms < 0 {
            return Ok(0);
        }
        for index in 0..self.segments.len() {
            let age_ms = wall_ms.saturating_sub(self.largest_timestamp(disk, index)?);
            if age_ms <= self.config.retention_ms {
                return Ok(index);
            }
        }
        Ok(self.segments.len())
    }

    /// Removes the `count` oldest segments, as far as they are written. Where that is all of them, a
    /// new one is started first, since a log always has one.
    fn remove_oldest(
        &mut self,
        disk: &mut dyn Disk,
        count: usize,
        wall_ms: i64,
    ) -> Result<Vec<Removed>, Damage> {
        let written = self.segments.iter().skip(1);
        let written = written.take_while(|next| next.base <= self.written.end).count();
        let mut count = count.min(self.segments.len());
        if count > written {
            let last = self.segments.last().expect("a log has a segment");
            if self.pending.is_empty() && last.size > 0 {
                self.roll(disk, self.planned_end, wall_ms)?;
                let base = self.planned_end;
                self.written.base = base;
                self.written.position = 0;
            } else {
                count = written;
            }
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let start = self.log_start.max(self.segments[count].base);
        self.log_start = start;
        self.epochs.truncate_from_start(start);
        // Until it is flushed a power cut may bring them back.
        self.folder_dirty = true;
        let segments: Vec<_> = self.segments.drain(..count).collect();
        segments.into_iter().map(|segment| self.remove_segment(disk, segment)).collect()
    }

    /// Gives the files of a segment their last names.
    pub(super) fn remove_segment(
        &self,
        disk: &mut dyn Disk,
        mut segment: Segment,
    ) -> Result<Removed, Damage> {
        let log = segment.log_path(&self.folder);
        let mut files = Vec::new();
        let snapshot = FileKind::Snapshot.path(&self.folder, segment.base);
        for path in segment.paths(&self.folder).into_iter().chain([snapshot]) {
            let mut last_name = path.clone().into_os_string();
            last_name.push(DELETED);
            let last_name = PathBuf::from(last_name);
            match disk.rename(&path, &last_name) {
                Ok(()) => files.push(last_name),
                // Indexes are not written before there is something to write.
                Err(error) if error.kind == IoErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Removed { log, files, bytes: segment.size })
    }
}

/// Gives the folder of a partition that was deleted the name under which Kafka lets such folders
/// wait, and gives that name. `unique` keeps it apart from the next one of the same topic.
pub fn mark_deleted(
    disk: &mut dyn Disk,
    data: &Path,
    partition: &TopicPartition,
    unique: TopicId,
) -> Result<PathBuf, Damage> {
    let digits: String = unique.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let suffix = format!("-{}.{digits}-delete", partition.partition);
    // Names of files have at most 255 bytes.
    let kept = partition.topic.len().min(255 - suffix.len());
    let folder = data.join(format!("{}{suffix}", &partition.topic[..kept]));
    disk.rename(&folder_of(data, partition), &folder)?;
    disk.sync(data)?;
    Ok(folder)
}
