//! Numbers: `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test -p engine measures -- --ignored --nocapture`.

use std::time::Instant;

use super::super::testing::FileDisk;
use super::*;

#[test]
#[ignore = "measures"]
fn measures_recovery_and_append() {
    for (records, value) in [(1, 900), (15, 1_000), (60, 1_000), (1_000, 1_000)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut disk = FileDisk;
        let config = Arc::new(LogConfig::default());
        let place = Place { data: folder.path(), partition: &partition(), config: &config };
        let id = TopicId([3; 16]);
        let mut log = Log::create(&mut disk, place, id, Offset(0), 0).expect("a new folder");
        let (mut first, mut bytes) = (0, Vec::new());
        while bytes.len() < 64 << 20 {
            let spec = Spec { first, records, value, producer: Some((1, 0, false)), ..Spec::PLAIN };
            bytes.extend_from_slice(&spec.build());
            first = spec.next();
        }
        let mut batches = admit(&bytes);
        let (mut planning, mut pieces) = (std::time::Duration::ZERO, 0);
        for _ in 0..8 {
            for chunk in batches.chunks(64) {
                let start = Instant::now();
                let planned = log.append(&mut disk, chunk, 0).expect("it continues");
                planning += start.elapsed();
                pieces += planned.len();
                for piece in planned {
                    let bytes = &bytes[piece.range.clone()];
                    disk.write(&piece.path, piece.position, bytes).expect("room");
                    log.appended(piece.next);
                }
            }
            for batch in &mut batches {
                batch.base_offset.0 += first;
                batch.last_offset.0 += first;
            }
            // Base offsets are not under the CRC.
            for batch in &batches {
                let at = batch.position;
                bytes[at..at + 8].copy_from_slice(&batch.base_offset.0.to_be_bytes());
            }
        }
        let count = batches.len() * 8;
        let (start, checkpointed) = (Instant::now(), Checkpointed::default());
        let (log, recovery) =
            Log::open(&mut disk, place, checkpointed, Left::Unclean, 0).expect("a sound log");
        let took = start.elapsed();
        assert_eq!((log.log_end().0, recovery.cut), (first * 8, None));
        println!(
            "batches of {} KiB: recovery {:.0} MB/s, {:.0} ns a batch; planning {:.0} ns a batch, {pieces} pieces",
            batches[0].size >> 10,
            recovery.bytes_scanned as f64 / took.as_secs_f64() / 1e6,
            took.as_nanos() as f64 / count as f64,
            planning.as_nanos() as f64 / count as f64,
        );
    }
}

#[test]
#[ignore = "measures"]
fn measures_idle_logs() {
    const COUNT: usize = 100_000;
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages: usize = status.split(' ').nth(1).expect("a field").parse().expect("a number");
        pages * 4_096
    };
    let mut disk = MemoryDisk::default();
    let config = Arc::new(LogConfig::default());
    let mut log = create(&mut disk, 0, &config);
    for first in 0..2_000 {
        let producer = Some((first % 2, 0, false));
        append(&mut disk, &mut log, &Spec { first, producer, ..Spec::PLAIN }.build());
    }
    let checkpointed = log.close(&mut disk).expect("memory");
    let before = resident();
    let start = Instant::now();
    let logs: Vec<_> = (0..COUNT).map(|_| open(&mut disk, checkpointed, true, &config).0).collect();
    println!(
        "{COUNT} idle logs with two producers each: {} bytes a log ({} of them inline, {} counted), {:.1} us to open",
        (resident() - before) / COUNT,
        size_of::<Log>(),
        size_of::<Log>() + logs[0].heap_bytes(),
        start.elapsed().as_micros() as f64 / COUNT as f64,
    );
}
