//! Random lives of a log, step by step against a list of batches. A failure names its seed.

use std::collections::BTreeMap;

use super::*;
use crate::store::LeaderEpochs;

/// A small generator, so that a seed says all.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    pub(super) fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn offset(&mut self, from: Offset, to: Offset) -> Offset {
        let span = u64::try_from(to.0 - from.0).expect("in order") + 1;
        Offset(from.0 + i64::try_from(self.roll(span)).expect("small"))
    }
}

/// Producer, first offset, offset of the marker.
type Aborted = (i64, i64, i64);

/// What the log must be.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub start: Offset,
    pub end: Offset,
    pub batches: Vec<(Spec, Vec<u8>)>,
    pub epoch: i32,
}

impl Model {
    /// A batch that may come next: plain, idempotent, in a transaction or its end.
    pub(super) fn next_batch(&mut self, dice: &mut Dice) -> (Spec, Vec<u8>) {
        if dice.one_in(12) {
            self.epoch += i32::try_from(dice.roll(3)).expect("small");
        }
        let gap = if dice.one_in(6) { dice.roll(40) } else { 0 };
        let first = self.end.0 + i64::try_from(gap).expect("small");
        let mut spec = Spec {
            first,
            records: 1 + i32::try_from(dice.roll(9)).expect("small"),
            value: usize::try_from(dice.roll(120)).expect("small"),
            timestamp: 1_000 + 10 * first - i64::try_from(dice.roll(400)).expect("small"),
            epoch: self.epoch,
            ..Spec::PLAIN
        };
        let producer = i64::try_from(dice.roll(5)).expect("small");
        match dice.roll(10) {
            0..=3 => {}
            4 => spec.producer = Some((producer + 10, 0, false)),
            5..=7 => spec.producer = Some((producer, 0, true)),
            end => {
                spec = Spec { records: 1, producer: Some((producer, 0, true)), ..spec };
                spec.ends = Some(end == 8);
            }
        }
        (spec, spec.build())
    }

    pub(super) fn append(&mut self, batch: (Spec, Vec<u8>)) {
        self.end = Offset(batch.0.next());
        self.batches.push(batch);
    }

    /// The bytes of all batches that a reader from `from` on gets.
    pub(super) fn bytes_from(&self, from: Offset) -> Vec<u8> {
        let batches = self.batches.iter().filter(|(spec, _)| spec.next() > from.0);
        batches.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }

    fn truncate(&mut self, offset: Offset) {
        if offset >= self.end {
            return;
        }
        self.end = offset;
        while let Some((spec, _)) = self.batches.pop_if(|(spec, _)| spec.next() > offset.0) {
            self.end = Offset(spec.first.min(self.end.0));
        }
        self.start = self.start.min(self.end);
    }

    /// A log that was cut in a gap ends before the gap once it is opened again: files do not tell.
    fn end_without_gap(&mut self, log: &Log) {
        let last = self.batches.last().map_or(self.start.0, |(spec, _)| spec.next());
        if log.log_end().0 >= last {
            self.end = self.end.min(log.log_end());
        }
    }

    /// The transactions that are open, and those that were aborted with the offset of their marker.
    fn transactions(&self, from: Offset) -> (BTreeMap<i64, i64>, Vec<Aborted>) {
        let (mut open, mut aborted) = (BTreeMap::new(), Vec::new());
        for (spec, _) in self.batches.iter().filter(|(spec, _)| spec.next() > from.0) {
            match (spec.producer, spec.ends) {
                (Some((producer, _, true)), None) => {
                    open.entry(producer).or_insert(spec.first);
                }
                (Some((producer, ..)), Some(is_abort)) => {
                    if let Some(first) = open.remove(&producer).filter(|_| is_abort) {
                        aborted.push((producer, first, spec.first));
                    }
                }
                _ => {}
            }
        }
        (open, aborted)
    }

