//! Against files that a real broker wrote.
//!
//! `golden/` is the folder of a partition as a broker of Kafka 4.4.0 left it at its shutdown:
//! `segment.index.bytes=72`, `index.interval.bytes=512`, all codecs, plain, idempotent and
//! transactional producers, commits and aborts, one transaction still open.

use super::super::testing::FileDisk;
use super::*;
use crate::store::producers::Producers;

fn golden() -> MemoryDisk {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/tests/golden");
    let mut disk = MemoryDisk::default();
    for entry in FileDisk.list(&from).expect("it is in the repository") {
        let bytes = std::fs::read(from.join(&entry.name)).expect("readable");
        disk.files.insert(folder().join(entry.name), bytes);
    }
    disk
}

fn as_the_broker() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_index_bytes: 72,
        index_interval_bytes: 512,
        segment_ms: 9_000_000_000_000,
        retention_ms: -1,
        producer_id_expiration_ms: i64::MAX,
        ..LogConfig::default()
    })
}

/// All batches in one.
fn all_bytes(golden: &MemoryDisk) -> Vec<u8> {
    let logs = golden.files.iter().filter(|(file, _)| file.extension().is_some_and(|e| e == "log"));
    logs.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
}

/// Compares all files with the broker's, byte by byte; but snapshots by what they say, since Kafka
/// writes producers in the order of a hash.
fn compare(ours: &MemoryDisk, golden: &MemoryDisk) {
    let names = |disk: &MemoryDisk| disk.files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(golden));
    for (file, bytes) in &golden.files {
        let mine = ours.bytes(file);
        if file.extension().is_some_and(|extension| extension == "snapshot") {
            let read = |bytes: &[u8]| Producers::read(bytes, file, 0, i64::MAX).expect("sound");
            assert_eq!(read(&mine), read(bytes), "{}", file.display());
            assert_eq!(mine.len(), bytes.len());
        } else {
            assert_eq!(&mine, bytes, "{}", file.display());
        }
    }
}

#[test]
fn a_clean_folder_of_a_broker_opens_and_closes_without_a_change() {
    let golden = golden();
    let mut disk = golden.clone();
    let end = Offset(247);
    let checkpointed =
        Checkpointed { recovery_point: end, high_watermark: end, ..Checkpointed::default() };
    let (mut log, recovery) = open(&mut disk, checkpointed, true, &as_the_broker());
    assert_eq!(recovery, Recovery::default());
    assert_eq!((log.log_end(), log.last_epoch()), (end, Some(LeaderEpoch(0))));
    assert_eq!(log.last_stable_offset(), Offset(244));
    assert_eq!(read_all(&mut disk, &mut log, Offset(0), 1_000), all_bytes(&golden));
    log.close(&mut disk).expect("memory");
    compare(&disk, &golden);
}

#[test]
fn recovery_makes_the_files_that_the_broker_wrote() {
    let golden = golden();
    let mut disk = golden.clone();
    disk.files.retain(|file, _| {
        let name = file.file_name().expect("a name").to_string_lossy();
        name.ends_with(".log") || name == "partition.metadata"
    });
    let (log, recovery) = open(&mut disk, Checkpointed::default(), false, &as_the_broker());
    assert_eq!((recovery.segments_scanned, recovery.cut), (4, None));
    log.close(&mut disk).expect("memory");
    compare(&disk, &golden);
}

#[test]
fn appending_the_same_batches_makes_the_files_that_the_broker_wrote() {
    let golden = golden();
    let bytes = all_bytes(&golden);
    for at_once in [1, 3, 1_000] {
        let mut disk = MemoryDisk::default();
        let mut log = create(&mut disk, 0, &as_the_broker());
        for batches in admit(&bytes).chunks(at_once) {
            let end = batches.last().map_or(0, |last| last.position + last.size);
            append(&mut disk, &mut log, &bytes[batches[0].position..end]);
        }
        log.close(&mut disk).expect("memory");
        let metadata = folder().join("partition.metadata");
        disk.files.insert(metadata.clone(), golden.bytes(&metadata));
        compare(&disk, &golden);
    }
}

#[test]
fn records_of_every_codec_are_found_by_time() {
    let golden = golden();
    let mut disk = golden.clone();
    let (mut log, _) = open(&mut disk, Checkpointed::default(), false, &as_the_broker());
    let mut seen = std::collections::BTreeSet::new();
    for found in wire::batch::Batches::new(&all_bytes(&golden)) {
        let (_, batch) = found.expect("sound");
        if batch.attributes().is_control() {
            continue;
        }
        seen.insert(batch.attributes().compression().code());
        let newest = batch.max_timestamp();
        let found = log.offset_for_time(&mut disk, newest).expect("sound").expect("it is there");
        assert!(found.timestamp >= newest && found.offset <= batch.last_offset());
    }
    assert_eq!(seen.len(), 5);
    // The last marker's time is the wall clock's, years after the records'.
    let newest = log.offset_of_max_timestamp(&mut disk).expect("sound").expect("not empty");
    let found = log.offset_for_time(&mut disk, newest.timestamp).expect("sound");
    assert_eq!(found, Some(newest));
}

/// Leaves a log for Kafka's tools: `FARSPAN_LOG_FOR_KAFKA=FOLDER cargo test -p engine -- --ignored`.
#[test]
#[ignore = "needs a folder, and somebody who looks at it"]
fn leaves_a_log_for_kafkas_tools() {
    let Some(folder) = std::env::var_os("FARSPAN_LOG_FOR_KAFKA") else { return };
    let data = PathBuf::from(folder);
    let mut disk = FileDisk;
    let config = Arc::new(LogConfig { segment_bytes: 100_000, ..LogConfig::default() });
    let place = Place { data: &data, partition: &partition(), config: &config };
    let id = TopicId([3; 16]);
    let mut log = Log::create(&mut disk, place, id, Offset(0), 0).expect("a new folder");
    let mut dice = model::Dice::new(1);
    let mut model = model::Model::default();
    for _ in 0..3_000 {
        let batch = model.next_batch(&mut dice);
        append(&mut disk, &mut log, &batch.1);
        model.append(batch);
    }
    log.close(&mut disk).expect("room on the disk");
}
