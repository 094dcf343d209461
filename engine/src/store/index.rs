//! The offset and the time index of a segment: sorted entries of a fixed size, most of them on disk.
//!
//! ```text
//!  .index      relative offset (4) | position (4)          one for every index.interval.bytes
//!  .timeindex  timestamp (8)       | relative offset (4)   the newest timestamp so far, with it
//! ```
//!
//! An offset entry names the last offset of the batch at its position. Only the youngest entries of
//! the active segment are held in memory, at most [`TAIL_MAX`] of them: the rest is searched where
//! it lies, page by page. So an index costs no memory however large its segment is, closed segments
//! need no cache to be bounded, and there is nothing to keep in step.

use std::path::Path;

use crate::io::{Disk, DiskError};

/// Entries that may wait in memory; with the default interval they stand for 2 MiB of log.
pub const TAIL_MAX: usize = 512;
/// Entries read at once in a search on disk.
const PAGE_ENTRIES: u32 = 512;

/// An entry of an index.
pub trait Entry: Copy {
    /// Bytes of one on disk.
    const SIZE: usize;
    /// Reads one from exactly as many bytes.
    fn decode(bytes: &[u8]) -> Self;
    /// Appends the bytes of one.
    fn encode(self, into: &mut Vec<u8>);
}

/// Where a batch stands, by its last offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Last offset of the batch, minus the segment's base.
    pub relative: u32,
    pub position: u32,
}

/// The newest timestamp up to an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    pub timestamp: i64,
    /// Last offset of the batch that has it, minus the segment's base.
    pub relative: u32,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

impl Entry for OffsetEntry {
    const SIZE: usize = 8;

    fn decode(bytes: &[u8]) -> Self {
        Self {
            relative: u32::from_be_bytes(array(bytes, 0)),
            position: u32::from_be_bytes(array(bytes, 4)),
        }
    }

    fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.relative.to_be_bytes());
        into.extend_from_slice(&self.position.to_be_bytes());
    }
}

impl Entry for TimeEntry {
    const SIZE: usize = 12;

    fn decode(bytes: &[u8]) -> Self {
        Self {
            timestamp: i64::from_be_bytes(array(bytes, 0)),
            relative: u32::from_be_bytes(array(bytes, 8)),
        }
    }

    fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.timestamp.to_be_bytes());
        into.extend_from_slice(&self.relative.to_be_bytes());
    }
}

/// What stands on both sides of the place that was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<E> {
    /// How many entries stand below it.
    pub count: usize,
    /// The last entry below it.
    pub below: Option<E>,
    /// The first entry at or above it.
    pub above: Option<E>,
}

/// A page that was read, kept for a reader who goes on where it stopped.
#[derive(Clone, Debug)]
pub struct Page {
    /// Base offset of the segment it is from.
    pub base: i64,
    first: u32,
    bytes: Vec<u8>,
}

/// An index as it lies: entries on disk, then entries in memory.
pub struct Index<'a, E> {
    pub path: &'a Path,
    /// How many entries the file has.
    pub stored: u32,
    /// Those that follow them.
    pub tail: &'a [E],
}

