//! Offsets by time, exact to the record, as Kafka's ListOffsets answers.

use std::path::Path;

use wire::batch::{Batch, TimestampType};
use wire::ids::{LeaderEpoch, Offset};
use wire::record::Records;

use super::damage::Damage;
use super::index::Index;
use super::log::Log;
use super::names::FileKind;
use super::scan::{Headers, read_batch};
use super::segment::Newest;
use crate::compression::decompress;
use crate::io::Disk;

/// A record that was found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedOffset {
    pub offset: Offset,
    pub timestamp: i64,
    pub leader_epoch: LeaderEpoch,
}

/// The most bytes that one batch may have once it is decompressed for a lookup. Kafka has no bound;
/// producers stay far below, as a batch is made of at most `max.request.size` of records.
const DECOMPRESSED_BYTES_MAX: usize = 256 << 20;

impl Log {
    /// The first offset and its epoch, where the epochs reach that far back.
    #[must_use]
    pub fn earliest(&self) -> (Offset, Option<LeaderEpoch>) {
        let first = self.epochs.first().filter(|&(_, start)| start <= self.log_start);
        (self.log_start, first.map(|(epoch, _)| epoch))
    }

    /// The end and the newest epoch.
    #[must_use]
    pub fn latest(&self) -> (Offset, Option<LeaderEpoch>) {
        (self.written.end, self.epochs.last())
    }

    /// The first record whose timestamp is not below `timestamp`. Whether the reader may see it, a
    /// reader of committed records above all, is for the caller to compare.
    pub fn offset_for_time(
        &mut self,
        disk: &mut dyn Disk,
        timestamp: i64,
    ) -> Result<Option<TimestampedOffset>, Damage> {
        for index in 0..self.segments.len() {
            if self.largest_timestamp(disk, index)? < timestamp {
                continue;
            }
            // As Kafka does: the first segment that is new enough has it or none has.
            return self.find_in(disk, index, timestamp);
        }
        Ok(None)
    }

    /// The first record that has the largest timestamp of all.
    pub fn offset_of_max_timestamp(
        &mut self,
        disk: &mut dyn Disk,
    ) -> Result<Option<TimestampedOffset>, Damage> {
        let mut best: Option<(usize, Newest)> = None;
        for index in 0..self.segments.len() {
            let newest = self.newest_of(disk, index)?;
            if best.is_none_or(|(_, known)| newest.timestamp > known.timestamp) {
                best = Some((index, newest));
            }
        }
        let Some((index, newest)) = best.filter(|(_, newest)| newest.timestamp >= 0) else {
            return Ok(None);
        };
        let position = self.indexed_below(disk, index, newest.offset)?.map_or(0, |e| e.position);
        let (path, end) = self.walkable(index);
        let mut headers = Headers::new(&path, u64::from(position), end);
        while let Some((position, header)) = headers.next(disk)? {
            if header.max_timestamp() == newest.timestamp {
                let bytes = read_batch(disk, &path, position, header.size())?;
                return first_record(&path, position, &bytes, |timestamp, _| {
                    timestamp == newest.timestamp
                });
            }
        }
        Ok(None)
    }

    /// The newest timestamp of a segment's batches; -1 where none has one.
    pub(super) fn newest_of(
        &mut self,
        disk: &mut dyn Disk,
        index: usize,
    ) -> Result<Newest, Damage> {
        let is_active = index + 1 == self.segments.len();
        let times = if is_active { self.active.times.as_slice() } else { &[] };
        self.segments[index].newest(disk, &self.folder, times)
    }

    /// The same; where none has one, the time of the last append stands for it.
    pub(super) fn largest_timestamp(
        &mut self,
        disk: &mut dyn Disk,
        index: usize,
    ) -> Result<i64, Damage> {
        let newest = self.newest_of(disk, index)?.timestamp;
        Ok(if newest >= 0 { newest } else { self.segments[index].modified_ms })
    }

    fn walkable(&mut self, index: usize) -> (std::sync::Arc<Path>, u64) {
        let end = self.written_bytes(index);
        (self.segments[index].log_path(&self.folder), end)
    }

    fn find_in(
        &mut self,
        disk: &mut dyn Disk,
        index: usize,
        wanted: i64,
    ) -> Result<Option<TimestampedOffset>, Damage> {
        let segment = &self.segments[index];
        let is_active = index + 1 == self.segments.len();
        let times = if is_active { self.active.times.as_slice() } else { &[] };
        let path = FileKind::TimeIndex.path(&self.folder, segment.base);
        let times = Index { path: &path, stored: segment.stored.times, tail: times };
        // Everything up to the last entry that is not newer than wanted can be left out.
        let place = times.search(disk, |entry| entry.timestamp <= wanted, None)?;
        let known = place.below.map_or(segment.base, |entry| segment.absolute(entry.relative));
        let start = self.log_start;
        let from = self.indexed_below(disk, index, known.max(start))?.map_or(0, |e| e.position);
        let (path, end) = self.walkable(index);
        let mut headers = Headers::new(&path, u64::from(from), end);
        while let Some((position, header)) = headers.next(disk)? {
            if header.max_timestamp() < wanted {
                continue;
            }
            let bytes = read_batch(disk, &path, position, header.size())?;
            let found = first_record(&path, position, &bytes, |timestamp, offset| {
                timestamp >= wanted && offset >= start
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The first record of a batch that is wanted by its timestamp and offset.
fn first_record(
    path: &Path,
    position: u64,
    bytes: &[u8],
    is_wanted: impl Fn(i64, Offset) -> bool,
) -> Result<Option<TimestampedOffset>, Damage> {
    let batch = Batch::read(bytes, 0)
        .map_err(|error| Damage::corrupt(path, position, error.fault.to_string()))?;
    let compression = batch.attributes().compression();
    let payload = decompress(compression, batch.payload(), DECOMPRESSED_BYTES_MAX)
        .map_err(|error| Damage::corrupt(path, position, error.to_string()))?;
    let by_broker = batch.attributes().timestamp_type() == TimestampType::LogAppendTime;
    for record in Records::new(&payload, batch.record_count()) {
        let record = record.map_err(|error| Damage::corrupt(path, position, error.to_string()))?;
        let timestamp = if by_broker {
            batch.max_timestamp()
        } else {
            batch.base_timestamp().wrapping_add(record.timestamp_delta)
        };
        let offset = Offset(batch.base_offset().0 + i64::from(record.offset_delta));
        if is_wanted(timestamp, offset) {
            let leader_epoch = batch.partition_leader_epoch();
            return Ok(Some(TimestampedOffset { offset, timestamp, leader_epoch }));
        }
    }
    Ok(None)
}
