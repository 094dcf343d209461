//! One process of the engine: shards and desk, started from the data folder as `engine::node` does,
//! without the lock and with ids under the seed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::desk::checkpoints::Checkpoints;
use engine::desk::losses;
use engine::folder::{Found, look_through};
use engine::ids::{ShardId, TopicPartition};
use engine::io::{BufferPool, Disk, Waker};
use engine::metrics::ShardMetrics;
use engine::serve::ServeOptions;
use engine::shard::mail::{DeskLetter, Letter, Mailbox, Slot};
use engine::shard::place::owner;
use engine::shard::{Post, Shard, ShardOptions};
use engine::source::LinkOptions;
use engine::store::identity::{CleanShutdown, FlushFailed};
use engine::store::{Checkpointed, LogConfig};
use wire::ids::{BrokerId, TopicId};

use super::io::{Door, SimIo};
use super::shard_side::ShardSide;
use super::space::{Event, Shared};

/// Where the engine keeps its files.
pub const DATA: &str = "/data";
/// Where clients find the engine.
pub const CLIENT_PORT: u16 = 9092;

/// What an engine is started with.
#[derive(Clone, Debug)]
pub struct Setup {
    pub shards: u16,
    pub memory_bytes: usize,
    pub log: LogConfig,
    pub link: LinkOptions,
    pub placed_bytes_least: usize,
    pub checkpoint_interval: Duration,
    pub retention_check_interval: Duration,
}

/// A process that runs.
pub struct Process {
    space: Shared,
    data: PathBuf,
    pub shards: Vec<Option<Shard<SimIo>>>,
    pub metrics: Vec<Arc<ShardMetrics>>,
    ways: Vec<Slot<Letter>>,
    desk_box: Arc<Mailbox<DeskLetter>>,
    bell: Arc<AtomicBool>,
    checkpoints: Checkpoints,
    stopped: usize,
    clean: bool,
    started: u64,
}

fn options(setup: &Setup, found: &Found, id: ShardId, seed: u64) -> ShardOptions {
    let count = setup.shards;
    let mut link = setup.link.clone();
    link.follows_metadata = id.0 == 0;
    let mine = |(name, _): &&(TopicPartition, Checkpointed)| owner(name, count) == id;
    ShardOptions {
        id,
        shard_count: count,
        data: Path::new(DATA).into(),
        log_config: Arc::new(setup.log.clone()),
        link: Some(link),
        serve: ServeOptions {
            shard: id,
            shard_count: count,
            request_memory_bytes: 64 << 20,
            seed,
            ..ServeOptions::default()
        },
        catalog: found.catalog.clone(),
        partitions: found.partitions.iter().filter(mine).cloned().collect(),
        left: found.left,
        source: found.source.clone(),
        placed_bytes_least: setup.placed_bytes_least,
        checkpoint_interval: setup.checkpoint_interval,
        retention_check_interval: setup.retention_check_interval,
    }
}

impl Process {
    /// Starts a process on what lies on the disk.
    ///
    /// # Errors
    /// What the engine says where it cannot start.
    pub fn start(space: &Shared, setup: &Setup) -> Result<Self, String> {
        let mut ids = [TopicId([0; 16]); 2];
        for id in &mut ids {
            let mut held = space.borrow_mut();
            id.0[..8].copy_from_slice(&held.random.next().to_be_bytes());
            id.0[8..].copy_from_slice(&held.random.next().to_be_bytes());
        }
        // Sessions of clients must not meet those of a process before.
        let seed = u64::from_be_bytes(ids[1].0[8..].try_into().expect("eight bytes"));
        let data = PathBuf::from(DATA);
        let mut disk = Door(Shared::clone(space));
        disk.create_dir_all(&data).map_err(|error| error.to_string())?;
        let found = look_through(&mut disk, &data, BrokerId(1), ids, (true, None));
        let mut found = found.map_err(|error| error.to_string())?;
        (found.catalog.host, found.catalog.port) = ("10.1.0.1".into(), CLIENT_PORT);
        let count = usize::from(setup.shards);
        let pool = || BufferPool::new(setup.memory_bytes / count);
        space.borrow_mut().shards = (0..count).map(|_| ShardSide::new(pool())).collect();
        let boxes: Vec<_> = (0..count).map(|_| Mailbox::new()).collect();
        let rungs: Vec<_> =
            space.borrow().shards.iter().map(|side| Arc::clone(&side.rung)).collect();
        let ways = || -> Vec<Slot<Letter>> {
            let pairs = boxes.iter().zip(&rungs);
            pairs.map(|(mailbox, rung)| Slot::new(Arc::clone(mailbox), ringer(rung))).collect()
        };
        let (desk_box, bell) = (Mailbox::new(), Arc::new(AtomicBool::new(false)));
        let metrics: Vec<_> = (0..count).map(|_| Arc::new(ShardMetrics::default())).collect();
        let mut shards = Vec::new();
        for (index, mailbox) in boxes.iter().enumerate() {
            let id = ShardId(u16::try_from(index).expect("few shards"));
            let post = Post {
                mailbox: Arc::clone(mailbox),
                shards: ways(),
                desk: Slot::new(Arc::clone(&desk_box), ringer(&bell)),
            };
            let io = SimIo::new(space, index);
            let metrics = Arc::clone(&metrics[index]);
            shards.push(Some(Shard::new(io, options(setup, &found, id, seed), post, metrics)));
        }
        let address = SocketAddr::from(([10, 1, 0, 1], CLIENT_PORT));
        for (index, shard) in shards.iter_mut().flatten().enumerate() {
            shard.listen(address).map_err(|error| error.to_string())?;
            shard.advertise("10.1.0.1".into(), CLIENT_PORT);
            shard.start_mirroring();
            space.borrow_mut().run_soon(index);
        }
        let (ways, started) = (ways(), space.borrow().now);
        Ok(Self {
            space: Shared::clone(space),
            data,
            shards,
            metrics,
            ways,
            desk_box,
            bell,
            checkpoints: found.checkpoints,
            stopped: 0,
            clean: true,
            started,
        })
    }

