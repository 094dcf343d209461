//! A small Kafka cluster inside this process: the source of `farspan demo`, of benches and of the
//! simulation.
//!
//! Its heart is pure: [`Cluster::handle`] takes a request and a time and gives an answer; commands
//! change what topics hold, who leads them and what goes wrong. [`serve`] puts it on sockets.
//!
//! ```text
//! frame -> handle -> Response(chunks)           chunks share memory with the stored batches
//!                    Parked(parked) -> resume -> Response | Parked     after a command, or in time
//!                    Silent | Close(reason)
//! ```

mod batch;
mod chunk;
mod cluster;
mod endless;
mod epochs;
mod fetch;
mod handle;
mod partition;
pub mod payload;
mod release;
pub mod serve;
mod session;
mod stored;
mod topics;

#[cfg(test)]
mod tests;

pub use batch::{NewBatch, Producer, Record};
pub use chunk::{Chunk, Chunks};
pub use cluster::{Broker, Cluster, Settings, Topic};
pub use endless::{Endless, Growth, Ring};
pub use epochs::Epochs;
pub use fetch::Parked;
pub use handle::{Connection, Handled};
pub use partition::{Log, Partition, Trouble};
pub use release::Release;
pub use stored::{Damage, EmptyBatch, Stored};
