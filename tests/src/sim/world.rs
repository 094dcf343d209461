//! A whole world in one thread: a source, an engine, clients, and a clock that only this file moves.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use engine::ids::ConnId;
use engine::io::{Done, IoErrorKind};
use engine::shard::mail::DeskLetter;
use engine::store::identity::FlushFailed;
use tools::synthetic::{Cluster, Settings};

use super::client::Client;
use super::disk::Killed;
use super::network::{Notice, Owner, failure};
use super::oracle::Oracle;
use super::process::{DATA, Process, Setup};
use super::random::Random;
use super::source::Source;
use super::space::{Event, Micros, Reached, Shared, Space};
use super::workload::Workload;

/// A world.
pub struct World {
    pub space: Shared,
    pub source: Source,
    pub process: Option<Process>,
    pub clients: Vec<Client>,
    pub oracle: Oracle,
    pub workload: Workload,
    pub setup: Setup,
    pub random: Random,
    /// Whether producers produce.
    pub works: bool,
    /// Processes that died, by kills and power cuts.
    pub crashes: u64,
    /// Batches that clients have checked.
    pub client_batches: u64,
    /// A fuse was lit: the death to come is a power cut.
    pub fuse_is_power: bool,
    /// What happens to the chaos whose time has come; the run decides.
    pub chaos: bool,
    pub due: u32,
}

/// The operator makes the data folder, and durably so: the engine syncs no folder above it.
fn make_data_folder(space: &Shared) {
    use engine::io::Disk as _;
    let drive = &mut space.borrow_mut().drive;
    drive.create_dir_all(Path::new(DATA)).expect("an empty disk");
    drive.sync(Path::new("/")).expect("an empty disk");
}

/// What was wrong, in one sentence.
pub type Verdict = Result<(), String>;

impl World {
    /// A world in which nothing runs yet.
    #[must_use]
    pub fn new(seed: u64, setup: Setup, brokers: i32) -> Self {
        let space = Space::new(seed);
        make_data_folder(&space);
        let settings = Settings { broker_count: brokers, seed, ..Settings::default() };
        let source = Source::new(Cluster::new(settings), &space);
        let random = space.borrow_mut().random.fork();
        Self {
            space,
            source,
            process: None,
            clients: Vec::new(),
            oracle: Oracle::default(),
            workload: Workload::default(),
            setup,
            random,
            works: true,
            crashes: 0,
            client_batches: 0,
            fuse_is_power: false,
            chaos: false,
            due: 0,
        }
    }

    /// Lets clients, producers and the oracle begin.
    pub fn begin(&mut self, clients: usize) {
        self.clients = (0..clients).map(|number| Client::new(number, &self.space)).collect();
        let mut space = self.space.borrow_mut();
        (0..clients).for_each(|client| space.schedule(1_000, Event::Client { client }));
        for event in [Event::Work, Event::Look, Event::Chaos] {
            space.schedule(1_000, event);
        }
    }

