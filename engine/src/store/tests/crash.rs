//! What is left after a crash at any byte, with whatever a disk does to what was not flushed.

use super::model::{Dice, Model, check};
use super::*;
use crate::store::index::{Entry, OffsetEntry, TimeEntry};

/// A log of some segments, flushed up to some point, and what it must be.
fn grown(dice: &mut Dice, disk: &mut MemoryDisk) -> (Checkpointed, Model) {
    let mut log = create(disk, 0, &small());
    let mut model = Model::default();
    let (count, flush_at) = (20 + dice.roll(60), dice.roll(60));
    for turn in 0..count {
        let batch = model.next_batch(dice);
        append(disk, &mut log, &batch.1);
        model.append(batch);
        if turn == flush_at {
            let plan = log.flush_plan(disk).expect("memory");
            log.flushed(disk, plan.up_to).expect("memory");
        }
    }
    (log.checkpointed(), model)
}

/// A log of one transaction, which was aborted.
fn with_an_abort(disk: &mut MemoryDisk) -> Log {
    let mut log = create(disk, 0, &small());
    let producer = Some((1, 0, true));
    append(disk, &mut log, &Spec { records: 4, producer, ..Spec::PLAIN }.build());
    let marker = Spec { first: 4, producer, ends: Some(true), ..Spec::PLAIN };
    append(disk, &mut log, &marker.build());
    log
}

/// The files of batches, with where each begins in the whole log.
fn segments(disk: &MemoryDisk) -> Vec<(PathBuf, usize, usize)> {
    let mut start = 0;
    let logs = disk.files.iter().filter(|(file, _)| file.extension().is_some_and(|e| e == "log"));
    logs.map(|(file, bytes)| {
        start += bytes.len();
        (file.clone(), start - bytes.len(), bytes.len())
    })
    .collect()
}

/// The model as it is when only the first `bytes` bytes are whole.
fn cut_model(model: &Model, bytes: usize) -> Model {
    let mut cut = Model { batches: Vec::new(), end: model.start, ..model.clone() };
    let mut position = 0;
    for (spec, batch) in &model.batches {
        position += batch.len();
        if position > bytes {
            break;
        }
        cut.append((*spec, batch.clone()));
    }
    cut
}

/// Bytes below the recovery point.
fn flushed_bytes(model: &Model, recovery_point: Offset) -> usize {
    let flushed = model.batches.iter().filter(|(spec, _)| spec.next() <= recovery_point.0);
    flushed.map(|(_, bytes)| bytes.len()).sum()
}

#[test]
fn recovery_ends_the_log_at_the_first_byte_that_was_lost() {
    let mut cuts = 0;
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let mut disk = MemoryDisk::default();
        let (checkpointed, model) = grown(&mut dice, &mut disk);
        let flushed = flushed_bytes(&model, checkpointed.recovery_point);
        let total = model.bytes_from(Offset(0)).len();
        let lost =
            flushed + usize::try_from(dice.roll((total - flushed) as u64 + 1)).expect("small");
        let (file, start, length) = segments(&disk)
            .into_iter()
            .find(|&(_, start, length)| lost < start + length)
            .unwrap_or_else(|| segments(&disk).pop().expect("a segment"));
        let bytes = disk.files.get_mut(&file).expect("it was listed");
        match dice.roll(3) {
            // The file ends there.
            0 => bytes.truncate(lost - start),
            // What follows was never written: zeros.
            1 => bytes[lost - start..].fill(0),
            // One bit is another.
            _ if lost - start < length => bytes[lost - start] ^= 0x20,
            _ => {}
        }
        // Base offset and leader epoch are not under the CRC: with another bit there a batch is
        // another, but whole.
        let at = lost - cut_model(&model, lost).bytes_from(Offset(0)).len();
        if (at < 8 || (12..16).contains(&at)) && bytes.len() == length {
            continue;
        }
        let damaged = bytes.len() < length || lost < total;
        // A file that ends between two batches tells nothing of what came after.
        let ends_between = at == 0 && bytes.len() < length;
        let mut model = if damaged { cut_model(&model, lost) } else { model };
        damage_indexes(&mut dice, &mut disk, checkpointed.recovery_point);
        let (mut log, recovery) = open(&mut disk, checkpointed, false, &small());
        cuts += usize::from(recovery.cut.is_some());
        if log.segments.last().is_some_and(|last| last.size == 0) {
            // The name of the last segment says that nothing comes before it: compaction took it.
            model.end = model.end.max(log.log_end());
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let is_cut = damaged && model.bytes_from(Offset(0)).len() < total;
            assert!(recovery.cut.is_some() == is_cut || ends_between && is_cut);
            check(&mut disk, &mut log, &model, &mut dice);
            goes_on(&mut disk, log, model.clone(), &mut dice);
        }));
        assert!(result.is_ok(), "seed {seed}, byte {lost} of {total}, {recovery:?}");
    }
    assert!(cuts > 150, "{cuts} cuts are too few to mean anything");
}

