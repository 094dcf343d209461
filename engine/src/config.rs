//! What the operator says, checked: every path, bound and pattern in it can be used as it stands.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wire::ids::BrokerId;

use crate::ring::WriterKind;
use crate::source::LinkOptions;
use crate::store::LogConfig;

/// A node, as it is to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data folder: Kafka's `log.dir`.
    pub data: PathBuf,
    /// Where Kafka clients are listened for; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where clients are told to come, if not to `listen`.
    pub advertised: Option<(String, u16)>,
    /// Where metrics and health are shown, if anywhere.
    pub http: Option<SocketAddr>,
    pub node_id: BrokerId,
    /// Cores to use, one shard each.
    pub shards: u16,
    /// Whether each shard stays on a core of its own.
    pub pin: bool,
    /// What all buffers of the process may take, in bytes.
    pub memory_bytes: usize,
    /// How segment files are written.
    pub writer: WriterKind,
    pub log: Arc<LogConfig>,
    /// The cluster to mirror; without one the node only serves what it holds.
    pub source: Option<LinkOptions>,
    pub checkpoint_interval: Duration,
    pub retention_check_interval: Duration,
}

/// The least memory with which a shard does useful work: some responses in flight at once.
pub const MEMORY_BYTES_LEAST: usize = 64 << 20;

impl Config {
    /// A node that keeps its data in `data` and has Kafka's defaults otherwise, but for retention:
    /// a mirror follows its source's log start, and removes nothing on its own account.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        let log = LogConfig { retention_ms: -1, retention_bytes: -1, ..LogConfig::default() };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            data,
            listen: SocketAddr::from(([127, 0, 0, 1], 9092)),
            advertised: None,
            http: None,
            node_id: BrokerId(1),
            shards: u16::try_from(cores).unwrap_or(u16::MAX),
            pin: false,
            memory_bytes: 512 << 20,
            writer: WriterKind::default(),
            log: Arc::new(log),
            source: None,
            checkpoint_interval: Duration::from_secs(5),
            retention_check_interval: Duration::from_secs(300),
        }
    }
}
