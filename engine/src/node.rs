//! A whole node: the data folder is taken, the shards and the desk are started, and stopped.

use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Notify;
use wire::ids::TopicId;

use crate::catalog::Topic;
use crate::config::Config;
use crate::desk::{self, DeskOptions};
use crate::folder::{self, FolderError, Found, Lock};
use crate::ids::{ShardId, TopicPartition};
use crate::io::{Io, Waker};
use crate::limits;
use crate::metrics::ShardMetrics;
use crate::ring::{HostDisk, Ring, RingOptions, WriterKind};
use crate::serve::ServeOptions;
use crate::shard::mail::{Letter, Mailbox, Slot};
use crate::shard::place::owner;
use crate::shard::{Post, Shard, ShardOptions};
use crate::source::Exclusion;
use crate::store::Checkpointed;

/// Why a node cannot start or had to end: one sentence that names the thing and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError(pub String);

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NodeError {}

impl From<FolderError> for NodeError {
    fn from(error: FolderError) -> Self {
        Self(error.0)
    }
}

/// A node that runs. Dropping it stops it.
pub struct Node {
    address: SocketAddr,
    http: Option<SocketAddr>,
    cluster_id: Arc<str>,
    metrics: Vec<Arc<ShardMetrics>>,
    ways: Vec<Slot<Letter>>,
    shards: Vec<JoinHandle<()>>,
    desk: Option<JoinHandle<std::io::Result<bool>>>,
    ended: Receiver<Ended>,
    /// Held for as long as the folder is ours.
    _lock: Lock,
}

/// A shard has ended; `error` says why where nobody asked for it.
#[derive(Debug)]
struct Ended {
    shard: ShardId,
    error: Option<String>,
}

impl Node {
    /// Takes the data folder, opens its logs, listens, and begins to mirror.
    ///
    /// # Errors
    /// Where the folder is in use or damaged, an address cannot be listened on, or the kernel lacks
    /// what a shard needs.
    pub fn start(config: &Config) -> Result<Self, NodeError> {
        let lock = folder::take(&mut HostDisk, &config.data, config.source.is_some())?;
        let listener = listen_on("Kafka clients", config.listen)?;
        let http = config.http.map(|address| listen_on("metrics", address)).transpose()?;
        let count = config.shards.max(1);
        let starting = start_rings(config, count)?;
        let found = look_through(config)?;
        tell_outside(config, &found);
        let boxes: Vec<_> = (0..count).map(|_| Mailbox::new()).collect();
        let wakers: Vec<_> = starting.iter().map(|ring| ring.waker.clone()).collect();
        let ways = || -> Vec<Slot<Letter>> {
            let pairs = boxes.iter().zip(&wakers);
            pairs.map(|(mailbox, waker)| Slot::new(Arc::clone(mailbox), waker.clone())).collect()
        };
        let (desk_box, bell) = (Mailbox::new(), Arc::new(Notify::new()));
        let metrics: Vec<_> = (0..count).map(|_| Arc::new(ShardMetrics::default())).collect();
        let (ended_to, ended) = channel();
        let mut shards = Vec::new();
        let mut heard = Vec::new();
        for (index, ring) in starting.into_iter().enumerate() {
            let id = ShardId(u16::try_from(index).expect("shards are counted in u16"));
            let rung = Arc::clone(&bell);
            let post = Post {
                mailbox: Arc::clone(&boxes[index]),
                shards: ways(),
                desk: Slot::new(Arc::clone(&desk_box), Waker::new(move || rung.notify_one())),
            };
            let options = shard_options(config, &found, id, count);
            let metrics = Arc::clone(&metrics[index]);
            let clone = listener.try_clone();
            let listener = clone.map_err(|error| NodeError(format!("no descriptor: {error}")))?;
            let begin = Begin { options, post, metrics, listener, ended: ended_to.clone() };
            ring.begin.send(begin).map_err(|_| NodeError(format!("shard {index} is gone")))?;
            shards.push(ring.thread);
            heard.push((ring.opened, ring.listen, ring.bound));
        }
        let address = listener.local_addr().map_err(|error| NodeError(error.to_string()))?;
        if let Err(error) = open_doors(config, address, &heard) {
            // Nobody may write into the folder when its lock is given up.
            ways().iter_mut().for_each(|way| way.send(Letter::Stop));
            drop(heard);
            shards.into_iter().for_each(|shard| drop(shard.join()));
            return Err(error);
        }
        let (bound, cluster_id) = (
            http.as_ref().and_then(|l| l.local_addr().ok()),
            Arc::clone(&found.catalog.cluster_id),
        );
        let desk_options = DeskOptions {
            data: config.data.as_path().into(),
            mailbox: desk_box,
            bell,
            shards: ways(),
            checkpoints: found.checkpoints,
            metrics: metrics.clone(),
            http,
        };
        let desk = std::thread::Builder::new()
            .name("desk".into())
            .spawn(move || desk::run(desk_options, &mut HostDisk))
            .map_err(|error| NodeError(format!("no thread for the desk: {error}")))?;
        Ok(Self {
            address,
            http: bound,
            cluster_id,
            metrics,
            ways: ways(),
            shards,
            desk: Some(desk),
            ended,
            _lock: lock,
        })
    }

