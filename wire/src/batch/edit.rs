//! Rewriting a batch's header in place, without reading its records again.

use super::crc::{FIELDS, change};
use super::{Attributes, Batch, BatchError, BatchHeader, CRC_AT, EPOCH_AT, FIELDS_AT, HEADER_SIZE};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// A whole batch that may be rewritten.
#[derive(Debug)]
pub struct BatchMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> BatchMut<'a> {
    /// Takes the batch at the start of `bytes`, which may go on after it. `position` is where in its
    /// file or frame that is, for errors.
    pub fn read(bytes: &'a mut [u8], position: usize) -> Result<Self, BatchError> {
        let size = Batch::read(bytes, position)?.size();
        Ok(Self::whole(&mut bytes[..size]))
    }

    /// Takes bytes that were seen to be one whole batch.
    pub(super) fn whole(bytes: &'a mut [u8]) -> Self {
        assert!(bytes.len() >= HEADER_SIZE);
        Self { bytes }
    }

    fn header(&mut self) -> &mut [u8; HEADER_SIZE] {
        self.bytes.first_chunk_mut().expect("a whole batch has its header")
    }

    /// The batch to read from.
    #[must_use]
    pub fn as_batch(&self) -> Batch<'_> {
        let header = self.bytes.first_chunk().expect("a whole batch has its header");
        Batch { header: BatchHeader { bytes: header }, bytes: self.bytes }
    }

    /// Moves the batch to another offset. Not under the CRC.
    pub fn set_base_offset(&mut self, offset: Offset) {
        self.header()[..8].copy_from_slice(&offset.0.to_be_bytes());
    }

    /// Says under which leader epoch the batch was appended. Not under the CRC.
    pub fn set_partition_leader_epoch(&mut self, epoch: LeaderEpoch) {
        self.header()[EPOCH_AT..EPOCH_AT + 4].copy_from_slice(&epoch.0.to_be_bytes());
    }

    /// Begins changing what is under the CRC. Nothing happens before [`Edit::finish`].
    pub fn edit(&mut self) -> Edit<'_> {
        let trailing = self.bytes.len() - HEADER_SIZE;
        let header = self.header();
        let mut fields = [0; FIELDS];
        fields.copy_from_slice(&header[FIELDS_AT..]);
        Edit { header, trailing, fields }
    }
}

/// Changes of one batch that are made together.
#[derive(Debug)]
#[must_use = "nothing changes before `finish`"]
pub struct Edit<'b> {
    header: &'b mut [u8; HEADER_SIZE],
    trailing: usize,
    fields: [u8; FIELDS],
}

impl Edit<'_> {
    fn set<const N: usize>(&mut self, header_position: usize, bytes: [u8; N]) -> &mut Self {
        let at = header_position - FIELDS_AT;
        self.fields[at..at + N].copy_from_slice(&bytes);
        self
    }

    /// Compression, kind of timestamps, and the flags.
    pub fn set_attributes(&mut self, attributes: Attributes) -> &mut Self {
        self.set(FIELDS_AT, attributes.0.to_be_bytes())
    }

    /// Last offset minus base offset.
    pub fn set_last_offset_delta(&mut self, delta: i32) -> &mut Self {
        self.set(23, delta.to_be_bytes())
    }

    /// Timestamp of the first record.
    pub fn set_base_timestamp(&mut self, timestamp: i64) -> &mut Self {
        self.set(27, timestamp.to_be_bytes())
    }

    /// The newest timestamp of the records.
    pub fn set_max_timestamp(&mut self, timestamp: i64) -> &mut Self {
        self.set(35, timestamp.to_be_bytes())
    }

    /// Who wrote the batch.
    pub fn set_producer_id(&mut self, id: ProducerId) -> &mut Self {
        self.set(43, id.0.to_be_bytes())
    }

    /// The producer's incarnation.
    pub fn set_producer_epoch(&mut self, epoch: ProducerEpoch) -> &mut Self {
        self.set(51, epoch.0.to_be_bytes())
    }

    /// The producer's number for the first record.
    pub fn set_base_sequence(&mut self, sequence: i32) -> &mut Self {
        self.set(53, sequence.to_be_bytes())
    }

    /// Writes the changes and patches the CRC by what they do to it. A CRC that was right stays right
    /// and one that was wrong stays wrong: an edit never hides bytes that were damaged.
    ///
    /// Measured on one Zen 4 core, three fields changed, `read` and `edit` included; beside it one
    /// CRC over the batch at 66 GB/s (crc-fast, AVX-512). Even at about 1.5 KiB; without AVX-512 sooner.
    ///
    /// ```text
    /// batch       200 B   1 KiB   4 KiB   16 KiB   64 KiB    1 MiB     20 MB
    /// patch       19 ns   23 ns   26 ns    26 ns    26 ns    29 ns     36 ns
    /// recompute    7 ns   17 ns   62 ns   242 ns   977 ns    15 us    356 us
    /// ```
    pub fn finish(self) {
        let Self { header, trailing, fields } = self;
        let mut delta = [0; FIELDS];
        for ((delta, old), new) in delta.iter_mut().zip(&header[FIELDS_AT..]).zip(&fields) {
            *delta = old ^ new;
        }
        if delta == [0; FIELDS] {
            return;
        }
        header[FIELDS_AT..].copy_from_slice(&fields);
        let crc: &mut [u8; 4] = header[CRC_AT..].first_chunk_mut().expect("four bytes of CRC");
        *crc = (u32::from_be_bytes(*crc) ^ change(&delta, trailing)).to_be_bytes();
    }
}
