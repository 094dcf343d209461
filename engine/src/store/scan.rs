//! Walking the batches of a segment file: whole and checked for recovery, headers only for lookups.
//! Memory is bounded by the larger of a chunk and the largest batch that the file can hold.

use std::path::Path;

use wire::batch::{Batch, BatchHeader, HEADER_SIZE, LENGTH_END};
use wire::ids::Offset;

use super::damage::Damage;
use crate::admitted::{AdmittedBatch, Control};
use crate::io::{Disk, DiskError};

/// Bytes read at once in recovery.
const CHUNK_BYTES: u64 = 1 << 20;

/// Reads whole batches, one after another.
pub(super) struct Scan<'a> {
    path: &'a Path,
    /// Where the walk ends.
    end: u64,
    /// Where the next batch begins.
    position: u64,
    buffer: Vec<u8>,
    /// What part of the file is in the buffer: from here, as many bytes.
    start: u64,
    filled: usize,
}

/// What stands at a place of a segment.
pub(super) enum Step<'b> {
    /// A whole batch; its CRC has not been looked at.
    Batch(Batch<'b>),
    /// Nothing: the file ends here.
    End,
    /// Bytes that are no whole batch, and why not.
    Torn(String),
}

impl<'a> Scan<'a> {
    /// Walks `from..end` of a file.
    pub(super) fn new(path: &'a Path, from: u64, end: u64) -> Self {
        Self { path, end, position: from, buffer: Vec::new(), start: from, filled: 0 }
    }

    /// The next batch.
    pub(super) fn next(&mut self, disk: &mut dyn Disk) -> Result<Step<'_>, DiskError> {
        let left = self.end - self.position;
        if left == 0 {
            return Ok(Step::End);
        }
        if left < HEADER_SIZE as u64 {
            return Ok(Step::Torn(format!("{left} bytes are too few for a batch")));
        }
        let position = self.position;
        self.hold(disk, HEADER_SIZE)?;
        let size = match BatchHeader::read(self.held(), 0) {
            Ok(header) => header.size(),
            Err(error) => return Ok(Step::Torn(error.fault.to_string())),
        };
        if size as u64 > left {
            return Ok(Step::Torn(format!("{size} bytes announced, {left} left")));
        }
        self.hold(disk, size)?;
        self.position += size as u64;
        let at = usize::try_from(position - self.start).expect("the buffer is in memory");
        match Batch::read(&self.buffer[at..self.filled], 0) {
            Ok(batch) => Ok(Step::Batch(batch)),
            Err(error) => Ok(Step::Torn(error.fault.to_string())),
        }
    }

    /// What is in the buffer from the current position on.
    fn held(&self) -> &[u8] {
        let at = usize::try_from(self.position - self.start).expect("the buffer is in memory");
        &self.buffer[at.min(self.filled)..self.filled]
    }

    /// Sees to it that `bytes` bytes from the current position on are in the buffer.
    fn hold(&mut self, disk: &mut dyn Disk, bytes: usize) -> Result<(), DiskError> {
        if self.held().len() >= bytes {
            return Ok(());
        }
        let at = usize::try_from(self.position - self.start).expect("the buffer is in memory");
        self.buffer.copy_within(at.min(self.filled)..self.filled, 0);
        self.filled = self.filled.saturating_sub(at);
        self.start = self.position;
        let chunk = usize::try_from(CHUNK_BYTES.min(self.end - self.position)).unwrap_or(bytes);
        if self.buffer.len() < bytes.max(chunk) {
            self.buffer.resize(bytes.max(chunk), 0);
        }
        let from = self.position + self.filled as u64;
        let room = usize::try_from(self.end - from).unwrap_or(usize::MAX);
        let until = self.buffer.len().min(self.filled + room);
        let read = disk.read(self.path, from, &mut self.buffer[self.filled..until])?;
        self.filled += read;
        if self.filled < bytes {
            return Err(short(self.path, from));
        }
        Ok(())
    }
}

fn short(path: &Path, position: u64) -> DiskError {
    DiskError {
        kind: crate::io::IoErrorKind::Short,
        operation: "read",
        path: path.to_path_buf(),
        reason: format!("the file ends at or after {position} although it was longer before"),
    }
}

/// Bytes read at once in lookups: an index interval and some.
const HEADERS_CHUNK: usize = 8 << 10;

