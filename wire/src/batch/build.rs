//! Building batches, for markers that we append ourselves, for the synthetic source and for tests.

use alloc::vec::Vec;

use super::{Attributes, CRC_AT, FIELDS_AT, HEADER_SIZE, LENGTH_END, MAGIC, crc32c};
use crate::codec::Writer;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// A batch in the making. Fields not set stand as a producer without idempotence leaves them.
#[derive(Clone, Debug)]
#[must_use]
pub struct BatchBuilder {
    base_offset: Offset,
    partition_leader_epoch: LeaderEpoch,
    attributes: Attributes,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
    record_count: i32,
    payload: Writer,
}

/// A record for [`BatchBuilder::record`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    pub offset_delta: i32,
    pub timestamp_delta: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

impl BatchBuilder {
    /// An empty batch.
    pub const fn new(base_offset: Offset, base_timestamp: i64) -> Self {
        Self {
            base_offset,
            partition_leader_epoch: LeaderEpoch::UNKNOWN,
            attributes: Attributes(0),
            last_offset_delta: 0,
            base_timestamp,
            max_timestamp: base_timestamp,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch(-1),
            base_sequence: -1,
            record_count: 0,
            payload: Writer::new(),
        }
    }

    /// The leader epoch under which the batch is appended.
    pub const fn leader_epoch(mut self, epoch: LeaderEpoch) -> Self {
        self.partition_leader_epoch = epoch;
        self
    }

    /// Compression, kind of timestamps, and the flags.
    pub const fn attributes(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// Who writes the batch.
    pub const fn producer(
        mut self,
        id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: i32,
    ) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Appends a record; the last offset and the newest timestamp follow it.
    pub fn record(mut self, record: NewRecord<'_>) -> Self {
        let mut body = Writer::new();
        body.i8(0);
        body.varlong(record.timestamp_delta);
        body.varint(record.offset_delta);
        nullable(&mut body, record.key);
        nullable(&mut body, record.value);
        body.varint(varint_length(record.headers.len()));
        for (key, value) in record.headers {
            nullable(&mut body, Some(key));
            nullable(&mut body, *value);
        }
        self.payload.varint(varint_length(body.len()));
        self.payload.raw(body.bytes());
        self.record_count += 1;
        self.last_offset_delta = self.last_offset_delta.max(record.offset_delta);
        let timestamp = self.base_timestamp.saturating_add(record.timestamp_delta);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self
    }

    /// Appends bytes that hold `record_count` records already, compressed as the attributes say.
    pub fn payload(mut self, bytes: &[u8], record_count: i32, last_offset_delta: i32) -> Self {
        self.payload.raw(bytes);
        self.record_count += record_count;
        self.last_offset_delta = last_offset_delta;
        self
    }

    /// The newest timestamp, where it is not the one of a record appended here.
    pub const fn max_timestamp(mut self, timestamp: i64) -> Self {
        self.max_timestamp = timestamp;
        self
    }

    /// The batch with its length and CRC.
    ///
    /// # Panics
    /// When it is above 2 GiB.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut out = Writer::over(Vec::with_capacity(HEADER_SIZE + self.payload.len()));
        let length = HEADER_SIZE - LENGTH_END + self.payload.len();
        out.i64(self.base_offset.0);
        out.i32(i32::try_from(length).expect("a batch is below 2 GiB"));
        out.i32(self.partition_leader_epoch.0);
        out.i8(MAGIC);
        out.u32(0);
        out.i16(self.attributes.0);
        out.i32(self.last_offset_delta);
        out.i64(self.base_timestamp);
        out.i64(self.max_timestamp);
        out.i64(self.producer_id.0);
        out.i16(self.producer_epoch.0);
        out.i32(self.base_sequence);
        out.i32(self.record_count);
        out.raw(self.payload.bytes());
        let crc = crc32c(&out.bytes()[FIELDS_AT..]);
        out.i32_at(CRC_AT, crc.cast_signed());
        out.into_bytes()
    }
}

fn nullable(out: &mut Writer, bytes: Option<&[u8]>) {
    out.varint(bytes.map_or(-1, |bytes| varint_length(bytes.len())));
    out.raw(bytes.unwrap_or_default());
}

fn varint_length(length: usize) -> i32 {
    i32::try_from(length).expect("a record is below 2 GiB")
}
