//! The indexes of a segment: their entries, and whether they point at what is in the log.
//!
//! ```text
//!  .index      relative offset (4) | position (4)
//!  .timeindex  timestamp (8)       | relative offset (4)
//!  .txnindex   version (2) | producer id (8) | first offset (8) | last offset (8) | last stable (8)
//! ```

use std::io;
use std::path::{Path, PathBuf};

use wire::batch::Batch;
use wire::record::{ControlKind, ControlRecord};

use super::item::{AbortedItem, Item};
use super::report::{Fault, Report};

/// The largest index that is read; Kafka's default is 10 MiB.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// Faults that are told of one index. It seldom breaks in one place only.
const FAULTS_MAX: usize = 8;

/// A kind of index, by its entries.
pub(super) trait Entry: Sized {
    const SIZE: usize;
    /// Whether a broker gives the file its full size, with zeros behind the entries.
    const HAS_ROOM: bool;
    fn decode(bytes: &[u8], base: i64) -> Self;
    /// The offset that the entry is about.
    fn offset(&self) -> i64;
    /// What is wrong with it behind `before`, if anything.
    fn order(&self, before: &Self) -> Option<String>;
    fn item(&self) -> Item<'static>;
}

/// A position for an offset.
pub(super) struct OffsetEntry {
    offset: i64,
    position: u32,
}

/// The newest timestamp up to an offset.
pub(super) struct TimeEntry {
    timestamp: i64,
    offset: i64,
}

/// An aborted transaction.
pub(super) struct AbortedEntry {
    version: i16,
    aborted: AbortedItem,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

impl Entry for OffsetEntry {
    const SIZE: usize = 8;
    const HAS_ROOM: bool = true;

    fn decode(bytes: &[u8], base: i64) -> Self {
        let relative = u32::from_be_bytes(array(bytes, 0));
        let position = u32::from_be_bytes(array(bytes, 4));
        Self { offset: base.saturating_add(relative.into()), position }
    }

    fn offset(&self) -> i64 {
        self.offset
    }

    fn order(&self, before: &Self) -> Option<String> {
        (self.offset <= before.offset || self.position <= before.position).then(|| {
            let (offset, position) = (before.offset, before.position);
            format!("does not rise: offset {offset} at position {position} stands before it")
        })
    }

    fn item(&self) -> Item<'static> {
        Item::OffsetEntry { offset: self.offset, position: self.position }
    }
}

impl Entry for TimeEntry {
    const SIZE: usize = 12;
    const HAS_ROOM: bool = true;

    fn decode(bytes: &[u8], base: i64) -> Self {
        let relative = u32::from_be_bytes(array(bytes, 8));
        let timestamp = i64::from_be_bytes(array(bytes, 0));
        Self { timestamp, offset: base.saturating_add(relative.into()) }
    }

    fn offset(&self) -> i64 {
        self.offset
    }

    fn order(&self, before: &Self) -> Option<String> {
        (self.timestamp <= before.timestamp || self.offset < before.offset).then(|| {
            let (timestamp, offset) = (before.timestamp, before.offset);
            format!("does not rise: timestamp {timestamp} at offset {offset} stands before it")
        })
    }

    fn item(&self) -> Item<'static> {
        Item::TimeEntry { timestamp: self.timestamp, offset: self.offset }
    }
}

impl Entry for AbortedEntry {
    const SIZE: usize = 34;
    const HAS_ROOM: bool = false;

    fn decode(bytes: &[u8], _: i64) -> Self {
        let number = |at| i64::from_be_bytes(array(bytes, at));
        let aborted = AbortedItem {
            producer_id: number(2),
            first_offset: number(10),
            last_offset: number(18),
            last_stable_offset: number(26),
        };
        Self { version: i16::from_be_bytes(array(bytes, 0)), aborted }
    }

    fn offset(&self) -> i64 {
        self.aborted.last_offset
    }

    fn order(&self, before: &Self) -> Option<String> {
        (self.offset() <= before.offset()).then(|| {
            format!("does not rise: a marker at offset {} stands before it", before.offset())
        })
    }

    fn item(&self) -> Item<'static> {
        Item::AbortedTransaction(self.aborted.clone())
    }
}

/// An index in memory, and how much of it was compared with the log.
pub(super) struct Index<E> {
    pub(super) path: PathBuf,
    entries: Vec<E>,
    /// How many entries were compared.
    compared: usize,
    faults: Vec<Fault>,
    untold: usize,
}

impl<E: Entry> Index<E> {
    /// Reads an index and checks it by itself.
    pub(super) fn read(path: &Path, base: i64) -> io::Result<Self> {
        let (entries, faults) = (Vec::new(), Vec::new());
        let mut index = Self { path: path.into(), entries, compared: 0, faults, untold: 0 };
        let length = std::fs::metadata(path)?.len();
        if length > INDEX_BYTES_MAX {
            index.add(Fault::new(path, format!("{length} bytes are no index")));
            return Ok(index);
        }
        let bytes = std::fs::read(path)?;
        let used = used::<E>(&bytes);
        let rest = used.len() % E::SIZE;
        if rest != 0 {
            let place = (used.len() - rest) as u64;
            let what = format!("{rest} bytes are too few for an entry, which has {}", E::SIZE);
            index.add(Fault::new(path, what).at(place));
        }
        for (place, bytes) in used.chunks_exact(E::SIZE).enumerate() {
            let entry = E::decode(bytes, base);
            if let Some(wrong) = index.entries.last().and_then(|before| entry.order(before)) {
                let fault = Fault::new(path, wrong).offset(entry.offset());
                index.add(fault.at((place * E::SIZE) as u64));
            }
            index.entries.push(entry);
        }
        Ok(index)
    }

