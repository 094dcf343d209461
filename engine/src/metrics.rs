//! Every counter: its name, its meaning, its kind. One table; each shard counts for itself, and
//! whoever scrapes adds up.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one shard writes and anybody may read.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Counts `amount` more.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Says how much there is now.
    pub fn set(&self, amount: u64) {
        self.0.store(amount, Ordering::Relaxed);
    }

    /// What was counted or said.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether a metric only grows or says how much there is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
}

/// A metric as scrapers see it. Counters get the suffix `_total` from the exposition format.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub read: fn(&ShardMetrics) -> u64,
}

macro_rules! metrics {
    ($($kind:ident $name:ident: $help:literal;)*) => {
        /// What one shard has counted.
        #[derive(Debug, Default)]
        #[repr(align(128))] // Shards write theirs all the time: no two share a cache line.
        pub struct ShardMetrics {
            $(#[doc = $help] pub $name: Number,)*
        }

        /// All metrics of a shard, in the order in which they are exposed.
        pub const TABLE: &[Metric] = &[
            $(Metric {
                name: concat!("farspan_", stringify!($name)),
                help: $help,
                kind: Kind::$kind,
                read: |shard| shard.$name.value(),
            },)*
        ];
    };
}

metrics! {
    Counter source_received_bytes: "Bytes received from source brokers";
    Counter source_fetches: "Fetch answers received from source brokers";
    Counter source_connections_lost: "Connections to source brokers that ended in an error";
    Gauge source_brokers_unreachable: "Source brokers that cannot be spoken with";
    Gauge source_lost: "1 while no broker of the source can be used, for metadata or to fetch";
    Counter admitted_batches: "Record batches whose CRC and header were checked and taken";
    Counter admitted_bytes: "Bytes of record batches that were taken";
    Counter refused_batches: "Record batches that were refused";
    Counter appended_bytes: "Bytes written to segment files";
    Counter append_failures: "Writes to segment files that failed";
    Counter losses: "Ranges of offsets that the source no longer had when they were asked for";
    Counter lost_offsets: "Offsets in those ranges";
    Gauge partitions: "Partitions that this node holds";
    Gauge partitions_mirroring: "Partitions that take batches";
    Gauge partitions_waiting: "Partitions that wait to begin again after a failure or are beginning";
    Gauge partitions_failed: "Partitions that a person must look at";
    Gauge lag_records: "Offsets that the source has and this node has not";
    Gauge lag_bytes: "Bytes that these are likely to be, from the size of those taken last";
    Gauge lag_seconds: "How long the partition that is longest behind has been behind";
    Gauge buffer_bytes: "Bytes of the buffer pool that are lent";
    Gauge client_connections: "Connections of Kafka clients";
    Counter client_connections_refused: "Connections of clients that were ended with a reason";
    Counter client_requests: "Requests answered";
    Counter served_bytes: "Bytes of record batches sent to clients";
    Counter segments_deleted: "Segments deleted by retention or by the source's log start";
    Counter recovered_bytes: "Bytes read again after an unclean stop";
    Counter cut_bytes: "Bytes cut from torn tails after an unclean stop";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own_and_reads_its_own_number() {
        let shard = ShardMetrics::default();
        shard.lost_offsets.add(3);
        let mut names: Vec<_> = TABLE.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        let told: Vec<_> = TABLE.iter().filter(|metric| (metric.read)(&shard) == 3).collect();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].name, "farspan_lost_offsets");
    }
}
