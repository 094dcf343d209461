//! The entries that are fuzzed: the same file as in `tests`, without the rest of it.

#[path = "../../src/entries/mod.rs"]
pub mod entries;