    /// How far a reader of committed records may get. What was deleted may count or not: it does
    /// until the log is opened again, as in Kafka.
    fn last_stable(&self, from: Offset) -> Offset {
        let (open, _) = self.transactions(from);
        let first = open.values().min().map_or(self.end, |&first| Offset(first));
        first.max(self.start)
    }
}

/// Compares a log with what it must be.
pub(super) fn check(disk: &mut MemoryDisk, log: &mut Log, model: &Model, dice: &mut Dice) {
    assert_eq!((log.log_start(), log.log_end()), (model.start, model.end), "start and end");
    let stable = log.last_stable_offset();
    let may_be = [Offset(0), model.start].map(|from| model.last_stable(from));
    assert!(may_be.contains(&stable), "last stable offset {stable}, not {may_be:?}");
    check_epochs(log, model, dice);
    let bytes_max = 1 + dice.roll(3_000);
    let all = read_all(disk, log, model.start, bytes_max);
    assert_eq!(all.len(), model.bytes_from(model.start).len());
    assert!(all == model.bytes_from(model.start), "all bytes, {bytes_max} at a time");
    for _ in 0..5 {
        let from = dice.offset(model.start, model.end);
        check_committed(disk, log, model, from, 1 + dice.roll(2_000));
        check_time(disk, log, model, dice);
    }
}

fn check_epochs(log: &Log, model: &Model, dice: &mut Dice) {
    if model.start == model.end {
        return;
    }
    let mut epochs = LeaderEpochs::default();
    for (spec, _) in &model.batches {
        epochs.assign(LeaderEpoch(spec.epoch), Offset(spec.first));
    }
    epochs.truncate_from_start(model.start);
    let epoch = LeaderEpoch(i32::try_from(dice.roll(20)).expect("small"));
    let end = epochs.end_offset_for(epoch, model.end);
    // Below the oldest epoch the answers differ with how much of it is still there, as in Kafka.
    if epochs.first().is_some_and(|(first, _)| first <= epoch) {
        assert_eq!(log.end_offset_for_epoch(epoch), end, "end of epoch {epoch}");
    }
}

fn check_committed(
    disk: &mut MemoryDisk,
    log: &mut Log,
    model: &Model,
    from: Offset,
    bytes_max: u64,
) {
    let plan = log.read(disk, from, bytes_max, true, Isolation::ReadCommitted).expect("in range");
    let stable = log.last_stable_offset();
    if plan.length == 0 {
        let left: Vec<_> =
            model.batches.iter().filter(|(s, _)| s.next() > from.0 && s.first < stable.0).collect();
        assert!(
            from >= stable || left.is_empty(),
            "nothing from {from} below {stable}, but {:?}",
            left[0].0
        );
        return;
    }
    let mut bytes = vec![0; usize::try_from(plan.length).expect("small")];
    disk.read(&plan.path, plan.position, &mut bytes).expect("memory");
    assert!(model.bytes_from(from).starts_with(&bytes), "from {from}");
    let mut upper = from;
    for found in wire::batch::Batches::new(&bytes) {
        upper = found.expect("sound").1.next_offset();
    }
    assert!(upper <= stable, "a reader of committed records got up to {upper}, not {stable}");
    let told = log.aborted_transactions(disk, from, &plan).expect("memory");
    assert!(told.iter().all(|aborted| aborted.last_offset >= from));
    for (producer, first, marker) in model.transactions(Offset(0)).1 {
        // Its first batch that this reader gets; the transaction has to be named as open there.
        let seen = model.batches.iter().map(|(spec, _)| spec).find(|spec| {
            spec.producer == Some((producer, 0, true))
                && (first..marker).contains(&spec.first)
                && spec.next() > from.0
                && spec.first < upper.0
        });
        let Some(seen) = seen else { continue };
        let told = told.iter().find(|aborted| aborted.last_offset.0 == marker);
        let told =
            told.unwrap_or_else(|| panic!("aborted {producer} {first}..{marker} is not told"));
        assert!(told.producer_id.0 == producer && told.first_offset.0 <= seen.first);
    }
}