/// Indexes of segments at or above the recovery point may hold anything.
fn damage_indexes(dice: &mut Dice, disk: &mut MemoryDisk, recovery_point: Offset) {
    let files: Vec<_> = disk.files.keys().cloned().collect();
    for file in files {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let Some((kind, base)) = crate::store::names::FileKind::parse(&name) else { continue };
        let is_index = name.ends_with("index");
        let is_snapshot = kind == crate::store::names::FileKind::Snapshot;
        if base > recovery_point && (is_index || is_snapshot) {
            match dice.roll(4) {
                0 => drop(disk.files.remove(&file)),
                1 => disk.files.get_mut(&file).expect("listed").fill(0xff),
                2 => disk.files.get_mut(&file).expect("listed").extend_from_slice(&[1; 13]),
                _ => {}
            }
        }
    }
}

/// After recovery a log takes batches, closes and opens like any other, and its files are sound.
fn goes_on(disk: &mut MemoryDisk, mut log: Log, mut model: Model, dice: &mut Dice) {
    for _ in 0..10 {
        let batch = model.next_batch(dice);
        append(disk, &mut log, &batch.1);
        model.append(batch);
    }
    check(disk, &mut log, &model, dice);
    let checkpointed = log.close(disk).expect("memory");
    verify_indexes(disk);
    let (mut log, recovery) = open(disk, checkpointed, true, &small());
    assert_eq!(recovery, Recovery::default());
    check(disk, &mut log, &model, dice);
}

/// What Kafka's DumpLogSegments looks at: every entry names a batch, timestamps and offsets rise.
pub(super) fn verify_indexes(disk: &MemoryDisk) {
    for (file, ..) in segments(disk) {
        let bytes = disk.bytes(&file);
        let batches = admit(&bytes);
        let base: i64 =
            file.file_stem().expect("a name").to_string_lossy().parse().expect("digits");
        let offsets = disk.bytes(&file.with_extension("index"));
        assert_eq!(offsets.len() % OffsetEntry::SIZE, 0);
        let mut last = None;
        for entry in offsets.chunks_exact(OffsetEntry::SIZE).map(OffsetEntry::decode) {
            let batch = batches.iter().find(|batch| batch.position == entry.position as usize);
            let batch = batch.expect("an entry names the place of a batch");
            assert_eq!(batch.last_offset.0, base + i64::from(entry.relative));
            assert!(last < Some(entry.relative));
            last = Some(entry.relative);
        }
        let times = disk.bytes(&file.with_extension("timeindex"));
        assert_eq!(times.len() % TimeEntry::SIZE, 0);
        let mut last = -1;
        for entry in times.chunks_exact(TimeEntry::SIZE).map(TimeEntry::decode) {
            let offset = Offset(base + i64::from(entry.relative));
            let batch = batches.iter().find(|batch| batch.last_offset == offset);
            assert_eq!(batch.expect("it names a batch").max_timestamp, entry.timestamp);
            assert!(last < entry.timestamp);
            last = entry.timestamp;
        }
        let newest = batches.iter().map(|batch| batch.max_timestamp).max();
        assert_eq!(last, newest.unwrap_or(-1), "the last entry has the newest timestamp");
    }
}

