//! Killed at random moments under load, mirror and source alike, nothing is lost, doubled or
//! reordered, and the files are Kafka's to the last byte.
//!
//! `FARSPAN_KILLS` says how many deaths, `FARSPAN_SEED` which ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tests::farspan::{Farspan, FarspanOptions};
use tests::kafka::inspect::dump;
use tests::kafka::joined::{files, first_difference, segments};
use tests::kafka::workload::{Acked, Isolation};
use tests::kafka::{At, Cluster, ClusterOptions, Installation, Workload};
use tests::process::wait_until;
use tests::random::Random;

const KILLS: u64 = 12;
const STREAM_PARTITIONS: u32 = 4;
const TRANSACTION_PARTITIONS: u32 = 2;
const SEGMENT_BYTES: u32 = 1 << 20;
/// The longest that both live between two deaths.
const LIFE_MS_MAX: u64 = 1_500;

fn kills() -> u64 {
    std::env::var("FARSPAN_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS)
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    /// While it mirrors.
    Farspan,
    /// While it starts or recovers.
    FarspanAtItsStart,
    Source,
    /// The source, and farspan while the source comes back.
    Both,
}

fn victim(random: &mut Random) -> Victim {
    match random.below(100) {
        0..40 => Victim::Farspan,
        40..60 => Victim::FarspanAtItsStart,
        60..80 => Victim::Source,
        _ => Victim::Both,
    }
}

/// What was seen of the deaths, for the person who reads the output.
#[derive(Debug, Default)]
struct Seen {
    deaths: BTreeMap<Victim, u64>,
    recovered_bytes: u64,
    cut_bytes: u64,
    lives_with_a_cut: u64,
    admitted_bytes: u64,
}

impl Seen {
    /// Notes what farspan counted in the life that is about to end.
    fn note_life(&mut self, farspan: &Farspan) {
        let Some(metrics) = farspan.metrics() else { return };
        let number = |name: &str| metrics.get(name).copied().unwrap_or_default();
        self.recovered_bytes += number("farspan_recovered_bytes_total");
        self.cut_bytes += number("farspan_cut_bytes_total");
        self.lives_with_a_cut += u64::from(number("farspan_cut_bytes_total") > 0);
        self.admitted_bytes += number("farspan_admitted_bytes_total");
    }
}

#[test]
fn killed_at_random_under_load_nothing_is_lost_doubled_or_reordered() {
    let mut random = Random::seeded("kill");
    let installation = Installation::get("4.4.0").expect("Kafka");
    let mut cluster = Cluster::start(&installation, ClusterOptions::default()).expect("a broker");
    let bootstrap = cluster.bootstrap();
    let options = FarspanOptions {
        program: PathBuf::from(env!("CARGO_BIN_EXE_node")),
        from: Some(bootstrap.clone()),
        shards: 2,
        memory_bytes: 128 << 20,
        segment_bytes: SEGMENT_BYTES,
        descriptors_max: None,
    };
    let workload = Workload::start(&installation).expect("the workload tool");
    let source = workload.at(&bootstrap);
    source.create("stream", STREAM_PARTITIONS, &[]).expect("created");
    source.create("transactions", TRANSACTION_PARTITIONS, &[]).expect("created");
    let load = [("--partitions", "4"), ("--rate", "2500"), ("--size", "900")];
    source.stream_start("load", "stream", &load).expect("started");
    let mut farspan = Farspan::start(options).expect("farspan");

    let mut seen = Seen::default();
    let stopping = AtomicBool::new(false);
    let transactions = Transactions::default();
    std::thread::scope(|scope| {
        let other = Workload::start(&installation).expect("another workload tool");
        let other = other.at(&bootstrap);
        scope.spawn(|| transactions.run(other, &stopping));
        let _stop = StopOnDrop(&stopping);
        for number in 0..kills() {
            let victim = victim(&mut random);
            eprintln!("kill {number}: {victim:?}");
            *seen.deaths.entry(victim).or_default() += 1;
            kill(victim, &mut farspan, &mut cluster, &mut random, &mut seen);
        }
    });
    let acked = source.stream_stop("load").expect("everything is acknowledged at last");
    let (done, failed) = (&transactions.done, &transactions.failed);
    eprintln!("{seen:?}, rounds of transactions {done:?}, broken off {failed:?}");

    farspan.await_ready().expect("farspan is back");
    let mirror = workload.at(&farspan.bootstrap());
    await_all(&farspan, &source, &mirror);
    check_records(&source, &mirror, &acked);
    let losses = farspan.data().join("farspan-losses.jsonl");
    let losses = std::fs::read_to_string(losses).unwrap_or_default();
    assert_eq!(losses, "", "nothing was recorded as lost");
    farspan.stop().expect("it stops in order");
    cluster.stop(1).expect("it stops in order");
    check_bytes(&installation, &cluster, &farspan);
}

/// Waits for a random moment, kills, and starts again at once.
fn kill(
    victim: Victim,
    farspan: &mut Farspan,
    cluster: &mut Cluster,
    random: &mut Random,
    seen: &mut Seen,
) {
    match victim {
        Victim::Farspan => {
            mirroring(farspan);
            live(random, LIFE_MS_MAX);
            kill_farspan(farspan, seen);
        }
        Victim::FarspanAtItsStart => {
            live(random, 150);
            kill_farspan(farspan, seen);
        }
        Victim::Source => {
            mirroring(farspan);
            live(random, LIFE_MS_MAX);
            cluster.kill9(1);
            cluster.restart(1).expect("the source is back");
        }
        Victim::Both => {
            mirroring(farspan);
            live(random, LIFE_MS_MAX);
            cluster.kill9(1);
            let mut their_random = random.split();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    live(&mut their_random, 5_000);
                    kill_farspan(farspan, seen);
                });
                cluster.restart(1).expect("the source is back");
            });
        }
    }
    assert!(farspan.is_alive(), "{}", farspan.explain("farspan ended by itself"));
}

