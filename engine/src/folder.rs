//! The data folder of a node: whose it is, who uses it, and what lies in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use wire::ids::{BrokerId, PartitionIndex, TopicId};

use crate::catalog::{Catalog, Topic, is_legal_name};
use crate::desk::checkpoints::Checkpoints;
use crate::ids::TopicPartition;
use crate::io::{Disk, IoErrorKind};
use crate::limits;
use crate::store::checkpoint::Checkpoint;
use crate::store::identity::{
    CleanShutdown, FlushFailed, MetaProperties, SourceCluster, read_topic_id,
};
use crate::store::{Checkpointed, Damage, Left, folder_of};

/// How the folder of a cluster's own log begins.
const METADATA_LOG: &str = "__cluster_metadata";

/// Why a data folder cannot be used: one sentence that names it and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderError(pub String);

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FolderError {}

/// What lies in the data folder.
#[derive(Debug)]
pub struct Found {
    /// Nobody is told yet where clients reach this node.
    pub catalog: Catalog,
    pub checkpoints: Checkpoints,
    pub partitions: Vec<(TopicPartition, Checkpointed)>,
    /// How the last process left the logs.
    pub left: Left,
    /// Whose topics lie here, where a cluster has been mirrored into the folder.
    pub source: Option<SourceCluster>,
}

/// Makes the data folder and takes it for this process alone, as Kafka does with the same file.
///
/// # Errors
/// Where another process has it, where it holds something else than a node's data, and where it holds
/// nothing although nothing `is_mirrored` into it.
pub fn take(disk: &mut dyn Disk, data: &Path, is_mirrored: bool) -> Result<Lock, FolderError> {
    let said = |error: &dyn fmt::Display| FolderError(format!("{}: {error}", data.display()));
    if MetaProperties::read(disk, data).map_err(|e| FolderError(e.to_string()))?.is_none() {
        if !is_mirrored {
            return Err(said(
                &"holds no data of farspan or Kafka (no meta.properties), and no cluster is given \
                  to mirror into it: is --data right?",
            ));
        }
        refuse_strangers(disk, data)?;
    }
    disk.create_dir_all(data).map_err(|error| FolderError(error.to_string()))?;
    let folder = std::fs::canonicalize(data).map_err(|error| said(&error))?;
    let folder =
        Taken::new(folder).ok_or_else(|| said(&"this process uses this data folder already"))?;
    let file = File::options().create(true).truncate(false).write(true).open(data.join(".lock"));
    let file = file.map_err(|error| said(&error))?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock { _file: file, _folder: folder }),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(said(
            &"another process uses this data folder, farspan or a Kafka broker; stop it, or give this \
              one another --data",
        )),
        Err(error) => Err(said(&format_args!(".lock cannot be locked: {error}"))),
    }
}

/// A data folder that is this process's alone, until this is dropped.
#[derive(Debug)]
pub struct Lock {
    /// Closed before the folder may be taken again.
    _file: File,
    _folder: Taken,
}

/// A folder that this process has taken. Java's kind of lock does not keep out the process that has it, and
/// goes when any descriptor of the file is closed: nobody here may open it twice.
#[derive(Debug)]
struct Taken(PathBuf);

static TAKEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