#[test]
fn a_missing_or_broken_index_of_a_flushed_segment_is_made_anew() {
    for extension in ["index", "timeindex"] {
        for broken in [false, true] {
            let mut dice = Dice::new(7);
            let mut disk = MemoryDisk::default();
            let (_, model) = grown(&mut dice, &mut disk);
            let mut log = open(&mut disk, Checkpointed::default(), false, &small()).0;
            check(&mut disk, &mut log, &model, &mut dice);
            let checkpointed = log.close(&mut disk).expect("memory");
            let file = segments(&disk)[1].0.with_extension(extension);
            let before = disk.clone();
            if broken {
                disk.files.get_mut(&file).expect("there").push(1);
            } else {
                disk.files.remove(&file);
            }
            let (mut log, recovery) = open(&mut disk, checkpointed, true, &small());
            assert_eq!(recovery.indexes_rebuilt, 1);
            check(&mut disk, &mut log, &model, &mut dice);
            for kind in ["index", "timeindex", "txnindex"] {
                let file = file.with_extension(kind);
                assert_eq!(disk.files.get(&file), before.files.get(&file), "{kind}");
            }
        }
    }
}

/// Whoever was stopped while he made the indexes of a flushed segment anew found whole entries the next
/// time, and no transaction index, which some segments just lack: readers saw aborted records.
#[test]
fn indexes_that_were_half_made_anew_are_begun_again() {
    for broken in ["index", "timeindex", "txnindex"] {
        let mut disk = MemoryDisk::default();
        let large = LogConfig {
            index_interval_bytes: 0,
            segment_bytes: 1 << 20,
            ..LogConfig::clone(&small())
        };
        let config = Arc::new(large);
        let mut log = create(&mut disk, 0, &config);
        let producer = Some((1, 0, true));
        for turn in 0..600 {
            let first = turn * 3;
            let batch = Spec { first, records: 2, timestamp: turn, producer, ..Spec::PLAIN };
            append(&mut disk, &mut log, &batch.build());
            let marker = Spec {
                first: first + 2,
                timestamp: turn,
                producer,
                ends: Some(true),
                ..Spec::PLAIN
            };
            append(&mut disk, &mut log, &marker.build());
        }
        log.roll(&mut disk, Offset(1800), 0).expect("memory");
        let checkpointed = log.close(&mut disk).expect("memory");
        let file = segments(&disk)[0].0.with_extension(broken);
        let right = disk.files.clone();
        disk.files.get_mut(&file).expect("there").push(0);
        for writes in 0.. {
            let mut disk = MemoryDisk { writes_left: Some(writes), ..disk.clone() };
            let place = Place { data: data(), partition: &partition(), config: &config };
            let stopped = Log::open(&mut disk, place, checkpointed, Left::Clean, 0).is_err();
            disk.writes_left = None;
            let _ = open(&mut disk, checkpointed, true, &config);
            for (file, bytes) in &right {
                assert_eq!(
                    disk.files.get(file),
                    Some(bytes),
                    "{broken} {writes} {}",
                    file.display()
                );
            }
            if !stopped {
                break;
            }
        }
    }
}

