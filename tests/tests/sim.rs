//! The simulation: seeds, and stories that once were bugs. `tests::sim` says how it works,
//! `tests::sim::faults` which faults there are.
//!
//! ```text
//! cargo test -p tests --test sim                                  the first seeds, stories
//! FARSPAN_SEED=17 cargo test -p tests --test sim any_seed         this one seed
//!   FARSPAN_SIM_TELL=1  prints every event      FARSPAN_SIM_LOG=1  prints what the engine logs
//! FARSPAN_SIM_SECONDS=3600 cargo test ... any_seed                seeds drawn from the commit, for an hour
//! ```

use std::time::{Duration, Instant};

use tests::sim::faults::Fault;
use tests::sim::run::{Death, Plan, Report, interrupted, run};

/// The seeds that every run of the tests tries: the same ones, so that whether a change passes does
/// not depend on luck. New ones are drawn for as long as `FARSPAN_SIM_SECONDS` says.
const FIRST_SEEDS: std::ops::RangeInclusive<u64> = 1..=20;

fn must(plan: &Plan) -> Report {
    match run(plan) {
        Ok(report) => report,
        Err(wrong) => panic!(
            "seed {}: {wrong}\nreproduce: FARSPAN_SEED={} cargo test -p tests --test sim any_seed",
            plan.seed, plan.seed
        ),
    }
}

