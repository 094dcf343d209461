//! The whole engine in one thread under a seed: shards and desk as they are, behind the one seam a
//! simulated kernel, around them a synthetic source, clients and an oracle.
//!
//! ```text
//!   source ── network ──┐                      ┌── network ── client, client_check
//!   (truth learns       ▼                      ▼
//!    what it ever    shard_side (the kernel's side of a shard)
//!    had)               ▲  io (the seam)   ▲
//!   workload            │                  │
//!   faults, strike,  process: Shard<SimIo> and the desk ──▶ disk, file ◀── oracle
//!   run                       world: moves the clock, kills, starts again
//! ```
//!
//! Everything that happens is an [`space::Event`] at a virtual moment; every choice comes from the
//! seed; so a seed is a run, and its trace is one number.

pub mod client;
pub mod client_check;
pub mod disk;
pub mod faults;
pub mod file;
pub mod io;
pub mod network;
pub mod oracle;
pub mod process;
pub mod random;
pub mod run;
pub mod shard_side;
pub mod source;
pub mod space;
pub mod strike;
pub mod truth;
pub mod workload;
pub mod world;
