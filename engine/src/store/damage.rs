//! What went wrong with a log on disk: the file, the place in it, and what a person can do.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::io::{DiskError, IoErrorKind};

/// Something on disk is not as it must be, or the disk refused. The log in memory is of no more use
/// after it: open it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What decides who must act.
    pub kind: DamageKind,
    /// The file or folder.
    pub file: PathBuf,
    /// Where in it, in bytes; for text files the line, from 1.
    pub position: Option<u64>,
    /// What was found there.
    pub wrong: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The kinds of damage, by who must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The disk refused; the operator of the machine.
    Disk(IoErrorKind),
    /// Bytes that were flushed are not the ones that were written; the operator, or a new mirror run.
    Corrupt,
    /// A write failed before; whoever holds the log opens it again.
    Poisoned,
    /// Batches that do not continue the log; the source sent them, or admission let them through.
    Order,
}

/// What to do where a mirror's own copy is broken: the source still has the bytes.
pub(super) const MIRROR_AGAIN: &str =
    "stop the node, move the folder away and start it, so that the partition is mirrored again";

impl Damage {
    /// Bytes that are not what was written.
    pub(super) fn corrupt(file: &Path, position: u64, wrong: impl Into<String>) -> Self {
        Self {
            kind: DamageKind::Corrupt,
            file: file.to_path_buf(),
            position: Some(position),
            wrong: wrong.into(),
            remedy: MIRROR_AGAIN,
        }
    }
}

/// What to do where a disk refuses something.
#[must_use]
pub const fn remedy_for(kind: IoErrorKind) -> &'static str {
    match kind {
        IoErrorKind::DiskFull => "free room on the disk, then the log opens again by itself",
        IoErrorKind::NotFound => "somebody else removed it: keep other programs out of the folder",
        IoErrorKind::Exhausted => "raise the limit of open files of this process",
        _ => "look at the system's log for the disk; once it works the log opens again by itself",
    }
}

impl From<DiskError> for Damage {
    fn from(error: DiskError) -> Self {
        Self {
            kind: DamageKind::Disk(error.kind),
            wrong: format!("cannot {}: {}", error.operation, error.reason),
            file: error.path,
            position: None,
            remedy: remedy_for(error.kind),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(position) = self.position {
            write!(f, " at {position}")?;
        }
        write!(f, ": {}; {}", self.wrong, self.remedy)
    }
}

impl std::error::Error for Damage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_says_where_what_and_what_to_do() {
        let damage = Damage::corrupt(Path::new("/data/t-0/00.log"), 61, "length 3 is too short");
        assert_eq!(
            damage.to_string(),
            "/data/t-0/00.log at 61: length 3 is too short; stop the node, move the folder away and \
             start it, so that the partition is mirrored again"
        );
    }
}