/// After a clean stop somebody shortened the last segment or wrote over its index. The log was believed
/// to end where the segment begins, and what came next was appended behind torn bytes.
#[test]
fn an_end_that_was_closed_and_is_gone_is_recovered_and_said() {
    for damage in 0..3 {
        let (mut dice, mut disk) = (Dice::new(7), MemoryDisk::default());
        let _ = grown(&mut dice, &mut disk);
        let log = open(&mut disk, Checkpointed::default(), false, &small()).0;
        let checkpointed = log.close(&mut disk).expect("memory");
        let last = segments(&disk).pop().expect("a segment").0;
        let (file, is_lost) = match damage {
            0 => (last, true),
            1 => (last.with_extension("index"), false),
            _ => (last.with_extension("timeindex"), false),
        };
        let bytes = disk.files.get_mut(&file).expect("there");
        match damage {
            0 => bytes.truncate(bytes.len() / 2),
            _ => bytes.fill(0x7f),
        }
        let (log, recovery) = open(&mut disk, checkpointed, true, &small());
        assert_eq!(recovery.cut.is_some(), is_lost, "{damage}");
        assert_eq!(log.log_end() < checkpointed.recovery_point, is_lost, "{damage}");
        let file = segments(&disk).pop().expect("a segment");
        let whole = log.segments.last().expect("a segment").size;
        assert_eq!(whole, file.2 as u64, "no bytes lie behind the end");
    }
}

/// A transaction index was written over after a clean stop, and readers of committed records saw
/// aborted ones.
#[test]
fn a_transaction_index_that_cannot_be_is_made_anew() {
    for damage in 0..3 {
        let mut disk = MemoryDisk::default();
        let log = with_an_abort(&mut disk);
        let checkpointed = log.close(&mut disk).expect("memory");
        let file = segments(&disk)[0].0.with_extension("txnindex");
        let right = disk.files[&file].clone();
        let bytes = disk.files.get_mut(&file).expect("there");
        match damage {
            0 => bytes.fill(0x7f),
            1 => bytes.push(0),
            _ => bytes[10..18].copy_from_slice(&i64::MAX.to_be_bytes()),
        }
        let _ = open(&mut disk, checkpointed, true, &small());
        assert_eq!(disk.files[&file], right, "{damage}");
    }
}

/// Behind a flushed segment lay an empty one, so recovery read it again and made its indexes anew. A power
/// cut took its transaction index, and since it was below the recovery point nobody looked at it again:
/// readers of committed records saw aborted ones (simulation, seed 1958643197).
#[test]
fn indexes_that_are_made_anew_below_the_recovery_point_are_durable() {
    for case in ["empty behind it", "rolled later", "index broken", "not that clean"] {
        let mut disk = MemoryDisk::default();
        let mut log = with_an_abort(&mut disk);
        let end = log.log_end();
        let is_rolled_later = ["rolled later", "not that clean"].contains(&case);
        if !is_rolled_later {
            log.roll(&mut disk, end, 0).expect("memory");
        }
        let checkpointed = match case {
            "not that clean" => log.close(&mut disk).expect("memory"),
            _ => Checkpointed { recovery_point: end, ..log.checkpointed() },
        };
        let file = segments(&disk)[0].0.clone();
        if case == "not that clean" {
            disk.files.get_mut(&file).expect("there").extend([0; 20]);
        }
        if case == "index broken" {
            disk.files.get_mut(&file.with_extension("index")).expect("there").push(0);
        }
        disk.unsynced.clear();
        disk.unsynced_names.clear();
        let was_clean = ["index broken", "not that clean"].contains(&case);
        let (mut log, _) = open(&mut disk, checkpointed, was_clean, &small());
        if is_rolled_later {
            log.roll(&mut disk, end, 0).expect("memory");
        }
        let kinds = ["log", "index", "timeindex", "txnindex"].map(|kind| file.with_extension(kind));
        let is_left = |file| disk.unsynced.contains(file) || disk.unsynced_names.contains(file);
        let left: Vec<_> = kinds.iter().filter(|&file| is_left(file)).collect();
        assert_eq!(left, Vec::<&PathBuf>::new(), "{case}");
    }
}

/// A power cut took the end of one segment and left zeros where the next one begins: recovery gave
/// the partition up, as if those bytes had ever been promised (simulation, seed 2135782440).
#[test]
fn a_segment_that_begins_with_nothing_after_one_that_was_cut_ends_the_log() {
    for torn in [0_u8, 0xff] {
        let (mut dice, mut disk) = (Dice::new(7), MemoryDisk::default());
        let _ = grown(&mut dice, &mut disk);
        let files = segments(&disk);
        disk.files.get_mut(&files[1].0).expect("there").clear();
        disk.files.get_mut(&files[2].0).expect("there").fill(torn);
        let (log, recovery) = open(&mut disk, Checkpointed::default(), false, &small());
        assert_eq!(log.segments.len(), 2);
        assert_eq!(log.log_end(), log.segments[1].base);
        assert!(recovery.cut.is_some_and(|cut| cut.segments == files.len() - 2));
    }
}

