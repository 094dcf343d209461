//! What a partition does, sentence by sentence.

use std::time::Duration;

use wire::api::ErrorCode;
use wire::batch::{BatchError, BatchFault};
use wire::ids::{LeaderEpoch, Offset};

use super::admit::{Admission, Refusal, RefusalFault};
use super::{Effect, Failure, LogPosition, Loss, LossReason, Partition, Phase};
use crate::ids::Now;

fn log(start: i64, end: i64, epoch: i32) -> LogPosition {
    LogPosition {
        start: Offset(start),
        end: Offset(end),
        last_epoch: LeaderEpoch(epoch),
        is_new: false,
    }
}

fn new_log() -> LogPosition {
    LogPosition { is_new: true, ..log(0, 0, -1) }
}

fn fetch(offset: i64, epoch: i32) -> Effect {
    Effect::Fetch { offset: Offset(offset), last_fetched_epoch: LeaderEpoch(epoch) }
}

fn took(next: i64, epoch: i32) -> Admission {
    Admission {
        skipped: 0,
        length: 100,
        next: Offset(next),
        last_epoch: LeaderEpoch(epoch),
        wanted: None,
        refusal: None,
    }
}

fn effects_of(act: impl FnOnce(&mut Vec<Effect>)) -> Vec<Effect> {
    let mut effects = Vec::new();
    act(&mut effects);
    effects
}

fn mirroring(position: LogPosition) -> Partition {
    let mut partition = Partition::new(position);
    let mut effects = Vec::new();
    partition.begin(&mut effects);
    match partition.phase() {
        Phase::Locating => partition.offsets(position.start, Offset(1_000), &mut effects),
        Phase::Aligning => {
            partition.end_of_epoch(position.last_epoch, Offset(1_000), &mut effects);
        }
        _ => {}
    }
    assert_eq!(partition.phase(), Phase::Mirroring);
    partition
}

#[test]
fn a_new_partition_starts_at_the_source_s_log_start_without_a_loss() {
    let mut partition = Partition::new(new_log());
    assert_eq!(effects_of(|out| partition.begin(out)), [Effect::Locate]);
    let effects = effects_of(|out| partition.offsets(Offset(40), Offset(90), out));
    assert_eq!(effects, [Effect::StartAt(Offset(40)), fetch(40, -1)]);
    assert_eq!(partition.lag(), Some(50));
}

#[test]
fn a_log_with_batches_is_aligned_by_its_last_epoch_before_the_first_fetch() {
    let mut partition = Partition::new(log(0, 50, 3));
    let effects = effects_of(|out| partition.begin(out));
    assert_eq!(effects, [Effect::AskEndOfEpoch(LeaderEpoch(3))]);
    let effects = effects_of(|out| partition.end_of_epoch(LeaderEpoch(3), Offset(60), out));
    assert_eq!(effects, [fetch(50, 3)]);
}

#[test]
fn a_log_that_went_on_beyond_its_epoch_at_the_source_fails_loudly() {
    for (epoch, end) in [(3, 45), (2, 60), (-1, -1)] {
        let mut partition = Partition::new(log(0, 50, 3));
        partition.begin(&mut Vec::new());
        let effects =
            effects_of(|out| partition.end_of_epoch(LeaderEpoch(epoch), Offset(end), out));
        assert_eq!(partition.phase(), Phase::Failed);
        assert!(matches!(effects[1], Effect::Failed(Failure::Diverged { .. })), "{effects:?}");
    }
}

#[test]
fn asks_for_the_offset_after_the_last_one_admitted() {
    let mut partition = mirroring(log(0, 50, 3));
    let effects = effects_of(|out| partition.admitted(&took(75, 4), Now(0), out));
    assert_eq!(effects, [fetch(75, 4)]);
}

/// A partition whose source's log start has jumped to 600, and what it wants then.
fn jumped(latest: i64) -> (Partition, Vec<Effect>) {
    let mut partition = mirroring(log(0, 50, 3));
    let effects = effects_of(|out| {
        partition.refused(ErrorCode::OFFSET_OUT_OF_RANGE, Now(0), out);
    });
    assert_eq!(effects, [Effect::StopFetching, Effect::Locate]);
    let effects = effects_of(|out| partition.offsets(Offset(600), Offset(latest), out));
    assert_eq!(partition.phase(), Phase::Recording);
    (partition, effects)
}

