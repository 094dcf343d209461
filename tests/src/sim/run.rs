//! One run: a world with faults under a seed, then calm, then the reckoning.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use engine::source::LinkOptions;
use engine::store::LogConfig;
use tools::synthetic::Trouble as PartitionTrouble;
use wire::ids::BrokerId;

use super::faults::Fault;
use super::process::{DATA, Setup};
use super::random::Random;
use super::source::PORT_FIRST;
use super::strike::{partitions, strike};
use super::world::{Verdict, World};

const SECOND: u64 = 1_000_000;

/// What a run is to be like.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub faults: Vec<Fault>,
    /// How long faults happen, in virtual seconds.
    pub seconds: u64,
}

impl Plan {
    /// The run of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let faults = Fault::some(&mut random);
        Self { seed, faults, seconds: random.between(20, 90) }
    }

    /// A run with these faults only.
    #[must_use]
    pub fn with(seed: u64, faults: &[Fault]) -> Self {
        Self { seed, faults: faults.to_vec(), seconds: 60 }
    }
}

/// What a run was like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub trace: u64,
    pub events: u64,
    pub virtual_ms: u64,
    pub crashes: u64,
    pub batches: u64,
    pub bytes: u64,
    pub client_batches: u64,
    pub losses: u64,
    pub flips: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>4} s, {} events, {} crashes, {} batches of {} KiB, {} to clients, {} losses, \
             {} flips, trace {:016x}",
            self.virtual_ms / 1_000,
            self.events,
            self.crashes,
            self.batches,
            self.bytes >> 10,
            self.client_batches,
            self.losses,
            self.flips,
            self.trace
        )
    }
}

/// Runs a plan.
///
/// # Errors
/// What was wrong, and when.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut random = Random::new(plan.seed);
    let mut world = World::new(plan.seed, setup(&mut random), random.between(1, 4) as i32);
    let verdict = play(plan, &mut world, &mut random);
    let at = world.now() as f64 / 1e6;
    if verdict.is_err() && world.space.borrow().tells {
        list(&world);
    }
    verdict.map_err(|wrong| format!("{wrong}\n  at {at:.6} s, faults {:?}", plan.faults))?;
    let space = world.space.borrow();
    Ok(Report {
        trace: space.trace(),
        events: space.events,
        virtual_ms: space.now / 1_000,
        crashes: world.crashes,
        batches: world.oracle.batches,
        bytes: world.oracle.bytes,
        client_batches: world.client_batches,
        losses: world.oracle.losses,
        flips: world.source.flipped,
    })
}

/// When an engine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// In a call to the disk, after so many others that change something.
    InCall(u64),
    /// So many microseconds after its start.
    After(u64),
}

/// Runs an engine that has much to fetch and small segments, and dies, and dies again in its recovery
/// where it died in a call.
///
/// # Errors
/// What was wrong, and when.
pub fn interrupted(seed: u64, death: Death, power: bool) -> Verdict {
    let mut random = Random::new(seed);
    let mut setup = setup(&mut random);
    setup.log.segment_bytes = 2_000;
    (setup.link.fetch_bytes_max, setup.link.partition_fetch_bytes_max) = (200_000, 50_000);
    let mut world = World::new(seed, setup, 1);
    let verdict = interrupt(&mut world, &mut random, death, power);
    let at = world.now() as f64 / 1e6;
    verdict.map_err(|wrong| format!("{wrong}\n  at {at:.6} s"))
}

fn interrupt(world: &mut World, random: &mut Random, death: Death, power: bool) -> Verdict {
    world.workload.new_topic(&mut world.source, random);
    for _ in 0..60 {
        world.workload.produce(&mut world.source, random, super::space::WALL_START_MS);
    }
    world.space.borrow_mut().disk_slowness = 20_000;
    world.begin(1);
    world.start()?;
    match death {
        Death::After(moment) => {
            world.run_until(moment)?;
            world.crash(power)?;
        }
        Death::InCall(calls) => {
            for fuse in [calls, calls / 3] {
                world.fuse_is_power = power;
                world.space.borrow_mut().drive.fuse = Some(fuse);
                while !world.start()? {}
                let patience = world.now() + 10 * SECOND;
                while world.process.is_some() && world.now() < patience {
                    let soon = world.now() + SECOND / 10;
                    world.run_until(soon)?;
                    world.space.borrow_mut().now = soon;
                }
            }
        }
    }
    world.space.borrow_mut().drive.fuse = None;
    while !world.start()? {}
    calm(world, random)?;
    reckon(world)
}

