//! How a log ends where it is not whole: what is cut off, what is removed, and what the caller is told.

use std::collections::BTreeSet;
use std::path::PathBuf;

use wire::ids::Offset;

use super::super::damage::Damage;
use super::super::names::FileKind;
use super::super::producers::Producers;
use super::super::segment::Active;
use super::{Ended, Opening};

/// What the end of a log lost, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub file: PathBuf,
    /// Where the file ends now.
    pub position: u64,
    /// Bytes that were cut, those of removed segments among them.
    pub bytes: u64,
    /// Segments that were removed.
    pub segments: usize,
    pub why: String,
}

impl Opening<'_> {
    /// Ends the log with the segment before `index`, whose end is `end`.
    pub(super) fn end_before(
        &mut self,
        index: usize,
        end: Offset,
        producers: Producers,
        why: String,
    ) -> Result<Ended, Damage> {
        let position = self.segments[index - 1].size;
        self.cut(index - 1, position, why)?;
        let active = match position {
            0 => Active::new(self.wall_ms),
            _ => Active::found(self.wall_ms),
        };
        Ok(Ended { end, producers, active })
    }

    /// Cuts a segment where it is no longer whole and removes those after it.
    pub(super) fn cut(&mut self, index: usize, position: u64, why: String) -> Result<(), Damage> {
        let file = FileKind::Log.path(&self.folder, self.segments[index].base);
        let length = self.disk.length(&file)?;
        self.disk.truncate(&file, position)?;
        let mut bytes = length - position;
        let removed = self.segments.split_off(index + 1);
        for segment in &removed {
            bytes += segment.size;
            for path in segment.paths(&self.folder) {
                self.disk.remove(&path)?;
            }
        }
        self.recovery.cut = Some(Cut { file, position, bytes, segments: removed.len(), why });
        Ok(())
    }

    /// Where the log ends below its start, somebody removed segments: what is left does not count.
    pub(super) fn start_at_log_start(&mut self, ended: Ended) -> Result<Ended, Damage> {
        if ended.end >= self.log_start {
            return Ok(ended);
        }
        let why = format!("the log ends at {} below its start {}", ended.end, self.log_start);
        let file = FileKind::Log.path(&self.folder, self.segments[0].base);
        let (mut bytes, segments) = (0, self.segments.len());
        for segment in std::mem::take(&mut self.segments) {
            bytes += segment.size;
            for path in segment.paths(&self.folder) {
                self.disk.remove(&path)?;
            }
        }
        self.recovery.cut = Some(Cut { file, position: 0, bytes, segments, why });
        self.start_empty(self.log_start)?;
        self.epochs.clear();
        for at in std::mem::take(&mut self.snapshots) {
            self.disk.remove(&FileKind::Snapshot.path(&self.folder, at))?;
        }
        let active = Active::new(self.wall_ms);
        Ok(Ended { end: self.log_start, producers: Producers::default(), active })
    }

    /// Removes snapshots that no recovery will begin with: above the end, or at no segment's base
    /// but for the newest.
    pub(super) fn remove_strays(&mut self, end: Offset) -> Result<(), Damage> {
        let newest = self.snapshots.iter().rfind(|&&at| at <= end).copied();
        let bases: BTreeSet<_> = self.segments.iter().map(|segment| segment.base).collect();
        for at in std::mem::take(&mut self.snapshots) {
            if at <= end && (bases.contains(&at) || Some(at) == newest) {
                self.snapshots.insert(at);
            } else {
                self.disk.remove(&FileKind::Snapshot.path(&self.folder, at))?;
            }
        }
        Ok(())
    }
}
