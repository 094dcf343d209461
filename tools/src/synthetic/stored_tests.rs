use super::*;
use crate::synthetic::batch::{NewBatch, Record};

fn append(log: &mut Stored, batch: &NewBatch) {
    log.append_built(batch.build(log.end(), LeaderEpoch(0)));
}

/// Batches of `counts` records; record `n` has the timestamp `n`.
fn log(counts: &[i64]) -> Stored {
    let mut log = Stored::default();
    for count in counts {
        let first = log.end().0;
        let records = (first..first + count).map(|n| Record::of(n, "value").key("key"));
        append(&mut log, &NewBatch::of(records.collect()));
    }
    log
}

fn bases(log: &Stored) -> Vec<i64> {
    let batches = log.batches(log.start(), log.end());
    batches.map(|bytes| Batch::read(bytes, 0).expect("a batch").base_offset().0).collect()
}

#[test]
fn reads_whole_batches_and_cuts_only_the_last_one() {
    let log = log(&[3, 3, 3]);
    let size = log.batches[0].bytes.len();
    let read = |from, bytes_max, whole| {
        log.read(Offset(from), log.high_watermark(), bytes_max, whole).len()
    };
    assert_eq!(read(0, 10_000, false), 3 * size);
    assert_eq!(read(4, 10_000, false), 2 * size, "from the batch that holds the offset");
    assert_eq!(read(0, size + 5, false), size + 5, "a later batch is cut");
    assert_eq!(read(0, size - 1, false), 0, "the first one is not");
    assert_eq!(read(0, size - 1, true), size, "unless it has to be given");
    assert_eq!(read(9, 10_000, true), 0);
}

#[test]
fn the_high_watermark_hides_the_batches_behind_it() {
    let mut log = log(&[3, 3]);
    log.hold_high_watermark(Some(Offset(3)));
    assert_eq!(log.high_watermark(), Offset(3));
    let size = log.batches[0].bytes.len();
    assert_eq!(log.read(Offset(0), log.high_watermark(), 10_000, true).len(), size);
}

#[test]
fn deleting_inside_a_batch_keeps_the_batch() {
    let mut log = log(&[3, 3]);
    log.delete_records_before(Offset(4));
    assert_eq!((log.start(), bases(&log)), (Offset(4), vec![3]));
}

#[test]
fn compaction_keeps_offsets_and_producers_and_makes_sound_batches() {
    for compression in [Compression::None, Compression::Zstd, Compression::Snappy] {
        let mut log = Stored::default();
        for sequence in [0, 3, 6] {
            let records = (0..3).map(|n| Record::of(100 + n, "value").key("key")).collect();
            let batch = NewBatch::of(records).producer(5, 0, sequence).compressed(compression);
            append(&mut log, &batch);
        }
        log.compact(EmptyBatch::Remove, |offset| offset.0 == 1 || offset.0 >= 6);
        assert_eq!(bases(&log), [0, 6]);
        let first = Batch::read(&log.batches[0].bytes, 0).expect("a batch");
        assert_eq!(first.verify_crc(), Ok(()));
        assert_eq!((first.record_count(), first.next_offset()), (1, Offset(3)));
        assert_eq!((first.producer_id(), first.base_sequence()), (ProducerId(5), 0));
        assert_eq!(timestamps(&log.batches[0].bytes), [(101, Offset(1))]);

        log.compact(EmptyBatch::Keep, |_| false);
        assert_eq!(bases(&log), [0, 6]);
        let empty = Batch::read(&log.batches[1].bytes, 0).expect("a batch");
        assert_eq!((empty.record_count(), empty.next_offset()), (0, Offset(9)));
        assert_eq!(empty.verify_crc(), Ok(()));
    }
}

#[test]
fn a_cut_takes_the_batch_over_it_and_what_ended_behind_it() {
    let mut log = log(&[3]);
    let producer = (ProducerId(7), ProducerEpoch(0));
    let batch = NewBatch::of(vec![Record::of(0, "a"), Record::of(0, "b")]);
    append(&mut log, &batch.clone().producer(7, 0, 0).transactional());
    log.append_marker(ControlKind::Abort, LeaderEpoch(0), producer, 0);
    assert_eq!(log.last_stable_offset(), Offset(6));
    log.truncate(Offset(5));
    assert_eq!((log.end(), log.last_stable_offset()), (Offset(5), Offset(3)));
    log.truncate(Offset(4));
    assert_eq!((log.end(), log.last_stable_offset()), (Offset(4), Offset(4)));
    assert_eq!(bases(&log), [0]);
}

#[test]
fn transactions_hold_the_last_stable_offset_and_aborted_ones_are_told() {
    let mut log = log(&[3]);
    let batch = NewBatch::of(vec![Record::of(0, "a")]);
    append(&mut log, &batch.clone().producer(7, 0, 0).transactional());
    append(&mut log, &batch.clone().producer(8, 0, 0).transactional());
    assert_eq!(log.last_stable_offset(), Offset(3));
    log.append_marker(ControlKind::Abort, LeaderEpoch(0), (ProducerId(7), ProducerEpoch(0)), 0);
    assert_eq!(log.last_stable_offset(), Offset(4));
    log.append_marker(ControlKind::Commit, LeaderEpoch(0), (ProducerId(8), ProducerEpoch(0)), 0);
    assert_eq!(log.last_stable_offset(), Offset(7));
    let aborted = |from, upper| log.aborted(Offset(from), Offset(upper));
    let seven = AbortedTransaction { producer_id: ProducerId(7), first_offset: Offset(3) };
    assert_eq!(aborted(0, 7), [seven]);
    assert_eq!(aborted(5, 7), [seven], "its marker has not been read");
    assert_eq!(aborted(6, 7), []);
    assert_eq!(aborted(0, 3), []);
    log.hold_high_watermark(Some(Offset(6)));
    assert_eq!(log.last_stable_offset(), Offset(4), "the marker is not replicated");
}

#[test]
fn a_damaged_batch_is_served_at_its_offset_until_it_is_healed() {
    let mut log = log(&[3, 3]);
    let sound = log.read(Offset(0), log.end(), 10_000, true).to_vec();
    for damage in [
        Damage::Crc,
        Damage::Magic(1),
        Damage::Length(-5),
        Damage::BaseOffset(Offset(90)),
        Damage::LeaderEpoch(LeaderEpoch(9)),
    ] {
        log.damage(Offset(4), damage);
        let read = log.read(Offset(4), log.end(), 10_000, true).to_vec();
        assert_ne!(sound[sound.len() - read.len()..], read[..], "{damage:?}");
    }
    log.heal();
    assert_eq!(log.read(Offset(0), log.end(), 10_000, true).to_vec(), sound);
}

#[test]
fn times_lead_to_offsets() {
    let log = log(&[3, 3]);
    assert_eq!(log.at_time(0), Some((0, Offset(0))));
    assert_eq!(log.at_time(4), Some((4, Offset(4))));
    assert_eq!(log.at_time(6), None);
    assert_eq!(log.newest(), Some((5, Offset(5))));
}