impl Taken {
    fn new(folder: PathBuf) -> Option<Self> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        // Not `then_some`: what is made and dropped again takes the lock.
        if taken.insert(folder.clone()) { Some(Self(folder)) } else { None }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Reads what the data folder says of itself and of its logs. A new one gets the ids: of a cluster, and
/// of a directory. Where a cluster `is_mirrored` into it logs may be made in it. What it says of a clean
/// stop is taken away last: from here on logs may be opened.
///
/// # Errors
/// Where the folder is another node's, none of Kafka's, the mirror of another cluster than the one that
/// is `expected`, or damaged.
pub fn look_through(
    disk: &mut dyn Disk,
    data: &Path,
    node_id: BrokerId,
    [cluster_id, directory_id]: [TopicId; 2],
    (is_mirrored, expected): (bool, Option<&str>),
) -> Result<Found, FolderError> {
    let said = |error: &dyn fmt::Display| FolderError(error.to_string());
    let meta = match MetaProperties::read(disk, data).map_err(|e| said(&e))? {
        Some(meta) if meta.node_id == node_id => meta,
        Some(meta) => {
            return Err(FolderError(format!(
                "{} belongs to node {}, not to node {node_id}; give this node another --data or --node-id",
                data.display(),
                meta.node_id
            )));
        }
        None => {
            refuse_strangers(disk, data)?;
            let meta = MetaProperties {
                cluster_id: cluster_id.to_string(),
                node_id,
                directory_id: Some(directory_id),
            };
            meta.write(disk, data).map_err(|e| said(&e))?;
            tracing::info!("{} is a new data folder", data.display());
            meta
        }
    };
    let source = SourceCluster::read(disk, data).map_err(|e| said(&e))?;
    check_source(data, expected, source.as_ref())?;
    let mut checkpoints = Checkpoints::read(disk, data).map_err(|e| said(&e))?;
    let names = partitions_in(disk, data)?;
    refuse_brokers(disk, data, &names, source.is_some())?;
    if let Some(gone) = checkpoints.keep(&names) {
        tracing::warn!("the checkpoints of logs that are gone are forgotten, such as of {gone}");
    }
    // At once: a log that is made anew must never meet what they said of the one before it.
    if let Err(damage) = checkpoints.write(disk, data) {
        if is_mirrored {
            return Err(said(&damage));
        }
        tracing::warn!("{damage}");
    }
    let mut catalog = Catalog::new(meta.cluster_id.into(), node_id, "".into(), 0);
    let mut counts: BTreeMap<Arc<str>, (TopicId, usize)> = BTreeMap::new();
    for name in &names {
        let index = usize::try_from(name.partition.0).unwrap_or(0);
        let known = counts.entry(Arc::clone(&name.topic)).or_default();
        known.1 = known.1.max(index + 1);
        if known.0.is_zero() {
            // One that cannot be read is left out, by name, when its log is opened.
            known.0 =
                read_topic_id(disk, &folder_of(data, name)).ok().flatten().unwrap_or_default();
        }
    }
    for (name, (id, count)) in counts {
        if let Some(other) = catalog.topic_by_id(id) {
            return Err(FolderError(format!(
                "{}: topics {} and {name} have the same id {id}: one is a copy of the other; move the \
                 folders of the copy out of the data folder",
                data.display(),
                other.name
            )));
        }
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
    let left = take_left(disk, data).map_err(|e| said(&e))?;
    Ok(Found { catalog, partitions: partitions.collect(), checkpoints, left, source })
}

/// How the last process left the logs. What it says of a clean stop is taken away.
fn take_left(disk: &mut dyn Disk, data: &Path) -> Result<Left, Damage> {
    let has_failed = FlushFailed::is_marked(disk, data)?;
    let was_clean = CleanShutdown::take(disk, data)?.is_some();
    Ok(match (was_clean, has_failed) {
        (true, _) => Left::Clean,
        (false, true) => Left::FlushFailed,
        (false, false) => Left::Unclean,
    })
}

/// One folder is the mirror of one cluster: no other may be expected than the one whose topics lie here.
fn check_source(
    data: &Path,
    expected: Option<&str>,
    here: Option<&SourceCluster>,
) -> Result<(), FolderError> {
    let here = here.map(|source| &*source.cluster_id);
    match (expected, here) {
        (Some(expected), Some(here)) if here != expected => Err(FolderError(format!(
            "{} holds topics of cluster {here}, not of {expected}: mirror one cluster into one folder, \
             and give this one another --data ({} says whose they are)",
            data.display(),
            SourceCluster::file(data).display(),
        ))),
        _ => Ok(()),
    }
}

/// A folder without `meta.properties` becomes a data folder only where nothing else lies in it: whatever
/// does is somebody's, and a folder of logs has lost that file.
fn refuse_strangers(disk: &mut dyn Disk, data: &Path) -> Result<(), FolderError> {
    let entries = match disk.list(data) {
        Err(error) if error.kind == IoErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| FolderError(error.to_string()))?,
    };
    // What a file system of its own brings along, our own lock, and a first start that was killed.
    let is_nobodys =
        |name: &str| name.starts_with('.') || matches!(name, "lost+found" | "meta.properties.tmp");
    match entries.iter().find(|entry| !is_nobodys(&entry.name)) {
        None => Ok(()),
        Some(stranger) => Err(FolderError(format!(
            "{} holds {} but no meta.properties: it is no data folder of farspan or Kafka, or has \
             lost that file; give --data an empty folder, or put the file back",
            data.display(),
            stranger.name
        ))),
    }
}

/// A broker's logs are the broker's, also while it is stopped: a mirror would write into them. Before the
/// first log of a mirror is made, its folder says whose topics it holds; later it has checkpoints that no
/// broker writes.
fn refuse_brokers(
    disk: &mut dyn Disk,
    data: &Path,
    names: &[TopicPartition],
    has_source: bool,
) -> Result<(), FolderError> {
    let entries = disk.list(data).map_err(|error| FolderError(error.to_string()))?;
    if let Some(theirs) = entries.iter().find(|entry| entry.name.starts_with(METADATA_LOG)) {
        return Err(FolderError(format!(
            "{} holds {}: it is the log.dir of a Kafka broker or controller; give --data an empty folder",
            data.display(),
            theirs.name
        )));
    }
    let has_checkpoint = entries.iter().any(|entry| entry.name == Checkpoint::LeaderEpoch.name());
    if names.is_empty() || has_source || has_checkpoint {
        return Ok(());
    }
    Err(FolderError(format!(
        "{} holds logs, such as {}, that farspan has not mirrored: it is the log.dir of a Kafka broker; \
         give --data an empty folder. Where farspan did make it, put {} there, with \
         `cluster.id=` and the id of the source cluster",
        data.display(),
        names[0],
        SourceCluster::file(data).display(),
    )))
}

/// The logs in a data folder, by the names of their folders (`TOPIC-PARTITION`). Others, such as those
/// that Kafka has renamed to `-delete` or `-stray`, are left alone.
fn partitions_in(disk: &mut dyn Disk, data: &Path) -> Result<Vec<TopicPartition>, FolderError> {
    let entries = disk.list(data).map_err(|error| FolderError(error.to_string()))?;
    let folders = entries.iter().filter(|entry| entry.is_dir);
    let mut names = Vec::new();
    let mut others = Vec::new();
    for folder in folders {
        match named(&folder.name) {
            Some(name) => names.push(name),
            None => others.push(folder.name.as_str()),
        }
    }
    if let Some(other) = others.first() {
        tracing::warn!(
            "{} of the folders in {} are no partition's and are left alone, such as {other}",
            others.len(),
            data.display()
        );
    }
    Ok(names)
}

fn named(folder: &str) -> Option<TopicPartition> {
    let (topic, index) = folder.rsplit_once('-')?;
    let index: i32 = index.parse().ok()?;
    let is_plain = (0..=i32::MAX).contains(&index) && format!("{topic}-{index}") == folder;
    let is_plain = is_plain && index < limits::PARTITIONS_OF_TOPIC_MAX;
    let is_kept = is_legal_name(topic) && !topic.starts_with(METADATA_LOG);
    (is_plain && is_kept)
        .then(|| TopicPartition { topic: topic.into(), partition: PartitionIndex(index) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::HostDisk;
    use crate::shard::mail::PartitionCheckpoint;
    use wire::ids::{LeaderEpoch, Offset};

    const IDS: [TopicId; 2] = [TopicId([1; 16]), TopicId([2; 16])];

    fn look(data: &Path, expected: Option<&str>) -> Result<Found, FolderError> {
        look_through(&mut HostDisk, data, BrokerId(1), IDS, (true, expected))
    }

    /// An operator moved a folder away, as he is told to; the process was killed before the desk wrote,
    /// and the log that was mirrored anew was cut where the old one had begun.
    #[test]
    fn what_checkpoints_say_of_a_log_that_is_gone_is_forgotten_before_another_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path();
        look(data, None).expect("a new folder");
        let partition = TopicPartition { topic: "t".into(), partition: PartitionIndex(0) };
        let mut checkpoints = Checkpoints::default();
        checkpoints.take(vec![PartitionCheckpoint {
            partition: partition.clone(),
            recovery_point: Offset(1_000),
            log_start: Some(Offset(500)),
            high_watermark: Offset(1_000),
            leader_epoch: LeaderEpoch(1),
        }]);
        checkpoints.write(&mut HostDisk, data).expect("written");
        look(data, None).expect("nothing is wrong");
        let read = Checkpoints::read(&mut HostDisk, data).expect("sound");
        assert_eq!(read.of(&partition), Checkpointed::default());
    }

    #[test]
    fn a_folder_is_taken_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let take = || take(&mut HostDisk, folder.path(), true);
        let lock = take().expect("nobody has it");
        let refused = take().expect_err("it is taken");
        assert!(refused.0.contains("this process uses this data folder already"), "{refused}");
        drop(lock);
        take().expect("nobody has it any more");
    }

    #[test]
    fn a_start_that_is_refused_leaves_the_clean_stop_to_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path();
        look(data, None).expect("a new folder");
        let source = SourceCluster { cluster_id: "A".into() };
        source.write(&mut HostDisk, data).expect("written");
        CleanShutdown { broker_epoch: None }.write(&mut HostDisk, data).expect("written");
        let refused = look(data, Some("B")).expect_err("another cluster");
        assert!(refused.0.contains("holds topics of cluster A, not of B"), "{refused}");
        assert_eq!(look(data, Some("A")).expect("the right one").left, Left::Clean);
        assert_eq!(look(data, Some("A")).expect("the right one").left, Left::Unclean);
    }