/// A log began anew inside of a batch, and its empty segment was named again after that batch; a power
/// cut brought the old name back. Both lay there, the one with the batch counted as ending where the
/// other began, and went with the records before it (simulation, seed 843551533).
#[test]
fn an_empty_segment_that_was_replaced_does_not_come_back() {
    for recovery_point in [0, 454, 459] {
        let mut disk = MemoryDisk::default();
        let mut log = create(&mut disk, 459, &small());
        append(&mut disk, &mut log, &Spec { first: 454, records: 6, ..Spec::PLAIN }.build());
        drop(log);
        let back = segments(&disk)[0].0.with_file_name("00000000000000000459.log");
        disk.files.insert(back.clone(), Vec::new());
        let (recovery_point, log_start) = (Offset(recovery_point), Offset(459));
        let checkpointed = Checkpointed { recovery_point, log_start, ..Default::default() };
        let (log, recovery) = open(&mut disk, checkpointed, false, &small());
        let bases: Vec<_> = log.segments.iter().map(|segment| segment.base.0).collect();
        assert_eq!((bases, log.log_start(), log.log_end()), (vec![454], Offset(459), Offset(460)));
        assert!(!disk.files.contains_key(&back) && recovery.leftovers == 1);
    }
}

/// A log that began anew at 459 was named after the batch that has that offset, and the process was killed
/// before that batch was written: the next start told offsets to be lost that nobody had (simulation,
/// seeds 1949522146 and 3195074092).
#[test]
fn a_log_that_was_named_after_a_batch_below_its_start_still_starts_where_it_did() {
    for lost_name in [false, true] {
        let mut disk = MemoryDisk::default();
        let mut log = create(&mut disk, 459, &small());
        let batch = Spec { first: 454, records: 6, ..Spec::PLAIN }.build();
        let pieces = log.append(&mut disk, &admit(&batch), 0).expect("memory");
        assert_eq!(pieces.len(), 1);
        drop(log);
        if lost_name {
            disk.files.remove(&segments(&disk)[0].0);
        }
        let (mut log, _) = open(&mut disk, Checkpointed::default(), false, &small());
        assert_eq!((log.log_start(), log.log_end()), (Offset(459), Offset(459)));
        append(&mut disk, &mut log, &batch);
        drop(log);
        let (log, _) = open(&mut disk, Checkpointed::default(), false, &small());
        assert_eq!((log.log_start(), log.log_end()), (Offset(459), Offset(460)));
    }
}

#[test]
fn a_flushed_batch_that_changed_is_damage_and_not_cut_away() {
    let mut dice = Dice::new(7);
    let mut disk = MemoryDisk::default();
    let _ = grown(&mut dice, &mut disk);
    let log = open(&mut disk, Checkpointed::default(), false, &small()).0;
    let checkpointed = log.close(&mut disk).expect("memory");
    let file = segments(&disk)[1].0.clone();
    disk.files.remove(&file.with_extension("index"));
    disk.files.get_mut(&file).expect("there")[100] ^= 1;
    let place = Place { data: data(), partition: &partition(), config: &small() };
    let damage = Log::open(&mut disk, place, checkpointed, Left::Clean, 0).expect_err("broken");
    assert_eq!((damage.kind, damage.file.as_path()), (DamageKind::Corrupt, file.as_path()));
}

