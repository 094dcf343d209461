//! A real Kafka for tests, farspan beside it, and what tests need around processes.
pub mod entries;
pub mod farspan;
pub mod hostile;
pub mod kafka;
pub mod mirror;
pub mod ports;
pub mod process;
pub mod random;
pub mod relay;
pub mod sim;
pub mod stage;
