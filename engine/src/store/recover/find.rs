//! What lies in a log's folder: segments, by the names and lengths of their files, the log start that was
//! written down, and the leader epochs.

use std::collections::BTreeMap;

use wire::ids::Offset;

use super::super::checkpoint::read_text;
use super::super::damage::Damage;
use super::super::epochs::LeaderEpochs;
use super::super::index::{Entry, OffsetEntry, TimeEntry};
use super::super::names::{EPOCHS, FileKind, LOG_START};
use super::super::scan::Headers;
use super::super::segment::{Segment, Stored};
use super::super::transactions::{AbortedTransaction, are_sound, count_of};
use super::{LONG_WALK_CHUNK, Opening};

impl Opening<'_> {
    /// Lists the segments with what the lengths of their files say.
    pub(super) fn find_segments(&mut self) -> Result<(), Damage> {
        let mut files: BTreeMap<Offset, BTreeMap<FileKind, u64>> = BTreeMap::new();
        let mut has_log_start = false;
        for entry in self.disk.list(&self.folder)? {
            match FileKind::parse(&entry.name) {
                Some((FileKind::Snapshot, at)) => {
                    self.snapshots.insert(at);
                }
                Some((kind, base)) => {
                    files.entry(base).or_default().insert(kind, entry.length);
                }
                None => has_log_start |= entry.name == LOG_START,
            }
        }
        if has_log_start {
            self.log_start = self.log_start.max(self.read_log_start()?);
        }
        for (base, kinds) in files {
            let Some(&size) = kinds.get(&FileKind::Log) else {
                // Indexes of a segment that is gone.
                for kind in kinds.keys() {
                    self.disk.remove(&kind.path(&self.folder, base))?;
                }
                continue;
            };
            let entries = |kind, size: usize| whole_entries(kinds.get(&kind).copied(), size as u64);
            let offsets = entries(FileKind::Index, OffsetEntry::SIZE);
            let times = entries(FileKind::TimeIndex, TimeEntry::SIZE);
            let aborted = kinds.get(&FileKind::TxnIndex).copied().map_or(0, count_of);
            let stored =
                Stored { offsets: offsets.unwrap_or(0), times: times.unwrap_or(0), aborted };
            self.segments.push(Segment::found(base, size, stored, self.wall_ms));
            let is_sound = offsets.is_some()
                && times.is_some()
                && self.is_txn_index_sound(base, aborted, &kinds)?;
            self.are_indexed.push(is_sound);
        }
        if self.segments.is_empty() {
            self.start_empty(self.log_start)?;
        }
        self.log_start = self.log_start.max(self.segments[0].base);
        Ok(())
    }

    /// The log start that was written down before the log was named after a batch below it.
    fn read_log_start(&mut self) -> Result<Offset, Damage> {
        let file = self.folder.join(LOG_START);
        let text = read_text(self.disk, &file)?.unwrap_or_default();
        let start = text.trim_end().parse().ok().filter(|&start: &i64| start >= 0);
        start.map(Offset).ok_or_else(|| Damage::corrupt(&file, 0, "an offset must stand here"))
    }

    /// Whether a transaction index can be the one of this segment (`TransactionIndex.sanityCheck`).
    fn is_txn_index_sound(
        &mut self,
        base: Offset,
        count: u32,
        lengths: &BTreeMap<FileKind, u64>,
    ) -> Result<bool, Damage> {
        let length = lengths.get(&FileKind::TxnIndex).copied().unwrap_or(0);
        if length == 0 {
            return Ok(true);
        }
        let path = FileKind::TxnIndex.path(&self.folder, base);
        let whole = whole_entries(Some(length), AbortedTransaction::SIZE as u64) == Some(count);
        Ok(whole && are_sound(self.disk, &path, count, base)?)
    }

    pub(super) fn start_empty(&mut self, base: Offset) -> Result<(), Damage> {
        self.disk.write(&FileKind::Log.path(&self.folder, base), 0, &[])?;
        self.segments.push(Segment::empty(base, self.wall_ms));
        self.are_indexed.push(true);
        Ok(())
    }

    /// Reads the leader epochs; where the file is of no use, from the batches.
    pub(super) fn read_epochs(&mut self) -> Result<(), Damage> {
        let file = self.folder.join(EPOCHS);
        let read = match read_text(self.disk, &file) {
            Ok(Some(text)) => LeaderEpochs::parse(&text, &file),
            Ok(None) if self.segments.iter().all(|segment| segment.size == 0) => return Ok(()),
            Ok(None) => Err(Damage::corrupt(&file, 0, "the file is missing")),
            Err(damage) => Err(damage),
        };
        if let Ok(epochs) = read {
            self.epochs = epochs;
            return Ok(());
        }
        for segment in &mut self.segments {
            let path = segment.log_path(&self.folder);
            let mut headers = Headers::with_chunk(&path, 0, segment.size, LONG_WALK_CHUNK);
            // A torn end is for recovery to find; it takes the epochs along that it reads.
            while let Ok(Some((_, header))) = headers.next(self.disk) {
                self.epochs.assign(header.partition_leader_epoch(), header.base_offset());
            }
        }
        Ok(())
    }
}

/// How many entries a file has, or `None` where it is missing or the last one is not whole.
fn whole_entries(length: Option<u64>, size: u64) -> Option<u32> {
    length.filter(|length| length % size == 0).and_then(|length| u32::try_from(length / size).ok())
}
