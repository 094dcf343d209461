//! A log of any length in little memory: a ring of prepared batches that comes round and round with
//! rising offsets. Base offset and leader epoch lie outside the CRC, so only they are made anew.

use std::sync::Arc;

use wire::batch::Batches;
use wire::ids::{LeaderEpoch, Offset};

use super::batch::NewBatch;
use super::chunk::Chunks;
use super::epochs::Epochs;

/// Bytes that are made anew in front of every batch: base offset, length, leader epoch.
const PATCHED_BYTES: usize = 16;

/// Batches that come round. Cheap to clone: many partitions can share one ring.
#[derive(Clone, Debug)]
pub struct Ring {
    bytes: Arc<[u8]>,
    /// For each batch, where its bytes begin and at which offset it stands in the first round; then
    /// the totals.
    places: Arc<[(usize, i64)]>,
}

/// The log of one partition.
#[derive(Clone, Debug)]
pub struct Endless {
    ring: Ring,
    start: Offset,
    growth: Growth,
}

/// How the end of an endless log moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It stands still.
    Until(Offset),
    /// It has been at 0 at `since_ms` and moves on by whole batches.
    Paced { since_ms: i64, batches_per_second: u32 },
}

impl Ring {
    /// A ring of these batches, whose offsets follow one another from 0 on.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn of(batches: &[NewBatch]) -> Self {
        let (mut bytes, mut next) = (Vec::new(), 0);
        for batch in batches {
            bytes.extend(batch.build(Offset(next), LeaderEpoch(0)));
            next += i64::try_from(batch.records.len()).unwrap_or(i64::MAX);
        }
        Self::of_built(bytes)
    }

    /// A ring of built batches, one after another, whose offsets begin at 0 and leave no holes.
    ///
    /// # Panics
    /// When there is none or one is not sound.
    #[must_use]
    pub fn of_built(bytes: Vec<u8>) -> Self {
        let (mut places, mut next) = (Vec::new(), 0);
        for batch in Batches::new(&bytes) {
            let (position, batch) = batch.expect("a sound batch");
            assert_eq!(batch.base_offset(), Offset(next), "offsets leave no holes");
            places.push((position, next));
            next = batch.next_offset().0;
        }
        assert!(next > 0, "a ring holds records");
        places.push((bytes.len(), next));
        Self { bytes: Arc::from(bytes), places: Arc::from(places) }
    }

    /// How many batches it holds.
    #[must_use]
    pub fn batch_count(&self) -> usize {
        self.places.len() - 1
    }

    fn totals(&self) -> (usize, i64) {
        self.places[self.batch_count()]
    }

    /// The offset at which batch number `count`, over all rounds, begins.
    fn offset_of(&self, count: i64) -> Offset {
        let batches = i64::try_from(self.batch_count()).unwrap_or(i64::MAX);
        let within = self.places[usize::try_from(count % batches).unwrap_or(0)].1;
        Offset((count / batches).saturating_mul(self.totals().1).saturating_add(within))
    }

    /// The number, over all rounds, of the batch that holds `offset`.
    fn count_of(&self, offset: Offset) -> i64 {
        let (round, within) = (offset.0 / self.totals().1, offset.0 % self.totals().1);
        let place = self.places.partition_point(|place| place.1 <= within) - 1;
        let batches = i64::try_from(self.batch_count()).unwrap_or(i64::MAX);
        round * batches + i64::try_from(place).unwrap_or(0)
    }
}

impl Endless {
    /// A log that starts at 0.
    #[must_use]
    pub const fn new(ring: Ring, growth: Growth) -> Self {
        Self { ring, start: Offset(0), growth }
    }

    /// The offset of the first record that is served.
    #[must_use]
    pub const fn start(&self) -> Offset {
        self.start
    }

    /// The offset after the last record, at a batch's border.
    #[must_use]
    pub fn end(&self, now_ms: i64) -> Offset {
        match self.growth {
            Growth::Until(end) => self.ring.offset_of(self.ring.count_of(end)).max(self.start),
            Growth::Paced { since_ms, batches_per_second } => {
                let elapsed_ms = now_ms.saturating_sub(since_ms).max(0);
                let count = elapsed_ms.saturating_mul(i64::from(batches_per_second)) / 1000;
                self.ring.offset_of(count)
            }
        }
    }

