//! Strangers at the port: whatever they send, farspan lives, stays within its memory, serves those
//! who mean well, and is afterwards as before.
//!
//! `FARSPAN_HOSTILE_SECONDS` says how long, `FARSPAN_SEED` what they send.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::serve::session::SESSION_PARTITION_BYTES;
use engine::serve::{READ_FACTOR, REQUEST_BYTES_MAX, ServeOptions};
use tests::farspan::{Farspan, FarspanOptions, descriptors};
use tests::hostile::{
    Attack, Latencies, Probe, Tally, allow_many_descriptors, api_versions, exchange, fetch_one,
};
use tests::kafka::joined::files;
use tests::kafka::workload::{Isolation, PartitionDigest};
use tests::kafka::{At, Cluster, ClusterOptions, Installation, Workload};
use tests::process::{resident_bytes, wait_until};
use tests::random::Random;

const SECONDS: u64 = 15;
const SHARDS: u16 = 2;
const MEMORY_BYTES: usize = 128 << 20;
const READ_PARTITIONS: u32 = 4;

/// What lies between the bytes counted and those resident: free lists of the allocator, tables.
const SLACK_BYTES: u64 = 64 << 20;

/// What farspan may take above what it takes at rest: its buffers (`--memory`), the requests of its
/// clients (a quarter of it), the fetch sessions and one request being read on each shard, and slack.
fn memory_bound(at_rest: u64) -> u64 {
    let shards = usize::from(SHARDS);
    let sessions =
        shards * ServeOptions::default().session_partitions_max * SESSION_PARTITION_BYTES;
    let reading = shards * READ_FACTOR * REQUEST_BYTES_MAX;
    let all = MEMORY_BYTES + MEMORY_BYTES / 4 + sessions + reading;
    at_rest + all as u64 + SLACK_BYTES
}

fn seconds() -> u64 {
    let given = std::env::var("FARSPAN_HOSTILE_SECONDS").ok();
    given.and_then(|seconds| seconds.parse().ok()).unwrap_or(SECONDS)
}

fn options(from: Option<String>) -> FarspanOptions {
    FarspanOptions {
        program: PathBuf::from(env!("CARGO_BIN_EXE_node")),
        from,
        shards: SHARDS,
        memory_bytes: MEMORY_BYTES,
        segment_bytes: 8 << 20,
        descriptors_max: None,
    }
}

/// A source with some topics, and farspan that has them.
fn mirror(options: FarspanOptions) -> (Cluster, Workload, Farspan) {
    let installation = Installation::get("4.4.0").expect("Kafka");
    let cluster = Cluster::start(&installation, ClusterOptions::default()).expect("a broker");
    let workload = Workload::start(&installation).expect("the workload tool");
    let source = workload.at(&cluster.bootstrap());
    source.create("read", READ_PARTITIONS, &[]).expect("created");
    source.create("live", 1, &[]).expect("created");
    source.create("wide", 100, &[]).expect("created");
    let records = [("--partitions", "4"), ("--records", "60000"), ("--size", "1000")];
    source.produce("read", &records).expect("produced");
    let from = Some(cluster.bootstrap());
    let farspan = Farspan::start(FarspanOptions { from, ..options }).expect("farspan");
    let partitions = u64::from(READ_PARTITIONS) + 1 + 100;
    caught_up(&farspan, partitions);
    (cluster, workload, farspan)
}

fn caught_up(farspan: &Farspan, partitions: u64) {
    let waited = wait_until("the mirror to have all", Duration::from_secs(60), || {
        let metrics = farspan.metrics()?;
        let is_so = metrics["farspan_lag_records"] == 0
            && metrics["farspan_partitions_mirroring"] == partitions
            && metrics["farspan_admitted_bytes_total"] > 0;
        is_so.then_some(())
    });
    waited.unwrap_or_else(|error| panic!("{}", farspan.explain(&error)));
}