/// What lies on the disk, for a person who looks for a cause.
fn list(world: &World) {
    use engine::io::Disk as _;
    let mut space = world.space.borrow_mut();
    for entry in space.drive.list(std::path::Path::new(DATA)).unwrap_or_default() {
        let folder = PathBuf::from(DATA).join(&entry.name);
        println!("{} {:?}", entry.name, world.oracle.held.get(&entry.name));
        for entry in space.drive.list(&folder).unwrap_or_default() {
            println!("  {} {}", entry.name, entry.length);
        }
    }
}

/// Engines of all sizes, most of them small: small bounds are reached soon.
fn setup(random: &mut Random) -> Setup {
    let shards = random.between(1, 3) as u16;
    let log = LogConfig {
        segment_bytes: *random.pick(&[2_000, 10_000, 40_000, 200_000, 2_000_000]),
        segment_ms: *random.pick(&[5_000, 60_000, 600_000]),
        segment_index_bytes: *random.pick(&[64, 512, 10 << 20]),
        index_interval_bytes: *random.pick(&[64, 512, 4_096]),
        retention_ms: -1,
        retention_bytes: -1,
        file_delete_delay_ms: *random.pick(&[1_000, 10_000, 60_000]),
        ..LogConfig::default()
    };
    let bootstrap = (1..=4).map(|id| ("boot.source".to_string(), PORT_FIRST + id)).collect();
    let link = LinkOptions {
        bootstrap,
        fetchers_per_broker: random.between(1, 3) as u32,
        fetch_max_wait: Duration::from_millis(random.between(50, 1_000)),
        fetch_bytes_max: *random.pick(&[2_000, 20_000, 200_000, 1 << 20]),
        partition_fetch_bytes_max: *random.pick(&[500, 5_000, 50_000, 1 << 20]),
        metadata_max_age: Duration::from_millis(random.between(500, 5_000)),
        request_timeout: Duration::from_secs(random.between(3, 30)),
        reconnect_backoff_most: Duration::from_secs(2),
        ..LinkOptions::default()
    };
    // Drawn aside, so that what follows under a known seed stays as it was.
    let placed_bytes_least = *random.clone().pick(&[100, 5_000, 100_000, usize::MAX]);
    Setup {
        shards,
        // At least one answer of the largest size must fit.
        memory_bytes: usize::from(shards) * *random.pick(&[2 << 20, 4 << 20, 16 << 20]),
        log,
        link,
        placed_bytes_least,
        checkpoint_interval: Duration::from_millis(random.between(300, 5_000)),
        retention_check_interval: Duration::from_millis(random.between(500, 20_000)),
    }
}

fn play(plan: &Plan, world: &mut World, random: &mut Random) -> Verdict {
    for _ in 0..random.between(1, 4) {
        world.workload.new_topic(&mut world.source, random);
    }
    {
        let mut space = world.space.borrow_mut();
        space.network.latency = *random.pick(&[100, 5_000, 80_000]);
        space.network.rate = *random.pick(&[200_000, 5 << 20, 100 << 20]);
        space.disk_slowness = *random.pick(&[50, 1_000, 20_000]);
    }
    for _ in 0..random.below(40) {
        world.workload.produce(&mut world.source, random, super::space::WALL_START_MS);
    }
    world.begin(random.size(1, 4));
    world.start()?;
    world.chaos = true;
    let end = plan.seconds * SECOND;
    while world.now() < end {
        world.run_until(end)?;
        if world.due == 0 {
            break;
        }
        world.due = 0;
        if let Some(fault) = Fault::draw(&plan.faults, random) {
            strike(world, random, fault)?;
        }
        revive(world, random)?;
    }
    world.chaos = false;
    calm(world, random)?;
    reckon(world)
}

/// Starts the process again where it died, mostly soon.
fn revive(world: &mut World, random: &mut Random) -> Verdict {
    if world.process.is_some() || random.chance(200) {
        return Ok(());
    }
    // Recovery may be interrupted as well.
    if random.chance(150) {
        world.fuse_is_power = random.chance(500);
        world.space.borrow_mut().drive.fuse = Some(random.below(60));
    }
    world.start()?;
    Ok(())
}