    /// The moment.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.space.borrow().now
    }

    /// Reads what is new on disk.
    ///
    /// # Errors
    /// What the oracle finds.
    pub fn look(&mut self) -> Verdict {
        if self.process.is_none() {
            // What a crash left is for recovery to look at first.
            return Ok(());
        }
        self.oracle.look(&mut self.space.borrow_mut().drive, &self.source.truth, false)
    }

    /// Reads all that is on disk, where no write is under way.
    ///
    /// # Errors
    /// What the oracle finds.
    pub fn look_closely(&mut self) -> Verdict {
        self.oracle.look(&mut self.space.borrow_mut().drive, &self.source.truth, true)
    }

    /// Runs until `until`, or until the chaos is due.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run_until(&mut self, until: Micros) -> Verdict {
        while self.due == 0 {
            let Some(event) = self.space.borrow_mut().next_event(until) else { break };
            self.happen(event)?;
            self.tell_all()?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Verdict {
        let life = self.space.borrow().life;
        match event {
            Event::Arrive { link, to } => self.space.borrow_mut().arrive(link, to),
            Event::Connect { shard, life: of, token, port, outcome } if of == life => {
                self.connect(shard, token, port, outcome);
            }
            Event::Written { shard, life: of, ticket } if of == life => {
                self.space.borrow_mut().written(shard, ticket);
            }
            Event::Flushed { shard, life: of, ticket } if of == life => {
                self.space.borrow_mut().flushed(shard, ticket);
            }
            Event::Run { shard, life: of } if of == life => {
                self.mortal(|process| process.turn(shard))?;
            }
            Event::Timer { shard, life: of } if of == life => {
                self.space.borrow_mut().run_soon(shard);
            }
            Event::Desk { life: of } if of == life => {
                if let Some(letters) = self.mortal(Process::desk)? {
                    self.read(&letters)?;
                }
            }
            Event::Broker { link } => self.source.resume(link),
            Event::Client { client } => self.turn_client(client)?,
            Event::Work => self.work(),
            Event::Look => {
                self.look()?;
                self.space.borrow_mut().schedule(250_000, Event::Look);
            }
            Event::Chaos => {
                let after = self.random.between(200_000, 4_000_000);
                self.space.borrow_mut().schedule(after, Event::Chaos);
                self.due += u32::from(self.chaos);
            }
            _ => {}
        }
        if !self.space.borrow().drive.gone.is_empty() {
            self.look()?;
        }
        Ok(())
    }

    /// Tells brokers and clients what reached them.
    fn tell_all(&mut self) -> Verdict {
        loop {
            let notice = self.space.borrow_mut().notices.pop_front();
            match notice {
                None => return Ok(()),
                Some(Notice::Readable { link, owner: Owner::Client(client) }) => {
                    let (client, truth) = (&mut self.clients[client], &self.source.truth);
                    client.readable(link, truth)?;
                }
                Some(Notice::Ended { link, owner: Owner::Client(client) }) => {
                    self.clients[client].ended(link);
                }
                Some(Notice::Readable { link, .. }) => self.source.readable(link),
                Some(Notice::Ended { link, .. }) => self.source.ended(link),
            }
        }
    }

    fn connect(&mut self, shard: usize, token: u64, port: u16, outcome: Reached) {
        let nobody = Owner::Shard { shard, connection: ConnId(0) };
        let link = self.source.knock(nobody, port, outcome);
        let mut space = self.space.borrow_mut();
        let done = match link {
            Some(link) => Done::Connected { connection: space.adopt(shard, link, 0) },
            None => failure(IoErrorKind::Network, "refused"),
        };
        space.complete(shard, engine::ids::Token(token), done);
    }

    fn turn_client(&mut self, client: usize) -> Verdict {
        let space = Shared::clone(&self.space);
        let lives = self.process.is_some();
        self.clients[client].turn(&mut |number| {
            let mut space = space.borrow_mut();
            let listening: Vec<_> = (0..space.shards.len())
                .filter(|shard| {
                    space.shards[*shard].accepts.is_some() && !space.shards[*shard].is_dead
                })
                .collect();
            if !lives || listening.is_empty() {
                return None;
            }
            let shard = *space.random.pick(&listening);
            let nobody = Owner::Shard { shard, connection: ConnId(0) };
            let link = space.link([Owner::Client(number), nobody], Client::port());
            let connection = space.adopt(shard, link, 1);
            let peer = std::net::SocketAddr::from(([10, 2, 0, 1], 1_000 + number as u16));
            let token = space.shards[shard].accepts?;
            space.complete(shard, token, Done::Accepted { connection, peer });
            Some(link)
        })
    }

    fn work(&mut self) {
        let after = self.random.between(5_000, 150_000);
        self.space.borrow_mut().schedule(after, Event::Work);
        if self.works {
            let now_ms = self.space.borrow().wall_ms();
            self.workload.produce(&mut self.source, &mut self.random, now_ms);
        }
    }

    fn read(&mut self, letters: &[DeskLetter]) -> Verdict {
        for letter in letters {
            match letter {
                DeskLetter::Checkpoint { partitions } => self.oracle.checkpointed(partitions),
                DeskLetter::Loss { partition, loss, .. } => {
                    self.look()?;
                    self.space.borrow_mut().note(format_args!("{partition} {loss:?}"));
                    let name = partition.to_string();
                    self.oracle.lost(&name, loss, &self.source.truth)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Calls the process, which may die of it.
    fn mortal<T>(&mut self, call: impl FnOnce(&mut Process) -> T) -> Result<Option<T>, String> {
        let Some(process) = &mut self.process else { return Ok(None) };
        match catch_unwind(AssertUnwindSafe(|| call(process))) {
            Ok(value) => Ok(Some(value)),
            Err(cause) if cause.is::<Killed>() => {
                let power = self.fuse_is_power;
                self.crash(power)?;
                Ok(None)
            }
            Err(cause) => resume_unwind(cause),
        }
    }

    /// The process dies, and with a power cut the machine.
    ///
    /// # Errors
    /// What was wrong on disk before.
    pub fn crash(&mut self, power: bool) -> Verdict {
        self.look()?;
        self.space.borrow_mut().note(format_args!("crash, power {power}"));
        self.oracle.crashed(power);
        self.crashes += 1;
        let mut space = self.space.borrow_mut();
        space.drive.fuse = None;
        space.kill();
        if power {
            space.drive.power_cut();
        }
        drop(space);
        // After the kernel's side, which holds buffers of its pools.
        self.process = None;
        self.fuse_is_power = false;
        Ok(())
    }

    /// Starts a process where none runs, through as many deaths as it takes. Gives whether it runs:
    /// a disk that refuses may keep it from starting.
    ///
    /// # Errors
    /// What is wrong with what recovery left on disk, or why it does not start on a sound disk.
    pub fn start(&mut self) -> Result<bool, String> {
        if self.process.is_some() {
            return Ok(true);
        }
        if self.space.borrow().drive.dropped && !self.is_flush_failure_told() {
            self.oracle.crashed(true);
            self.space.borrow_mut().drive.power_cut();
        }
        let struck = self.space.borrow().drive.struck;
        let start = || Process::start(&self.space, &self.setup);
        match catch_unwind(AssertUnwindSafe(start)) {
            Ok(Ok(process)) => {
                self.process = Some(process);
                let drive = &mut self.space.borrow_mut().drive;
                let was_struck = drive.struck > struck;
                self.oracle.reopened(drive, &self.source.truth, was_struck)?;
                Ok(true)
            }
            Ok(Err(why)) => {
                self.space.borrow_mut().kill();
                match self.space.borrow().drive.struck > struck {
                    true => Ok(false),
                    false => Err(format!("does not start: {why}")),
                }
            }
            Err(cause) if cause.is::<Killed>() => {
                let power = self.fuse_is_power;
                self.oracle.crashed(power);
                self.crashes += 1;
                self.fuse_is_power = false;
                let mut space = self.space.borrow_mut();
                space.drive.gone.clear();
                space.kill();
                if power {
                    space.drive.power_cut();
                }
                Ok(false)
            }
            Err(cause) => resume_unwind(cause),
        }
    }

    /// Whether the process before wrote down that a flush had failed.
    fn is_flush_failure_told(&self) -> bool {
        let drive = &self.space.borrow().drive;
        drive.find(&FlushFailed::file(Path::new(DATA))).is_some()
    }

    /// Stops the process and waits for its end. Gives whether it was clean; false also where it died.
    ///
    /// # Errors
    /// What is wrong, or that it does not end.
    pub fn stop(&mut self) -> Result<bool, String> {
        let crashes = self.crashes;
        if self.mortal(Process::stop)?.is_none() {
            return Ok(false);
        }
        let patience = self.now() + 300_000_000;
        let chaos = std::mem::take(&mut self.chaos);
        while self.process.as_ref().is_some_and(|process| !process.has_ended()) {
            let soon = self.now() + 10_000;
            self.run_until(soon)?;
            self.space.borrow_mut().now = soon;
            if soon > patience {
                return Err("the process does not end".into());
            }
        }
        self.chaos = chaos;
        let clean = self.crashes == crashes
            && self.process.as_ref().is_some_and(|process| process.was_clean());
        if self.process.is_some() {
            self.look()?;
            self.oracle.crashed(false);
            let mut space = self.space.borrow_mut();
            space.kill();
            drop(space);
            self.process = None;
        }
        Ok(clean)
    }
}