fn check_time(disk: &mut MemoryDisk, log: &mut Log, model: &Model, dice: &mut Dice) {
    let wanted = 500 + i64::try_from(dice.roll(40 * 400)).expect("small");
    let found = log.offset_for_time(disk, wanted).expect("sound");
    // Kafka looks into the first segment that is new enough, below the log start too; what it finds
    // is then the first at or above the log start. So only soundness holds in general.
    let records = model.batches.iter().flat_map(|(spec, _)| {
        (0..spec.records).map(move |i| (spec.first + i64::from(i), spec.timestamp + i64::from(i)))
    });
    let first = records.filter(|&(offset, at)| at >= wanted && offset >= model.start.0).min();
    match found {
        Some(found) => assert_eq!(Some((found.offset.0, found.timestamp)), first),
        None => assert!(first.is_none() || log.log_start() > Offset(0), "{first:?} at {wanted}"),
    }
}

fn step(disk: &mut MemoryDisk, mut log: Log, model: &mut Model, dice: &mut Dice) -> Log {
    match dice.roll(20) {
        0 => {
            let offset = dice.offset(Offset((model.start.0 - 5).max(0)), model.end);
            let first = model.batches.first().map_or(model.end.0, |(spec, _)| spec.first);
            let segment = disk.files.keys().find(|f| f.extension().is_some_and(|e| e == "log"));
            let base = segment.and_then(|f| f.file_stem()?.to_str()?.parse().ok()).unwrap_or(first);
            log.truncate_to(disk, offset, 0).expect("memory");
            if offset.0 < base {
                *model =
                    Model { start: offset, end: offset, epoch: model.epoch, ..Model::default() };
            } else {
                model.truncate(offset);
            }
            model.epoch = model.batches.last().map_or(0, |(spec, _)| spec.epoch);
        }
        1 => {
            let stable = model.last_stable(Offset(0));
            let start = dice.offset(model.start, stable);
            log.raise_log_start(start).expect("in range");
            model.start = start;
            log.retain(disk, 0).expect("memory");
        }
        2 => {
            let checkpointed = log.close(disk).expect("memory");
            log = open(disk, checkpointed, true, &small()).0;
            model.end_without_gap(&log);
        }
        3 => {
            let checkpointed = log.checkpointed();
            drop(log);
            let (opened, recovery) = open(disk, checkpointed, false, &small());
            // Only what is below the log start may go.
            assert!(
                recovery.cut.as_ref().is_none_or(|cut| cut.why.contains("below its start")),
                "{recovery:?}"
            );
            log = opened;
            model.end_without_gap(&log);
        }
        4 | 5 => {
            let plan = log.flush_plan(disk).expect("memory");
            assert!(plan.files.iter().all(|file| disk.files.contains_key(&**file)), "{plan:?}");
            log.flushed(disk, plan.up_to).expect("memory");
            // The last batch of an active segment stays unbelieved.
            assert!(log.recovery_point().0 >= model.end.0 - 1, "{}", log.recovery_point());
        }
        6 => log.trim(disk).expect("memory"),
        _ => {
            let mut bytes = Vec::new();
            for _ in 0..=dice.roll(6) {
                let batch = model.next_batch(dice);
                bytes.extend_from_slice(&batch.1);
                model.append(batch);
            }
            append(disk, &mut log, &bytes);
        }
    }
    log
}

#[test]
fn a_log_is_what_was_appended_through_whatever_happens_to_it() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut disk = MemoryDisk::default();
        let start = i64::try_from(dice.roll(3) * 1_000).expect("small");
        let mut log = create(&mut disk, start, &small());
        let mut model = Model { start: Offset(start), end: Offset(start), ..Model::default() };
        for turn in 0..60 {
            log = step(&mut disk, log, &mut model, &mut dice);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                check(&mut disk, &mut log, &model, &mut dice);
            }));
            assert!(result.is_ok(), "seed {seed}, turn {turn}");
        }
    }
}
