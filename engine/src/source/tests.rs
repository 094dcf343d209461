//! The link against a scripted source cluster.

mod chance;
mod doubt;
mod errors;
mod fetching;
mod metadata;
mod world;
