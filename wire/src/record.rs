//! Records inside an uncompressed batch, and the control records among them.
//!
//! A record is a varint length, one byte of attributes (unused), timestamp delta (varlong), offset
//! delta (varint), key and value (varint length, -1 is null, then bytes), a varint count of headers,
//! and each header's key and value in the same shape.

mod control;

use core::iter::FusedIterator;

pub use control::{ControlKind, ControlRecord, EndTxnMarker, end_txn_marker, mirror_pid_reset};

use crate::batch::Batch;
use crate::codec::Reader;
use crate::error::{Fault, WireError};

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its offset minus the batch's base offset.
    pub offset_delta: i32,
    /// Its timestamp minus the batch's base timestamp.
    pub timestamp_delta: i64,
    /// `None` is null.
    pub key: Option<&'a [u8]>,
    /// `None` is null: a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Its headers, read and found sound already.
    pub headers: Headers<'a>,
}

/// Yields the records of a payload that is not compressed. The first fault ends it. Bytes left over
/// after the announced count of records, and records missing from it, are faults.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    reader: Reader<'a>,
    left: u32,
    done: bool,
}

/// The headers of one record: pairs of key and value, in the order they were written.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> Records<'a> {
    /// Walks `payload`, the uncompressed bytes behind a batch's header, which says `record_count`.
    #[must_use]
    pub const fn new(payload: &'a [u8], record_count: i32) -> Self {
        let left = if record_count < 0 { 0 } else { record_count.cast_unsigned() };
        Self { reader: Reader::new(payload), left, done: false }
    }

    /// Walks a batch whose records are not compressed.
    #[must_use]
    pub fn of(batch: &Batch<'a>) -> Self {
        Self::new(batch.payload(), batch.record_count())
    }

    fn record(&mut self) -> Result<Record<'a>, WireError> {
        let length = length(&mut self.reader)?;
        let start = self.reader.position();
        let body = self.reader.take(length)?;
        read_record(body).map_err(|error| WireError { position: error.position + start, ..error })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = match self.left {
            0 => self.reader.finish().err().map(Err),
            _ => Some(self.record()),
        };
        self.left = self.left.saturating_sub(1);
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl FusedIterator for Records<'_> {}

impl<'a> Headers<'a> {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.left as usize
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Headers<'a> {
    /// Brokers do not look into a header's key, so it may be other than UTF-8.
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Every header was read once before this was made.
        read_header(&mut self.reader).ok()
    }
}

impl FusedIterator for Headers<'_> {}

fn read_record(body: &[u8]) -> Result<Record<'_>, WireError> {
    let mut reader = Reader::new(body);
    reader.i8()?;
    let timestamp_delta = reader.varlong()?;
    let offset_delta = reader.varint()?;
    let key = nullable(&mut reader)?;
    let value = nullable(&mut reader)?;
    let start = reader;
    let count = length(&mut reader)?;
    let left = u32::try_from(count).unwrap_or(u32::MAX);
    if count > reader.left() {
        return Err(start.error(Fault::CountBeyondBytes { count, left: reader.left() }));
    }
    let headers = Headers { reader, left };
    for _ in 0..left {
        read_header(&mut reader)?;
    }
    reader.finish()?;
    Ok(Record { offset_delta, timestamp_delta, key, value, headers })
}

fn read_header<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], Option<&'a [u8]>), WireError> {
    let start = *reader;
    let key = nullable(reader)?.ok_or_else(|| start.error(Fault::UnexpectedNull))?;
    Ok((key, nullable(reader)?))
}

/// A length that may not be null.
fn length(reader: &mut Reader<'_>) -> Result<usize, WireError> {
    let start = *reader;
    let length = reader.varint()?;
    usize::try_from(length).map_err(|_| start.error(Fault::NegativeLength(length.into())))
}

fn nullable<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, WireError> {
    let start = *reader;
    match reader.varint()? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) => reader.take(length).map(Some),
            Err(_) => Err(start.error(Fault::NegativeLength(length.into()))),
        },
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::batch::{BatchBuilder, NewRecord};
    use crate::ids::Offset;

    fn two_records() -> Vec<u8> {
        BatchBuilder::new(Offset(10), 1_000)
            .record(NewRecord {
                key: Some(b"key"),
                value: Some(b"value"),
                headers: &[(b"a", Some(b"1")), (b"b", None)],
                ..NewRecord::default()
            })
            .record(NewRecord { offset_delta: 3, timestamp_delta: -7, ..NewRecord::default() })
            .build()
    }

    #[test]
    fn reads_back_the_records_that_were_built() {
        let bytes = two_records();
        let batch = Batch::read(&bytes, 0).expect("a batch");
        let records: Vec<_> = Records::of(&batch).collect::<Result<_, _>>().expect("sound records");
        assert_eq!(records.len(), 2);
        assert_eq!((records[0].key, records[0].value), (Some(&b"key"[..]), Some(&b"value"[..])));
        let headers: Vec<_> = records[0].headers.collect();
        assert_eq!(headers, [(&b"a"[..], Some(&b"1"[..])), (&b"b"[..], None)]);
        assert_eq!((records[1].offset_delta, records[1].timestamp_delta), (3, -7));
        assert_eq!((records[1].key, records[1].value), (None, None));
        assert!(records[1].headers.is_empty());
    }

    #[test]
    fn a_count_that_the_records_do_not_fill_or_overflow_is_a_fault() {
        let bytes = two_records();
        let payload = Batch::read(&bytes, 0).expect("a batch").payload();
        assert!(Records::new(payload, 1).any(|record| record.is_err()));
        assert!(Records::new(payload, 3).any(|record| record.is_err()));
        assert!(Records::new(payload, -1).any(|record| record.is_err()));
        assert_eq!(Records::new(payload, i32::MAX).count(), 3, "the first fault ends the walk");
    }

    #[test]
    fn no_truncation_and_no_changed_byte_panics_or_reads_on() {
        let bytes = two_records();
        let payload = Batch::read(&bytes, 0).expect("a batch").payload();
        for end in 0..payload.len() {
            assert!(Records::new(&payload[..end], 2).any(|record| record.is_err()), "{end}");
        }
        for position in 0..payload.len() {
            for value in 0..=255 {
                let mut changed = vec![0; payload.len()];
                changed.copy_from_slice(payload);
                changed[position] = value;
                for record in Records::new(&changed, 2).flatten() {
                    assert_eq!(record.headers.len(), record.headers.count());
                }
            }
        }
    }
}