fn loss(reason: LossReason) -> Loss {
    Loss { first: Offset(50), next: Offset(600), reason }
}

/// Retention had passed a mirror that was down, and it went on at the new start without a word
/// (field case 1); where it was killed before the word was on disk nobody ever heard of it.
#[test]
fn a_log_start_that_passed_us_is_written_down_before_the_log_begins_anew() {
    for (base, reason) in [(600, LossReason::Retention), (590, LossReason::DeleteRecords)] {
        let (mut partition, effects) = jumped(1_000);
        assert_eq!(effects, [fetch(600, -1)]);
        assert_eq!(partition.expectation().next, Offset(600));
        let first = |partition: &mut Partition| {
            let admission = took(700, 4);
            effects_of(|out| {
                partition.first_batch(Some(Offset(base)), &admission, Now(0), out);
            })
        };
        let told = [Effect::StopFetching, Effect::RecordLoss(loss(reason))];
        assert_eq!(first(&mut partition), told);
        assert_eq!(first(&mut partition), [Effect::StopFetching], "it is told once");
        assert_eq!(partition.next(), Offset(50), "the log is as it was");
        let recorded =
            effects_of(|out| partition.loss_recorded(&loss(reason), Ok(()), Now(0), out));
        assert_eq!(recorded, [Effect::StartAt(Offset(600)), fetch(600, -1)]);
        assert_eq!(partition.phase(), Phase::Mirroring);
        let again = effects_of(|out| partition.loss_recorded(&loss(reason), Ok(()), Now(0), out));
        assert_eq!(again, []);
    }
}

#[test]
fn a_loss_is_told_even_where_the_source_has_nothing_left() {
    let (mut partition, effects) = jumped(600);
    let loss = loss(LossReason::LogStartMoved);
    assert_eq!(effects, [Effect::RecordLoss(loss.clone())]);
    let effects = effects_of(|out| partition.loss_recorded(&loss, Ok(()), Now(0), out));
    assert_eq!(effects, [Effect::StartAt(Offset(600)), fetch(600, -1)]);
}

#[test]
fn a_loss_that_could_not_be_written_down_leaves_the_log_and_is_found_again() {
    let (mut partition, _) = jumped(600);
    let (loss, reason) = (loss(LossReason::LogStartMoved), "no room".to_string());
    let effects = effects_of(|out| partition.loss_recorded(&loss, Err(reason), Now(0), out));
    assert_eq!(effects, [Effect::StopFetching]);
    let said = partition.reason().expect("a reason");
    assert_eq!(said, "a loss must be written down: no room");
    let at = partition.deadline().expect("a time to try again");
    let effects = effects_of(|out| partition.on_time(at, out));
    assert_eq!(effects, [Effect::AskEndOfEpoch(LeaderEpoch(3))]);
    let late = effects_of(|out| partition.loss_recorded(&loss, Ok(()), at, out));
    assert_eq!(late, [], "an answer that comes late empties nothing");
}

#[test]
fn a_log_start_that_jumps_again_meanwhile_is_one_loss_up_to_there() {
    let (mut partition, _) = jumped(1_000);
    let effects = effects_of(|out| partition.refused(ErrorCode::OFFSET_OUT_OF_RANGE, Now(0), out));
    assert_eq!(effects, [Effect::StopFetching, Effect::Locate]);
    partition.offsets(Offset(800), Offset(1_000), &mut Vec::new());
    let effects = effects_of(|out| {
        partition.first_batch(Some(Offset(800)), &took(900, 4), Now(0), out);
    });
    let whole = Loss { first: Offset(50), next: Offset(800), reason: LossReason::Retention };
    assert_eq!(effects[1], Effect::RecordLoss(whole));
    let short = loss(LossReason::Retention);
    assert_eq!(effects_of(|out| partition.loss_recorded(&short, Ok(()), Now(0), out)), []);
}

#[test]
fn bytes_after_a_jump_that_tell_nothing_are_asked_for_later_and_bad_ones_refused() {
    let (mut partition, _) = jumped(1_000);
    let nothing = Admission { length: 0, ..took(600, 3) };
    let effects = effects_of(|out| partition.first_batch(None, &nothing, Now(0), out));
    assert_eq!(effects, [Effect::StopFetching]);
    assert_eq!(partition.phase(), Phase::Waiting);
    let (mut partition, _) = jumped(1_000);
    let fault = BatchFault::Crc { stored: 1, computed: 2 };
    let error = BatchError { position: 0, base_offset: Offset(600), fault };
    let refusal = Refusal { base_offset: Offset(600), fault: RefusalFault::Batch(error) };
    let bad = Admission { refusal: Some(refusal), ..nothing };
    let effects = effects_of(|out| partition.first_batch(None, &bad, Now(0), out));
    assert_eq!(effects, [Effect::StopFetching]);
    assert_eq!(partition.phase(), Phase::Waiting);
}

