//! The options as they are said: texts, not looked at. One struct for each table of the file; its
//! fields are the flags and the keys.

use clap::Args;
use serde::Deserialize;

use super::given::{Given, one_or_many};

/// Everything that can be said.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    #[command(flatten)]
    pub source: SourceOptions,
    #[command(flatten)]
    pub node: NodeOptions,
    #[command(flatten)]
    pub log: LogOptions,
}

/// The node itself.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "This node ([node] in the file)")]
pub struct NodeOptions {
    /// The data folder, in the format of Kafka's log.dir. A mirror creates it where it is missing.
    #[arg(long, value_name = "DIR")]
    pub data: Option<Given>,
    /// Where Kafka clients are listened for [default: 127.0.0.1:9092].
    ///
    /// Port 0 takes a free port. There is no TLS and no SASL yet: whoever reaches this address reads
    /// every topic, so it is the loopback interface unless you say otherwise.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<Given>,
    /// Where clients are told to come [default: where is listened].
    #[arg(long, value_name = "HOST:PORT")]
    pub advertised: Option<Given>,
    /// Where /metrics (Prometheus) and /health are shown over HTTP [default: nowhere].
    #[arg(long, value_name = "HOST:PORT")]
    pub http: Option<Given>,
    /// The number under which clients know this node; a data folder belongs to one [default: 1].
    #[arg(long, value_name = "NUMBER")]
    pub node_id: Option<Given>,
    /// Cores to use, a thread each [default: all].
    #[arg(long, value_name = "NUMBER")]
    pub shards: Option<Given>,
    /// Keep each shard on a core of its own.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    pub pin: Option<Given>,
    /// What all network buffers together may take [default: 512MiB, or 64MiB a shard].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Given>,
    /// How segment files are written [default: direct].
    ///
    /// direct: backfill past the page cache, all else through it.
    /// inline: through the page cache, by the shard itself.
    /// ring: through the page cache, by the kernel's threads (the shard never waits).
    #[arg(long, value_name = "direct|inline|ring", verbatim_doc_comment)]
    pub writer: Option<Given>,
    /// How often the checkpoint files are written: a crash makes the next start read as much of the
    /// logs again [default: 5s].
    #[arg(long, value_name = "DURATION")]
    pub checkpoint_interval: Option<Given>,
}

/// The segment files.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Segment files ([log] in the file)")]
pub struct LogOptions {
    /// A segment is closed before it grows beyond this; Kafka's segment.bytes [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub segment_bytes: Option<Given>,
    /// A segment is closed when it spans more than this; Kafka's segment.ms [default: 7d].
    #[arg(long, value_name = "DURATION")]
    pub segment_ms: Option<Given>,
    /// How much of a segment lies between two entries of its index; Kafka's index.interval.bytes
    /// [default: 4096].
    #[arg(long, value_name = "SIZE")]
    pub index_interval_bytes: Option<Given>,
    /// Delete segments whose newest record is older, even while the source keeps them; Kafka's
    /// retention.ms [default: forever, as the source's log start is followed].
    #[arg(long, value_name = "DURATION|forever", allow_negative_numbers = true)]
    pub retention_ms: Option<Given>,
    /// Delete the oldest segments while a partition's rest still holds this much; Kafka's
    /// retention.bytes [default: unlimited].
    #[arg(long, value_name = "SIZE|unlimited", allow_negative_numbers = true)]
    pub retention_bytes: Option<Given>,
    /// How often retention looks for segments to delete [default: 5m].
    #[arg(long, value_name = "DURATION")]
    pub retention_check_interval: Option<Given>,
}