/// Reads headers only, leaving out the records between them.
pub(super) struct Headers<'a> {
    path: &'a Path,
    end: u64,
    position: u64,
    buffer: Vec<u8>,
    start: u64,
    chunk: usize,
}

impl<'a> Headers<'a> {
    /// Walks `from..end` of a file that is known to hold whole batches.
    pub(super) fn new(path: &'a Path, from: u64, end: u64) -> Self {
        Self::with_chunk(path, from, end, HEADERS_CHUNK)
    }

    /// The same for a long walk.
    pub(super) fn with_chunk(path: &'a Path, from: u64, end: u64, chunk: usize) -> Self {
        Self { path, end, position: from, buffer: Vec::new(), start: from, chunk }
    }

    /// The next header and where it stands.
    pub(super) fn next(
        &mut self,
        disk: &mut dyn Disk,
    ) -> Result<Option<(u64, BatchHeader<'_>)>, Damage> {
        if self.position >= self.end {
            return Ok(None);
        }
        let held = self.start + self.buffer.len() as u64;
        let head_end = self.position + HEADER_SIZE as u64;
        if self.position < self.start || head_end > held {
            let left = self.end - self.position;
            let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(self.chunk);
            self.buffer.resize(bytes, 0);
            let read = disk.read(self.path, self.position, &mut self.buffer)?;
            self.buffer.truncate(read);
            self.start = self.position;
        }
        let at = usize::try_from(self.position - self.start).expect("the buffer is in memory");
        let position = self.position;
        match BatchHeader::read(&self.buffer[at..], 0) {
            Ok(header) if position + header.size() as u64 <= self.end => {
                self.position += header.size() as u64;
                Ok(Some((position, header)))
            }
            Ok(header) => {
                let left = self.end - position;
                let wrong = format!("{} bytes announced, {left} left", header.size());
                Err(Damage::corrupt(self.path, position, wrong))
            }
            Err(error) => Err(Damage::corrupt(self.path, position, error.fault.to_string())),
        }
    }
}

/// Reads one whole batch.
pub(super) fn read_batch(
    disk: &mut dyn Disk,
    path: &Path,
    position: u64,
    size: usize,
) -> Result<Vec<u8>, DiskError> {
    let mut bytes = vec![0; size];
    let read = disk.read(path, position, &mut bytes)?;
    if read < size { Err(short(path, position)) } else { Ok(bytes) }
}

/// The most bytes that a control batch of Kafka has.
pub(super) const CONTROL_BYTES_MAX: usize = 64 << 10;

/// What admission would have said of a batch that lies in the log already.
pub(super) fn admitted(batch: &Batch<'_>) -> AdmittedBatch {
    let mut admitted = admitted_header(batch.header());
    if batch.attributes().is_control() {
        // What lies there already is not refused.
        admitted.control = Some(Control::of(batch).unwrap_or(Control::Other(-1)));
    }
    admitted
}

/// The same from a header alone; the kind of a control batch is not known then.
pub(super) fn admitted_header(header: BatchHeader<'_>) -> AdmittedBatch {
    let is_control = header.attributes().is_control();
    AdmittedBatch {
        position: 0,
        size: header.size(),
        base_offset: header.base_offset(),
        last_offset: header.last_offset(),
        leader_epoch: header.partition_leader_epoch(),
        max_timestamp: header.max_timestamp(),
        producer_id: header.producer_id(),
        producer_epoch: header.producer_epoch(),
        base_sequence: header.base_sequence(),
        last_sequence: header.last_sequence(),
        is_transactional: header.attributes().is_transactional(),
        control: is_control.then_some(Control::Other(-1)),
    }
}

/// Why a batch may not stand where it stands, if it may not.
pub(super) fn misplaced(header: BatchHeader<'_>, base: Offset, next: Offset) -> Option<String> {
    let (first, last) = (header.base_offset(), header.last_offset());
    if header.last_offset_delta() < 0 || last < first {
        return Some(format!("its last offset {last} is below its base offset {first}"));
    }
    if first < next {
        return Some(format!("base offset {first} where at least {next} must follow"));
    }
    if last.0 - base.0 > i64::from(i32::MAX) {
        return Some(format!("offset {last} is too far from the segment's base {base}"));
    }
    None
}

const _: () = assert!(HEADER_SIZE > LENGTH_END && HEADERS_CHUNK > HEADER_SIZE);