fn kill_farspan(farspan: &mut Farspan, seen: &mut Seen) {
    assert!(farspan.is_alive(), "{}", farspan.explain("farspan ended by itself"));
    seen.note_life(farspan);
    farspan.kill9();
    farspan.launch().expect("farspan starts again");
}

/// Lives on for a random time: the moment of a death is what this test is about.
fn live(random: &mut Random, ms_max: u64) {
    let until = Instant::now() + Duration::from_millis(random.below(ms_max));
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
}

/// Waits until batches come in: a mirror that is always killed before them proves nothing.
fn mirroring(farspan: &mut Farspan) {
    let waited = wait_until("batches to come in", Duration::from_secs(60), || {
        assert!(farspan.is_alive(), "{}", farspan.explain("farspan ended by itself"));
        (farspan.metric("farspan_admitted_bytes_total").ok()? > 0).then_some(())
    });
    waited.unwrap_or_else(|error| panic!("{}", farspan.explain(&error)));
}

/// Tells the producers to stop, also where a failed assertion ends the deaths.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Transactions of several producers, over and over, until told; brokers that die break some off.
#[derive(Debug, Default)]
struct Transactions {
    done: AtomicU64,
    failed: AtomicU64,
}

impl Transactions {
    fn run(&self, at: At, stopping: &AtomicBool) {
        let options = [
            ("--partitions", "2"),
            ("--producers", "3"),
            ("--transactions", "5"),
            ("--records-per", "4"),
            ("--timeout-ms", "10000"),
        ];
        while !stopping.load(Ordering::Relaxed) {
            let count = match at.transactions("transactions", &options) {
                Ok(_) => &self.done,
                Err(why) => {
                    eprintln!("transactions broke off: {why}");
                    &self.failed
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Nobody writes any more, and the coordinator ends what was left open by itself: waits until the
/// mirror has all of it.
fn await_all(farspan: &Farspan, source: &At, mirror: &At) {
    for topic in ["stream", "transactions"] {
        wait_until("the mirror to have all", Duration::from_secs(90), || {
            let [theirs, stable] = ends(source, topic);
            let ours = ends(mirror, topic);
            (theirs == stable && ours == [theirs, stable]).then_some(())
        })
        .expect("the mirror catches up");
    }
    wait_until("lag 0", Duration::from_secs(30), || {
        let metrics = farspan.metrics()?;
        let partitions = u64::from(STREAM_PARTITIONS + TRANSACTION_PARTITIONS);
        let is_well = metrics["farspan_lag_records"] == 0
            && metrics["farspan_partitions_mirroring"] == partitions
            && metrics["farspan_partitions_failed"] == 0;
        is_well.then_some(())
    })
    .expect("all partitions mirror without lag");
}

/// By their sequences and digests clients read the same on both sides, and all that was acknowledged.
fn check_records(source: &At, mirror: &At, acked: &[Acked]) {
    for (side, at) in [("source", source), ("mirror", mirror)] {
        let found = at.sequences("stream", Isolation::Uncommitted).expect("readable");
        for (found, acked) in found.iter().zip(acked) {
            let faults = (found.missing, found.repeated, found.first);
            assert_eq!(faults, (0, 0, 0), "{side}: {found:?}");
            assert_eq!(found.last, acked.sequence, "{side}: {found:?}");
        }
    }
    for topic in ["stream", "transactions"] {
        for isolation in Isolation::BOTH {
            let theirs = source.digest(topic, isolation).expect("readable");
            assert_eq!(mirror.digest(topic, isolation).expect("readable"), theirs, "{topic}");
        }
    }
}

/// By their bytes the logs are the same, and Kafka's tool finds nothing wrong with any file.
fn check_bytes(installation: &Installation, cluster: &Cluster, farspan: &Farspan) {
    let mut all = Vec::new();
    for (topic, count) in [("stream", STREAM_PARTITIONS), ("transactions", TRANSACTION_PARTITIONS)]
    {
        for partition in 0..count {
            let theirs = cluster.partition_dir(1, topic, partition);
            let ours = farspan.partition_dir(topic, partition);
            let difference = first_difference(&theirs, &ours, 0).expect("readable");
            assert!(difference.is_none(), "{topic}-{partition}: {}", difference.unwrap());
            all.push(ours);
        }
    }
    let count: usize = all.iter().map(|folder| segments(folder).expect("readable").len()).sum();
    eprintln!("{count} segments");
    assert!(count > all.len(), "segments were rolled");
    check_files(installation, &all);
}

/// The high watermarks of a topic's partitions, and the last stable offsets.
fn ends(at: &At, topic: &str) -> [Vec<i64>; 2] {
    [Isolation::Uncommitted, Isolation::Committed].map(|isolation| {
        let offsets = at.offsets(topic, None, isolation).unwrap_or_default();
        offsets.iter().map(|partition| partition.latest).collect()
    })
}

/// Kafka's own tool has nothing to say of any file. One run for all, for a JVM starts slowly.
fn check_files(installation: &Installation, folders: &[PathBuf]) {
    let of = |ending: &str| -> Vec<PathBuf> {
        let in_folder = |folder: &PathBuf| files(Path::new(folder), ending).expect("readable");
        folders.iter().flat_map(in_folder).collect()
    };
    let all: Vec<PathBuf> =
        ["log", "index", "timeindex", "txnindex", "snapshot"].into_iter().flat_map(of).collect();
    let said = dump(installation, &all, &["--deep-iteration"]).expect("the tool runs");
    assert_eq!(said.complaints(), Vec::<&str>::new());
    let said = dump(installation, &of("index"), &["--index-sanity-check"]).expect("the tool runs");
    assert_eq!(said.complaints(), Vec::<&str>::new());
}
