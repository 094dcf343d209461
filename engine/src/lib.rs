//! farspan: carries Kafka topics from one cluster to another, offset-exact and byte for byte.
//!
//! The floors, from the ground up (`ARCHITECTURE.md` has the map and its reasons):
//! the corridor (`ids`, `io`, `limits`, `admitted`), the pure rooms, `store`, `ring`, `shard`, `desk`.

#![deny(unsafe_code)]

pub mod admitted;
pub mod catalog;
pub mod compression;
pub mod config;
pub mod desk;
pub mod folder;
pub mod ids;
pub mod io;
pub mod limits;
pub mod metrics;
pub mod mirror;
pub mod node;
pub mod ring;
pub mod serve;
pub mod shard;
pub mod source;
pub mod store;
