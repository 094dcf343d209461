//! What the operator says about a log, under Kafka's names and with Kafka's defaults.

/// The settings of a log that decide about its files. Shared by all logs that have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment holds no more, unless a single batch is larger.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment whose first batch is older than the next one by more is closed.
    pub segment_ms: i64,
    /// `segment.index.bytes`: the largest index; a segment whose index is full is closed.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: how much of a segment may lie between two entries of its index.
    pub index_interval_bytes: u32,
    /// `retention.ms`: segments whose newest record is older may go; -1 keeps them.
    pub retention_ms: i64,
    /// `retention.bytes`: the oldest segments may go while the rest still holds as much; -1 keeps them.
    pub retention_bytes: i64,
    /// Whether `cleanup.policy` contains `delete`. Without it only the log start removes segments.
    pub delete_policy: bool,
    /// `producer.id.expiration.ms`: how long a silent producer is remembered.
    pub producer_id_expiration_ms: i64,
    /// `file.delete.delay.ms`: how long a removed segment stays on disk under another name, for
    /// those who still read it.
    pub file_delete_delay_ms: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        const WEEK_MS: i64 = 7 * 24 * 60 * 60 * 1_000;
        Self {
            segment_bytes: 1 << 30,
            segment_ms: WEEK_MS,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4_096,
            retention_ms: WEEK_MS,
            retention_bytes: -1,
            delete_policy: true,
            producer_id_expiration_ms: 86_400_000,
            file_delete_delay_ms: 60_000,
        }
    }
}
