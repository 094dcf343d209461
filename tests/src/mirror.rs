//! A farspan node in this process that mirrors some topics of a cluster, for tests to stop and start.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::config::Config;
use engine::metrics::ShardMetrics;
use engine::node::Node;
use engine::source::{LinkOptions, TopicFilter};
use engine::store::LogConfig;
use tempfile::TempDir;

use crate::kafka::Cluster;
use crate::kafka::joined::first_difference;
use crate::process::wait_until;
use crate::stage::copy;

/// How long a mirror may take for anything. Generous: other tests run beside this one.
pub const WITHIN: Duration = Duration::from_secs(60);

/// The mirror's segments, small so that it rolls many times.
pub const SEGMENT_BYTES: u32 = 1 << 20;

/// A node and its data folder; both go when it is dropped.
pub struct Mirror {
    config: Config,
    node: Option<Node>,
    data: TempDir,
}

impl Mirror {
    /// Starts a node on an empty folder that mirrors the topics that match one of `topics`.
    pub fn start(cluster: &Cluster, topics: &[&str]) -> Mirror {
        Mirror::start_with(cluster, topics, |_| {})
    }

    /// As [`Mirror::start`], with a configuration that `set` has changed.
    pub fn start_with(cluster: &Cluster, topics: &[&str], set: impl FnOnce(&mut Config)) -> Mirror {
        let data = tempfile::tempdir().expect("a temporary folder");
        let mut config = Config::new(data.path().to_owned());
        config.listen = ([127, 0, 0, 1], 0).into();
        config.memory_bytes = 128 << 20;
        config.shards = 2;
        config.log = Arc::new(LogConfig { segment_bytes: SEGMENT_BYTES, ..(*config.log).clone() });
        let bootstrap = cluster.bootstrap().split(',').map(host_and_port).collect();
        config.source = Some(LinkOptions {
            bootstrap,
            topics: TopicFilter::new(topics, &[]).expect("patterns"),
            metadata_max_age: Duration::from_secs(1),
            ..LinkOptions::default()
        });
        set(&mut config);
        let mut mirror = Mirror { config, node: None, data };
        mirror.resume();
        mirror
    }

    /// Starts the node again on its folder, after [`Mirror::stop`].
    pub fn resume(&mut self) {
        assert!(self.node.is_none(), "it runs already");
        self.node = Some(Node::start(&self.config).expect("the node starts"));
    }

    /// Changes what the node is started with the next time.
    pub fn change(&mut self, set: impl FnOnce(&mut Config)) {
        set(&mut self.config);
    }

    /// Stops the node in order.
    pub fn stop(&mut self) {
        self.node.take().expect("it runs").stop().expect("a clean stop");
    }

    /// What a power cut with a kind disk leaves: the files as they are now, and nothing closed. To be
    /// asked for when nothing is on its way.
    pub fn die(&mut self) {
        let data = tempfile::tempdir().expect("a temporary folder");
        copy(self.data.path(), data.path()).expect("a copy of the folder");
        drop(self.node.take().expect("it runs"));
        self.config.data = data.path().to_owned();
        self.data = data;
    }

    /// The node, which runs.
    pub fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    /// A number of the node, summed over its shards.
    pub fn sum(&self, read: impl Fn(&ShardMetrics) -> u64) -> u64 {
        self.node().sum(read)
    }

    /// Where clients come.
    pub fn bootstrap(&self) -> String {
        self.node().address().to_string()
    }

    pub fn data(&self) -> &Path {
        self.data.path()
    }

    pub fn partition_dir(&self, topic: &str, partition: u32) -> PathBuf {
        self.data().join(format!("{topic}-{partition}"))
    }

    /// Waits until this holds of the node.
    pub fn wait_for(&self, what: &str, condition: impl Fn(&Node) -> bool) {
        wait_until(what, WITHIN, || {
            assert_eq!(self.node().failure(), None);
            condition(self.node()).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error}; {}", self.numbers()));
    }

    /// Waits until the logs of a partition have the same bytes from the batch with `from` on.
    pub fn await_same(&self, cluster: &Cluster, topic: &str, partition: u32, from: i64) {
        let theirs = cluster.partition_dir(1, topic, partition);
        let ours = self.partition_dir(topic, partition);
        let mut last = String::new();
        let waited = wait_until("the same bytes", WITHIN, || {
            assert_eq!(self.node().failure(), None);
            match first_difference(&theirs, &ours, from) {
                Ok(None) => Some(()),
                Ok(Some(difference)) => {
                    last = difference.to_string();
                    None
                }
                Err(error) => {
                    last = error;
                    None
                }
            }
        });
        if let Err(error) = waited {
            panic!("{topic}-{partition} from {from}: {error}: {last}; {}", self.numbers());
        }
    }

    /// As [`Mirror::await_same`], for all partitions of a topic from their first offset on.
    pub fn await_topic(&self, cluster: &Cluster, topic: &str, partitions: u32) {
        for partition in 0..partitions {
            self.await_same(cluster, topic, partition, 0);
        }
    }

    /// The metrics that are not zero, for messages.
    pub fn numbers(&self) -> String {
        let all = engine::metrics::TABLE.iter().map(|metric| (metric.name, self.sum(metric.read)));
        let some: Vec<_> = all.filter(|(_, value)| *value > 0).collect();
        some.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }
}

fn host_and_port(address: &str) -> (String, u16) {
    let (host, port) = address.rsplit_once(':').expect("host and port");
    (host.to_owned(), port.parse().expect("a port"))
}
