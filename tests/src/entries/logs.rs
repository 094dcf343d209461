//! Opening a log on whatever lies in its folder: no panic, and what was opened is a log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::ids::TopicPartition;
use engine::mirror::admit::{Expectation, admit};
use engine::store::{Checkpointed, Isolation, Left, Log, LogConfig, Place, folder_of};
use wire::batch::{BatchBuilder, NewRecord};
use wire::ids::{LeaderEpoch, Offset, PartitionIndex};

use super::batches::mended;
use super::choices::Choices;
use super::memory::MemoryDisk;

const NAMES: [&str; 14] = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000004.log",
    "00000000000000000004.index",
    "00000000000000000004.snapshot",
    "00000000000000000009.log",
    "00000000000000000009.timeindex",
    "00000000000000000009.txnindex",
    "00000000000000000009.snapshot",
    "leader-epoch-checkpoint",
    "00000000000000000004.log.swap",
    "09223372036854775807.log",
];
const WALL_MS: i64 = 1_700_000_000_000;

/// Files, each with the name that a byte chooses, then the log in their folder is opened.
pub fn recovery(data: &[u8]) {
    let mut choices = Choices::new(data);
    let flags = choices.u8();
    let was_clean = flags & 1 != 0;
    let checkpointed = Checkpointed {
        recovery_point: Offset(choices.offset().max(0)),
        log_start: Offset(if flags & 2 != 0 { choices.offset().max(0) } else { 0 }),
        high_watermark: Offset(0),
    };
    let name = TopicPartition { topic: Arc::from("t"), partition: PartitionIndex(0) };
    let data_folder = Path::new("/d");
    let folder = folder_of(data_folder, &name);
    let mut disk = MemoryDisk::default();
    disk.folders.extend([PathBuf::from("/d"), folder.clone()]);
    while !choices.is_empty() {
        let chosen = choices.u8();
        let name = NAMES[usize::from(chosen & 0x7f) % NAMES.len()];
        let bytes = choices.piece();
        let is_mended = chosen & 0x80 == 0 && name.contains(".log");
        let bytes = if is_mended { mended(bytes) } else { bytes.to_vec() };
        disk.files.insert(folder.join(name), bytes);
    }
    let config = Arc::new(LogConfig {
        segment_bytes: 4_096,
        index_interval_bytes: 128,
        ..LogConfig::default()
    });
    let open = |disk: &mut MemoryDisk, checkpointed, was_clean| {
        let place = Place { data: data_folder, partition: &name, config: &config };
        let left = if was_clean { Left::Clean } else { Left::Unclean };
        Log::open(disk, place, checkpointed, left, WALL_MS)
    };
    let Ok((mut log, _)) = open(&mut disk, checkpointed, was_clean) else { return };
    look_around(&mut log, &mut disk);
    if was_clean {
        // What is believed and wrong is found when it is read; that it ends there is all we ask.
        return;
    }
    let end = log.log_end();
    assert!(log.log_start() <= end);
    // What lies below the recovery point is believed, this time as the time before.
    let checkpoint = log.checkpointed();
    drop(log);
    let mut copy = disk.clone();
    let (again, recovery) = open(&mut copy, checkpoint, false).expect("what was recovered opens");
    assert_eq!(recovery.cut, None, "what was recovered is whole");
    assert_eq!(again.log_end(), end);
    append_and_reopen(again, &mut copy);
}

/// Whatever readers ask gets an answer or an error, and places that lie in files.
fn look_around(log: &mut Log, disk: &mut MemoryDisk) {
    let (start, end) = (log.log_start(), log.log_end());
    let inside = start.0.saturating_add(3);
    for from in [start.0 - 1, start.0, inside, end.0 - 1, end.0, end.0.saturating_add(1)] {
        for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
            for (limit, whole) in [(0, true), (64, false), (1 << 20, true)] {
                let Ok(plan) = log.read(disk, Offset(from), limit, whole, isolation) else {
                    continue;
                };
                if plan.length > 0 {
                    let length = disk.files[&*plan.path].len() as u64;
                    assert!(plan.position + plan.length <= length, "a plan beyond its file");
                }
                let _ = log.aborted_transactions(disk, Offset(from), &plan);
            }
        }
    }
    for timestamp in [i64::MIN, -1, 0, WALL_MS, i64::MAX] {
        let _ = log.offset_for_time(disk, timestamp);
    }
    let _ = log.offset_of_max_timestamp(disk);
    for epoch in [-1, 0, 5, i32::MAX] {
        let _ = log.end_offset_for_epoch(LeaderEpoch(epoch));
    }
    let _ = log.last_stable_offset();
}

/// A recovered log goes on, is closed, and is then the same.
fn append_and_reopen(mut log: Log, disk: &mut MemoryDisk) {
    let end = log.log_end();
    if end.0 > i64::MAX / 2 {
        return;
    }
    let epoch = log.last_epoch().unwrap_or(LeaderEpoch(0));
    let batch = BatchBuilder::new(end, WALL_MS)
        .leader_epoch(epoch)
        .record(NewRecord { value: Some(b"value"), ..NewRecord::default() })
        .build();
    let expectation = Expectation {
        next: end,
        log_is_empty: log.is_empty(),
        last_epoch: epoch,
        source_epoch: LeaderEpoch::UNKNOWN,
    };
    let mut admitted = Vec::new();
    let admission = admit(&batch, &expectation, &mut admitted);
    assert_eq!(admission.refusal, None);
    let pieces = log.append(disk, &admitted, WALL_MS).expect("a recovered log takes batches");
    for piece in pieces {
        let file = disk.files.entry(piece.path.to_path_buf()).or_default();
        let position = usize::try_from(piece.position).expect("a small file");
        assert_eq!(file.len(), position, "an append goes to the end of its file");
        file.extend_from_slice(&batch[piece.range]);
        log.appended(piece.next);
    }
    let name = log.partition().clone();
    let config = Arc::clone(log.config());
    let last_stable = log.last_stable_offset();
    let checkpointed = log.close(disk).expect("a log closes");
    let place = Place { data: Path::new("/d"), partition: &name, config: &config };
    let opened = Log::open(disk, place, checkpointed, Left::Clean, WALL_MS);
    let (log, _) = opened.expect("a closed log opens");
    assert_eq!(log.log_end(), end.next());
    assert_eq!(log.last_stable_offset(), last_stable);
}
