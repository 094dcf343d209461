//! Reading producers back: from a snapshot and the batches after it.

use std::collections::BTreeSet;
use std::path::Path;

use wire::batch::Batch;
use wire::ids::Offset;

use super::super::checkpoint::read_whole;
use super::super::damage::Damage;
use super::super::index::{Index, OffsetEntry};
use super::super::names::FileKind;
use super::super::producers::Producers;
use super::super::scan::{CONTROL_BYTES_MAX, Headers, admitted, admitted_header, read_batch};
use super::super::segment::Segment;
use super::LONG_WALK_CHUNK;
use crate::io::{Disk, IoErrorKind};

/// The largest snapshot of producers that is read: some 5 million of them.
const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;

/// Producers that were read back.
pub(in super::super) struct Loaded {
    pub producers: Producers,
    /// The snapshot that they were begun with.
    pub snapshot: Option<Offset>,
}

/// The offsets of all snapshots.
pub(in super::super) fn snapshot_offsets(
    disk: &mut dyn Disk,
    folder: &Path,
) -> Result<BTreeSet<Offset>, Damage> {
    let names = disk.list(folder)?;
    let snapshots = names.iter().filter_map(|entry| FileKind::parse(&entry.name));
    Ok(snapshots.filter(|(kind, _)| *kind == FileKind::Snapshot).map(|(_, at)| at).collect())
}

/// Removes a snapshot, which then is not to be flushed either.
pub(in super::super) fn remove_snapshot(
    disk: &mut dyn Disk,
    folder: &Path,
    segments: &mut [Segment],
    at: Offset,
) -> Result<(), Damage> {
    disk.remove(&FileKind::Snapshot.path(folder, at))?;
    for segment in segments.iter_mut().filter(|segment| segment.base == at) {
        segment.snapshot_unflushed = false;
    }
    Ok(())
}

/// Reads the producers as they are at the end of a range of offsets: from the newest snapshot in it,
/// and from the batches after that. Kafka takes a log that was left cleanly without a snapshot for one
/// without producers, to open logs fast that are older than snapshots; here there are none of those.
pub(in super::super) fn load_producers(
    disk: &mut dyn Disk,
    folder: &Path,
    segments: &mut [Segment],
    (start, end): (Offset, Offset),
    (wall_ms, expiration_ms): (i64, i64),
) -> Result<Loaded, Damage> {
    let mut loaded = Loaded { producers: Producers::default(), snapshot: None };
    for at in snapshot_offsets(disk, folder)?.into_iter().rev().filter(|&at| at <= end) {
        let path = FileKind::Snapshot.path(folder, at);
        // What was there before the log start is not asked about any more.
        let bytes = if at > start { read_whole(disk, &path, SNAPSHOT_BYTES_MAX)? } else { None };
        let read = bytes.map(|bytes| Producers::read(&bytes, &path, wall_ms, expiration_ms));
        if let Some(Ok(producers)) = read {
            loaded = Loaded { producers, snapshot: Some(at) };
            break;
        }
        remove_snapshot(disk, folder, segments, at)?;
    }
    let from = loaded.snapshot.unwrap_or(start);
    let first = segments.partition_point(|segment| segment.base <= from).saturating_sub(1);
    for segment in segments[first..].iter_mut().take_while(|segment| segment.base < end) {
        replay(disk, folder, segment, (from, end), &mut loaded.producers)?;
    }
    loaded.producers.written(end);
    Ok(loaded)
}

/// Takes the batches of a segment along that lie in a range of offsets.
fn replay(
    disk: &mut dyn Disk,
    folder: &Path,
    segment: &mut Segment,
    (from, end): (Offset, Offset),
    producers: &mut Producers,
) -> Result<(), Damage> {
    if from >= end {
        return Ok(());
    }
    let path = segment.log_path(folder);
    let index_path = FileKind::Index.path(folder, segment.base);
    let relative = segment.relative(from);
    let index =
        Index::<OffsetEntry> { path: &index_path, stored: segment.stored.offsets, tail: &[] };
    let start = match index.search(disk, |entry| entry.relative <= relative, None) {
        Ok(place) => place.below.map_or(0, |entry| entry.position),
        // The index is one of those that are made anew.
        Err(error) if error.kind == IoErrorKind::NotFound => 0,
        Err(error) => return Err(error.into()),
    };
    let mut headers = Headers::with_chunk(&path, u64::from(start), segment.size, LONG_WALK_CHUNK);
    while let Some((position, header)) = headers.next(disk)? {
        if header.last_offset() < from {
            continue;
        }
        if header.base_offset() >= end {
            return Ok(());
        }
        let size = header.size();
        let mut batch = admitted_header(header);
        if batch.control.is_some() && size <= CONTROL_BYTES_MAX {
            let bytes = read_batch(disk, &path, position, size)?;
            if let Ok(whole) = Batch::read(&bytes, 0) {
                batch = admitted(&whole);
            }
        }
        producers.append(&batch);
    }
    Ok(())
}
