//! The life of a mirror, as pure decisions: an event in, effects out, time as an argument.
//!
//! `mirror` does not know that sockets or files exist.

#![forbid(unsafe_code)]

pub mod admit;
mod failure;
mod partition;
#[cfg(test)]
mod partition_tests;
mod phase;

pub use failure::{Failure, Loss, LossReason};
pub use partition::{Effect, LogPosition, Partition};
pub use phase::Phase;
