//! What the benches share: batches to measure with.
