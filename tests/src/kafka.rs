//! Stock Kafka: its jars, its brokers, its clients and its own opinion of segment files.
mod answers;
pub mod clients;
pub mod cluster;
pub mod inspect;
pub mod install;
pub mod joined;
pub mod properties;
pub mod ready;
pub mod workload;

pub use answers::{Isolation, PartitionDigest};
pub use clients::{Kcat, Python};
pub use cluster::{Cluster, ClusterOptions};
pub use install::Installation;
pub use workload::{At, Workload};
