//! Clients that mean no good: bytes that are no requests, requests that cost, connections that stay.

mod attacks;
mod frames;
mod probe;

pub use attacks::{Attack, Tally, allow_many_descriptors};
pub use frames::{
    api_versions, fetch_many, fetch_one, large_produce, metadata_of_all, mutated, valid,
};
pub use probe::{Latencies, Probe, exchange};
