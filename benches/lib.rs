//! What the benches share: batches to measure with.

use tools::synthetic::NewBatch;
use wire::ids::{LeaderEpoch, Offset};

/// Records of 1 kB until a batch has about `batch_bytes`; such batches until there are about `bytes`,
/// their offsets from `first` on without a hole.
#[must_use]
pub fn batches(first: Offset, batch_bytes: usize, bytes: usize) -> Vec<u8> {
    const RECORD_BYTES: usize = 1_000;
    let records = (batch_bytes / RECORD_BYTES).max(1);
    let value_bytes = RECORD_BYTES.min(batch_bytes);
    let (mut all, mut next) = (Vec::new(), first);
    while all.is_empty() || all.len() + batch_bytes <= bytes {
        let batch = NewBatch::filled(records, value_bytes, 0, next.0.unsigned_abs());
        all.extend(batch.producer(1, 0, 0).build(next, LeaderEpoch(1)));
        next = Offset(next.0 + i64::try_from(records).expect("few records"));
    }
    all
}
