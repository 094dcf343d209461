//! How Kafka names the files of a log: twenty digits of a base offset and a suffix.

use std::path::{Path, PathBuf};

use wire::ids::Offset;

/// A kind of file of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// The batches.
    Log,
    /// Offset index.
    Index,
    /// Time index.
    TimeIndex,
    /// Aborted transactions.
    TxnIndex,
    /// Producer state at the offset of the name.
    Snapshot,
}

/// What marks a file that is to be removed.
pub const DELETED: &str = ".deleted";
/// What marks a file that the log cleaner was writing.
pub const CLEANED: &str = ".cleaned";
/// What marks a finished file that the log cleaner was putting in place.
pub const SWAP: &str = ".swap";
/// The file of leader epochs.
pub const EPOCHS: &str = "leader-epoch-checkpoint";
/// A file of ours with the least offset that the log's start may be at.
pub const LOG_START: &str = "farspan-log-start";
/// The file of the topic's id.
pub const METADATA: &str = "partition.metadata";

impl FileKind {
    /// Those that go when their segment goes. The snapshot is not among them: it belongs to the
    /// offset, which may also be the end of the segment before.
    pub const OF_SEGMENT: [Self; 4] = [Self::Log, Self::Index, Self::TimeIndex, Self::TxnIndex];

    /// The end of the file's name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::Index => ".index",
            Self::TimeIndex => ".timeindex",
            Self::TxnIndex => ".txnindex",
            Self::Snapshot => ".snapshot",
        }
    }

    /// The name of the file of the segment that starts at `base`.
    #[must_use]
    pub fn name(self, base: Offset) -> String {
        format!("{:020}{}", base.0, self.suffix())
    }

    /// Its path in the log's folder.
    #[must_use]
    pub fn path(self, folder: &Path, base: Offset) -> PathBuf {
        folder.join(self.name(base))
    }

    /// What a name says, or `None` where it is not one of a segment's files.
    #[must_use]
    pub fn parse(name: &str) -> Option<(Self, Offset)> {
        let (digits, _) = name.split_once('.')?;
        // Any other spelling would be read by one name and written by another.
        let base = digits.parse().ok().filter(|&base: &i64| base >= 0 && digits.len() == 20)?;
        let suffix = &name[digits.len()..];
        [Self::Log, Self::Index, Self::TimeIndex, Self::TxnIndex, Self::Snapshot]
            .into_iter()
            .find(|kind| kind.suffix() == suffix)
            .map(|kind| (kind, Offset(base)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_twenty_digits_and_a_suffix() {
        assert_eq!(FileKind::TimeIndex.name(Offset(42)), "00000000000000000042.timeindex");
        for kind in [FileKind::Log, FileKind::TxnIndex, FileKind::Snapshot] {
            assert_eq!(
                FileKind::parse(&kind.name(Offset(i64::MAX))),
                Some((kind, Offset(i64::MAX)))
            );
        }
    }

    #[test]
    fn other_names_are_left_alone() {
        for name in [EPOCHS, METADATA, "0.log.deleted", "x.log", "-1.log", "1.checkpoint", "log"] {
            assert_eq!(FileKind::parse(name), None, "{name}");
        }
    }
}