    /// Where Kafka clients are listened for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics and health are shown.
    #[must_use]
    pub const fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The cluster id that clients are told.
    #[must_use]
    pub const fn cluster_id(&self) -> &Arc<str> {
        &self.cluster_id
    }

    /// What each shard has counted.
    #[must_use]
    pub fn metrics(&self) -> &[Arc<ShardMetrics>] {
        &self.metrics
    }

    /// One number, summed over all shards.
    #[must_use]
    pub fn sum(&self, read: impl Fn(&ShardMetrics) -> u64) -> u64 {
        self.metrics.iter().map(|shard| read(shard)).sum()
    }

    /// Whether a shard has ended by itself, and why: the node is then to be stopped.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let ended = self.ended.try_recv().ok()?;
        let why = ended.error.unwrap_or_else(|| "it ended without a reason".to_string());
        Some(format!("shard {}: {why}", ended.shard.0))
    }

    /// Finishes what is being written, closes all logs, and ends.
    ///
    /// # Errors
    /// Where a log could not be closed: the next start reads the ends of the logs again.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), NodeError> {
        let Some(desk) = self.desk.take() else { return Ok(()) };
        for way in &mut self.ways {
            way.send(Letter::Stop);
        }
        // A box that is full takes it as soon as its shard has read on.
        let runs = |shards: &[JoinHandle<()>]| shards.iter().any(|shard| !shard.is_finished());
        while self.ways.iter_mut().fold(false, |waits, way| waits | way.flush())
            && runs(&self.shards)
        {
            std::thread::sleep(STOP_AGAIN);
        }
        let mut lost = Vec::new();
        for (index, shard) in self.shards.drain(..).enumerate() {
            if shard.join().is_err() {
                lost.push(index.to_string());
            }
        }
        if !lost.is_empty() {
            // The desk still waits for these, and would for ever.
            return Err(NodeError(format!("shards {} ended in a fault", lost.join(", "))));
        }
        match desk.join() {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(NodeError(
                "not every log could be closed; the next start reads their ends again".to_string(),
            )),
            Ok(Err(error)) => Err(NodeError(format!("the desk failed: {error}"))),
            Err(_) => Err(NodeError("the desk ended in a fault".to_string())),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("{error}");
        }
    }
}

/// What lies in the data folder; the last thing that may refuse a start.
fn look_through(config: &Config) -> Result<Found, NodeError> {
    let source = config.source.as_ref();
    let asked = (source.is_some(), source.and_then(|source| source.cluster_id.as_deref()));
    let ids = [random_id(), random_id()];
    Ok(folder::look_through(&mut HostDisk, &config.data, config.node_id, ids, asked)?)
}

/// A thread whose ring is set up and that waits for the rest.
struct Starting {
    waker: Waker,
    begin: Sender<Begin>,
    /// Rings once the logs are open.
    opened: Receiver<()>,
    /// The address to listen on, and where clients are to come.
    listen: Sender<(SocketAddr, Option<(String, u16)>)>,
    bound: Receiver<Result<SocketAddr, String>>,
    thread: JoinHandle<()>,
}

/// What a shard needs besides its ring.
struct Begin {
    options: ShardOptions,
    post: Post,
    metrics: Arc<ShardMetrics>,
    /// The socket that all shards listen on together.
    listener: TcpListener,
    ended: Sender<Ended>,
}

