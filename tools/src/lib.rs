//! What the programs share.

pub mod client;
pub mod command;
pub mod relay;
pub mod synthetic;
