//! A whole node: the data folder is taken, the shards and the desk are started, and stopped.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Notify;
use wire::ids::{BrokerId, PartitionIndex, TopicId};

use crate::catalog::{Catalog, Topic, is_legal_name};
use crate::config::Config;
use crate::desk::checkpoints::Checkpoints;
use crate::desk::{self, DeskOptions};
use crate::ids::{ShardId, TopicPartition};
use crate::io::{Disk, Io, Waker};
use crate::limits;
use crate::metrics::ShardMetrics;
use crate::ring::{HostDisk, Ring, RingOptions, WriterKind};
use crate::serve::ServeOptions;
use crate::shard::mail::{Letter, Mailbox, Slot};
use crate::shard::place::owner;
use crate::shard::{Post, Shard, ShardOptions};
use crate::store::identity::{CleanShutdown, MetaProperties, read_topic_id};
use crate::store::{Checkpointed, folder_of};

/// Why a node cannot start or had to end: one sentence that names the thing and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError(pub String);

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NodeError {}

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
    _lock: File,
}

/// A shard has ended; `error` says why where nobody asked for it.
#[derive(Debug)]
struct Ended {
    shard: ShardId,
    error: Option<String>,
}

/// What lies in the data folder.
#[derive(Debug)]
pub struct Found {
    /// Nobody is told yet where clients reach this node.
    pub catalog: Catalog,
    pub checkpoints: Checkpoints,
    pub partitions: Vec<(TopicPartition, Checkpointed)>,
    pub was_clean: bool,
}