/// The cluster that is mirrored.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "The source ([source] in the file)")]
pub struct SourceOptions {
    /// Brokers of the source cluster; one that answers is enough. May be given several times.
    #[arg(long, value_name = "HOST:PORT[,HOST:PORT]")]
    #[serde(deserialize_with = "one_or_many")]
    pub from: Vec<Given>,
    /// Topics to mirror: regular expressions that match whole names, '.*' for all. May be given
    /// several times. Internal topics (__consumer_offsets) only where one names them exactly.
    #[arg(long, value_name = "REGEX")]
    #[serde(deserialize_with = "one_or_many")]
    pub topics: Vec<Given>,
    /// Topics to leave out; this wins over --topics. May be given several times.
    #[arg(long, value_name = "REGEX")]
    #[serde(deserialize_with = "one_or_many")]
    pub exclude: Vec<Given>,
    /// Refuse any cluster with another id [default: the first that answers].
    #[arg(long, value_name = "ID")]
    pub cluster_id: Option<Given>,
    /// What we call ourselves to the source; its quotas go by it [default: farspan].
    #[arg(long, value_name = "NAME")]
    pub client_id: Option<Given>,
    /// Connections to each broker that fetch, in each shard; more of them fill a long link
    /// [default: 1].
    #[arg(long, value_name = "NUMBER")]
    pub fetchers_per_broker: Option<Given>,
    /// The most that one fetch asks for [default: 50MiB, or half of a shard's memory].
    #[arg(long, value_name = "SIZE")]
    pub fetch_bytes_max: Option<Given>,
    /// The most that one fetch asks for of one partition [default: 8MiB].
    #[arg(long, value_name = "SIZE")]
    pub partition_fetch_bytes_max: Option<Given>,
    /// A broker answers once it has this much [default: 1].
    #[arg(long, value_name = "SIZE")]
    pub fetch_min_bytes: Option<Given>,
    /// A broker answers after this long whatever it has [default: 500ms].
    #[arg(long, value_name = "DURATION")]
    pub fetch_max_wait: Option<Given>,
    /// How old metadata may become: new topics are found as late as that [default: 5s].
    #[arg(long, value_name = "DURATION")]
    pub metadata_max_age: Option<Given>,
    /// Reach a broker elsewhere than where it says it is (tunnels, NAT). May be given several times.
    #[arg(long, value_name = "HOST:PORT=HOST:PORT")]
    #[serde(deserialize_with = "one_or_many")]
    pub rewrite: Vec<Given>,
}

impl Options {
    /// These options, and `others` where these say nothing. Lists are not mixed.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            source: self.source.or(others.source),
            node: self.node.or(others.node),
            log: self.log.or(others.log),
        }
    }
}

impl NodeOptions {
    fn or(self, others: Self) -> Self {
        Self {
            data: self.data.or(others.data),
            listen: self.listen.or(others.listen),
            advertised: self.advertised.or(others.advertised),
            http: self.http.or(others.http),
            node_id: self.node_id.or(others.node_id),
            shards: self.shards.or(others.shards),
            pin: self.pin.or(others.pin),
            memory: self.memory.or(others.memory),
            writer: self.writer.or(others.writer),
            checkpoint_interval: self.checkpoint_interval.or(others.checkpoint_interval),
        }
    }
}

impl LogOptions {
    fn or(self, others: Self) -> Self {
        Self {
            segment_bytes: self.segment_bytes.or(others.segment_bytes),
            segment_ms: self.segment_ms.or(others.segment_ms),
            index_interval_bytes: self.index_interval_bytes.or(others.index_interval_bytes),
            retention_ms: self.retention_ms.or(others.retention_ms),
            retention_bytes: self.retention_bytes.or(others.retention_bytes),
            retention_check_interval: self
                .retention_check_interval
                .or(others.retention_check_interval),
        }
    }
}

impl SourceOptions {
    fn or(self, others: Self) -> Self {
        let list = |ours: Vec<_>, theirs| if ours.is_empty() { theirs } else { ours };
        Self {
            from: list(self.from, others.from),
            topics: list(self.topics, others.topics),
            exclude: list(self.exclude, others.exclude),
            cluster_id: self.cluster_id.or(others.cluster_id),
            client_id: self.client_id.or(others.client_id),
            fetchers_per_broker: self.fetchers_per_broker.or(others.fetchers_per_broker),
            fetch_bytes_max: self.fetch_bytes_max.or(others.fetch_bytes_max),
            partition_fetch_bytes_max: self
                .partition_fetch_bytes_max
                .or(others.partition_fetch_bytes_max),
            fetch_min_bytes: self.fetch_min_bytes.or(others.fetch_min_bytes),
            fetch_max_wait: self.fetch_max_wait.or(others.fetch_max_wait),
            metadata_max_age: self.metadata_max_age.or(others.metadata_max_age),
            rewrite: list(self.rewrite, others.rewrite),
        }
    }
}
