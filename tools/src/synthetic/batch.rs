//! Batches as a producer would write them, for the logs of the synthetic cluster.

use wire::batch::{Attributes, BatchBuilder, Compression, HEADER_SIZE, NewRecord, TimestampType};
use wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use super::payload;

/// A record to append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Milliseconds since 1970.
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Record {
    /// A record with a value only.
    #[must_use]
    pub fn of(timestamp: i64, value: impl Into<Vec<u8>>) -> Self {
        Self { timestamp, value: Some(value.into()), ..Self::default() }
    }

    /// The same record under a key.
    #[must_use]
    pub fn key(self, key: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }
}

/// The producer of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
    /// Its number for the first record of the batch.
    pub base_sequence: i32,
}

/// A batch to append: offsets and leader epoch come from the log.
#[derive(Clone, Debug)]
pub struct NewBatch {
    pub records: Vec<Record>,
    pub producer: Option<Producer>,
    pub transactional: bool,
    pub compression: Compression,
    /// The broker's time, where the topic takes it in place of the producer's.
    pub log_append_time: Option<i64>,
}

impl NewBatch {
    /// A batch without idempotence and compression.
    #[must_use]
    pub const fn of(records: Vec<Record>) -> Self {
        Self {
            records,
            producer: None,
            transactional: false,
            compression: Compression::None,
            log_append_time: None,
        }
    }

    /// `count` records with values of `value_bytes` bytes that differ and hardly compress.
    #[must_use]
    pub fn filled(count: usize, value_bytes: usize, timestamp: i64, seed: u64) -> Self {
        let mut random = Random(seed);
        let record = |place| Record::of(timestamp + place, random.bytes(value_bytes));
        Self::of((0..i64::try_from(count).unwrap_or(i64::MAX)).map(record).collect())
    }

    /// The same batch from a producer.
    #[must_use]
    pub const fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        let (id, epoch) = (ProducerId(id), ProducerEpoch(epoch));
        self.producer = Some(Producer { id, epoch, base_sequence });
        self
    }

    /// The same batch inside a transaction of its producer.
    #[must_use]
    pub const fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    /// The same batch compressed.
    #[must_use]
    pub const fn compressed(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The batch in Kafka's format, with its CRC.
    #[must_use]
    pub fn build(&self, base_offset: Offset, epoch: LeaderEpoch) -> Vec<u8> {
        let base_timestamp = self.records.first().map_or(0, |record| record.timestamp);
        let mut attributes = Attributes::default()
            .with_compression(self.compression)
            .with_transactional(self.transactional);
        let mut builder = BatchBuilder::new(base_offset, base_timestamp).leader_epoch(epoch);
        if let Some(Producer { id, epoch, base_sequence }) = self.producer {
            builder = builder.producer(id, epoch, base_sequence);
        }
        let mut max_timestamp = i64::MIN;
        for (offset_delta, record) in (0..).zip(&self.records) {
            let headers: Vec<_> =
                record.headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
            builder = builder.record(NewRecord {
                offset_delta,
                timestamp_delta: record.timestamp - base_timestamp,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: &headers,
            });
            max_timestamp = max_timestamp.max(record.timestamp);
        }
        if let Some(time) = self.log_append_time {
            attributes = attributes.with_timestamp_type(TimestampType::LogAppendTime);
            max_timestamp = time;
        }
        let builder = builder.attributes(attributes).max_timestamp(max_timestamp);
        match self.compression {
            Compression::None => builder.build(),
            compression => self.rebuild(&builder.build(), compression, base_offset, epoch),
        }
    }

    /// The same batch as `plain`, with compressed records.
    fn rebuild(
        &self,
        plain: &[u8],
        compression: Compression,
        base_offset: Offset,
        epoch: LeaderEpoch,
    ) -> Vec<u8> {
        let header = wire::batch::BatchHeader::read(plain, 0).expect("a batch that was just built");
        BatchBuilder::new(base_offset, header.base_timestamp())
            .leader_epoch(epoch)
            .attributes(header.attributes())
            .producer(header.producer_id(), header.producer_epoch(), header.base_sequence())
            .payload(
                &payload::compress(compression, &plain[HEADER_SIZE..]),
                header.record_count(),
                header.last_offset_delta(),
            )
            .max_timestamp(header.max_timestamp())
            .build()
    }
}

/// SplitMix64: small, and the same everywhere under the same seed.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.next().to_be_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::batch::Batch;

    #[test]
    fn a_compressed_batch_says_so_and_holds_its_producer_and_timestamps() {
        let batch = NewBatch::of(vec![Record::of(500, "a"), Record::of(700, "b").key("k")])
            .producer(7, 1, 40)
            .transactional()
            .compressed(Compression::Lz4);
        let bytes = batch.build(Offset(10), LeaderEpoch(3));
        let batch = Batch::read(&bytes, 0).expect("a batch");
        assert_eq!(batch.verify_crc(), Ok(()));
        assert_eq!((batch.base_offset(), batch.next_offset()), (Offset(10), Offset(12)));
        assert_eq!((batch.base_timestamp(), batch.max_timestamp()), (500, 700));
        assert_eq!((batch.producer_id(), batch.base_sequence()), (ProducerId(7), 40));
        assert!(batch.attributes().is_transactional());
        assert_eq!(batch.attributes().compression(), Compression::Lz4);
        assert!(payload::decompress(Compression::Lz4, batch.payload()).is_ok());
    }
}
