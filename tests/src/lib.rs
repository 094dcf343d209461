//! A real Kafka for tests, and what tests need around processes.
pub mod kafka;
pub mod ports;
pub mod process;
