//! What a partition holds in a few numbers, so that two sides of a mirror can be compared.

use std::fmt;

use crc_fast::{CrcAlgorithm, checksum};
use wire::batch::{Batch, HEADER_SIZE};
use wire::ids::Offset;

/// Counts and checksums over the batches of one partition, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    pub batch_count: u64,
    /// Records that consumers see: none of those in control batches.
    pub record_count: u64,
    pub bytes: u64,
    /// The base offset of the first batch.
    pub first: Option<Offset>,
    /// The offset after the last batch.
    pub next: Option<Offset>,
    /// Over every byte.
    pub exact: u64,
    /// Leaves out leader epochs.
    pub but_epochs: u64,
    /// Leaves out leader epochs, producer ids and epochs, and the CRCs that cover them: equal where a
    /// mirror gave producers other ids.
    pub but_producers: u64,
}

/// A digest in the making.
#[derive(Clone)]
pub struct Digester {
    digest: Digest,
    exact: Crc,
    but_epochs: Crc,
    but_producers: Crc,
}

#[derive(Clone)]
struct Crc(crc_fast::Digest);

impl Crc {
    fn new() -> Self {
        Self(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme))
    }
}

impl Default for Digester {
    fn default() -> Self {
        let digest = Digest {
            batch_count: 0,
            record_count: 0,
            bytes: 0,
            first: None,
            next: None,
            exact: 0,
            but_epochs: 0,
            but_producers: 0,
        };
        Self { digest, exact: Crc::new(), but_epochs: Crc::new(), but_producers: Crc::new() }
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.finish().fmt(f)
    }
}

impl Digester {
    /// Adds the next batch.
    pub fn add(&mut self, batch: &Batch<'_>) {
        let header = batch.header();
        self.digest.batch_count += 1;
        if !header.attributes().is_control() {
            self.digest.record_count += u64::try_from(header.record_count()).unwrap_or(0);
        }
        self.digest.bytes += batch.as_bytes().len() as u64;
        self.digest.first.get_or_insert(header.base_offset());
        self.digest.next = Some(header.next_offset());
        // The records are gone over once; their checksum stands for them in all three.
        let payload = checksum(CrcAlgorithm::Crc64Nvme, batch.payload()).to_be_bytes();
        let mut fields = [0; HEADER_SIZE + 8];
        fields[..HEADER_SIZE].copy_from_slice(header.bytes());
        fields[HEADER_SIZE..].copy_from_slice(&payload);
        self.exact.0.update(&fields);
        fields[12..16].fill(0);
        self.but_epochs.0.update(&fields);
        fields[17..21].fill(0);
        fields[43..53].fill(0);
        self.but_producers.0.update(&fields);
    }

    /// The digest of all that was added.
    #[must_use]
    pub fn finish(&self) -> Digest {
        Digest {
            exact: self.exact.0.finalize(),
            but_epochs: self.but_epochs.0.finalize(),
            but_producers: self.but_producers.0.finalize(),
            ..self.digest
        }
    }
}

impl Digest {
    /// The digest of batches, one after another.
    ///
    /// # Errors
    /// When one of them is not sound or not whole.
    pub fn of(bytes: &[u8]) -> Result<Self, wire::batch::BatchError> {
        let mut digester = Digester::default();
        let mut position = 0;
        while position < bytes.len() {
            let batch = Batch::read(&bytes[position..], position)?;
            digester.add(&batch);
            position += batch.size();
        }
        Ok(digester.finish())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, next) = (self.first.unwrap_or_default(), self.next.unwrap_or_default());
        let Self { batch_count, record_count, bytes, but_epochs, .. } = self;
        write!(
            f,
            "offsets {first}..{next}, {record_count} records in {batch_count} batches, \
             {bytes} bytes, {but_epochs:016x}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{NewBatch, Record};
    use wire::ids::LeaderEpoch;

    #[test]
    fn a_digest_tells_what_differs() {
        let new = NewBatch::of(vec![Record::of(0, "a"), Record::of(1, "b")]);
        let of = |new: &NewBatch, epoch| {
            Digest::of(&new.build(Offset(5), LeaderEpoch(epoch))).expect("a batch")
        };
        let one = of(&new, 0);
        assert_eq!((one.first, one.next), (Some(Offset(5)), Some(Offset(7))));
        assert_eq!((one.record_count, one.batch_count), (2, 1));
        let epoch = of(&new, 1);
        assert_ne!(one.exact, epoch.exact);
        assert_eq!(one.but_epochs, epoch.but_epochs);
        let producer = of(&new.clone().producer(3, 0, -1), 0);
        assert_ne!(one.but_epochs, producer.but_epochs);
        assert_eq!(one.but_producers, producer.but_producers);
        let value = of(&NewBatch::of(vec![Record::of(0, "a"), Record::of(1, "c")]), 0);
        assert_ne!(one.but_producers, value.but_producers);
    }
}