/// Starts a thread for each shard; a ring belongs to the thread that made it.
fn start_rings(config: &Config, count: u16) -> Result<Vec<Starting>, NodeError> {
    let mut starting = Vec::new();
    for index in 0..count {
        let options = RingOptions {
            memory_bytes: config.memory_bytes / usize::from(count),
            writer: config.writer,
            cpu: config.pin.then_some(usize::from(index)),
            rings: usize::from(count),
            ..RingOptions::default()
        };
        let (ready_to, ready) = channel();
        let (begin, begin_from) = channel();
        let (opened_to, opened) = channel();
        let (listen, listen_from) = channel();
        let (bound_to, bound) = channel();
        let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
            let ring = match Ring::new(options) {
                Ok(ring) => ring,
                Err(error) => {
                    let _ = ready_to.send(Err(error.to_string()));
                    return;
                }
            };
            let _ = ready_to.send(Ok(ring.waker()));
            let Ok(begin) = begin_from.recv() else { return };
            run_shard(ring, begin, &opened_to, &listen_from, &bound_to);
        });
        let thread =
            thread.map_err(|error| NodeError(format!("no thread for a shard: {error}")))?;
        let waker = match ready.recv() {
            Ok(Ok(waker)) => waker,
            Ok(Err(error)) => return Err(NodeError(error)),
            Err(_) => return Err(NodeError(format!("shard {index} ended while it started"))),
        };
        starting.push(Starting { waker, begin, opened, listen, bound, thread });
    }
    Ok(starting)
}

fn run_shard(
    mut ring: Ring,
    begin: Begin,
    opened: &Sender<()>,
    listen: &Receiver<(SocketAddr, Option<(String, u16)>)>,
    bound: &Sender<Result<SocketAddr, String>>,
) {
    let Begin { options, post, metrics, listener, ended } = begin;
    let id = options.id;
    ring.adopt(listener);
    let run = std::panic::AssertUnwindSafe(|| {
        let mut shard = Shard::new(ring, options, post, metrics);
        let _ = opened.send(());
        let Ok((address, advertised)) = listen.recv() else { return };
        match shard.listen(address) {
            Ok(address) => {
                let (host, port) =
                    advertised.unwrap_or_else(|| (address.ip().to_string(), address.port()));
                shard.advertise(host.into(), port);
                let _ = bound.send(Ok(address));
            }
            Err(error) => {
                let _ = bound.send(Err(error.to_string()));
                return;
            }
        }
        shard.start_mirroring();
        while shard.turn() {}
    });
    let outcome = std::panic::catch_unwind(run);
    let error = outcome.as_ref().err().map(|_| "a fault of ours, told above".to_string());
    let _ = ended.send(Ended { shard: id, error });
    if let Err(fault) = outcome {
        std::panic::resume_unwind(fault);
    }
}

/// A shard's side of the start: its logs are open, where to listen, where it does.
type Door = (
    Receiver<()>,
    Sender<(SocketAddr, Option<(String, u16)>)>,
    Receiver<Result<SocketAddr, String>>,
);

/// Waits for all logs, then lets the shards listen on the socket that they share.
fn open_doors(config: &Config, address: SocketAddr, doors: &[Door]) -> Result<(), NodeError> {
    for (opened, _, _) in doors {
        let gone = |_| NodeError("a shard ended while it opened its logs".to_string());
        opened.recv().map_err(gone)?;
    }
    for (_, listen, bound) in doors {
        let gone = || NodeError("a shard ended before it listened".to_string());
        listen.send((address, config.advertised.clone())).map_err(|_| gone())?;
        bound.recv().map_err(|_| gone())?.map_err(NodeError)?;
    }
    Ok(())
}

/// Says which topics in the folder the patterns leave out: nobody asks the source for them.
fn tell_outside(config: &Config, found: &Found) {
    let Some(source) = &config.source else { return };
    let is_outside = |topic: &&Arc<Topic>| {
        matches!(
            source.topics.check(&topic.name, false),
            Err(Exclusion::NotIncluded | Exclusion::Excluded(_))
        )
    };
    let mut outside = found.catalog.topics().filter(is_outside);
    if let Some(first) = outside.next() {
        let count = 1 + outside.count();
        tracing::warn!(
            "{count} topics in {} match no pattern, such as {}: they are served as they are and not \
             mirrored; widen --topics, or move their folders away while farspan is stopped",
            config.data.display(),
            first.name
        );
    }
}