#[test]
fn a_source_that_ends_before_us_fails_the_partition() {
    let mut partition = mirroring(log(0, 50, 3));
    partition.refused(ErrorCode::OFFSET_OUT_OF_RANGE, Now(0), &mut Vec::new());
    let effects = effects_of(|out| partition.offsets(Offset(0), Offset(40), out));
    assert!(matches!(effects[1], Effect::Failed(Failure::SourceShorter { .. })));
}

#[test]
fn the_log_start_follows_the_source_but_never_past_our_end() {
    let mut partition = mirroring(log(0, 50, 3));
    for (theirs, ours) in [(20, 20), (70, 50)] {
        let effects = effects_of(|out| partition.watermarks(Offset(90), Offset(theirs), out));
        assert_eq!(effects, [Effect::RaiseLogStart]);
        assert_eq!(partition.start(), Offset(ours));
    }
    assert_eq!(effects_of(|out| partition.watermarks(Offset(90), Offset(10), out)), []);
}

#[test]
fn damage_on_the_way_is_asked_for_again_and_damage_at_the_source_fails() {
    let mut partition = mirroring(log(0, 50, 3));
    let fault = BatchFault::Crc { stored: 1, computed: 2 };
    let error = BatchError { position: 0, base_offset: Offset(50), fault };
    let refusal = Refusal { base_offset: Offset(50), fault: RefusalFault::Batch(error) };
    let refused = Admission { length: 0, refusal: Some(refusal.clone()), ..took(50, 3) };
    let mut now = Now(0);
    for _ in 0..3 {
        partition.admitted(&refused, now, &mut Vec::new());
        assert_eq!(partition.phase(), Phase::Waiting);
        now = partition.deadline().expect("a time to try again");
        partition.on_time(now, &mut Vec::new());
        partition.end_of_epoch(LeaderEpoch(3), Offset(60), &mut Vec::new());
    }
    let effects = effects_of(|out| partition.admitted(&refused, now, out));
    assert_eq!(effects[1], Effect::Failed(Failure::Refused(refusal)));
}

#[test]
fn waits_longer_each_time_and_never_beyond_half_a_minute() {
    let mut partition = mirroring(log(0, 50, 3));
    let mut now = Now(0);
    let mut delays = Vec::new();
    for _ in 0..12 {
        partition.refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED, now, &mut Vec::new());
        let at = partition.deadline().expect("a time to try again");
        delays.push(at.since(now));
        now = at;
        partition.on_time(now, &mut Vec::new());
    }
    assert_eq!(delays[0], Duration::from_millis(100));
    assert!(delays.is_sorted());
    assert_eq!(delays.last(), Some(&Duration::from_secs(30)));
}

/// A full disk had to be followed by a restart of the whole process, although the operator had made
/// room long before.
#[test]
fn a_log_that_the_disk_refused_is_opened_again_and_goes_on_where_it_ends() {
    let mut partition = mirroring(log(0, 50, 3));
    partition.admitted(&took(75, 3), Now(0), &mut Vec::new());
    let full = || "no room".to_string();
    let effects = effects_of(|out| partition.disk_failed(full(), Now(0), out));
    assert_eq!(effects, [Effect::StopFetching, Effect::DiskFailed(full())]);
    partition.refused(ErrorCode::NOT_LEADER_OR_FOLLOWER, Now(0), &mut Vec::new());
    assert_eq!(partition.phase(), Phase::DiskFailed);
    let at = partition.deadline().expect("a time to try again");
    assert_eq!(effects_of(|out| partition.on_time(at, out)), [Effect::Reopen]);
    let effects = effects_of(|out| partition.disk_failed(full(), at, out));
    assert_eq!(effects, [Effect::StopFetching], "what was told is not told again");
    let at = partition.deadline().expect("a time to try again");
    partition.on_time(at, &mut Vec::new());
    let effects = effects_of(|out| partition.reopened(log(0, 60, 3), out));
    assert_eq!(effects, [Effect::AskEndOfEpoch(LeaderEpoch(3))]);
    assert_eq!(partition.next(), Offset(60));
}