    /// Gives a shard its turn, and one more to learn until when it sleeps then.
    pub fn turn(&mut self, index: usize) {
        self.space.borrow_mut().shards[index].runs = false;
        let Some(shard) = &mut self.shards[index] else { return };
        let lives = shard.turn() && shard.turn();
        if !lives {
            self.shards[index] = None;
            self.space.borrow_mut().shards[index].is_dead = true;
        }
        self.spread(index);
    }

    /// Wakes whoever was called, and sets the shard's timer.
    fn spread(&mut self, index: usize) {
        let mut space = self.space.borrow_mut();
        for shard in 0..self.shards.len() {
            let side = &space.shards[shard];
            if side.rung.swap(false, Ordering::SeqCst) || !side.ready.is_empty() {
                space.run_soon(shard);
            }
        }
        let life = space.life;
        if self.bell.swap(false, Ordering::SeqCst) {
            let after = space.random.below(3_000);
            space.schedule(after, Event::Desk { life });
        }
        if let Some(until) = space.shards[index].until.take()
            && !space.shards[index].runs
        {
            space.forget(|event| *event == Event::Timer { shard: index, life });
            space.schedule_at(self.started + until.0, Event::Timer { shard: index, life });
        }
    }

    /// The desk reads its letters; gives those that others may want to see.
    pub fn desk(&mut self) -> Vec<DeskLetter> {
        let mut disk = Door(Shared::clone(&self.space));
        let mut seen = Vec::new();
        while let Some(letter) = self.desk_box.take() {
            match &letter {
                DeskLetter::Checkpoint { partitions } => self.checkpoints.take(partitions.clone()),
                DeskLetter::Loss { shard, partition, loss, wall_clock_ms } => {
                    let result =
                        losses::record(&mut disk, &self.data, partition, loss, *wall_clock_ms)
                            .map_err(|error| error.to_string());
                    let (partition, loss) = (partition.clone(), loss.clone());
                    let letter = Letter::LossRecorded { partition, loss, result };
                    self.send(usize::from(shard.0), letter);
                }
                DeskLetter::Resolve { shard, host } => {
                    let addresses = self.resolve();
                    let host = Arc::clone(host);
                    self.send(usize::from(shard.0), Letter::Resolved { host, addresses });
                }
                DeskLetter::Stopped { clean, .. } => {
                    self.stopped += 1;
                    self.clean &= clean;
                }
            }
            seen.push(letter);
        }
        // Where it fails the next letter tries again.
        let _ = self.checkpoints.write(&mut disk, &self.data);
        if self.has_ended() && self.clean {
            let clean = CleanShutdown { broker_epoch: None };
            if clean.write(&mut disk, &self.data).is_ok() {
                self.space.borrow_mut().drive.dropped = false;
                let _ = FlushFailed::clear(&mut disk, &self.data);
            }
        }
        seen
    }

    fn resolve(&self) -> Result<Vec<IpAddr>, String> {
        let mut space = self.space.borrow_mut();
        let refusals = space.network.refusals;
        match space.random.chance(refusals) {
            true => Err("no address (simulated)".into()),
            false => Ok(vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))]),
        }
    }

    fn send(&mut self, shard: usize, letter: Letter) {
        self.ways[shard].send(letter);
        let mut space = self.space.borrow_mut();
        if space.shards[shard].rung.swap(false, Ordering::SeqCst) {
            space.run_soon(shard);
        }
    }

    /// Asks all shards to end.
    pub fn stop(&mut self) {
        (0..self.shards.len()).for_each(|shard| self.send(shard, Letter::Stop));
    }

    /// Whether all have ended and the desk knows.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stopped == self.shards.len()
    }

    /// Whether all logs were closed.
    #[must_use]
    pub const fn was_clean(&self) -> bool {
        self.clean
    }

    /// A metric, over all shards.
    #[must_use]
    pub fn sum(&self, read: impl Fn(&ShardMetrics) -> u64) -> u64 {
        self.metrics.iter().map(|shard| read(shard)).sum()
    }
}

fn ringer(rung: &Arc<AtomicBool>) -> Waker {
    let rung = Arc::clone(rung);
    Waker::new(move || rung.store(true, Ordering::SeqCst))
}
