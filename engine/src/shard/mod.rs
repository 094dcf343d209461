//! One core's worth of engine: the only place where the rooms meet.
//!
//! ```text
//!               ┌─────────── Io: completions ───────────┐
//!               ▼                                       ▼
//!   peers (source connections)               clients (consumer connections)
//!     │  link: frames ─▶ fetched                server: bytes ─▶ questions
//!     ▼                                         ▼
//!   ingest: admit ─▶ log plans ─▶ writes      answer: log plans ─▶ file to socket
//!     │                                         ▲
//!     └────────── cells: logs and mirrors ──────┘
//! ```
//!
//! A turn reaps what completed, reads the mail, does what time asks for, and sleeps. Nothing in it
//! goes over all partitions, but for the check of retention every some minutes and the last turns of all.

#![forbid(unsafe_code)]

mod answer;
mod cell;
mod clients;
mod files;
mod follow;
mod ingest;
mod left_out;
mod losses;
pub mod mail;
mod peers;
pub mod place;
mod reopen;
mod slab;
mod upkeep;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::admitted::AdmittedBatch;
use crate::catalog::Catalog;
use crate::ids::{ConnId, Now, PartitionKey, ShardId, Token, TopicPartition};
use crate::io::{Done, Io, Op};
use crate::metrics::ShardMetrics;
use crate::mirror::Phase;
use crate::serve::{ServeOptions, Server};
use crate::source::{Link, LinkOptions, PeerKey, SourceImage};
use crate::store::identity::SourceCluster;
use crate::store::{Checkpointed, Left, LogConfig};
use cell::Cell;
use clients::Client;
use mail::{DeskLetter, Letter, Mailbox, Slot};
use peers::Peer;
use slab::Slab;

/// What a shard is told when it starts.
#[derive(Debug)]
pub struct ShardOptions {
    pub id: ShardId,
    pub shard_count: u16,
    /// The data folder.
    pub data: Arc<Path>,
    pub log_config: Arc<LogConfig>,
    /// None where nothing is mirrored, only served.
    pub link: Option<LinkOptions>,
    pub serve: ServeOptions,
    /// Every topic that is known before the source is asked.
    pub catalog: Catalog,
    /// The partitions of the data folder that this shard owns.
    pub partitions: Vec<(TopicPartition, Checkpointed)>,
    /// How the last process left the logs.
    pub left: Left,
    /// Whose topics the data folder holds, where it says so.
    pub source: Option<SourceCluster>,
    /// From this size on a frame is put where its records can be written from as they are.
    pub placed_bytes_least: usize,
    /// How often the desk is told where partitions stand.
    pub checkpoint_interval: Duration,
    pub retention_check_interval: Duration,
}

/// Where a shard's letters come from and go to.
#[derive(Debug)]
pub struct Post {
    pub mailbox: Arc<Mailbox<Letter>>,
    /// By shard; the one to itself is not used.
    pub shards: Vec<Slot<Letter>>,
    pub desk: Slot<DeskLetter>,
}

/// What an operation in flight was for.
#[derive(Debug)]
enum Purpose {
    Listen,
    ClientStream(ConnId),
    ClientSend { connection: ConnId, record_bytes: u64, is_last: bool },
    PeerConnect(PeerKey),
    PeerSize(PeerKey),
    PeerHead(PeerKey),
    PeerFrame(PeerKey),
    PeerTooLarge(PeerKey),
    PeerSend(PeerKey),
    Append { key: PartitionKey, next: wire::ids::Offset, bytes: u64 },
    Flush { key: PartitionKey, file: crate::ids::FileId, forget: bool },
}

/// How far the shard is on the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    /// Nothing new is begun; writes under way are waited for.
    Draining,
    Ended,
}

/// One core's worth of engine.
pub struct Shard<I: Io> {
    io: I,
    options: ShardOptions,
    post: Post,
    metrics: Arc<ShardMetrics>,
    in_flight: Slab<Purpose>,
    catalog: Catalog,
    cells: Vec<Cell>,
    keys: HashMap<TopicPartition, PartitionKey>,
    /// The metadata that mirrors were begun from.
    image: Arc<SourceImage>,
    link: Option<Link>,
    server: Server,
    peers: BTreeMap<PeerKey, Peer>,
    peer_connections: HashMap<ConnId, PeerKey>,
    /// Peers whose next frame waits for a buffer or for the disk, and some that are gone.
    starved: VecDeque<PeerKey>,
    /// Bytes of writes under way.
    writing_bytes: usize,
    clients: HashMap<ConnId, Client>,
    retries: BTreeSet<(Now, PartitionKey)>,
    sums: Sums,
    /// Partitions whose logs could not be opened.
    left_out: BTreeMap<TopicPartition, left_out::LeftOut>,
    upkeep: upkeep::Upkeep,
    ending: Ending,
    /// Room for what admission finds, kept from frame to frame.
    admitted: Vec<AdmittedBatch>,
    done: Vec<(Token, Done)>,
}

/// Sums over all partitions, kept up to date by those that change.
#[derive(Debug, Default)]
struct Sums {
    phases: BTreeMap<Phase, u64>,
    lag_records: u64,
    lag_bytes: u64,
    behind: BTreeSet<(Now, PartitionKey)>,
}

