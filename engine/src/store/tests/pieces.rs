//! What a log promises, piece by piece.

use super::*;

fn batch(first: i64, records: i32) -> Vec<u8> {
    Spec { first, records, ..Spec::PLAIN }.build()
}

#[test]
fn batches_go_one_after_another_and_full_segments_are_closed() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    let bytes: Vec<u8> = (0..30).flat_map(|i| batch(i * 5, 5)).collect();
    let pieces = append(&mut disk, &mut log, &bytes);
    assert!(log.segment_count() > 2);
    assert_eq!(pieces.len(), log.segment_count());
    assert!(pieces[0].rolled.is_none());
    for (before, piece) in pieces.iter().zip(&pieces[1..]) {
        assert_eq!(piece.rolled.as_ref(), Some(&before.path));
        assert_eq!((piece.position, piece.range.start), (0, before.range.end));
        let size = disk.bytes(&before.path).len();
        assert!(size <= 2_000 && size > 1_700, "{size}");
    }
    assert_eq!(log.log_end(), Offset(150));
    for bytes_max in [1, 100, 1_000, 1 << 20] {
        assert_eq!(read_all(&mut disk, &mut log, Offset(0), bytes_max), bytes);
    }
}

#[test]
fn readers_see_what_is_written_and_writes_may_end_in_any_order() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    let (first, second) = (batch(0, 5), batch(5, 5));
    let one = log.append(&mut disk, &admit(&first), 0).expect("it continues");
    let two = log.append(&mut disk, &admit(&second), 0).expect("it continues");
    assert_eq!((log.log_end(), log.planned_end()), (Offset(0), Offset(10)));
    log.appended(two[0].next);
    assert_eq!(log.log_end(), Offset(0));
    log.appended(one[0].next);
    assert_eq!((log.log_end(), log.high_watermark()), (Offset(10), Offset(10)));
}

#[test]
fn a_failed_write_is_the_last_until_the_log_is_opened_again() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    append(&mut disk, &mut log, &batch(0, 5));
    log.append(&mut disk, &admit(&batch(5, 5)), 0).expect("it continues");
    log.append_failed();
    let refused = log.append(&mut disk, &admit(&batch(10, 5)), 0).expect_err("a write failed");
    assert_eq!(refused.kind, DamageKind::Poisoned);
    let (mut log, _) = open(&mut disk, log.checkpointed(), false, &small());
    assert_eq!(log.log_end(), Offset(5));
    append(&mut disk, &mut log, &batch(5, 5));
}

#[test]
fn a_full_disk_in_the_middle_of_a_roll_poisons_the_log() {
    for writes in 0..6 {
        let mut disk = MemoryDisk::default();
        let mut log = create(&mut disk, 0, &small());
        let bytes: Vec<u8> = (0..15).flat_map(|i| batch(i * 5, 5)).collect();
        append(&mut disk, &mut log, &bytes);
        disk.writes_left = Some(writes);
        let more: Vec<u8> = (15..30).flat_map(|i| batch(i * 5, 5)).collect();
        let refused = log.append(&mut disk, &admit(&more), 0).expect_err("no room to roll");
        assert!(matches!(refused.kind, DamageKind::Disk(_)), "{refused}");
        assert!(log.is_poisoned());
        disk.writes_left = None;
        let (mut log, _) = open(&mut disk, log.checkpointed(), false, &small());
        assert_eq!(log.log_end(), Offset(75), "{writes}");
        append(&mut disk, &mut log, &more);
        assert_eq!(log.log_end(), Offset(150));
    }
}

#[test]
fn offsets_never_go_backwards_and_a_refusal_changes_nothing() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    append(&mut disk, &mut log, &batch(0, 5));
    for wrong in [batch(4, 5), [batch(5, 5), batch(9, 1)].concat()] {
        let refused = log.append(&mut disk, &admit(&wrong), 0).expect_err("it goes backwards");
        assert_eq!(refused.kind, DamageKind::Order);
        assert_eq!(log.planned_end(), Offset(5));
    }
    append(&mut disk, &mut log, &batch(700, 5));
    assert_eq!(log.log_end(), Offset(705));
    let plan = log.read(&mut disk, Offset(300), 1, true, Isolation::ReadUncommitted);
    assert_eq!(plan.map(|plan| plan.position), Ok(batch(0, 5).len() as u64));
}

