//! Where each leader epoch begins in a log, and the questions that are answered from it.
//! Follows `org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache`.

use std::path::Path;

use wire::ids::{LeaderEpoch, Offset};

use super::Damage;
use super::checkpoint::{Lines, format_lines};

/// Epochs and their first offsets; both rise.
#[derive(Clone, Debug, Default)]
pub struct LeaderEpochs {
    entries: Vec<(LeaderEpoch, Offset)>,
    /// Whether the file does not say the same.
    pub dirty: bool,
}

impl LeaderEpochs {
    /// Reads the file's text: version 0, a count, then an epoch and an offset on each line.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Damage> {
        let mut epochs = Self::default();
        for (line, fields) in Lines::new(text, file)?.read::<2>()? {
            let epoch = i32::try_from(line.number(fields[0])?).ok().filter(|&epoch| epoch >= 0);
            let epoch = epoch.ok_or_else(|| line.damage("an epoch is a number from 0 on"))?;
            let start = line.number(fields[1])?;
            if start < 0 {
                return Err(line.damage("an offset is a number from 0 on"));
            }
            epochs.assign(LeaderEpoch(epoch), Offset(start));
        }
        epochs.dirty = false;
        Ok(epochs)
    }

    /// The file's text.
    #[must_use]
    pub fn format(&self) -> String {
        format_lines(self.entries.iter().map(|(epoch, start)| format!("{epoch} {start}")))
    }

    /// A batch of `epoch` stands at `start`. Entries that contradict it go: they are from a leader
    /// whose batches never got here.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) {
        if epoch.0 < 0 || start.0 < 0 {
            return;
        }
        if self.entries.last().is_some_and(|&(last, from)| last == epoch && from <= start) {
            return;
        }
        while self.entries.pop_if(|(known, from)| *known >= epoch || *from >= start).is_some() {}
        self.entries.push((epoch, start));
        self.dirty = true;
    }

    /// The same in recovery, where the file may already say more than the batches that were read.
    pub(super) fn assign_if_newer(&mut self, epoch: LeaderEpoch, start: Offset) {
        if self.last().is_none_or(|last| epoch > last) {
            self.assign(epoch, start);
        }
    }

    /// The newest epoch.
    #[must_use]
    pub fn last(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|&(epoch, _)| epoch)
    }

    /// The oldest epoch and where it begins.
    #[must_use]
    pub fn first(&self) -> Option<(LeaderEpoch, Offset)> {
        self.entries.first().copied()
    }

    /// The epoch of the record at `offset`.
    #[must_use]
    pub fn at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let above = self.entries.partition_point(|&(_, start)| start <= offset);
        above.checked_sub(1).map(|index| self.entries[index].0)
    }

    /// The largest epoch that is not above `epoch`, and where it ends. As Kafka answers
    /// OffsetsForLeaderEpoch: for the newest epoch that is the log's end; for one above all there
    /// are, or for none, it is nothing; for one below all there are it is `epoch` itself, which ends
    /// where the oldest begins.
    #[must_use]
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch == LeaderEpoch::UNKNOWN {
            return None;
        }
        if self.last() == Some(epoch) {
            return Some((epoch, log_end));
        }
        let above = self.entries.partition_point(|&(known, _)| known <= epoch);
        let &(_, end) = self.entries.get(above)?;
        Some(match above.checked_sub(1) {
            Some(floor) => (self.entries[floor].0, end),
            None => (epoch, end),
        })
    }

    /// The log ends at `end` now.
    pub fn truncate_from_end(&mut self, end: Offset) {
        while self.entries.pop_if(|(_, start)| *start >= end).is_some() {
            self.dirty = true;
        }
    }

    /// The log starts at `start` now; the epoch there begins with it.
    pub fn truncate_from_start(&mut self, start: Offset) {
        let below = self.entries.partition_point(|&(_, from)| from <= start);
        let Some(last) = below.checked_sub(1) else { return };
        if last == 0 && self.entries[0].1 == start {
            return;
        }
        self.entries.drain(..last);
        self.entries[0].1 = start;
        self.dirty = true;
    }

    /// The log holds nothing now.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.dirty = true;
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(LeaderEpoch, Offset)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for &(epoch, start) in entries {
            epochs.assign(LeaderEpoch(epoch), Offset(start));
        }
        epochs
    }

    impl PartialEq for LeaderEpochs {
        fn eq(&self, other: &Self) -> bool {
            self.entries == other.entries
        }
    }

    fn end_of(epochs: &LeaderEpochs, epoch: i32) -> Option<(i32, i64)> {
        epochs.end_offset_for(LeaderEpoch(epoch), Offset(100)).map(|(e, o)| (e.0, o.0))
    }

    #[test]
    fn the_end_of_an_epoch_is_where_the_next_begins() {
        let epochs = epochs(&[(2, 10), (4, 20), (7, 35)]);
        assert_eq!(end_of(&epochs, 7), Some((7, 100)));
        assert_eq!(end_of(&epochs, 8), None);
        assert_eq!(end_of(&epochs, -1), None);
        assert_eq!(end_of(&epochs, 4), Some((4, 35)));
        assert_eq!(end_of(&epochs, 5), Some((4, 35)));
        assert_eq!(end_of(&epochs, 3), Some((2, 20)));
        assert_eq!(end_of(&epochs, 1), Some((1, 10)));
        assert_eq!(end_of(&LeaderEpochs::default(), 1), None);
    }

    #[test]
    fn entries_that_contradict_a_new_one_go() {
        assert_eq!(epochs(&[(1, 0), (3, 10), (2, 20)]), epochs(&[(1, 0), (2, 20)]));
        assert_eq!(epochs(&[(1, 0), (3, 10), (4, 5)]), epochs(&[(1, 0), (4, 5)]));
        assert_eq!(epochs(&[(1, 0), (3, 10), (3, 12)]), epochs(&[(1, 0), (3, 10)]));
        assert_eq!(epochs(&[(1, 0), (3, 10), (3, 7)]), epochs(&[(1, 0), (3, 7)]));
        assert_eq!(epochs(&[(-1, 0)]), LeaderEpochs::default());
    }

    #[test]
    fn cutting_keeps_the_epoch_that_the_log_still_has() {
        let mut cut = epochs(&[(2, 10), (4, 20), (7, 35)]);
        cut.truncate_from_start(Offset(25));
        assert_eq!(cut, epochs(&[(4, 25), (7, 35)]));
        cut.truncate_from_end(Offset(35));
        assert_eq!(cut, epochs(&[(4, 25)]));
        cut.dirty = false;
        cut.truncate_from_start(Offset(25));
        cut.truncate_from_start(Offset(3));
        cut.truncate_from_end(Offset(26));
        assert!(!cut.dirty);
        cut.truncate_from_end(Offset(25));
        assert_eq!(cut, epochs(&[]));
    }

    #[test]
    fn the_file_is_kafkas() {
        let written = epochs(&[(2, 10), (4, 20)]);
        assert_eq!(written.format(), "0\n2\n2 10\n4 20\n");
        let read = LeaderEpochs::parse(&written.format(), Path::new("x")).expect("our own");
        assert_eq!(read.format(), written.format());
        assert_eq!(read.at(Offset(15)), Some(LeaderEpoch(2)));
        assert_eq!(read.at(Offset(9)), None);
    }
}
