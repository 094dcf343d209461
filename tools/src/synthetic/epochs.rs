//! Where each leader epoch of a partition begins (`LeaderEpochFileCache`).

use wire::ids::{LeaderEpoch, Offset};

/// Epochs with their first offset, both rising.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl Epochs {
    /// A leader begins to append at `start`. An epoch under which nothing was appended leaves no
    /// trace once the next one begins at the same offset.
    pub(super) fn begin(&mut self, epoch: LeaderEpoch, start: Offset) {
        while self.entries.last().is_some_and(|last| last.1 >= start) {
            self.entries.pop();
        }
        self.entries.push((epoch, start));
    }

    /// The log now ends at `end`.
    pub(super) fn truncate(&mut self, end: Offset) {
        self.entries.retain(|entry| entry.1 < end);
    }

    /// The log now starts at `start`.
    pub(super) fn advance_start(&mut self, start: Offset) {
        while self.entries.get(1).is_some_and(|second| second.1 <= start) {
            self.entries.remove(0);
        }
        if let Some(first) = self.entries.first_mut() {
            first.1 = first.1.max(start);
        }
    }

    /// The epoch under which `offset` was appended.
    #[must_use]
    pub fn of(&self, offset: Offset) -> LeaderEpoch {
        let entry = self.entries.iter().rev().find(|entry| entry.1 <= offset);
        entry.map_or(LeaderEpoch::UNKNOWN, |entry| entry.0)
    }

    /// The greatest epoch that is not above `asked`, and where it ends. `None` where the epoch is
    /// above all that is known.
    #[must_use]
    pub fn end_of(&self, asked: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        let latest = self.entries.last()?.0;
        if asked == latest {
            return Some((asked, log_end));
        }
        if asked == LeaderEpoch::UNKNOWN || asked > latest {
            return None;
        }
        let above = self.entries.partition_point(|entry| entry.0 <= asked);
        let end = self.entries[above].1;
        // Below all that is known, Kafka answers with the epoch asked for.
        let epoch = above.checked_sub(1).map_or(asked, |floor| self.entries[floor].0);
        Some((epoch, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Epochs {
        let mut epochs = Epochs::default();
        epochs.begin(LeaderEpoch(0), Offset(0));
        epochs.begin(LeaderEpoch(2), Offset(10));
        epochs.begin(LeaderEpoch(5), Offset(30));
        epochs
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_begins_and_the_latest_at_the_end() {
        let end_of = |epoch| three().end_of(LeaderEpoch(epoch), Offset(40));
        assert_eq!(end_of(0), Some((LeaderEpoch(0), Offset(10))));
        assert_eq!(end_of(1), Some((LeaderEpoch(0), Offset(10))));
        assert_eq!(end_of(4), Some((LeaderEpoch(2), Offset(30))));
        assert_eq!(end_of(5), Some((LeaderEpoch(5), Offset(40))));
        assert_eq!(end_of(6), None);
        assert_eq!(end_of(-1), None);
        assert_eq!(three().of(Offset(29)), LeaderEpoch(2));
    }

    #[test]
    fn a_moved_start_forgets_the_epochs_before_it() {
        let mut epochs = three();
        epochs.advance_start(Offset(15));
        let end_of = |epoch| epochs.end_of(LeaderEpoch(epoch), Offset(40));
        assert_eq!(end_of(0), Some((LeaderEpoch(0), Offset(15))));
        assert_eq!(end_of(2), Some((LeaderEpoch(2), Offset(30))));
    }
}
