//! The data folder of a node: whose it is, who uses it, and what lies in it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use wire::ids::{BrokerId, PartitionIndex, TopicId};

use crate::catalog::{Catalog, Topic, is_legal_name};
use crate::config::Config;
use crate::desk::checkpoints::Checkpoints;
use crate::ids::TopicPartition;
use crate::io::{Disk, IoErrorKind};
use crate::limits;
use crate::store::identity::{CleanShutdown, MetaProperties, SourceCluster, read_topic_id};
use crate::store::{Checkpointed, folder_of};

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
    pub was_clean: bool,
    /// Whose topics lie here, where a cluster has been mirrored into the folder.
    pub source: Option<SourceCluster>,
}

/// Takes a node's data folder for this process and reads what lies in it. A new one gets the ids: of a
/// cluster, and of a directory.
///
/// # Errors
/// Where the folder is in use, somebody else's, another cluster's mirror, or damaged.
pub fn open(
    disk: &mut dyn Disk,
    config: &Config,
    ids: [TopicId; 2],
) -> Result<(File, Found), FolderError> {
    let lock = take(disk, &config.data, config.source.is_some())?;
    let found = look_through(disk, &config.data, config.node_id, ids)?;
    check_source(config, &found)?;
    Ok((lock, found))
}

/// Makes the data folder and takes it for this process alone, as Kafka does with the same file.
/// Not where it holds something else than a node's data, nor where it holds nothing although nothing
/// `is_mirrored` into it.
fn take(disk: &mut dyn Disk, data: &Path, is_mirrored: bool) -> Result<File, FolderError> {
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
    let source = SourceCluster::read(disk, data).map_err(|e| said(&e))?;
    Ok(Found { catalog, partitions: partitions.collect(), checkpoints, was_clean, source })
}

/// One folder is the mirror of one cluster: no other may be expected than the one whose topics lie here.
fn check_source(config: &Config, found: &Found) -> Result<(), FolderError> {
    let expected = config.source.as_ref().and_then(|source| source.cluster_id.as_deref());
    match (expected, &found.source) {
        (Some(expected), Some(here)) if *here.cluster_id != *expected => Err(FolderError(format!(
            "{} holds topics of cluster {}, not of {expected}: mirror one cluster into one folder, \
                 and give this one another --data ({} says whose they are)",
            config.data.display(),
            here.cluster_id,
            SourceCluster::file(&config.data).display(),
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
    // What a file system of its own brings along, and our own lock.
    let is_nobodys = |name: &str| name == "lost+found" || name.starts_with('.');
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
    let is_kept = is_legal_name(topic) && !topic.starts_with("__cluster_metadata");
    (is_plain && is_kept)
        .then(|| TopicPartition { topic: topic.into(), partition: PartitionIndex(index) })
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
}