/// No more faults: everything is mended and given time.
fn calm(world: &mut World, random: &mut Random) -> Verdict {
    world.space.borrow_mut().note(format_args!("calm"));
    world.works = false;
    world.source.flips = 0;
    {
        let mut space = world.space.borrow_mut();
        space.drive.troubles.clear();
        space.drive.fuse = None;
        space.network.refusals = 0;
        space.network.silences = 0;
        space.disk_slowness = 1_000;
        space.network.rate = space.network.rate.max(5 << 20);
        space.network.latency = space.network.latency.min(20_000);
    }
    let now_ms = world.space.borrow().wall_ms();
    for id in world.source.cluster.broker_ids().collect::<Vec<BrokerId>>() {
        world.source.set_up(id, true);
    }
    world.workload.end_all(&mut world.source, random, now_ms);
    for (topic, index) in partitions(world) {
        let partition = world.source.cluster.partition(&topic, index);
        partition.trouble(PartitionTrouble::default());
        partition.stored().heal();
    }
    world.source.damaged = false;
    world.source.resume_all();
    let patience = world.now() + 60 * SECOND;
    world.run_until(patience)?;
    // What stopped waits for a person, who mends the cause and restarts.
    if world.process.as_ref().is_none_or(|process| process.sum(|m| m.partitions_failed.value()) > 0)
    {
        world.space.borrow_mut().note(format_args!("a person restarts"));
        if world.process.is_some() {
            world.stop()?;
        }
        if !world.start()? {
            return Err("does not start though nothing is wrong".into());
        }
    }
    catch_up(world)
}

/// Waits for the mirror to be complete.
fn catch_up(world: &mut World) -> Verdict {
    let patience = world.now() + 180 * SECOND;
    loop {
        let soon = world.now() + SECOND;
        world.run_until(soon)?;
        world.space.borrow_mut().now = soon;
        world.look()?;
        let complete = {
            let mut space = world.space.borrow_mut();
            world.oracle.complete(&mut space.drive, &world.source.truth)
        };
        match complete {
            Ok(()) => return Ok(()),
            Err(missing) if soon > patience => return Err(format!("not complete: {missing}")),
            Err(_) => {}
        }
    }
}

/// All is there. What must be true of an engine that has nothing to do.
fn reckon(world: &mut World) -> Verdict {
    let rest = world.now() + 20 * SECOND;
    world.client_batches = world.clients.iter().map(|client| client.batches).sum();
    world.clients.clear();
    let links: Vec<_> = world.space.borrow().network.links.keys().copied().collect();
    for link in links {
        let mut space = world.space.borrow_mut();
        if space
            .network
            .links
            .get(&link)
            .is_some_and(|open| open.port == super::process::CLIENT_PORT)
        {
            space.cut(link);
            space.close(link, 0);
        }
    }
    world.space.borrow_mut().notices.clear();
    world.space.borrow_mut().forget(|event| matches!(event, super::space::Event::Client { .. }));
    world.run_until(rest)?;
    world.look_closely()?;
    let process = world.process.as_ref().ok_or("the process is not there in the end")?;
    let lag = process.sum(|m| m.lag_records.value());
    let failed = process.sum(|m| m.partitions_failed.value());
    let waiting = process.sum(|m| m.partitions_waiting.value());
    let stopped = world.oracle.may_stop(&mut world.space.borrow_mut().drive, &world.source.truth);
    if failed > stopped || waiting > 0 {
        return Err(format!("{failed} failed and {waiting} wait, but only {stopped} may stop"));
    }
    if lag > 0 && stopped == 0 && !world.source.truth.partitions.values().any(|p| p.was_cut) {
        return Err(format!("a lag of {lag} though all is there"));
    }
    for (shard, side) in world.space.borrow().shards.iter().enumerate() {
        let lent = side.pool.bytes_lent();
        if lent > 0 {
            return Err(format!("shard {shard} has nothing to do and holds {lent} bytes"));
        }
    }
    if !world.stop()? {
        return Err("a stop with nothing wrong was not clean".into());
    }
    if !world.start()? {
        return Err("does not start after a clean stop".into());
    }
    let read_again = world.process.as_ref().map_or(0, |p| p.sum(|m| m.recovered_bytes.value()));
    if read_again > 0 {
        return Err(format!("{read_again} bytes were read again after a clean stop"));
    }
    catch_up(world)
}