impl<I: Io> Shard<I> {
    /// A shard with its logs opened, which reads again what an unclean stop left in doubt. The
    /// damage of one log is told and leaves that partition out; all others are there.
    pub fn new(io: I, mut options: ShardOptions, post: Post, metrics: Arc<ShardMetrics>) -> Self {
        let partitions = std::mem::take(&mut options.partitions);
        let server = Server::new(options.serve.clone());
        let catalog = options.catalog.clone();
        let upkeep = upkeep::Upkeep::new(io.now(), &options);
        let mut shard = Self {
            io,
            options,
            post,
            metrics,
            in_flight: Slab::new(),
            catalog,
            cells: Vec::new(),
            keys: HashMap::new(),
            image: Arc::default(),
            link: None,
            server,
            peers: BTreeMap::new(),
            peer_connections: HashMap::new(),
            starved: VecDeque::new(),
            writing_bytes: 0,
            clients: HashMap::new(),
            retries: BTreeSet::new(),
            sums: Sums::default(),
            left_out: BTreeMap::new(),
            upkeep,
            ending: Ending::No,
            admitted: Vec::new(),
            done: Vec::new(),
        };
        let left = shard.options.left;
        for (name, checkpointed) in partitions {
            if let Err(damage) = shard.open_log(&name, checkpointed, left) {
                shard.leave_out(&name, (checkpointed, false), &damage);
            }
        }
        shard
    }

    /// Begins to mirror. Separate from opening, so that clients are served first.
    pub fn start_mirroring(&mut self) {
        let Some(mut options) = self.options.link.clone() else { return };
        options.shard = self.options.id;
        let (now, seed) = (self.io.now(), self.io.random());
        let mut effects = Vec::new();
        let mut link = Link::new(options, seed);
        link.start(now, &mut effects);
        self.link = Some(link);
        self.run_link(effects);
    }

    /// Listens for clients. The first shard chooses the port, the others share it.
    pub fn listen(
        &mut self,
        address: std::net::SocketAddr,
    ) -> Result<std::net::SocketAddr, crate::io::IoError> {
        let token = self.in_flight.add(Purpose::Listen);
        let bound = self.io.listen(token, address)?;
        self.io.submit(token, Op::Accept);
        Ok(bound)
    }

    /// Says where clients reach this node, once the port is known.
    pub fn advertise(&mut self, host: Arc<str>, port: u16) {
        self.catalog.host = host;
        self.catalog.port = port;
    }

    /// One turn; false once the shard has ended.
    pub fn turn(&mut self) -> bool {
        let until = self.deadline();
        let mut done = std::mem::take(&mut self.done);
        self.io.turn(until, &mut done);
        for (token, what) in done.drain(..) {
            self.completed(token, what);
        }
        self.done = done;
        self.feed_starved();
        while let Some(letter) = self.post.mailbox.take() {
            self.read(letter);
        }
        self.on_time();
        self.ending != Ending::Ended || self.upkeep.mail_waits()
    }

    /// The world, for a simulation that looks at it from outside.
    pub fn io(&mut self) -> &mut I {
        &mut self.io
    }

    fn completed(&mut self, token: Token, done: Done) {
        match self.in_flight.look(token) {
            None => tracing::error!("a completion of nothing in flight: {done:?}"),
            Some(Purpose::Listen) => self.accepted(token, done),
            Some(&Purpose::ClientStream(connection)) => {
                self.client_received(token, connection, done);
            }
            Some(_) => {
                let purpose = self.in_flight.take(token).expect("it was just looked at");
                self.ended(purpose, done);
            }
        }
    }

    /// An operation that answers once has answered.
    fn ended(&mut self, purpose: Purpose, done: Done) {
        match purpose {
            Purpose::Listen | Purpose::ClientStream(_) => unreachable!("these answer many times"),
            Purpose::ClientSend { connection, record_bytes, is_last } => {
                self.client_sent(connection, record_bytes, is_last, done);
            }
            Purpose::PeerConnect(peer) => self.peer_connected(peer, done),
            Purpose::PeerSize(peer) => self.peer_size(peer, done),
            Purpose::PeerHead(peer) => self.peer_head(peer, done),
            Purpose::PeerFrame(peer) => self.peer_frame(peer, done),
            Purpose::PeerTooLarge(peer) => self.peer_too_large(peer, done),
            Purpose::PeerSend(peer) => self.peer_sent(peer, done),
            Purpose::Append { key, next, bytes } => self.written(key, next, bytes, done),
            Purpose::Flush { key, file, forget } => {
                if forget {
                    self.io.forget(file);
                }
                self.segment_flushed(key, done);
            }
        }
    }

    fn read(&mut self, letter: Letter) {
        let now = self.io.now();
        match letter {
            // Who ends makes no logs that nobody would close.
            Letter::Topics(_) | Letter::Image(_) if self.ending != Ending::No => {}
            Letter::Topics(topics) => self.put_topics(topics),
            Letter::Image(image) => self.follow_image(image),
            Letter::RefreshWanted { topics, ticket } => {
                if let Some(link) = &mut self.link {
                    link.refresh_for(ticket, &topics);
                }
            }
            Letter::Ask { from, questions } => {
                let answers = self.answer_all(&questions);
                self.post.shards[usize::from(from.0)].send(Letter::Answers { answers });
            }
            Letter::Answers { answers } => self.hand_answers(answers),
            Letter::Watch { from, partitions } => self.watch(from, partitions),
            Letter::Unwatch { from, call } => self.unwatch(from, call),
            Letter::Progress { id } => self.client_progress(id),
            Letter::Resolved { host, addresses } => {
                let mut effects = Vec::new();
                if let Some(link) = &mut self.link {
                    link.resolved(&host, addresses, now, &mut effects);
                }
                self.run_link(effects);
            }
            Letter::LossRecorded { partition, loss, result } => {
                self.loss_recorded(&partition, &loss, result);
            }
            Letter::Forget { files } => self.forget_here(&files),
            Letter::Stop => self.stop(),
        }
    }

    fn key(&self, topic: &Arc<str>, partition: wire::ids::PartitionIndex) -> Option<PartitionKey> {
        self.keys.get(&TopicPartition { topic: Arc::clone(topic), partition }).copied()
    }
}
