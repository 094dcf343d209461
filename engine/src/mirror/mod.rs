//! The life of a mirror, as pure decisions: an event in, effects out, time as an argument.
//!
//! `mirror` does not know that sockets or files exist.

#![forbid(unsafe_code)]

pub mod admit;
mod partition;
#[cfg(test)]
mod partition_tests;

pub use partition::{Effect, Failure, LogPosition, Loss, LossReason, Partition, Phase};