#[test]
fn a_full_disk_is_tried_less_and_less_often_until_a_write_succeeds() {
    let mut partition = mirroring(log(0, 50, 3));
    let mut now = Now(0);
    let mut fail = |partition: &mut Partition| {
        // It goes on, is given the same again, and cannot write it.
        partition.admitted(&took(75, 3), now, &mut Vec::new());
        let told = effects_of(|out| partition.disk_failed("no room".to_string(), now, out));
        let behind = effects_of(|out| partition.disk_failed("behind it".to_string(), now, out));
        assert_eq!((told.len(), behind.len()), (2, 0), "one failure is told once");
        let at = partition.deadline().expect("a time to try again");
        let waited = at.since(now);
        now = at;
        partition.on_time(at, &mut Vec::new());
        partition.reopened(log(0, 50, 3), &mut Vec::new());
        partition.end_of_epoch(LeaderEpoch(3), Offset(1_000), &mut Vec::new());
        waited
    };
    let waits: Vec<_> = (0..4).map(|_| fail(&mut partition)).collect();
    assert_eq!(waits, [100, 200, 400, 800].map(Duration::from_millis));
    partition.written();
    assert_eq!(fail(&mut partition), Duration::from_millis(100));
}

/// A source that sent only what we had, or the beginning of a batch, was asked 12,000 times a second.
#[test]
fn an_answer_that_brings_nothing_is_asked_for_less_and_less_often_and_told_of() {
    let mut partition = mirroring(log(0, 50, 3));
    let (mut now, mut waits, mut told) = (Now(0), Vec::new(), Vec::new());
    for _ in 0..6 {
        let nothing = Admission { length: 0, wanted: Some(70_000), ..took(50, 3) };
        let effects = effects_of(|out| partition.admitted(&nothing, now, out));
        told.extend(effects.into_iter().filter(|effect| *effect != Effect::StopFetching));
        let at = partition.deadline().expect("a time to try again");
        waits.push(at.since(now));
        now = at;
        partition.on_time(now, &mut Vec::new());
        partition.end_of_epoch(LeaderEpoch(3), Offset(1_000), &mut Vec::new());
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200].map(Duration::from_millis));
    let reason = "the source answered a fetch from 50 with the beginning of a batch of 70000 bytes";
    assert_eq!(told, [Effect::Waits(reason.to_string())]);
}

/// The ends that the source told had the offset that its Fetch denied: both were asked for without end.
#[test]
fn an_offset_that_is_denied_within_the_source_s_ends_is_asked_for_later() {
    let mut partition = mirroring(log(0, 50, 3));
    let deny = |partition: &mut Partition, now| {
        effects_of(|out| partition.refused(ErrorCode::OFFSET_OUT_OF_RANGE, now, out))
    };
    let mut now = Now(0);
    for wait in [100, 200] {
        assert_eq!(deny(&mut partition, now), [Effect::StopFetching, Effect::Locate]);
        let effects = effects_of(|out| partition.offsets(Offset(0), Offset(90), out));
        assert_eq!(effects, [fetch(50, 3)]);
        assert_eq!(deny(&mut partition, now), [Effect::StopFetching]);
        let at = partition.deadline().expect("a time to try again");
        assert_eq!(at.since(now), Duration::from_millis(wait));
        now = at;
        partition.on_time(now, &mut Vec::new());
        partition.end_of_epoch(LeaderEpoch(3), Offset(1_000), &mut Vec::new());
    }
}

#[test]
fn every_move_that_is_made_is_in_the_table() {
    for from in Phase::ALL {
        for to in Phase::ALL {
            let legal = from.next().contains(&to);
            let expected = match (from, to) {
                (Phase::Failed, _) => to == Phase::Failed,
                (Phase::Waiting | Phase::DiskFailed, _) => true,
                (_, Phase::Failed | Phase::DiskFailed | Phase::Waiting | Phase::Mirroring) => true,
                (Phase::Mirroring | Phase::Locating | Phase::Recording, Phase::Locating) => true,
                (Phase::Locating, Phase::Recording) => true,
                _ => false,
            };
            assert_eq!(legal, expected, "from {from} to {to}");
        }
    }
}