/// What was seen of the process while it was attacked.
#[derive(Debug, Default)]
struct Watched {
    resident_bytes_max: u64,
    descriptors_max: usize,
}

fn watch(pid: u32, stop: &AtomicBool) -> Watched {
    let mut watched = Watched::default();
    while !stop.load(Ordering::Relaxed) {
        let Some(bytes) = resident_bytes(pid) else { break };
        watched.resident_bytes_max = watched.resident_bytes_max.max(bytes);
        watched.descriptors_max = watched.descriptors_max.max(descriptors(pid).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(50));
    }
    watched
}

/// Fetches at a normal pace until told; what a sound client suffered is an error.
fn fetch_on(mut probe: Probe, stop: &AtomicBool) -> Result<Latencies, String> {
    while !stop.load(Ordering::Relaxed) {
        probe.fetch()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(probe.finish())
}

/// Reads the topic with Kafka's own client, over and over; how long each pass took.
fn read_on(
    at: &At,
    reference: &[PartitionDigest],
    stop: &AtomicBool,
) -> Result<Vec<Duration>, String> {
    let mut passes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let read = at.digest("read", Isolation::Uncommitted)?;
        if read != reference {
            return Err("Kafka's consumer read something else than from the source".to_owned());
        }
        passes.push(started.elapsed());
    }
    Ok(passes)
}

#[test]
fn hostile_clients_harm_neither_farspan_nor_those_who_mean_well() {
    eprintln!("{} descriptors", allow_many_descriptors());
    let mut random = Random::seeded("hostile");
    let (cluster, workload, mut farspan) = mirror(options(None));
    let source = workload.at(&cluster.bootstrap());
    let reader = workload.at(&farspan.bootstrap());
    let reference = source.digest("read", Isolation::Uncommitted).expect("readable");
    let ends: Vec<i64> = reference.iter().map(|partition| partition.next).collect();
    let started = Instant::now();
    assert_eq!(reader.digest("read", Isolation::Uncommitted).expect("readable"), reference);
    let calm_pass = started.elapsed();
    let mut calm = Probe::new(farspan.address(), "read", ends.clone(), random.split());
    for _ in 0..50 {
        calm.fetch().expect("nobody disturbs it");
    }
    let calm = calm.finish();

    let pid = farspan.pid().expect("it runs");
    let at_rest = resident_bytes(pid).expect("it runs");
    let descriptors_at_rest = descriptors(pid).expect("it runs");
    let clients_at_rest = farspan.metric("farspan_client_connections").expect("a metric");
    let bound = memory_bound(at_rest);
    let live = [("--rate", "300"), ("--size", "300")];
    source.stream_start("live", "live", &live).expect("started");

    let stop = AtomicBool::new(false);
    let tallies: Vec<Tally> = Attack::ALL.iter().map(|_| Tally::default()).collect();
    let (watched, latencies, passes) = std::thread::scope(|scope| {
        for (attack, tally) in Attack::ALL.into_iter().zip(&tallies) {
            let (address, random, stop) = (farspan.address(), random.split(), &stop);
            scope.spawn(move || attack.run(address, random, stop, tally));
        }
        let watcher = scope.spawn(|| watch(pid, &stop));
        let probe = Probe::new(farspan.address(), "read", ends, random.split());
        let prober = scope.spawn(|| fetch_on(probe, &stop));
        let reading = scope.spawn(|| read_on(&reader, &reference, &stop));
        let until = Instant::now() + Duration::from_secs(seconds());
        while Instant::now() < until && farspan.is_alive() && !prober.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        let latencies = prober.join().expect("no panic");
        let passes = reading.join().expect("no panic");
        (watcher.join().expect("no panic"), latencies, passes)
    });
    for (attack, tally) in Attack::ALL.into_iter().zip(&tallies) {
        eprintln!("{attack:?}: {tally:?}");
    }
    assert!(farspan.is_alive(), "{}", farspan.explain("farspan ended"));
    assert_eq!(farspan.pid(), Some(pid));
    eprintln!("{watched:?}; at rest {at_rest} bytes, {descriptors_at_rest} descriptors");
    let resident = watched.resident_bytes_max;
    assert!(resident <= bound, "{resident} bytes are resident, above {bound}");

    let latencies = latencies.expect("a sound client is served");
    let passes = passes.expect("Kafka's client is served");
    let most = tell(&latencies, &passes, &calm, calm_pass);
    assert!(most < Duration::from_secs(3), "a sound client waits for {most:?}");
    assert!(!passes.is_empty());

    is_as_before(&farspan, pid, descriptors_at_rest, clients_at_rest);
    let refused = farspan.metric("farspan_client_connections_refused_total").expect("a metric");
    eprintln!("{refused} connections were refused");
    assert!(refused > 0, "the metrics tell that connections were refused");
    source.stream_stop("live").expect("acknowledged");
    caught_up(&farspan, u64::from(READ_PARTITIONS) + 1 + 100);
    assert_eq!(reader.digest("read", Isolation::Uncommitted).expect("readable"), reference);
    let said = std::fs::read_to_string(farspan.output()).expect("its output");
    assert!(!said.contains("panicked"), "{}", farspan.output().display());
    farspan.stop().expect("it stops in order");
}

