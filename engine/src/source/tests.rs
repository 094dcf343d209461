//! The link against a scripted source cluster.

mod chance;
mod errors;
mod fetching;
mod metadata;
mod world;