/// A story: runs with these faults only.
fn survives(faults: &[Fault], seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(wrong) = run(&Plan::with(seed, faults)) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Each commit tries seeds of its own.
fn first_seed() -> u64 {
    let head = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
    let head = head.map(|output| output.stdout).unwrap_or_default();
    let digits = String::from_utf8_lossy(&head).trim().chars().take(8).collect::<String>();
    u64::from_str_radix(&digits, 16).unwrap_or(1)
}

/// The first seeds, new ones, or the one that was asked for.
#[test]
fn any_seed() {
    if std::env::var_os("FARSPAN_SIM_LOG").is_some() {
        let _ = tracing_subscriber::fmt().without_time().with_test_writer().try_init();
    }
    if let Some(seed) = number("FARSPAN_SEED") {
        println!("seed {seed}: {:?}", Plan::of(seed));
        println!("{}", must(&Plan::of(seed)));
        return;
    }
    let time = number("FARSPAN_SIM_SECONDS").map(Duration::from_secs);
    let seeds = match time {
        Some(_) => first_seed()..=u64::MAX,
        None => FIRST_SEEDS,
    };
    let (begun, mut count, mut virtual_ms) = (Instant::now(), 0, 0);
    for seed in seeds {
        if time.is_some_and(|time| begun.elapsed() > time) {
            break;
        }
        println!("seed {seed}");
        let report = must(&Plan::of(seed));
        println!("  {report}");
        count += 1;
        virtual_ms += report.virtual_ms;
    }
    println!("{count} seeds, {} virtual minutes", virtual_ms / 60_000);
}

/// The same seed is the same run, event for event.
#[test]
fn a_seed_is_a_run() {
    for seed in [3, 77] {
        assert_eq!(must(&Plan::of(seed)), must(&Plan::of(seed)));
    }
}

/// Pieces of one fetch went to two segments at once. A kill kept the second and lost the first, and
/// recovery took the hole between the two for one that compaction had left: it served a log without
/// those records. Segments are named by the end of the one before them since, so a hole shows.
#[test]
fn a_kill_between_roll_and_first_write_loses_nothing() {
    for step in 0..40 {
        let (seed, moment) = (1 + step % 5, 2_000 + step * 3_000);
        let verdict = interrupted(seed, Death::After(moment), false);
        assert_eq!(verdict, Ok(()), "seed {seed}, a kill after {moment} us");
    }
}

/// The new segment's file is there, its snapshot half written, the old one's indexes are not cut:
/// wherever in a roll or in recovery the process dies, the next one finds its way.
#[test]
fn a_kill_in_any_call_to_the_disk_loses_nothing() {
    for calls in 0..40 {
        let verdict = interrupted(6 + calls % 5, Death::InCall(calls), false);
        assert_eq!(verdict, Ok(()), "a kill after {calls} calls to the disk");
    }
}

/// The recovery point stood at the end of a segment when the next one began: nobody flushed the
/// closed segment's transaction index, and nobody read the segment again after the power was cut.
/// Readers of committed records then saw aborted ones.
#[test]
fn a_power_cut_leaves_no_aborted_transaction_unnamed() {
    for calls in 0..40 {
        let verdict = interrupted(11 + calls % 5, Death::InCall(calls), true);
        assert_eq!(verdict, Ok(()), "a power cut after {calls} calls to the disk");
    }
    survives(&[Fault::PowerCut], 20..24);
}

/// A flush ended, and its log was opened again before it was told so: the log that recovery had made in
/// its place believed that its new indexes were durable. After a power cut a transaction index was torn,
/// and readers of committed records saw aborted ones.
#[test]
fn a_flush_speaks_of_the_log_that_it_was_of() {
    must(&Plan::of(2_793_199_557));
}

/// A power cut took the end of one segment and left zeros where the next one begins: the partition was
/// given up, as if those bytes had ever been promised.
#[test]
fn a_segment_of_zeros_after_a_cut_one_is_cut_too() {
    must(&Plan::of(2_135_782_440));
}

/// An empty segment that had been named again came back by a power cut, beside the one that had taken
/// its place: that counted as ending where the other began, and went too early.
#[test]
fn a_replaced_segment_that_comes_back_takes_no_records_with_it() {
    must(&Plan::of(843_551_533));
}

/// A roll failed on a full disk after the mirror had asked for the next fetch: the fetch came, for a
/// mirror that had stopped, and the whole shard ended. Logs with a failed write ended it in `close`.
#[test]
fn a_disk_that_refuses_stops_its_partition_and_no_shard() {
    survives(&[Fault::DiskFull, Fault::WriteError, Fault::SyncError], 30..36);
}

/// A process that died while it made the logs of a topic left some of them out, and no later one
/// made them; of others the topic's id was missing for ever.
#[test]
fn a_topic_whose_making_was_interrupted_is_completed() {
    survives(&[Fault::Kill, Fault::PowerCut, Fault::NewTopic], 40..46);
}

/// The source's log start jumped twice before a batch came: the first jump was never told. A crash
/// while the log was begun anew left a folder without a segment, whose log began at 0.
#[test]
fn a_log_start_that_jumps_is_followed_and_what_is_lost_is_told() {
    survives(&[Fault::DeleteRecords, Fault::Stall, Fault::Cut, Fault::Kill], 50..56);
}

/// Damage on the way mends itself, damage at the source stops one partition.
#[test]
fn damaged_batches_never_enter() {
    survives(&[Fault::Flip, Fault::Damage], 60..64);
}

/// Compaction, leaders that move, sessions that are forgotten: nothing of that is a fault.
#[test]
fn a_living_source_is_followed() {
    let faults = [Fault::Compact, Fault::MoveLeader, Fault::Evict, Fault::BrokerDown];
    survives(&faults, 70..74);
}

/// A topic that was created again under its name is not taken for ours.
#[test]
fn another_topic_under_the_same_name_does_not_enter_ours() {
    survives(&[Fault::ReplaceTopic, Fault::UncleanElection, Fault::Restart], 80..84);
}

/// A flush failed, the log was opened again out of memory, and the next flush had nothing to do: what the
/// disk never got was gone when the power went.
#[test]
fn what_a_failed_flush_dropped_is_written_again() {
    survives(&[Fault::SyncDrops, Fault::PowerCut], 0..12);
}

/// The process that the kernel had told of a failed flush ended, and the next one believed what it read
/// out of memory.
#[test]
fn what_a_failed_flush_dropped_is_written_again_by_the_next_process_too() {
    survives(&[Fault::SyncDrops, Fault::PowerCut, Fault::Kill, Fault::Restart], 1053..1059);
}
