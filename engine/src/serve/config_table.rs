//! The configs that Kafka 4.4 shows of a topic and their defaults (`LogConfig`), and the few of a
//! broker that are true of this node.

use wire::api::describe_configs::{SOURCE_DEFAULT, SOURCE_TOPIC};

use super::{REQUEST_BYTES_MAX, ServeOptions};
use crate::catalog::Catalog;

/// What kind of value it is (`DescribeConfigsResponse.ConfigType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub(super) enum Kind {
    Unknown = 0,
    Boolean = 1,
    Text = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// The value was set on the topic.
pub(super) const TOPIC: i8 = SOURCE_TOPIC;
/// The value was set when the broker was started (`STATIC_BROKER_CONFIG`).
pub(super) const STATIC: i8 = 4;
/// The value is Kafka's.
pub(super) const DEFAULT: i8 = SOURCE_DEFAULT;

/// A config of topics.
pub(super) struct TopicConfig {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: &'static str,
    /// The broker's config that gives the default; empty where there is none.
    pub(super) broker_name: &'static str,
}

const LONG_MAX: &str = "9223372036854775807";

macro_rules! topic_configs {
    ($($name:literal, $kind:ident, $default:expr, $broker_name:literal;)*) => {
        /// In the order of their names.
        pub(super) const TOPIC_CONFIGS: &[TopicConfig] = &[$( TopicConfig {
            name: $name,
            kind: Kind::$kind,
            default: $default,
            broker_name: $broker_name,
        }, )*];
    };
}

topic_configs! {
    "cleanup.policy", List, "delete", "log.cleanup.policy";
    "compression.gzip.level", Int, "-1", "compression.gzip.level";
    "compression.lz4.level", Int, "9", "compression.lz4.level";
    "compression.type", Text, "producer", "compression.type";
    "compression.zstd.level", Int, "3", "compression.zstd.level";
    "delete.retention.ms", Long, "86400000", "log.cleaner.delete.retention.ms";
    "file.delete.delay.ms", Long, "60000", "log.segment.delete.delay.ms";
    "flush.messages", Long, LONG_MAX, "log.flush.interval.messages";
    "flush.ms", Long, LONG_MAX, "log.flush.interval.ms";
    "follower.replication.throttled.replicas", List, "", "";
    "index.interval.bytes", Int, "4096", "log.index.interval.bytes";
    "leader.replication.throttled.replicas", List, "", "";
    "local.retention.bytes", Long, "-2", "log.local.retention.bytes";
    "local.retention.ms", Long, "-2", "log.local.retention.ms";
    "max.compaction.lag.ms", Long, LONG_MAX, "log.cleaner.max.compaction.lag.ms";
    "max.message.bytes", Int, "1048588", "message.max.bytes";
    "message.timestamp.after.max.ms", Long, "3600000", "log.message.timestamp.after.max.ms";
    "message.timestamp.before.max.ms", Long, LONG_MAX, "log.message.timestamp.before.max.ms";
    "message.timestamp.type", Text, "CreateTime", "log.message.timestamp.type";
    "min.cleanable.dirty.ratio", Double, "0.5", "log.cleaner.min.cleanable.ratio";
    "min.compaction.lag.ms", Long, "0", "log.cleaner.min.compaction.lag.ms";
    "min.insync.replicas", Int, "1", "min.insync.replicas";
    "preallocate", Boolean, "false", "log.preallocate";
    "remote.log.copy.disable", Boolean, "false", "";
    "remote.log.delete.on.disable", Boolean, "false", "";
    "remote.storage.enable", Boolean, "false", "";
    "retention.bytes", Long, "-1", "log.retention.bytes";
    "retention.ms", Long, "604800000", "log.retention.ms";
    "segment.bytes", Int, "1073741824", "log.segment.bytes";
    "segment.index.bytes", Int, "10485760", "log.index.size.max.bytes";
    "segment.jitter.ms", Long, "0", "log.roll.jitter.ms";
    "segment.ms", Long, "604800000", "log.roll.ms";
    "unclean.leader.election.enable", Boolean, "false", "unclean.leader.election.enable";
}

/// A config of this node.
pub(super) struct BrokerConfig {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) source: i8,
    pub(super) value: String,
}

/// What is true of this node under Kafka's names.
pub(super) fn broker_configs(catalog: &Catalog, options: &ServeOptions) -> Vec<BrokerConfig> {
    let node_id = catalog.node_id.to_string();
    let listener = format!("PLAINTEXT://{}:{}", catalog.host, catalog.port);
    let idle_ms = options.idle_time_max.as_millis().to_string();
    let fetch_bytes = options.fetch_bytes_max.to_string();
    let slots = options.sessions_max * usize::from(options.shard_count);
    [
        ("advertised.listeners", Kind::Text, STATIC, listener),
        ("auto.create.topics.enable", Kind::Boolean, STATIC, "false".to_owned()),
        ("broker.id", Kind::Int, STATIC, node_id.clone()),
        ("connections.max.idle.ms", Kind::Long, STATIC, idle_ms),
        ("default.replication.factor", Kind::Int, DEFAULT, "1".to_owned()),
        ("delete.topic.enable", Kind::Boolean, STATIC, "false".to_owned()),
        ("fetch.max.bytes", Kind::Int, STATIC, fetch_bytes),
        ("max.incremental.fetch.session.cache.slots", Kind::Int, STATIC, slots.to_string()),
        ("min.insync.replicas", Kind::Int, DEFAULT, "1".to_owned()),
        ("node.id", Kind::Int, STATIC, node_id),
        ("socket.request.max.bytes", Kind::Int, STATIC, REQUEST_BYTES_MAX.to_string()),
    ]
    .into_iter()
    .map(|(name, kind, source, value)| BrokerConfig { name, kind, source, value })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configs_stand_in_the_order_of_their_names() {
        assert!(TOPIC_CONFIGS.is_sorted_by(|one, next| one.name < next.name));
    }
}