    /// A broker that was stopped had its logs written into, where its node id was ours.
    #[test]
    fn the_logs_of_a_broker_are_not_ours_also_while_it_is_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path();
        look(data, None).expect("a new folder");
        std::fs::create_dir(data.join("orders-0")).expect("made");
        let refused = look(data, None).expect_err("a broker's");
        assert!(
            refused.0.contains("logs, such as orders-0, that farspan has not mirrored"),
            "{refused}"
        );
        SourceCluster { cluster_id: "A".into() }.write(&mut HostDisk, data).expect("written");
        look(data, None).expect("a mirror's");
        std::fs::create_dir(data.join("__cluster_metadata-0")).expect("made");
        let refused = look(data, None).expect_err("a controller's");
        assert!(refused.0.contains("holds __cluster_metadata-0"), "{refused}");
    }

    #[test]
    fn a_flush_that_failed_is_remembered_until_all_logs_were_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path();
        let left = || look(data, None).expect("nothing is wrong").left;
        left();
        FlushFailed::mark(&mut HostDisk, data).expect("written");
        assert_eq!((left(), left()), (Left::FlushFailed, Left::FlushFailed));
        CleanShutdown { broker_epoch: None }.write(&mut HostDisk, data).expect("written");
        assert_eq!((left(), left()), (Left::Clean, Left::FlushFailed));
        FlushFailed::clear(&mut HostDisk, data).expect("removed");
        assert_eq!(left(), Left::Unclean);
    }

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
}
