//! The aborted transactions of a segment, as Kafka's transaction index keeps them: sorted by the
//! offset of their abort marker, in the segment that has the marker.
//!
//! ```text
//!  version (2) | producer id (8) | first offset (8) | last offset (8) | last stable offset (8)   = 34
//! ```

use std::path::Path;

use wire::ids::{Offset, ProducerId};

use super::index::{Entry, Index};
use crate::io::{Disk, DiskError};

/// A transaction that ended with an abort marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    /// Of its first batch.
    pub first_offset: Offset,
    /// Of its marker.
    pub last_offset: Offset,
    /// The last stable offset after its marker: no transaction that ends later begins below it.
    pub last_stable_offset: Offset,
}

impl Entry for AbortedTransaction {
    const SIZE: usize = 34;

    fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let mut array = [0; 8];
            array.copy_from_slice(&bytes[at..at + 8]);
            i64::from_be_bytes(array)
        };
        Self {
            producer_id: ProducerId(number(2)),
            first_offset: Offset(number(10)),
            last_offset: Offset(number(18)),
            last_stable_offset: Offset(number(26)),
        }
    }

    fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&0i16.to_be_bytes());
        for number in
            [self.producer_id.0, self.first_offset.0, self.last_offset.0, self.last_stable_offset.0]
        {
            into.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Transactions read from disk at once.
const CHUNK: u32 = 64;

/// Adds those of one segment that concern a reader of `from..upper`, and says whether later segments
/// can have none.
pub(super) fn collect(
    disk: &mut dyn Disk,
    index: &Index<'_, AbortedTransaction>,
    from: Offset,
    upper: Offset,
    found: &mut Vec<AbortedTransaction>,
) -> Result<bool, DiskError> {
    let start = index.search(disk, |aborted| aborted.last_offset < from, None)?.count;
    let mut next = u32::try_from(start).expect("an index is below 4 Gi entries");
    while next < index.stored {
        let bytes = index.read(disk, next, (index.stored - next).min(CHUNK))?;
        for entry in bytes.chunks_exact(AbortedTransaction::SIZE) {
            if take(AbortedTransaction::decode(entry), upper, found) {
                return Ok(true);
            }
            next += 1;
        }
    }
    let skipped = (next - index.stored) as usize;
    Ok(index.tail[skipped..].iter().any(|&aborted| take(aborted, upper, found)))
}

fn take(aborted: AbortedTransaction, upper: Offset, found: &mut Vec<AbortedTransaction>) -> bool {
    if aborted.first_offset < upper {
        found.push(aborted);
    }
    aborted.last_stable_offset >= upper
}

/// How many transactions a file of `length` bytes holds; Kafka leaves out a broken one at its end.
pub(super) fn count_of(length: u64) -> u32 {
    u32::try_from(length / AbortedTransaction::SIZE as u64).unwrap_or(u32::MAX)
}

/// Whether a file's transactions can be those of a segment that begins at `base`.
pub(super) fn are_sound(
    disk: &mut dyn Disk,
    path: &Path,
    count: u32,
    base: Offset,
) -> Result<bool, DiskError> {
    let index = Index::<AbortedTransaction> { path, stored: count, tail: &[] };
    let mut next = 0;
    while next < count {
        let some = (count - next).min(CHUNK);
        for entry in index.read(disk, next, some)?.chunks_exact(AbortedTransaction::SIZE) {
            let at = AbortedTransaction::decode(entry);
            let is_sound = entry[..2] == [0, 0]
                && at.last_offset >= base
                && (0..=at.last_offset.0).contains(&at.first_offset.0);
            if !is_sound {
                return Ok(false);
            }
        }
        next += some;
    }
    Ok(true)
}

/// The transactions of a file, for tools.
pub fn read_all(disk: &mut dyn Disk, path: &Path) -> Result<Vec<AbortedTransaction>, DiskError> {
    let stored = count_of(disk.length(path)?);
    let bytes = Index::<AbortedTransaction> { path, stored, tail: &[] }.read(disk, 0, stored)?;
    Ok(bytes.chunks_exact(AbortedTransaction::SIZE).map(AbortedTransaction::decode).collect())
}

#[cfg(test)]
mod tests {
    use super::super::index::spill;
    use super::super::testing::MemoryDisk;
    use super::*;

    fn aborted(first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(first),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    #[test]
    fn a_reader_hears_of_the_transactions_that_touch_its_range() {
        let all = [aborted(0, 9, 4), aborted(4, 12, 13), aborted(14, 20, 21), aborted(30, 40, 41)];
        let path = Path::new("/t");
        for stored in 0..=all.len() {
            let mut disk = MemoryDisk::default();
            let mut head = all[..stored].to_vec();
            let count = spill(&mut disk, path, 0, &mut head).expect("memory");
            let index = Index { path, stored: count, tail: &all[stored..] };
            for (from, upper, firsts, complete) in [
                (0, 50, &[0, 4, 14, 30][..], false),
                (10, 13, &[4], true),
                (10, 15, &[4, 14], true),
                (21, 30, &[], true),
                (41, 50, &[], false),
            ] {
                let mut found = Vec::new();
                let done = collect(&mut disk, &index, Offset(from), Offset(upper), &mut found)
                    .expect("memory");
                assert_eq!(done, complete, "{from}..{upper}");
                let found: Vec<_> = found.iter().map(|aborted| aborted.first_offset.0).collect();
                assert_eq!(found, firsts, "{from}..{upper}");
            }
        }
    }

    #[test]
    fn an_entry_is_34_bytes() {
        let mut bytes = Vec::new();
        let entry = aborted(1, 2, 3);
        entry.encode(&mut bytes);
        assert_eq!(bytes.len(), AbortedTransaction::SIZE);
        assert_eq!(AbortedTransaction::decode(&bytes), entry);
    }
}
