//! How the source is spoken with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wire::ids::TopicId;

use super::filter::TopicFilter;
use crate::ids::ShardId;

/// How the source is spoken with.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Whose link it is. The shard says so itself.
    pub shard: ShardId,
    /// Where the source can be asked who is there.
    pub bootstrap: Vec<(String, u16)>,
    /// The cluster that this must be; the first one that answers where it is not said.
    pub cluster_id: Option<String>,
    /// The topics that were mirrored before, where it is not said from which cluster: one of them must
    /// have its id in the cluster that answers.
    pub unclaimed: Arc<BTreeMap<Arc<str>, TopicId>>,
    pub client_id: String,
    pub topics: TopicFilter,
    /// Where brokers are reached in place of where they say that they are.
    pub rewritten_addresses: BTreeMap<(String, u16), (String, u16)>,
    /// Whether this link asks for metadata; the others are told what it hears.
    pub follows_metadata: bool,
    /// Connections to each broker that fetch, each with a session of its own.
    pub fetchers_per_broker: u32,
    pub fetch_max_wait: Duration,
    pub fetch_min_bytes: i32,
    /// What an answer may bring at most. Less is asked for where the broker is near.
    pub fetch_bytes_max: i32,
    /// What an answer from a broker next door may bring: with its head it fits one huge page. Less
    /// pays more often for what each answer costs; 4 MiB were as fast, in turns, and took 15 MB more.
    pub fetch_bytes_near: i32,
    pub partition_fetch_bytes_max: i32,
    /// How old metadata may become. A listing so large that this would take more than
    /// `metadata_bytes_per_second` is asked for less often.
    pub metadata_max_age: Duration,
    pub metadata_bytes_per_second: u32,
    /// Between two requests for metadata that something asked for.
    pub metadata_refresh_least: Duration,
    /// How long an answer may take, on top of what the broker may wait.
    pub request_timeout: Duration,
    pub connect_timeout: Duration,
    pub reconnect_backoff_least: Duration,
    pub reconnect_backoff_most: Duration,
    /// Between attempts for one partition whose leader cannot be found.
    pub retry_backoff_least: Duration,
    pub retry_backoff_most: Duration,
    /// How long a connection may have nothing to do before it is ended.
    pub connection_max_idle: Duration,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            shard: ShardId::default(),
            bootstrap: Vec::new(),
            cluster_id: None,
            unclaimed: Arc::default(),
            client_id: "farspan".to_string(),
            topics: TopicFilter::default(),
            rewritten_addresses: BTreeMap::new(),
            follows_metadata: true,
            fetchers_per_broker: 1,
            fetch_max_wait: Duration::from_millis(500),
            fetch_min_bytes: 1,
            fetch_bytes_max: 50 << 20,
            fetch_bytes_near: (2 << 20) - (16 << 10),
            partition_fetch_bytes_max: 8 << 20,
            metadata_max_age: Duration::from_secs(5),
            metadata_bytes_per_second: 256 << 10,
            metadata_refresh_least: Duration::from_millis(100),
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            reconnect_backoff_least: Duration::from_millis(50),
            reconnect_backoff_most: Duration::from_secs(10),
            retry_backoff_least: Duration::from_millis(100),
            retry_backoff_most: Duration::from_secs(5),
            connection_max_idle: Duration::from_secs(60),
        }
    }
}
