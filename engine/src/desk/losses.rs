//! The list of losses: offsets that the source no longer had. One line of JSON each, appended to
//! `farspan-losses.jsonl` in the data folder, so that a person can find them years later.

use std::path::Path;

use crate::ids::TopicPartition;
use crate::io::{Disk, DiskError, IoErrorKind};
use crate::mirror::Loss;

/// The file in the data folder.
pub const FILE: &str = "farspan-losses.jsonl";

/// A loss as a line of the file, without its end. Topic names and reasons need no escaping.
#[must_use]
pub fn record(partition: &TopicPartition, loss: &Loss, wall_clock_ms: i64) -> String {
    format!(
        "{{\"time_ms\":{wall_clock_ms},\"topic\":\"{}\",\"partition\":{},\"first_offset\":{},\
         \"next_offset\":{},\"reason\":\"{}\"}}",
        partition.topic, partition.partition, loss.first, loss.next, loss.reason
    )
}

/// Appends a line, durable.
///
/// # Errors
/// Where the disk refuses.
pub fn append(disk: &mut dyn Disk, data: &Path, record: &str) -> Result<(), DiskError> {
    let path = data.join(FILE);
    let (end, is_new) = match disk.length(&path) {
        Err(error) if error.kind == IoErrorKind::NotFound => (0, true),
        length => (length?, false),
    };
    disk.write(&path, end, format!("{record}\n").as_bytes())?;
    disk.sync(&path)?;
    // The file is durable only where its name is.
    if is_new || end == 0 { disk.sync(data) } else { Ok(()) }
}