/// Prints how those who mean well fared, and says how long nearly all of their fetches took at most.
fn tell(
    latencies: &Latencies,
    passes: &[Duration],
    calm: &Latencies,
    calm_pass: Duration,
) -> Duration {
    let (half, most) = (latencies.at(0.5), latencies.at(0.99));
    eprintln!(
        "{} sound fetches: half within {half:?}, 99 % within {most:?}, all within {:?}; calm: {:?} \
         and {:?}",
        latencies.len(),
        latencies.at(1.0),
        calm.at(0.5),
        calm.at(0.99),
    );
    let longest = passes.iter().max().copied().unwrap_or_default();
    eprintln!(
        "Kafka's client read all {} times, at the longest in {longest:?}; calm: {calm_pass:?}",
        passes.len(),
    );
    most
}

/// Nothing is left of the attackers. Files of segments that were read may stay open.
fn is_as_before(farspan: &Farspan, pid: u32, descriptors_at_rest: usize, clients_at_rest: u64) {
    let files_open_more = 64;
    let what = "descriptors and clients to be as before";
    let waited = wait_until(what, Duration::from_secs(60), || {
        let now = descriptors(pid)?;
        let clients = farspan.metric("farspan_client_connections").ok()?;
        let is_so = now <= descriptors_at_rest + files_open_more && clients <= clients_at_rest + 4;
        is_so.then_some(now)
    });
    let now = waited.unwrap_or_else(|error| {
        let clients = farspan.metric("farspan_client_connections");
        panic!("{error}: {:?} descriptors, {clients:?} clients", descriptors(pid))
    });
    let resident = resident_bytes(pid).unwrap_or_default();
    eprintln!("afterwards {now} descriptors, {resident} bytes resident");
}

/// Whether a client on a new connection is answered.
fn is_served(farspan: &Farspan, random: &mut Random) -> bool {
    let timeout = Duration::from_secs(2);
    let Ok(mut stream) = TcpStream::connect_timeout(&farspan.address(), timeout) else {
        return false;
    };
    let is_timed = stream.set_read_timeout(Some(timeout)).is_ok();
    is_timed && exchange(&mut stream, &api_versions(random)).is_ok()
}

