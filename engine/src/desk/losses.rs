//! The list of losses: offsets that the source no longer had. One line of JSON each, appended to
//! `farspan-losses.jsonl` in the data folder, so that a person can find them years later.

use std::path::Path;

use crate::ids::TopicPartition;
use crate::io::{Disk, DiskError, IoErrorKind};
use crate::limits;
use crate::mirror::Loss;

/// The file in the data folder.
pub const FILE: &str = "farspan-losses.jsonl";

/// Writes a loss down, durable. One that stands there already, since the process was killed before
/// the log began anew, is not written again; a line that a crash has torn is ended first.
///
/// # Errors
/// Where the disk refuses.
pub fn record(
    disk: &mut dyn Disk,
    data: &Path,
    partition: &TopicPartition,
    loss: &Loss,
    wall_clock_ms: i64,
) -> Result<(), DiskError> {
    let path = data.join(FILE);
    let (end, is_new) = match disk.length(&path) {
        Err(error) if error.kind == IoErrorKind::NotFound => (0, true),
        length => (length?, false),
    };
    let what = what(partition, loss);
    let start = end.saturating_sub(limits::LOSSES_LOOKED_AT_BYTES_MAX);
    let mut tail = vec![0; (end - start) as usize];
    let count = disk
        .read(&path, start, &mut tail)
        .or_else(|error| if is_new { Ok(0) } else { Err(error) })?;
    tail.truncate(count);
    let is_there = String::from_utf8_lossy(&tail).lines().any(|line| line.contains(&what));
    if !is_there {
        let torn = if tail.last().is_none_or(|&last| last == b'\n') { "" } else { "\n" };
        let line =
            format!("{torn}{{\"time_ms\":{wall_clock_ms},{what}\"reason\":\"{}\"}}\n", loss.reason);
        disk.write(&path, end, line.as_bytes())?;
    } else {
        // It may stand there in memory only, and a sync that failed counts it as saved.
        disk.write(&path, start, &tail)?;
    }
    disk.sync(&path)?;
    // The file is durable only where its name is.
    if is_new || end == 0 || is_there { disk.sync(data) } else { Ok(()) }
}

/// What a line says of a loss but its time and reason. Topic names need no escaping.
fn what(partition: &TopicPartition, loss: &Loss) -> String {
    format!(
        "\"topic\":\"{}\",\"partition\":{},\"first_offset\":{},\"next_offset\":{},",
        partition.topic, partition.partition, loss.first, loss.next
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::LossReason;
    use crate::ring::HostDisk;
    use wire::ids::{Offset, PartitionIndex};

    #[test]
    fn a_loss_is_written_once_however_often_it_is_found_and_never_into_a_torn_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, mut disk) = (folder.path().join(FILE), HostDisk);
        let partition = TopicPartition { topic: "t".into(), partition: PartitionIndex(3) };
        let loss = |first, next| {
            let reason = LossReason::Retention;
            Loss { first: Offset(first), next: Offset(next), reason }
        };
        let mut write = |loss: &Loss| {
            record(&mut disk, folder.path(), &partition, loss, 7).expect("written");
            std::fs::read_to_string(&path).expect("the file")
        };
        let first = "{\"time_ms\":7,\"topic\":\"t\",\"partition\":3,\"first_offset\":1,\
                     \"next_offset\":20,\"reason\":\"retention\"}\n";
        assert_eq!(write(&loss(1, 20)), first);
        assert_eq!(write(&loss(1, 20)), first);
        std::fs::write(&path, format!("{first}{{\"time_ms\":7,\"to")).expect("torn");
        let text = write(&loss(1, 200));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[2].contains("\"next_offset\":200,\"reason\""), "{text}");
    }
}
