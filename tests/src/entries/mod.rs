//! Where strangers' bytes come in, each as one function of arbitrary bytes that panics where a promise
//! is broken. Driven by the fuzzer (`tests/fuzz`), which finds bytes, and by `tests/fuzz_smoke.rs`,
//! which always runs. Nothing here knows of either, so that both drive the same code.

mod answers;
mod batches;
mod choices;
mod files;
mod link;
mod logs;
mod memory;
mod requests;

pub use answers::fetch_response;
pub use batches::{batches, mended};
pub use files::files;
pub use link::link;
pub use logs::recovery;
pub use requests::requests;