impl Node {
    /// Takes the data folder, opens its logs, listens, and begins to mirror.
    ///
    /// # Errors
    /// Where the folder is in use or damaged, an address cannot be listened on, or the kernel lacks
    /// what a shard needs.
    pub fn start(config: &Config) -> Result<Self, NodeError> {
        let mut disk = HostDisk;
        let lock = take_folder(&mut disk, &config.data)?;
        let found = look_through(&mut disk, &config.data, config.node_id, new_ids())?;
        let listener = listen_on("Kafka clients", config.listen)?;
        let http = config.http.map(|address| listen_on("metrics", address)).transpose()?;
        let count = config.shards.max(1);
        let starting = start_rings(config, count)?;
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

fn shard_options(config: &Config, found: &Found, id: ShardId, count: u16) -> ShardOptions {
    let mut link = config.source.clone();
    if let Some(link) = &mut link {
        link.follows_metadata = id.0 == 0;
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
        was_clean: found.was_clean,
        // Other writers do not care where bytes lie.
        placed_bytes_least: match config.writer {
            WriterKind::Direct => limits::LARGE_FRAME_BYTES_LEAST,
            WriterKind::Inline | WriterKind::Ring => usize::MAX,
        },
        checkpoint_interval: config.checkpoint_interval,
        retention_check_interval: config.retention_check_interval,
    }
}

/// Makes the data folder and takes it for this process alone, as Kafka does with the same file.
fn take_folder(disk: &mut dyn Disk, data: &Path) -> Result<File, NodeError> {
    let said = |error: &dyn fmt::Display| NodeError(format!("{}: {error}", data.display()));
    disk.create_dir_all(data).map_err(|error| NodeError(error.to_string()))?;
    let file = File::options().create(true).truncate(false).write(true).open(data.join(".lock"));
    let file = file.map_err(|error| said(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(said(
            &"another process uses this data folder; stop it, or give this one another --data",
        )),
        Err(TryLockError::Error(error)) => Err(said(&error)),
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
                std::thread::sleep(LISTEN_AGAIN);
                waited += LISTEN_AGAIN;
            }
            bound => return bound.map_err(refused),
        }
    }
}

/// Reads what the data folder says of itself and of its logs. A new one gets the ids: of a cluster, and
/// of a directory.
///
/// # Errors
/// Where the folder is another node's, none of Kafka's, or damaged.
pub fn look_through(
    disk: &mut dyn Disk,
    data: &Path,
    node_id: BrokerId,
    [cluster_id, directory_id]: [TopicId; 2],
) -> Result<Found, NodeError> {
    let said = |error: &dyn fmt::Display| NodeError(error.to_string());
    let meta = match MetaProperties::read(disk, data).map_err(|e| said(&e))? {
        Some(meta) if meta.node_id == node_id => meta,
        Some(meta) => {
            return Err(NodeError(format!(
                "{} belongs to node {}, not to node {node_id}; give this node another --data or --node-id",
                data.display(),
                meta.node_id
            )));
        }
        None => {
            if let Some(stranger) = partitions_in(disk, data)?.first() {
                return Err(NodeError(format!(
                    "{} has a folder {stranger} but no meta.properties: it is no data folder of \
                     farspan or Kafka, or has lost that file; give --data an empty folder, or put \
                     the file back",
                    data.display()
                )));
            }
            let meta = MetaProperties {
                cluster_id: cluster_id.to_string(),
                node_id,
                directory_id: Some(directory_id),
            };
            meta.write(disk, data).map_err(|e| said(&e))?;
            meta
        }
    };
    let was_clean = CleanShutdown::take(disk, data).map_err(|e| said(&e))?.is_some();
    let mut checkpoints = Checkpoints::read(disk, data).map_err(|e| said(&e))?;
    let names = partitions_in(disk, data)?;
    checkpoints.keep(&names);
    let mut catalog = Catalog::new(meta.cluster_id.into(), node_id, "".into(), 0);
    let mut counts: BTreeMap<Arc<str>, (TopicId, usize)> = BTreeMap::new();
    for name in &names {
        let index = usize::try_from(name.partition.0).unwrap_or(0);
        let known = counts.entry(Arc::clone(&name.topic)).or_default();
        known.1 = known.1.max(index + 1);
        if known.0.is_zero() {
            let id = read_topic_id(disk, &folder_of(data, name)).map_err(|e| said(&e))?;
            known.0 = id.unwrap_or_default();
        }
    }
    for (name, (id, count)) in counts {
        catalog.put(Arc::new(Topic::new(name, id, count, BTreeMap::new())));
    }
    for name in &names {
        let (topic, epoch) = (catalog.topic(&name.topic), checkpoints.leader_epoch(name));
        if let (Some(topic), Some(epoch)) = (topic, epoch) {
            topic.raise_leader_epoch(name.partition, epoch);
        }
    }
    let partitions = names.into_iter().map(|name| {
        let at = checkpoints.of(&name);
        (name, at)
    });
    Ok(Found { catalog, partitions: partitions.collect(), checkpoints, was_clean })
}

/// The logs in a data folder, by the names of their folders (`TOPIC-PARTITION`).
fn partitions_in(disk: &mut dyn Disk, data: &Path) -> Result<Vec<TopicPartition>, NodeError> {
    let entries = disk.list(data).map_err(|error| NodeError(error.to_string()))?;
    Ok(entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| named(&entry.name)).collect())
}

fn named(folder: &str) -> Option<TopicPartition> {
    let (topic, index) = folder.rsplit_once('-')?;
    let index: i32 = index.parse().ok()?;
    let is_plain = (0..=i32::MAX).contains(&index) && format!("{topic}-{index}") == folder;
    let is_plain = is_plain && index < limits::PARTITIONS_OF_TOPIC_MAX;
    let is_kept = is_legal_name(topic) && !topic.starts_with("__cluster_metadata");
    (is_plain && is_kept)
        .then(|| TopicPartition { topic: topic.into(), partition: PartitionIndex(index) })
}

/// For a data folder that has none: of a cluster, and of a directory.
fn new_ids() -> [TopicId; 2] {
    [random_id(), random_id()]
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
    fn a_folder_is_a_partition_s_only_by_kafka_s_naming() {
        let name = |folder: &str| named(folder).map(|name| name.to_string());
        assert_eq!(name("orders-0"), Some("orders-0".to_string()));
        assert_eq!(name("a-b-12"), Some("a-b-12".to_string()));
        for other in [
            "orders",
            "orders-",
            "-1",
            "orders-01",
            "orders-x",
            "__cluster_metadata-0",
            "orders-0.abc-delete",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn two_ids_differ() {
        assert_ne!(random_id(), random_id());
    }
}
