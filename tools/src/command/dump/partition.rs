//! One partition's folder: its segments in order, and the small files beside them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::report::{Fault, Report};
use super::segment::{self, Depth, Part, Reached, Segment};
use super::small::{self, Epochs};

/// The kinds of files of a log, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Index,
    TimeIndex,
    TxnIndex,
    Snapshot,
    Epochs,
    TopicId,
}

/// Where epochs begin.
pub(super) const EPOCHS: &str = "leader-epoch-checkpoint";
/// The topic's id.
pub(super) const TOPIC_ID: &str = "partition.metadata";

/// What a file is, from its name.
pub(super) fn kind(path: &Path) -> Option<Kind> {
    match path.file_name()?.to_str()? {
        EPOCHS => return Some(Kind::Epochs),
        TOPIC_ID => return Some(Kind::TopicId),
        _ => {}
    }
    match path.extension()?.to_str()? {
        "log" => Some(Kind::Log),
        "index" => Some(Kind::Index),
        "timeindex" => Some(Kind::TimeIndex),
        "txnindex" => Some(Kind::TxnIndex),
        "snapshot" => Some(Kind::Snapshot),
        _ => None,
    }
}

/// The offset in the name of a segment's file.
fn base(path: &Path) -> Option<i64> {
    let digits = path.file_stem()?.to_str()?;
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

/// The files of a folder by name.
pub(super) fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort_unstable();
    Ok(paths)
}

/// Shows and checks a partition; gives the offset that its next record gets, where that is known.
pub(super) fn dump(
    folder: &Path,
    depth: Depth,
    report: &mut Report<'_>,
) -> io::Result<Option<i64>> {
    report.summary.partitions += 1;
    let files = files_of(folder)?;
    let mut segments: BTreeMap<i64, Segment> = BTreeMap::new();
    let mut epochs = None;
    for path in &files {
        let part = || Part { path: path.clone(), is_shown: true };
        let Some(kind) = kind(path) else { continue };
        if let Some(base) = base(path) {
            let place = match kind {
                Kind::Snapshot | Kind::Epochs | Kind::TopicId => continue,
                kind => slot(segments.entry(base).or_default(), kind),
            };
            *place = Some(part());
            segments.entry(base).or_default().base = Some(base);
        } else {
            match kind {
                Kind::TopicId => small::topic_id(path, report)?,
                Kind::Epochs => epochs = Epochs::read(path, report)?,
                _ => report.fault(Fault::new(path, "its name has no offset"))?,
            }
        }
    }
    let mut reached = Reached::default();
    for segment in segments.values() {
        segment::dump(segment, depth, epochs.as_mut(), &mut reached, report)?;
    }
    for path in files.iter().filter(|path| kind(path) == Some(Kind::Snapshot)) {
        small::snapshot(path, report)?;
    }
    if let Some(epochs) = epochs {
        epochs.finish(report)?;
    }
    // A segment that is still empty begins where the log ends.
    Ok(reached.next.max(segments.keys().last().copied()))
}

/// The place of a kind of file in its segment.
fn slot(segment: &mut Segment, kind: Kind) -> &mut Option<Part> {
    match kind {
        Kind::Index => &mut segment.index,
        Kind::TimeIndex => &mut segment.time_index,
        Kind::TxnIndex => &mut segment.txn_index,
        _ => &mut segment.log,
    }
}

/// Shows and checks a single file of a log: an index is compared with the log beside it, and a log
/// with the indexes beside it, where they are there.
pub(super) fn dump_file(path: &Path, depth: Depth, report: &mut Report<'_>) -> io::Result<()> {
    let asked = match kind(path) {
        Some(Kind::Snapshot) => return small::snapshot(path, report),
        Some(Kind::TopicId) => return small::topic_id(path, report),
        Some(Kind::Epochs) => {
            let epochs = Epochs::read(path, report)?;
            return epochs.map_or(Ok(()), |epochs| epochs.finish(report));
        }
        Some(kind) => kind,
        None => return report.fault(Fault::new(path, "is not a file of a log, by its name")),
    };
    let mut segment = Segment { base: base(path), ..Segment::default() };
    let beside = [
        (Kind::Log, "log"),
        (Kind::Index, "index"),
        (Kind::TimeIndex, "timeindex"),
        (Kind::TxnIndex, "txnindex"),
    ];
    for (kind, extension) in beside {
        let file = path.with_extension(extension);
        let is_shown = kind == asked;
        let is_read = is_shown || kind == Kind::Log || asked == Kind::Log && segment.base.is_some();
        if is_read && file.is_file() {
            *slot(&mut segment, kind) = Some(Part { path: file, is_shown });
        }
    }
    segment::dump(&segment, depth, None, &mut Reached::default(), report)
}
