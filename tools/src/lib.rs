//! What the programs share.

pub mod client;
pub mod relay;
pub mod synthetic;
