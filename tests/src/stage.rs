//! A broker and a client that all tests of one program share, since starting them is most of the time.
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::kafka::workload::At;
use crate::kafka::{Cluster, ClusterOptions, Installation, Isolation, Workload};

/// The versions of brokers that farspan mirrors in our tests, each on a stage of its own.
pub const VERSIONS: [&str; 3] = ["2.8.2", "3.9.1", "4.4.0"];

/// A running source that outlives every test; tests keep apart by the names of their topics.
#[derive(Debug)]
pub struct Stage {
    pub cluster: Cluster,
    workload: Workload,
}

impl Stage {
    /// The stage of this version, started when it is first asked for, with its data in a folder of
    /// this test program alone.
    ///
    /// What is static is never dropped: the processes die with this one, and the folder is emptied by
    /// the next run.
    pub fn of(folder: &str, version: &str) -> &'static Stage {
        static STAGES: [OnceLock<Stage>; VERSIONS.len()] = [const { OnceLock::new() }; 3];
        let index = VERSIONS.iter().position(|known| *known == version);
        STAGES[index.expect("one of VERSIONS")].get_or_init(|| {
            let folder = Path::new(folder).join(version);
            let _ = std::fs::remove_dir_all(&folder);
            Stage::start(version, folder).unwrap_or_else(|error| panic!("Kafka {version}: {error}"))
        })
    }

    fn start(version: &str, folder: PathBuf) -> Result<Stage, String> {
        let installation = Installation::get(version)?;
        let options = ClusterOptions { folder: Some(folder), ..ClusterOptions::default() }
            .set("log.cleaner.min.cleanable.ratio", "0.01")
            // Retention is looked at soon, and what it removes goes at once.
            .set("log.initial.task.delay.ms", "500")
            .set("log.retention.check.interval.ms", "500")
            .set("log.segment.delete.delay.ms", "0");
        std::thread::scope(|scope| {
            let workload = scope.spawn(|| Workload::start(&Installation::clients()?));
            let cluster = Cluster::start(&installation, options)?;
            Ok(Stage { cluster, workload: workload.join().expect("no panic")? })
        })
    }

    /// The client, talking to the source.
    pub fn source(&self) -> At {
        self.at(&self.cluster.bootstrap())
    }

    /// The client, talking to the brokers at `bootstrap`.
    pub fn at(&self, bootstrap: &str) -> At {
        self.workload.at(bootstrap)
    }

    /// Makes a topic at the source and returns once it takes records.
    ///
    /// A broker may know that it leads a partition before it has the log; an idempotent producer that
    /// comes in between has its first batch refused, its second one taken, and never recovers.
    pub fn create(&self, topic: &str, partitions: u32, config: &[&str]) -> Result<(), String> {
        let source = self.source();
        source.create(topic, partitions, config)?;
        source.offsets(topic, None, Isolation::Uncommitted).map(|_| ())
    }

    /// As [`Stage::create`], for partitions that are added.
    pub fn add_partitions(&self, topic: &str, total: u32) -> Result<(), String> {
        let source = self.source();
        source.add_partitions(topic, total)?;
        source.offsets(topic, None, Isolation::Uncommitted).map(|_| ())
    }

    /// The source's folder of a partition.
    pub fn partition_dir(&self, topic: &str, partition: u32) -> PathBuf {
        self.cluster.partition_dir(1, topic, partition)
    }

    pub fn has_max_timestamp(&self) -> bool {
        self.cluster.installation().version() != "2.8.2"
    }
}

/// Copies a folder and all that lies in it.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => std::fs::copy(entry.path(), target).map(|_| ())?,
        }
    }
    Ok(())
}