    /// When the end next moves by itself.
    pub(super) fn grows_at_ms(&self, now_ms: i64) -> Option<i64> {
        match self.growth {
            Growth::Paced { since_ms, batches_per_second: rate @ 1.. } => {
                let rate = i64::from(rate);
                let elapsed_ms = now_ms.saturating_sub(since_ms).max(0);
                let count = elapsed_ms.saturating_mul(rate) / 1000;
                Some(since_ms.saturating_add(((count + 1) * 1000 + rate - 1) / rate))
            }
            _ => None,
        }
    }

    /// Lets the end move otherwise from now on.
    pub const fn set_growth(&mut self, growth: Growth) {
        self.growth = growth;
    }

    /// Moves the start.
    pub fn delete_records_before(&mut self, offset: Offset, now_ms: i64) {
        self.start = self.start.max(offset.min(self.end(now_ms)));
    }

    /// Reads at most `bytes_max`; see [`super::Partition::read`].
    pub(super) fn read(
        &self,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
        whole: bool,
        epochs: &Epochs,
    ) -> Chunks {
        let mut read = Chunks::default();
        let (round_bytes, round_records) = self.ring.totals();
        debug_assert!(round_bytes > 0);
        for count in self.ring.count_of(from).. {
            let base = self.ring.offset_of(count);
            let batches = i64::try_from(self.ring.batch_count()).unwrap_or(i64::MAX);
            let place = usize::try_from(count % batches).unwrap_or(0);
            let [(position, within), (end, within_next)] =
                [self.ring.places[place], self.ring.places[place + 1]];
            debug_assert!(within_next <= round_records);
            let first = read.is_empty();
            if base.0 + (within_next - within) > upper.0
                || (first && end - position > bytes_max && !whole)
                || (!first && read.len() >= bytes_max)
            {
                break;
            }
            read.push(&base.0.to_be_bytes());
            read.push(&self.ring.bytes[position + 8..position + 12]);
            read.push(&epochs.of(base).0.to_be_bytes());
            read.share(&self.ring.bytes, position + PATCHED_BYTES..end);
            read.truncate(if first { bytes_max.max(end - position) } else { bytes_max });
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring {
        Ring::of(&[NewBatch::filled(3, 10, 0, 1), NewBatch::filled(2, 5000, 0, 2)])
    }

    #[test]
    fn offsets_rise_over_the_rounds_and_every_batch_stays_sound() {
        let log = Endless::new(ring(), Growth::Until(Offset(1_000_004)));
        assert_eq!(log.end(0), Offset(1_000_003));
        let mut epochs = Epochs::default();
        epochs.begin(LeaderEpoch(0), Offset(0));
        epochs.begin(LeaderEpoch(4), Offset(999_995));
        let read = log.read(Offset(999_991), log.end(0), 1 << 20, true, &epochs).to_vec();
        let mut bases = Vec::new();
        for batch in Batches::new(&read) {
            let (_, batch) = batch.expect("a batch");
            assert_eq!(batch.verify_crc(), Ok(()));
            bases.push((batch.base_offset().0, batch.partition_leader_epoch().0));
        }
        assert_eq!(bases, [(999_990, 0), (999_993, 0), (999_995, 4), (999_998, 4), (1_000_000, 4)]);
    }

    #[test]
    fn the_first_batch_is_whole_and_a_later_one_is_cut() {
        let log = Endless::new(ring(), Growth::Until(Offset(50)));
        let read = |bytes_max, whole| {
            log.read(Offset(3), Offset(50), bytes_max, whole, &Epochs::default()).len()
        };
        let large = log.ring.places[2].0 - log.ring.places[1].0;
        assert_eq!(read(100, false), 0);
        assert_eq!(read(100, true), large);
        assert_eq!(read(large + 70, false), large + 70);
        assert_eq!(read(large + 3, false), large + 3);
    }

    #[test]
    fn a_paced_log_grows_by_whole_batches_and_says_when() {
        let growth = Growth::Paced { since_ms: 1000, batches_per_second: 4 };
        let log = Endless::new(ring(), growth);
        assert_eq!(log.end(1000), Offset(0));
        assert_eq!(log.grows_at_ms(1000), Some(1250));
        assert_eq!(log.end(1249), Offset(0));
        assert_eq!(log.end(1250), Offset(3));
        assert_eq!(log.end(1750), Offset(8));
        assert_eq!(log.grows_at_ms(1760), Some(2000));
    }
}