/// The listening socket's error ended the taking of connections for good: one burst of clients above
/// the limit on descriptors, and nobody was served until the next start.
#[test]
fn a_node_that_ran_out_of_descriptors_takes_clients_again_when_some_have_left() {
    let mut random = Random::seeded("descriptors");
    // Of two shards the other one goes on, until it runs out as well.
    let most = 64;
    let descriptors_max = Some(most as u64);
    // Nobody is there to be mirrored.
    let from = Some("127.0.0.1:1".to_string());
    let farspan = Farspan::start(FarspanOptions { shards: 1, descriptors_max, ..options(from) });
    let mut farspan = farspan.expect("farspan");
    assert!(is_served(&farspan, &mut random));
    let pid = farspan.pid().expect("it runs");
    let short = Duration::from_millis(100);
    // As many as it cannot take; the rest fills the queue of the listening socket.
    let crowd: Vec<_> = (0..150)
        .filter_map(|_| TcpStream::connect_timeout(&farspan.address(), short).ok())
        .collect();
    assert!(crowd.len() > 100, "{} connections", crowd.len());
    wait_until("its descriptors to run out", Duration::from_secs(10), || {
        (descriptors(pid)? >= most).then_some(())
    })
    .expect("it takes all it can");
    drop(crowd);
    wait_until("a client to be served", Duration::from_secs(20), || {
        is_served(&farspan, &mut random).then_some(())
    })
    .unwrap_or_else(|error| panic!("{}", farspan.explain(&error)));
    assert!(farspan.is_alive());
}

/// Lets the page cache forget the files, so that they are read from the disk again.
fn forget_pages(folder: &Path) {
    for path in files(folder, "log").expect("readable") {
        let file = std::fs::File::open(&path).expect("readable");
        file.sync_all().expect("synced");
        // SAFETY: the descriptor is open for the call.
        let code =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(code, 0);
    }
}

/// Cold records are read into buffers of the pool that the source's answers are received into; those
/// who ask for them and never read hold these buffers.
#[test]
fn readers_of_cold_records_that_stop_reading_do_not_stop_the_mirror() {
    allow_many_descriptors();
    let mut random = Random::seeded("stopped readers");
    let memory_bytes = 64 << 20;
    let (cluster, workload, farspan) = mirror(FarspanOptions { memory_bytes, ..options(None) });
    let pid = farspan.pid().expect("it runs");
    let at_rest = resident_bytes(pid).expect("it runs");
    let mut stopped = Vec::new();
    for number in 0..600 {
        (0..READ_PARTITIONS).for_each(|p| forget_pages(&farspan.partition_dir("read", p)));
        let mut stream = TcpStream::connect(farspan.address()).expect("connected");
        stream.set_nonblocking(true).expect("a socket");
        let partition = number % i32::try_from(READ_PARTITIONS).expect("few");
        let offset = i64::try_from(random.below(10_000)).expect("small");
        let frame = fetch_one("read", partition, offset, 50 << 20, &mut random);
        match std::io::Write::write(&mut stream, &frame) {
            Ok(_) => stopped.push(stream),
            Err(error) => assert_ne!(error.kind(), ErrorKind::ConnectionReset, "{number}"),
        }
    }
    let lent = || farspan.metric("farspan_buffer_bytes").unwrap_or_default();
    let resident = || resident_bytes(pid).unwrap_or_default();
    let more = resident().saturating_sub(at_rest);
    eprintln!("{} bytes are lent, {more} more are resident", lent());
    let source = workload.at(&cluster.bootstrap());
    source.produce("live", &[("--records", "5000")]).expect("produced");
    caught_up(&farspan, u64::from(READ_PARTITIONS) + 1 + 100);
    let mirror = workload.at(&farspan.bootstrap());
    wait_until("the records to be there", Duration::from_secs(30), || {
        let offsets = mirror.offsets("live", None, Isolation::Uncommitted).ok()?;
        (offsets.first()?.latest == 5_000).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error}: {} bytes are lent", lent()));
    let more = resident().saturating_sub(at_rest);
    eprintln!("{} bytes are lent, {more} more are resident", lent());
    let bound = u64::try_from(memory_bytes).expect("positive") * 5 / 4 + SLACK_BYTES;
    assert!(more <= bound, "{more} more bytes are resident, above {bound}");
    drop(stopped);
}