fn shard_options(config: &Config, found: &Found, id: ShardId, count: u16) -> ShardOptions {
    let mut link = config.source.clone();
    if let Some(link) = &mut link {
        link.follows_metadata = id.0 == 0;
        // What is asked for must fit, with others beside it: only a single batch may be larger.
        let memory_bytes = config.memory_bytes / usize::from(count);
        let bytes_max = i32::try_from(memory_bytes / 2).unwrap_or(i32::MAX);
        link.fetch_bytes_max = link.fetch_bytes_max.min(bytes_max);
        link.fetch_bytes_near = link.fetch_bytes_near.min(bytes_max);
        let known = found.source.as_ref().map(|source| source.cluster_id.to_string());
        link.cluster_id = link.cluster_id.take().or(known);
        if link.follows_metadata && link.cluster_id.is_none() {
            let topics = found.catalog.topics();
            let ids = topics.map(|topic| (Arc::clone(&topic.name), topic.id));
            link.unclaimed = Arc::new(ids.collect());
        }
    }
    let mine = |(name, _): &&(TopicPartition, Checkpointed)| owner(name, count) == id;
    let mirror_of = config.source.as_ref().and_then(|source| source.bootstrap.first());
    let mirror_of = mirror_of.map_or_else(
        || Arc::from("another cluster"),
        |(host, port)| Arc::from(format!("the cluster at {host}:{port}")),
    );
    ShardOptions {
        id,
        shard_count: count,
        data: config.data.as_path().into(),
        log_config: Arc::clone(&config.log),
        link,
        serve: ServeOptions {
            shard: id,
            shard_count: count,
            mirror_of,
            request_memory_bytes: config.memory_bytes / usize::from(count) / 4,
            // Sessions of clients must not meet those of a process before.
            seed: u64::from_be_bytes(random_id().0[..8].try_into().expect("eight bytes")),
            ..ServeOptions::default()
        },
        catalog: found.catalog.clone(),
        partitions: found.partitions.iter().filter(mine).cloned().collect(),
        left: found.left,
        source: found.source.clone(),
        // Other writers do not care where bytes lie.
        placed_bytes_least: match config.writer {
            WriterKind::Direct => limits::LARGE_FRAME_BYTES_LEAST,
            WriterKind::Inline | WriterKind::Ring => usize::MAX,
        },
        checkpoint_interval: config.checkpoint_interval,
        retention_check_interval: config.retention_check_interval,
    }
}

/// How soon a shard whose box was full is told again to stop.
const STOP_AGAIN: Duration = Duration::from_millis(2);

/// How long a start waits for a port. The kernel takes a ring apart after its process is gone, in its
/// own time: a node that is started right after it was killed finds its old socket still listening.
const LISTEN_PATIENCE: Duration = Duration::from_secs(5);
const LISTEN_AGAIN: Duration = Duration::from_millis(20);

fn listen_on(what: &str, address: SocketAddr) -> Result<TcpListener, NodeError> {
    let refused = |error| NodeError(format!("cannot listen for {what} on {address}: {error}"));
    let mut waited = Duration::ZERO;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && waited < LISTEN_PATIENCE => {
                if waited.is_zero() {
                    tracing::info!(
                        "{address} is in use; it is tried for {} s, since one that was killed lets go \
                         of it late",
                        LISTEN_PATIENCE.as_secs()
                    );
                }
                std::thread::sleep(LISTEN_AGAIN);
                waited += LISTEN_AGAIN;
            }
            bound => return bound.map_err(refused),
        }
    }
}

/// An id that nobody else has.
fn random_id() -> TopicId {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut bytes = [0; 16];
    for half in bytes.chunks_mut(8) {
        half.copy_from_slice(&RandomState::new().build_hasher().finish().to_be_bytes());
    }
    // The version and variant bits of a random UUID (RFC 9562).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    TopicId(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ids_differ() {
        assert_ne!(random_id(), random_id());
    }
}
