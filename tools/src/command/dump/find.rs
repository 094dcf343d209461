//! What lies at a path: a data folder, a partition's folder, or a single file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::ids::TopicPartition;
use engine::store::checkpoint::Offsets;
use wire::ids::PartitionIndex;

use super::partition::{self, Kind};
use super::report::{Fault, Report};
use super::segment::Depth;
use super::small;

/// What a data folder and its logs say in plain text.
const TEXTS: [&str; 4] =
    ["meta.properties", "farspan-source.properties", "farspan-losses.jsonl", "farspan-log-start"];

/// Shows and checks what lies at `path`. What cannot be read is a fault and does not end the rest.
pub(super) fn dump(path: &Path, records: bool, report: &mut Report<'_>) -> io::Result<()> {
    let depth = Depth { records };
    if path.is_file() {
        return told(path, report, |report| file(path, depth, report));
    }
    if is_partition(path) {
        return told(path, report, |report| partition::dump(path, depth, report).map(drop));
    }
    told(path, report, |report| data_folder(path, depth, report))
}

/// Whether a folder has a log in it.
fn is_partition(folder: &Path) -> bool {
    partition::files_of(folder).is_ok_and(|files| {
        files.iter().any(|file| matches!(partition::kind(file), Some(Kind::Log | Kind::TopicId)))
    })
}

/// Tells as a fault what the disk refuses; errors of what is written to go on.
fn told(
    path: &Path,
    report: &mut Report<'_>,
    look: impl FnOnce(&mut Report<'_>) -> io::Result<()>,
) -> io::Result<()> {
    match look(report) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error),
        Err(error) => report.fault(Fault::new(path, format!("cannot be read: {error}"))),
        Ok(()) => Ok(()),
    }
}

fn file(path: &Path, depth: Depth, report: &mut Report<'_>) -> io::Result<()> {
    match (partition::kind(path), name(path)) {
        (Some(_), _) => partition::dump_file(path, depth, report),
        (None, Some(name)) if name.ends_with("-checkpoint") => {
            small::checkpoint(path, report).map(drop)
        }
        (None, Some(name)) if TEXTS.contains(&name) => small::text(path, report),
        _ => partition::dump_file(path, depth, report),
    }
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// A partition from the name of its folder. Others in a data folder (`-delete`, `-future`) are on
/// their way out or in, and are left alone.
fn partition_of(folder: &Path) -> Option<TopicPartition> {
    let (topic, index) = name(folder)?.rsplit_once('-')?;
    let index = index.parse().ok().filter(|&index: &i32| index >= 0)?;
    (!topic.is_empty())
        .then(|| TopicPartition { topic: Arc::from(topic), partition: PartitionIndex(index) })
}

fn data_folder(path: &Path, depth: Depth, report: &mut Report<'_>) -> io::Result<()> {
    let entries = partition::files_of(path)?;
    // Before the logs, which only grow meanwhile.
    let mut checkpoints: BTreeMap<PathBuf, Offsets> = BTreeMap::new();
    for file in entries.iter().filter(|entry| entry.is_file()) {
        match name(file) {
            Some(name) if name.ends_with("-checkpoint") => {
                checkpoints.insert(file.clone(), small::checkpoint(file, report)?);
            }
            Some(name) if TEXTS.contains(&name) => small::text(file, report)?,
            _ => {}
        }
    }
    // Values of this one are epochs.
    checkpoints.retain(|file, _| !name(file).is_some_and(|name| name.contains("epoch")));
    let mut ends: BTreeMap<TopicPartition, i64> = BTreeMap::new();
    for folder in entries.iter().filter(|entry| is_partition(entry)) {
        let Some(partition) = partition_of(folder) else { continue };
        told(folder, report, |report| {
            let end = partition::dump(folder, depth, report)?;
            ends.insert(partition, end.unwrap_or(0));
            Ok(())
        })?;
    }
    if ends.is_empty() && checkpoints.is_empty() {
        report.fault(Fault::new(path, "is neither a data folder nor a partition's folder"))?;
    }
    for (file, offsets) in &checkpoints {
        for (partition, offset) in offsets {
            let Some(end) = ends.get(partition).filter(|end| offset.0 > **end) else { continue };
            let what = format!("{partition} ends at offset {end}, before what is said here");
            report.fault(Fault::new(file, what).offset(offset.0))?;
        }
    }
    Ok(())
}
