//! Whole logs: appended, crashed, cut and read, against a model that is a list of batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};

use super::testing::{MemoryDisk, Spec, admit};
use super::{
    AppendPiece, Checkpointed, DamageKind, Isolation, Left, Log, LogConfig, Place, ReadError,
    Recovery, folder_of,
};
use crate::ids::TopicPartition;
use crate::io::Disk;

mod crash;
mod kafka;
mod measure;
mod model;
mod pieces;

/// Where the tests' logs are.
fn data() -> &'static Path {
    Path::new("/data")
}

fn partition() -> TopicPartition {
    TopicPartition { topic: Arc::from("t"), partition: PartitionIndex(0) }
}

fn folder() -> PathBuf {
    folder_of(data(), &partition())
}

/// Small enough that a test sees many segments and full indexes.
fn small() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_bytes: 2_000,
        index_interval_bytes: 200,
        retention_ms: -1,
        ..LogConfig::default()
    })
}

fn create(disk: &mut dyn Disk, start: i64, config: &Arc<LogConfig>) -> Log {
    let place = Place { data: data(), partition: &partition(), config };
    Log::create(disk, place, TopicId([3; 16]), Offset(start), 0).expect("a new folder")
}

fn open(
    disk: &mut dyn Disk,
    checkpointed: Checkpointed,
    was_clean: bool,
    config: &Arc<LogConfig>,
) -> (Log, Recovery) {
    let place = Place { data: data(), partition: &partition(), config };
    let left = if was_clean { Left::Clean } else { Left::Unclean };
    Log::open(disk, place, checkpointed, left, 0).expect("a sound log")
}

/// Does what the shard does: plans, writes, reports.
fn append(disk: &mut dyn Disk, log: &mut Log, bytes: &[u8]) -> Vec<AppendPiece> {
    let pieces = log.append(disk, &admit(bytes), 0).expect("batches that continue the log");
    for piece in &pieces {
        disk.write(&piece.path, piece.position, &bytes[piece.range.clone()]).expect("memory");
        log.appended(piece.next);
    }
    pieces
}

/// All bytes that a reader gets who asks for `bytes_max` at a time.
fn read_all(disk: &mut dyn Disk, log: &mut Log, mut from: Offset, bytes_max: u64) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let plan = log
            .read(disk, from, bytes_max, true, Isolation::ReadUncommitted)
            .expect("an offset of the log");
        if plan.length == 0 {
            return all;
        }
        let mut bytes = vec![0; usize::try_from(plan.length).expect("small")];
        let read = disk.read(&plan.path, plan.position, &mut bytes).expect("memory");
        assert_eq!(read, bytes.len(), "a plan stays within its file");
        for found in wire::batch::Batches::new(&bytes) {
            let (_, batch) = found.expect("sound batches");
            from = batch.next_offset();
            all.extend_from_slice(batch.as_bytes());
        }
    }
}