#[test]
fn what_a_removal_or_a_cleaner_left_behind_is_put_right() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    let bytes: Vec<u8> =
        (0..40).flat_map(|i| Spec { first: i * 5, records: 5, ..Spec::PLAIN }.build()).collect();
    append(&mut disk, &mut log, &bytes);
    let checkpointed = log.close(&mut disk).expect("memory");
    let all = segments(&disk);
    // The cleaner has made one segment of the first two, without every second batch.
    let cleaned: Vec<u8> = admit(&bytes[..all[2].1])
        .iter()
        .step_by(2)
        .flat_map(|batch| bytes[batch.position..batch.position + batch.size].to_vec())
        .collect();
    let folder = folder();
    disk.files.insert(folder.join("00000000000000000000.log.swap"), cleaned.clone());
    disk.files.insert(folder.join("00000000000000000900.log.deleted"), vec![1]);
    disk.files.insert(folder.join("00000000000000000900.index"), vec![0; 8]);
    let (mut log, recovery) = open(&mut disk, checkpointed, true, &small());
    assert_eq!((recovery.leftovers, recovery.indexes_rebuilt), (2, 1));
    assert_eq!(log.segment_count(), all.len() - 1);
    let want = [cleaned, bytes[all[2].1..].to_vec()].concat();
    assert_eq!(read_all(&mut disk, &mut log, Offset(0), 700), want);
    assert!(disk.files.keys().all(|file| !file.to_string_lossy().contains("900")));
    // A cleaner that did not end leaves the old segments as they are.
    let file = all[2].0.file_name().expect("a name").to_string_lossy().into_owned();
    disk.files.insert(folder.join(format!("{file}.cleaned")), vec![1]);
    disk.files.insert(folder.join(format!("{file}.swap")), vec![1]);
    let checkpointed = log.close(&mut disk).expect("memory");
    let (mut log, recovery) = open(&mut disk, checkpointed, true, &small());
    assert_eq!(recovery.leftovers, 2);
    assert_eq!(read_all(&mut disk, &mut log, Offset(0), 700), want);
}

#[test]
fn a_log_that_ends_below_its_start_begins_anew_at_its_start() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    append(&mut disk, &mut log, &Spec { records: 5, ..Spec::PLAIN }.build());
    let checkpointed = Checkpointed { log_start: Offset(100), ..log.checkpointed() };
    let (log, recovery) = open(&mut disk, checkpointed, false, &small());
    assert_eq!((log.log_start(), log.log_end()), (Offset(100), Offset(100)));
    assert!(recovery.cut.expect("it was").why.contains("below its start 100"));
}

#[test]
fn a_folder_without_segments_is_an_empty_log() {
    let mut disk = MemoryDisk::default();
    let checkpointed = Checkpointed { log_start: Offset(7), ..Checkpointed::default() };
    let (mut log, _) = open(&mut disk, checkpointed, false, &small());
    assert_eq!((log.log_start(), log.log_end()), (Offset(7), Offset(7)));
    append(&mut disk, &mut log, &Spec { first: 7, ..Spec::PLAIN }.build());
    assert_eq!(log.log_end(), Offset(8));
}

#[test]
fn lost_leader_epochs_are_read_from_the_batches() {
    let mut disk = MemoryDisk::default();
    let mut log = create(&mut disk, 0, &small());
    for (first, epoch) in [(0, 3), (5, 4), (10, 9)] {
        append(&mut disk, &mut log, &Spec { first, records: 5, epoch, ..Spec::PLAIN }.build());
    }
    let checkpointed = log.close(&mut disk).expect("memory");
    let file = folder().join("leader-epoch-checkpoint");
    assert_eq!(disk.bytes(&file), b"0\n3\n3 0\n4 5\n9 10\n");
    for lost in [None, Some(b"0\nx".to_vec())] {
        disk.files.remove(&file);
        lost.map(|text| disk.files.insert(file.clone(), text));
        let (log, _) = open(&mut disk, checkpointed, true, &small());
        let end = log.end_offset_for_epoch(LeaderEpoch(4));
        assert_eq!(end, Some((LeaderEpoch(4), Offset(10))));
        assert_eq!(disk.bytes(&file), b"0\n3\n3 0\n4 5\n9 10\n");
    }
}
