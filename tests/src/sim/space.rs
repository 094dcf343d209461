//! What all parties of a simulation share: the clock, the disk, the network, and what is to happen
//! when. Only the world moves the clock.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::disk::Drive;
use super::network::{Network, Notice};
use super::random::Random;
use super::shard_side::ShardSide;

/// Microseconds since the simulation began.
pub type Micros = u64;

/// Where the wall clock stands when the simulation begins.
pub const WALL_START_MS: i64 = 1_750_000_000_000;

/// What is to happen at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes or the end of a stream reach one end of a link.
    Arrive {
        link: u64,
        to: usize,
    },
    /// A shard's attempt to connect is decided.
    Connect {
        shard: usize,
        life: u64,
        token: u64,
        port: u16,
        outcome: Reached,
    },
    Written {
        shard: usize,
        life: u64,
        ticket: u64,
    },
    Flushed {
        shard: usize,
        life: u64,
        ticket: u64,
    },
    /// A shard has its turn.
    Run {
        shard: usize,
        life: u64,
    },
    /// The moment that a shard sleeps until.
    Timer {
        shard: usize,
        life: u64,
    },
    Desk {
        life: u64,
    },
    /// A broker looks again at the request that waits on a link.
    Broker {
        link: u64,
    },
    Client {
        client: usize,
    },
    Work,
    Chaos,
    Look,
}

/// What becomes of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    Answered,
    Refused,
    /// Nobody answered for as long as the kernel tries.
    Silent,
}

/// The shared part of a simulated world.
#[derive(Debug)]
pub struct Space {
    pub now: Micros,
    pub random: Random,
    pub drive: Drive,
    pub network: Network,
    pub shards: Vec<ShardSide>,
    pub notices: VecDeque<Notice>,
    /// Counts processes, so that what was under way for one is not told to the next.
    pub life: u64,
    /// How slow the disk is, in microseconds at most.
    pub disk_slowness: Micros,
    queue: BTreeMap<(Micros, u64), Event>,
    next: u64,
    trace: u64,
    pub events: u64,
    /// Prints what happens, for a person who looks for a cause.
    pub tells: bool,
}

/// How everybody holds it. Nobody holds a borrow while somebody else is called.
pub type Shared = Rc<RefCell<Space>>;

impl Space {
    /// A space in which nothing has happened.
    #[must_use]
    pub fn new(seed: u64) -> Shared {
        let mut random = Random::new(seed);
        let space = Self {
            now: 0,
            drive: Drive::new(random.fork()),
            network: Network::default(),
            random,
            shards: Vec::new(),
            notices: VecDeque::new(),
            life: 0,
            disk_slowness: 2_000,
            queue: BTreeMap::new(),
            next: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            events: 0,
            tells: std::env::var_os("FARSPAN_SIM_TELL").is_some(),
        };
        Rc::new(RefCell::new(space))
    }

    /// The wall clock.
    #[must_use]
    pub const fn wall_ms(&self) -> i64 {
        WALL_START_MS + (self.now / 1_000) as i64
    }

    /// Lets something happen `after` from now, behind all that happens at the same moment.
    pub fn schedule(&mut self, after: Micros, event: Event) {
        self.schedule_at(self.now + after, event);
    }

    /// Lets something happen at a moment.
    pub fn schedule_at(&mut self, at: Micros, event: Event) {
        self.queue.insert((at.max(self.now), self.next), event);
        self.next += 1;
    }

    /// The next event up to `until`, and moves the clock to it.
    pub fn next_event(&mut self, until: Micros) -> Option<Event> {
        let entry = self.queue.first_entry().filter(|entry| entry.key().0 <= until)?;
        let ((at, _), event) = entry.remove_entry();
        self.now = at;
        self.events += 1;
        self.note(format_args!("{event:?}"));
        Some(event)
    }

    /// Drops what is scheduled that `is_stale` says is of no use any more.
    pub fn forget(&mut self, mut is_stale: impl FnMut(&Event) -> bool) {
        self.queue.retain(|_, event| !is_stale(event));
    }

    /// Takes something into the trace, by which two runs of one seed are compared.
    pub fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let now = self.now;
        let mut fold = |byte: u8| {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        };
        now.to_be_bytes().into_iter().for_each(&mut fold);
        what.to_string().bytes().for_each(&mut fold);
        if self.tells {
            println!("{:>12.6} {what}", now as f64 / 1e6);
        }
    }

    /// The trace up to now as one number.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.trace
    }

    /// Gives a shard its turn soon, where it has none ahead.
    pub fn run_soon(&mut self, shard: usize) {
        let side = &mut self.shards[shard];
        if side.runs || side.is_dead {
            return;
        }
        side.runs = true;
        let after = if self.random.chance(900) { self.random.below(50) } else { 500 };
        let life = self.life;
        self.schedule(after, Event::Run { shard, life });
    }
}
