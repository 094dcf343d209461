//! The small files: read, or refused with a reason; what was read and written again is read as before.

use std::path::{Path, PathBuf};

use engine::store::checkpoint::{format_offsets, parse_offsets};
use engine::store::identity::{CleanShutdown, MetaProperties, read_topic_id};
use engine::store::{LeaderEpochs, Producers, read_transactions};
use wire::batch::crc32c;
use wire::ids::Offset;

use super::choices::Choices;
use super::memory::MemoryDisk;

const WALL_MS: i64 = 1_700_000_000_000;

/// Reads the rest of the bytes as the file that the first one chooses.
pub fn files(data: &[u8]) {
    let mut choices = Choices::new(data);
    let kind = choices.u8();
    let bytes = choices.rest();
    let path = Path::new("/d/file");
    match kind % 7 {
        0 => {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let Ok(offsets) = parse_offsets(text, path) else { return };
            let again = parse_offsets(&format_offsets(&offsets), path);
            assert_eq!(again.as_ref(), Ok(&offsets));
        }
        1 => {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let Ok(mut epochs) = LeaderEpochs::parse(text, path) else { return };
            let again = LeaderEpochs::parse(&epochs.format(), path).expect("our own writing");
            assert_eq!(again.format(), epochs.format());
            epochs.truncate_from_end(Offset(5));
            epochs.truncate_from_start(Offset(3));
        }
        2 => meta_properties(bytes),
        3 => {
            let mut disk = disk_with("/d/partition.metadata", bytes);
            let _ = read_topic_id(&mut disk, Path::new("/d"));
        }
        4 => {
            let mut disk = disk_with("/d/.kafka_cleanshutdown", bytes);
            let _ = CleanShutdown::take(&mut disk, Path::new("/d"));
        }
        5 => snapshot(bytes),
        _ => {
            let mut disk = disk_with("/d/00000000000000000000.txnindex", bytes);
            let path = Path::new("/d/00000000000000000000.txnindex");
            let read = read_transactions(&mut disk, path).expect("as many as are whole");
            assert_eq!(read.len(), bytes.len() / 34);
        }
    }
}

fn disk_with(path: &str, bytes: &[u8]) -> MemoryDisk {
    let mut disk = MemoryDisk::default();
    disk.folders.insert(PathBuf::from("/d"));
    disk.files.insert(PathBuf::from(path), bytes.to_vec());
    disk
}

fn meta_properties(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(meta) = MetaProperties::parse(text, Path::new("/d/meta.properties")) else { return };
    // Java would write other white space and controls as escapes; no cluster has them in its id.
    if meta.cluster_id.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return;
    }
    let mut disk = MemoryDisk::default();
    meta.write(&mut disk, Path::new("/d")).expect("memory");
    let again = MetaProperties::read(&mut disk, Path::new("/d"));
    assert_eq!(again, Ok(Some(meta)), "what was written is read");
}

/// With the CRC set right, which no fuzzer guesses.
fn snapshot(bytes: &[u8]) {
    let path = Path::new("/d/00000000000000000004.snapshot");
    let _ = Producers::read(bytes, path, WALL_MS, i64::MAX);
    let mut whole = vec![0, 1];
    whole.extend(crc32c(bytes).to_be_bytes());
    whole.extend(bytes);
    let Ok(mut producers) = Producers::read(&whole, path, WALL_MS, i64::MAX) else { return };
    let again = Producers::read(&producers.snapshot(), path, WALL_MS, i64::MAX);
    let again = again.expect("our own writing");
    assert_eq!(again.len(), producers.len());
    assert_eq!(again.first_unstable(), producers.first_unstable());
    assert_eq!(again.snapshot(), producers.snapshot());
    producers.written(Offset(5));
    producers.expire(WALL_MS, 1_000);
}