#[test]
fn a_log_start_inside_the_first_batch_names_the_segment_after_the_batch() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 103, &small());
    let bytes = batch(100, 10);
    let pieces = append(&mut disk, &mut log, &bytes);
    assert_eq!(&*pieces[0].path, folder().join("00000000000000000100.log"));
    assert_eq!((log.log_start(), log.log_end()), (Offset(103), Offset(110)));
    assert!(log.log_start_needs_saying());
    let read = |log: &mut Log, disk: &mut MemoryDisk, at| {
        log.read(disk, Offset(at), 1 << 20, true, Isolation::ReadUncommitted)
    };
    assert_eq!(read(&mut log, &mut disk, 103).map(|plan| plan.length), Ok(bytes.len() as u64));
    let out = ReadError::OutOfRange { start: Offset(103), end: Offset(110) };
    assert_eq!(read(&mut log, &mut disk, 102), Err(out.clone()));
    assert_eq!(read(&mut log, &mut disk, 111), Err(out));
    assert_eq!(read(&mut log, &mut disk, 110).map(|plan| plan.length), Ok(0));
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    let large = Spec { first: 5, value: 9_000, ..Spec::PLAIN }.build();
    let bytes = [batch(0, 5), large, batch(6, 5)].concat();
    append(&mut disk, &mut log, &bytes);
    assert_eq!(log.segment_count(), 3);
    assert_eq!(read_all(&mut disk, &mut log, Offset(0), 1), bytes);
}

#[test]
fn a_segment_is_closed_when_a_batch_is_much_newer_than_its_first() {
    let mut disk = MemoryDisk::default();
    let config = LogConfig { segment_ms: 100, ..(*small()).clone() };
    let mut log = create(&mut disk, 0, &Arc::new(config));
    for (first, timestamp) in [(0, 1_000), (1, 1_100), (2, 1_101)] {
        append(&mut disk, &mut log, &Spec { first, timestamp, ..Spec::PLAIN }.build());
    }
    assert_eq!(log.segment_count(), 2);
    // The wall clock counts only where the first batch has no timestamp.
    let append_at = |disk: &mut MemoryDisk, log: &mut Log, first, wall_ms| {
        let batches = admit(&Spec { first, timestamp: -1, ..Spec::PLAIN }.build());
        log.append(disk, &batches, wall_ms).expect("it continues");
    };
    append_at(&mut disk, &mut log, 3, 1_000_000);
    assert_eq!(log.segment_count(), 2);
    let config = Arc::clone(log.config());
    let mut log = create(&mut MemoryDisk::default(), 0, &config);
    append_at(&mut disk, &mut log, 0, 100);
    append_at(&mut disk, &mut log, 1, 101);
    assert_eq!(log.segment_count(), 2);
}

#[test]
fn an_offset_too_far_for_the_index_starts_a_segment() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    append(&mut disk, &mut log, &batch(0, 1));
    append(&mut disk, &mut log, &batch(i64::from(i32::MAX), 1));
    assert_eq!(log.segment_count(), 1);
    append(&mut disk, &mut log, &batch(i64::from(i32::MAX) + 1, 1));
    assert_eq!(log.segment_count(), 2);
}