impl<E: Entry> Index<'_, E> {
    /// Finds the place before which `below` holds. Entries are sorted by whatever it looks at.
    pub fn search(
        &self,
        disk: &mut dyn Disk,
        mut below: impl FnMut(&E) -> bool,
        kept: Option<(i64, &mut Option<Page>)>,
    ) -> Result<Place<E>, DiskError> {
        if self.stored == 0 || self.tail.first().is_some_and(&mut below) {
            let count = self.tail.partition_point(below);
            let last = match count {
                0 => None,
                _ => self.tail.get(count - 1).copied(),
            };
            let count_all = self.stored as usize + count;
            return Ok(Place {
                count: count_all,
                below: last,
                above: self.tail.get(count).copied(),
            });
        }
        let Some((base, page)) = kept else {
            return self.search_stored(disk, &mut below, 0, &mut None);
        };
        let same = page.as_ref().filter(|page| page.base == base);
        if let Some(found) = same.and_then(|page| self.within(page, &mut below)) {
            return Ok(found);
        }
        self.search_stored(disk, &mut below, base, page)
    }

    /// The place, where the page shows both sides of it.
    fn within(&self, page: &Page, below: &mut impl FnMut(&E) -> bool) -> Option<Place<E>> {
        let count = partition(&page.bytes, below);
        let place = page.first as usize + count;
        let above = match entry(&page.bytes, count) {
            Some(above) => Some(above),
            None if place == self.stored as usize => self.tail.first().copied(),
            None => return None,
        };
        match count.checked_sub(1) {
            Some(last) => Some(Place { count: place, below: entry(&page.bytes, last), above }),
            None if place == 0 => Some(Place { count: 0, below: None, above }),
            None => None,
        }
    }

    /// Searches the pages of the file, then the page that was found.
    fn search_stored(
        &self,
        disk: &mut dyn Disk,
        below: &mut impl FnMut(&E) -> bool,
        base: i64,
        kept: &mut Option<Page>,
    ) -> Result<Place<E>, DiskError> {
        // Pages before `low` start below the place, pages from `high` on do not.
        let (mut low, mut high) = (0, self.stored.div_ceil(PAGE_ENTRIES));
        while low < high {
            let middle = low + (high - low) / 2;
            let first = self.read(disk, middle * PAGE_ENTRIES, 1)?;
            if below(&E::decode(&first)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let first = low.saturating_sub(1) * PAGE_ENTRIES;
        // One entry more than a page: the neighbour above is then at hand as well.
        let bytes = self.read(disk, first, (self.stored - first).min(PAGE_ENTRIES + 1))?;
        let count = partition(&bytes, below);
        let above = match entry(&bytes, count) {
            Some(above) => Some(above),
            None => self.tail.first().copied(),
        };
        let place = Place {
            count: first as usize + count,
            below: count.checked_sub(1).and_then(|last| entry(&bytes, last)),
            above,
        };
        *kept = Some(Page { base, first, bytes });
        Ok(place)
    }

    /// The last entry there is.
    pub fn last(&self, disk: &mut dyn Disk) -> Result<Option<E>, DiskError> {
        if let Some(last) = self.tail.last() {
            return Ok(Some(*last));
        }
        match self.stored.checked_sub(1) {
            Some(last) => Ok(Some(E::decode(&self.read(disk, last, 1)?))),
            None => Ok(None),
        }
    }

    /// Reads entries of the file as they lie there.
    pub fn read(&self, disk: &mut dyn Disk, first: u32, count: u32) -> Result<Vec<u8>, DiskError> {
        let mut bytes = vec![0; count as usize * E::SIZE];
        let read = disk.read(self.path, u64::from(first) * E::SIZE as u64, &mut bytes)?;
        if read < bytes.len() {
            return Err(DiskError {
                kind: crate::io::IoErrorKind::Short,
                operation: "read",
                path: self.path.to_path_buf(),
                reason: format!("{} entries were there before", self.stored),
            });
        }
        Ok(bytes)
    }
}

fn entry<E: Entry>(bytes: &[u8], index: usize) -> Option<E> {
    bytes.get(index * E::SIZE..(index + 1) * E::SIZE).map(E::decode)
}

/// How many entries at the start of `bytes` are below the place.
fn partition<E: Entry>(bytes: &[u8], below: &mut impl FnMut(&E) -> bool) -> usize {
    let (mut low, mut high) = (0, bytes.len() / E::SIZE);
    while low < high {
        let middle = low + (high - low) / 2;
        if below(&E::decode(&bytes[middle * E::SIZE..(middle + 1) * E::SIZE])) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Writes the entries in memory behind those of the file, and gives how many it has now.
pub fn spill<E: Entry>(
    disk: &mut dyn Disk,
    path: &Path,
    stored: u32,
    tail: &mut Vec<E>,
) -> Result<u32, DiskError> {
    if tail.is_empty() {
        return Ok(stored);
    }
    let mut bytes = Vec::with_capacity(tail.len() * E::SIZE);
    for entry in tail.iter() {
        entry.encode(&mut bytes);
    }
    disk.write(path, u64::from(stored) * E::SIZE as u64, &bytes)?;
    let count = u32::try_from(tail.len()).expect("a tail is below TAIL_MAX");
    tail.clear();
    Ok(stored + count)
}

#[cfg(test)]
mod tests {
    use super::super::testing::MemoryDisk;
    use super::*;

    fn entries(count: u32) -> Vec<OffsetEntry> {
        (0..count).map(|i| OffsetEntry { relative: i * 10 + 5, position: i * 4_100 }).collect()
    }

    #[test]
    fn a_search_finds_the_same_wherever_the_entries_lie() {
        let all = entries(1_700);
        let path = Path::new("/i");
        for stored in [0, 1, 511, 512, 513, 1_024, 1_699, 1_700] {
            let mut disk = MemoryDisk::default();
            let mut head = all[..stored].to_vec();
            let stored = spill(&mut disk, path, 0, &mut head).expect("memory");
            let index = Index { path, stored, tail: &all[stored as usize..] };
            let mut page = None;
            for target in (0..17_010).step_by(7) {
                let want = all.partition_point(|entry| entry.relative <= target);
                let below = |entry: &OffsetEntry| entry.relative <= target;
                for kept in [None, Some((9, &mut page))] {
                    let place = index.search(&mut disk, below, kept).expect("memory");
                    assert_eq!(place.count, want);
                    assert_eq!(place.below, want.checked_sub(1).map(|last| all[last]));
                    assert_eq!(place.above, all.get(want).copied(), "{stored} {target}");
                }
            }
        }
    }

    #[test]
    fn a_reader_that_goes_on_reads_no_index_twice() {
        let path = Path::new("/i");
        let mut disk = MemoryDisk::default();
        let stored = spill(&mut disk, path, 0, &mut entries(100_000)).expect("memory");
        let index = Index::<OffsetEntry> { path, stored, tail: &[] };
        let mut page = None;
        let reads = disk.reads;
        for target in 0..10_000 {
            let below = |entry: &OffsetEntry| entry.relative <= target;
            index.search(&mut disk, below, Some((0, &mut page))).expect("memory");
        }
        // 10 offsets an entry, 512 entries a page: 2 pages, found among 196.
        assert!(disk.reads - reads < 3 * 10, "{} reads", disk.reads - reads);
    }

    #[test]
    fn entries_have_kafkas_shape() {
        let mut bytes = Vec::new();
        OffsetEntry { relative: 1, position: 2 }.encode(&mut bytes);
        TimeEntry { timestamp: 3, relative: 4 }.encode(&mut bytes);
        assert_eq!(bytes, [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4]);
    }
}
