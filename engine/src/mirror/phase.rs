//! What a mirrored partition can be doing, and what may follow: a table, and its texts.

use std::fmt;

/// What a partition is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Asking the source where its log begins and ends.
    Locating,
    /// Asking the source where our last epoch ends there.
    Aligning,
    /// The source's log begins after our end: finding out why, and having the loss written down,
    /// before the log is emptied. A crash in between leaves the log as it was, and this begins again.
    Recording,
    /// Taking batches.
    Mirroring,
    /// Something failed that may mend itself; it begins again at a set time.
    Waiting,
    /// The disk refused. The log takes nothing until it was opened again, which is tried at set times.
    DiskFailed,
    /// Something failed that a person must look at. All other partitions go on.
    Failed,
}

impl Phase {
    /// Every phase, for metrics and tests.
    pub const ALL: [Self; 7] = [
        Self::Locating,
        Self::Aligning,
        Self::Recording,
        Self::Mirroring,
        Self::Waiting,
        Self::DiskFailed,
        Self::Failed,
    ];

    /// The phases that may follow this one.
    #[must_use]
    pub const fn next(self) -> &'static [Self] {
        match self {
            Self::Locating => &[
                Self::Locating,
                Self::Recording,
                Self::Mirroring,
                Self::Waiting,
                Self::DiskFailed,
                Self::Failed,
            ],
            Self::Recording => {
                &[Self::Locating, Self::Mirroring, Self::Waiting, Self::DiskFailed, Self::Failed]
            }
            Self::Aligning => &[Self::Mirroring, Self::Waiting, Self::DiskFailed, Self::Failed],
            Self::Mirroring => {
                &[Self::Mirroring, Self::Locating, Self::Waiting, Self::DiskFailed, Self::Failed]
            }
            Self::Waiting | Self::DiskFailed => &Self::ALL,
            Self::Failed => &[Self::Failed],
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Locating => "locating",
            Self::Aligning => "aligning",
            Self::Recording => "recording a loss",
            Self::Mirroring => "mirroring",
            Self::Waiting => "waiting",
            Self::DiskFailed => "disk failed",
            Self::Failed => "failed",
        })
    }
}