#[test]
fn a_reader_of_committed_records_stops_at_the_first_open_transaction() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    let transactional = |first, producer| {
        Spec { first, records: 5, producer: Some((producer, 0, true)), ..Spec::PLAIN }.build()
    };
    let end = |first, producer, is_abort| {
        let (producer, ends) = (Some((producer, 0, true)), Some(is_abort));
        Spec { first, producer, ends, ..Spec::PLAIN }.build()
    };
    let head = [batch(0, 5), transactional(5, 1)].concat();
    let bytes = [head.clone(), batch(10, 5), transactional(15, 2), end(20, 1, true)].concat();
    append(&mut disk, &mut log, &bytes[..head.len()]);
    assert_eq!(log.last_stable_offset(), Offset(5));
    append(&mut disk, &mut log, &bytes[head.len()..]);
    assert_eq!(log.last_stable_offset(), Offset(15));
    let plan = log.read(&mut disk, Offset(2), 1 << 20, true, Isolation::ReadCommitted);
    let plan = plan.expect("in range");
    assert_eq!(plan.length as usize, head.len() + batch(10, 5).len());
    let aborted = log.aborted_transactions(&mut disk, Offset(2), &plan).expect("memory");
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].producer_id.0, aborted[0].first_offset), (1, Offset(5)));
    let plan = log.read(&mut disk, Offset(15), 1 << 20, true, Isolation::ReadCommitted);
    assert_eq!(plan.expect("in range").length, 0);
    append(&mut disk, &mut log, &end(21, 2, false));
    assert_eq!(log.last_stable_offset(), Offset(22));
}

#[test]
fn a_reader_at_the_end_reads_no_disk_to_find_its_place() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    for first in 0..200 {
        append(&mut disk, &mut log, &batch(first, 1));
        let reads = disk.reads;
        let plan = log.read(&mut disk, Offset(first), 1 << 20, true, Isolation::ReadUncommitted);
        assert_eq!(plan.expect("in range").length as usize, batch(first, 1).len());
        assert_eq!(disk.reads, reads);
    }
}

#[test]
fn a_read_is_one_small_look_at_the_log() {
    let mut disk = MemoryDisk::default();
    let config = LogConfig { segment_bytes: 1 << 30, ..(*small()).clone() };
    let mut log = create(&mut disk, 0, &Arc::new(config));
    for first in 0..20_000 {
        append(&mut disk, &mut log, &batch(first, 1));
    }
    let reads = disk.reads;
    for from in 0..2_000 {
        let plan = log.read(&mut disk, Offset(from * 3), 100, true, Isolation::ReadUncommitted);
        assert!(plan.expect("in range").length > 0);
    }
    assert!(disk.reads - reads < 2_200, "{} reads", disk.reads - reads);
}

#[test]
fn old_and_excess_segments_go_and_the_log_start_follows() {
    let mut disk = MemoryDisk::default();
    let config = LogConfig { retention_ms: 1_000, ..(*small()).clone() };
    let mut log = create(&mut disk, 0, &Arc::new(config));
    for first in 0..60 {
        let timestamp = first * 100;
        append(&mut disk, &mut log, &Spec { first, value: 100, timestamp, ..Spec::PLAIN }.build());
    }
    let (segments, size) = (log.segment_count(), log.size());
    assert!(segments > 4);
    assert_eq!(log.retain(&mut disk, 1_000).expect("memory"), []);
    let removed = log.retain(&mut disk, 3_500).expect("memory");
    assert!(removed.len() >= 2);
    let start = log.log_start();
    assert!(start > Offset(0) && start <= Offset(25), "{start}");
    assert_eq!(log.size() + removed.iter().map(|gone| gone.bytes).sum::<u64>(), size);
    for gone in &removed {
        assert!(!disk.files.contains_key(&*gone.log));
        assert!(gone.files.iter().all(|file| disk.files.contains_key(file)));
        assert!(gone.files.iter().all(|file| file.to_string_lossy().ends_with(".deleted")));
    }
    let limit = LogConfig { retention_ms: -1, retention_bytes: 2_500, ..(*small()).clone() };
    log.set_config(Arc::new(limit));
    log.retain(&mut disk, 3_500).expect("memory");
    assert!(log.size() >= 2_500 && log.size() < 4_500, "{}", log.size());
    assert_eq!(log.log_end(), Offset(60));
}

