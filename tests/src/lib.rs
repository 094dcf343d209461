//! A real Kafka for tests, farspan beside it, and what tests need around processes.
pub mod kafka;
pub mod mirror;
pub mod ports;
pub mod process;
pub mod stage;