    fn add(&mut self, fault: Fault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        } else {
            self.untold += 1;
        }
    }

    /// The next entry that was not compared is wrong, or right where nothing is said.
    fn compared(&mut self, wrong: Option<String>) {
        if let Some(wrong) = wrong {
            let place = (self.compared * E::SIZE) as u64;
            let offset = self.entries[self.compared].offset();
            self.add(Fault::new(&self.path, wrong).at(place).offset(offset));
        }
        self.compared += 1;
    }

    fn next(&self) -> Option<&E> {
        self.entries.get(self.compared)
    }

    /// Shows the entries and tells what is wrong.
    pub(super) fn tell(self, is_shown: bool, report: &mut Report<'_>) -> io::Result<()> {
        report.summary.files += 1;
        if is_shown && !report.is_quiet() {
            for entry in &self.entries {
                report.item(&self.path, &entry.item())?;
            }
        }
        for fault in self.faults {
            report.fault(fault)?;
        }
        match self.untold {
            0 => Ok(()),
            more => report.fault(Fault::new(&self.path, format!("{more} more faults like these"))),
        }
    }
}

/// The bytes without the room for later entries. That is zeros, which no entry but the very first
/// could be.
fn used<E: Entry>(bytes: &[u8]) -> &[u8] {
    if !E::HAS_ROOM || bytes.len() <= E::SIZE {
        return bytes;
    }
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let entries_end = end.next_multiple_of(E::SIZE);
    // Less than an entry behind the last one is no room, but a fault.
    if bytes.len() >= entries_end + E::SIZE { &bytes[..entries_end] } else { bytes }
}

impl Index<OffsetEntry> {
    /// A batch of the log, in their order. Kafka's followers name the last offset of everything that
    /// they appended at once, so an entry's offset may lie behind the batch at its position; before
    /// it, lookups would miss the batch.
    pub(super) fn compare(&mut self, position: u64, batch: &Batch<'_>) {
        while let Some(entry) = self.next() {
            let place = u64::from(entry.position);
            let base = batch.base_offset().0;
            let wrong = match place.cmp(&position) {
                std::cmp::Ordering::Greater => return,
                std::cmp::Ordering::Less => {
                    Some(format!("no batch of the log begins at position {place}"))
                }
                std::cmp::Ordering::Equal => (entry.offset < base)
                    .then(|| format!("the batch at position {place} begins at offset {base}")),
            };
            self.compared(wrong);
        }
    }

    /// The log ends here.
    pub(super) fn finish(&mut self, length: u64, next_offset: i64) {
        while let Some(entry) = self.next() {
            let place = entry.position;
            self.compared(Some(format!("position {place} is not in the log, which has {length}")));
        }
        let last = self.entries.last().map_or(-1, |entry| entry.offset);
        if last >= next_offset {
            let place = ((self.entries.len() - 1) * OffsetEntry::SIZE) as u64;
            let what = format!("is not in the log, which ends before offset {next_offset}");
            self.add(Fault::new(&self.path, what).at(place).offset(last));
        }
    }
}

impl Index<TimeEntry> {
    /// A batch of the log, in their order, and the newest timestamp up to its end.
    pub(super) fn compare(&mut self, batch: &Batch<'_>, newest: i64) {
        while let Some(entry) = self.next().filter(|entry| entry.offset <= batch.last_offset().0) {
            let wrong = (entry.timestamp != newest).then(|| {
                let claimed = entry.timestamp;
                format!("claims timestamp {claimed}, the newest in the log is {newest} there")
            });
            self.compared(wrong);
        }
    }

    /// The log ends here.
    pub(super) fn finish(&mut self, next_offset: i64) {
        while self.next().is_some() {
            let what = format!("is not in the log, which ends before offset {next_offset}");
            self.compared(Some(what));
        }
    }
}

impl Index<AbortedEntry> {
    /// A batch of the log, in their order.
    pub(super) fn compare(&mut self, batch: &Batch<'_>) {
        while let Some(entry) = self.next().filter(|entry| entry.offset() <= batch.last_offset().0)
        {
            let is_abort = batch.attributes().is_control()
                && ControlRecord::of(batch).is_ok_and(|marker| marker.kind == ControlKind::Abort);
            let (claimed, found) = (entry.aborted.producer_id, batch.producer_id().0);
            let wrong = match entry.version {
                0 if !is_abort => Some("no abort marker stands at this offset".to_string()),
                0 if claimed != found => {
                    Some(format!("names producer {claimed}, the abort marker is of {found}"))
                }
                0 => None,
                version => Some(format!("version {version} of an entry is not known")),
            };
            self.compared(wrong);
        }
    }

    /// The log ends here.
    pub(super) fn finish(&mut self, next_offset: i64) {
        while self.next().is_some() {
            let what = format!("is not in the log, which ends before offset {next_offset}");
            self.compared(Some(what));
        }
    }
}