#[test]
fn where_all_is_old_the_log_is_empty_and_goes_on_at_its_end() {
    let mut disk = MemoryDisk::default();
    let config = LogConfig { retention_ms: 1_000, ..(*small()).clone() };
    let mut log = create(&mut disk, 0, &Arc::new(config));
    append(&mut disk, &mut log, &batch(0, 5));
    let removed = log.retain(&mut disk, 10_000_000).expect("memory");
    assert_eq!(removed.len(), 1);
    assert_eq!((log.log_start(), log.log_end(), log.size()), (Offset(5), Offset(5), 0));
    assert_eq!(log.retain(&mut disk, 10_000_000).expect("memory"), []);
    let plan = log.read(&mut disk, Offset(5), 1, true, Isolation::ReadUncommitted);
    assert_eq!(plan.expect("in range").length, 0);
    append(&mut disk, &mut log, &batch(5, 5));
    assert_eq!(read_all(&mut disk, &mut log, Offset(5), 1 << 20), batch(5, 5));
}

#[test]
fn a_raised_log_start_removes_the_segments_below_it() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    let bytes: Vec<u8> = (0..30).flat_map(|i| batch(i * 5, 5)).collect();
    append(&mut disk, &mut log, &bytes);
    assert!(log.raise_log_start(Offset(151)).is_err());
    assert_eq!(log.raise_log_start(Offset(150)), Ok(true));
    assert_eq!(log.raise_log_start(Offset(150)), Ok(false));
    let segments = log.segment_count();
    assert_eq!(log.retain(&mut disk, 0).expect("memory").len(), segments - 1);
    assert_eq!((log.segment_count(), log.log_start()), (1, Offset(150)));
    let (log, _) = open(&mut disk, log.checkpointed(), false, &small());
    assert_eq!((log.log_start(), log.log_end()), (Offset(150), Offset(150)));
}

#[test]
fn records_are_found_by_time_exact_to_the_record() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    for first in 0..100 {
        let (first, timestamp) = (first * 5, 10_000 + first * 50);
        let spec = Spec { first, records: 5, timestamp, epoch: 4, ..Spec::PLAIN };
        append(&mut disk, &mut log, &spec.build());
    }
    let mut found = |timestamp| {
        let found = log.offset_for_time(&mut disk, timestamp).expect("sound");
        found.map(|found| (found.offset.0, found.timestamp, found.leader_epoch.0))
    };
    assert_eq!(found(0), Some((0, 10_000, 4)));
    for batch in 0..100 {
        let start = 10_000 + batch * 50;
        assert_eq!(found(start), Some((batch * 5, start, 4)));
        assert_eq!(found(start + 3), Some((batch * 5 + 3, start + 3, 4)));
        if batch < 99 {
            assert_eq!(found(start + 5), Some((batch * 5 + 5, start + 50, 4)));
        }
    }
    assert_eq!(found(10_000 + 99 * 50 + 5), None);
    let newest = log.offset_of_max_timestamp(&mut disk).expect("sound").expect("not empty");
    assert_eq!((newest.offset, newest.timestamp), (Offset(499), 10_000 + 99 * 50 + 4));
    assert_eq!(log.earliest(), (Offset(0), Some(LeaderEpoch(4))));
    assert_eq!(log.latest(), (Offset(500), Some(LeaderEpoch(4))));
}

#[test]
fn an_idle_log_is_small() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &Arc::new(LogConfig::default()));
    for first in 0..10_000 {
        append(&mut disk, &mut log, &batch(first, 1));
    }
    let checkpointed = log.close(&mut disk).expect("memory");
    let (mut log, recovery) = open(&mut disk, checkpointed, true, &Arc::new(LogConfig::default()));
    assert_eq!((log.log_end(), recovery.bytes_scanned), (Offset(10_000), 0));
    log.trim(&mut disk).expect("memory");
    let bytes = size_of::<Log>() + log.heap_bytes();
    assert!(bytes < 1_024, "{bytes} bytes for an idle log");
}
