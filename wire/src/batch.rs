//! Record batches, format 2: finding them, reading their headers, checking and rewriting them.
//!
//! The header, by byte position; every number is big-endian:
//!
//! ```text
//!  0        8     12     16    17    21    23     27     35     43     51    53     57     61
//!  +--------+------+------+-----+-----+-----+------+------+------+------+-----+------+------+-------
//!  | base   |batch |leader|magic| crc |attri|last  | base |  max |produ |produ|base  |record|records
//!  | offset |length|epoch | = 2 |     |butes|offset| time | time |cer id|cer  |sequen|count |  ...
//!  |        |      |      |     |     |     |delta | stamp| stamp|      |epoch|ce    |      |
//!  +--------+------+------+-----+-----+-----+------+------+------+------+-----+------+------+-------
//!   8        4      4      1     4     2     4      8      8      8      2     4      4     = 61
//!           |<- batch_length counts from byte 12 -->|      |<- the CRC covers byte 21 to the end ->
//! ```
//!
//! Base offset, batch length, leader epoch and magic are outside the CRC. Formats 0 and 1 share the
//! first twelve bytes (offset, size) and the magic at byte 16, so they can be told apart and refused.

mod build;
mod crc;
mod edit;
mod walk;

use core::fmt;
use core::ops::Deref;

pub use build::{BatchBuilder, NewRecord};
pub use crc::crc32c;
pub use edit::{BatchMut, Edit};
pub use walk::{Batches, BatchesMut, Rest};

use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// Bytes of a batch before its records.
pub const HEADER_SIZE: usize = 61;
/// Bytes before the ones that the batch length counts: base offset and the length itself.
pub const LENGTH_END: usize = 12;
/// Largest size of a batch: neither a Fetch response nor a segment can hold more.
pub const SIZE_MAX: usize = i32::MAX as usize;
/// The format that is read and written here.
pub const MAGIC: i8 = 2;

const EPOCH_AT: usize = 12;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
/// Where the CRC's bytes begin.
const FIELDS_AT: usize = 21;
/// The least length of a format 0 message: crc, magic, attributes, two null lengths.
const OLD_LENGTH_MIN: i32 = 14;

/// A batch's header, borrowed. Its length and magic have been checked, its CRC has not.
#[derive(Clone, Copy)]
pub struct BatchHeader<'a> {
    bytes: &'a [u8; HEADER_SIZE],
}

impl<'a> BatchHeader<'a> {
    /// Reads the header at the start of `bytes`, which need not hold the records behind it.
    /// `position` is where in its file or frame that is, for errors.
    pub fn read(bytes: &'a [u8], position: usize) -> Result<Self, BatchError> {
        let announced = walk::announced(bytes, position, SIZE_MAX)?;
        match bytes.first_chunk() {
            Some(bytes) => Ok(Self { bytes }),
            None => Err(walk::incomplete(bytes, position, announced)),
        }
    }

    const fn i64_at<const AT: usize>(&self) -> i64 {
        let b = self.bytes;
        i64::from_be_bytes([
            b[AT],
            b[AT + 1],
            b[AT + 2],
            b[AT + 3],
            b[AT + 4],
            b[AT + 5],
            b[AT + 6],
            b[AT + 7],
        ])
    }

    const fn i32_at<const AT: usize>(&self) -> i32 {
        let b = self.bytes;
        i32::from_be_bytes([b[AT], b[AT + 1], b[AT + 2], b[AT + 3]])
    }

    const fn i16_at<const AT: usize>(&self) -> i16 {
        i16::from_be_bytes([self.bytes[AT], self.bytes[AT + 1]])
    }

    /// The header as it stands.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8; HEADER_SIZE] {
        self.bytes
    }

    /// Offset of the first record that was written; compaction may have removed it.
    #[must_use]
    pub const fn base_offset(&self) -> Offset {
        Offset(self.i64_at::<0>())
    }

    /// Bytes after the length field.
    #[must_use]
    pub const fn batch_length(&self) -> i32 {
        self.i32_at::<8>()
    }

    /// Bytes of the whole batch.
    #[must_use]
    pub const fn size(&self) -> usize {
        LENGTH_END + self.batch_length() as usize
    }

    /// The leader's epoch when it appended the batch.
    #[must_use]
    pub const fn partition_leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.i32_at::<EPOCH_AT>())
    }

    /// The format: always 2 here.
    #[must_use]
    pub const fn magic(&self) -> i8 {
        self.bytes[MAGIC_AT].cast_signed()
    }

    /// The CRC32C that the batch carries.
    #[must_use]
    pub const fn crc(&self) -> u32 {
        self.i32_at::<CRC_AT>().cast_unsigned()
    }

    /// Compression, kind of timestamps, and the flags.
    #[must_use]
    pub const fn attributes(&self) -> Attributes {
        Attributes(self.i16_at::<FIELDS_AT>())
    }

    /// Last offset minus base offset.
    #[must_use]
    pub const fn last_offset_delta(&self) -> i32 {
        self.i32_at::<23>()
    }

    /// Offset of the last record that was written, inclusive.
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        Offset(self.base_offset().0.wrapping_add(self.last_offset_delta() as i64))
    }

    /// The offset that follows the batch.
    #[must_use]
    pub const fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.wrapping_add(1))
    }

    /// Timestamp of the first record, or the delete horizon where the attributes say so.
    #[must_use]
    pub const fn base_timestamp(&self) -> i64 {
        self.i64_at::<27>()
    }

    /// The newest timestamp of the records; -1 where there is none.
    #[must_use]
    pub const fn max_timestamp(&self) -> i64 {
        self.i64_at::<35>()
    }

    /// Who wrote the batch; -1 without idempotence.
    #[must_use]
    pub const fn producer_id(&self) -> ProducerId {
        ProducerId(self.i64_at::<43>())
    }

    /// The producer's incarnation.
    #[must_use]
    pub const fn producer_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(self.i16_at::<51>())
    }

    /// The producer's number for the first record; -1 where there is none.
    #[must_use]
    pub const fn base_sequence(&self) -> i32 {
        self.i32_at::<53>()
    }

    /// The producer's number for the last record. After `i32::MAX` producers go on at 0.
    #[must_use]
    pub const fn last_sequence(&self) -> i32 {
        match self.base_sequence() {
            -1 => -1,
            base => {
                let sum = base as i64 + self.last_offset_delta() as i64;
                if sum > i32::MAX as i64 { (sum - i32::MAX as i64 - 1) as i32 } else { sum as i32 }
            }
        }
    }

    /// How many records the batch says it has.
    #[must_use]
    pub const fn record_count(&self) -> i32 {
        self.i32_at::<57>()
    }
}

impl fmt::Debug for BatchHeader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchHeader")
            .field("base_offset", &self.base_offset())
            .field("last_offset_delta", &self.last_offset_delta())
            .field("size", &self.size())
            .field("partition_leader_epoch", &self.partition_leader_epoch())
            .field("attributes", &self.attributes())
            .field("producer_id", &self.producer_id())
            .field("producer_epoch", &self.producer_epoch())
            .field("base_sequence", &self.base_sequence())
            .field("record_count", &self.record_count())
            .finish_non_exhaustive()
    }
}

/// A whole batch, borrowed: the header's getters and the records behind it.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    header: BatchHeader<'a>,
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Reads the batch at the start of `bytes`, which may go on after it. `position` is where in its
    /// file or frame that is, for errors.
    pub fn read(bytes: &'a [u8], position: usize) -> Result<Self, BatchError> {
        let header = BatchHeader::read(bytes, position)?;
        match bytes.get(..header.size()) {
            Some(bytes) => Ok(Self { header, bytes }),
            None => Err(walk::incomplete(bytes, position, Some(header.size()))),
        }
    }

    /// The header alone.
    #[must_use]
    pub const fn header(&self) -> BatchHeader<'a> {
        self.header
    }

    /// The whole batch as it stands.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What stands after the header: records, compressed as the attributes say.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_SIZE..]
    }

    /// Compares the CRC that the batch carries with the one of its bytes.
    pub fn verify_crc(&self) -> Result<(), BatchFault> {
        let (stored, computed) = (self.crc(), crc32c(&self.bytes[FIELDS_AT..]));
        if stored == computed { Ok(()) } else { Err(BatchFault::Crc { stored, computed }) }
    }

    /// `fault` as an error of this batch, seen at `position`.
    #[must_use]
    pub const fn error(&self, position: usize, fault: BatchFault) -> BatchError {
        BatchError { position, base_offset: self.header.base_offset(), fault }
    }
}

impl<'a> Deref for Batch<'a> {
    type Target = BatchHeader<'a>;

    fn deref(&self) -> &BatchHeader<'a> {
        &self.header
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.header, f)
    }
}

/// The attributes of a batch: three bits of compression, then flags.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const COMPRESSION: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// How the records are compressed.
    #[must_use]
    pub const fn compression(self) -> Compression {
        match self.0 & Self::COMPRESSION {
            0 => Compression::None,
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            other => Compression::Unknown(other as u8),
        }
    }

    /// Who set the timestamps.
    #[must_use]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.has(Self::LOG_APPEND_TIME) {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.has(Self::TRANSACTIONAL)
    }

    /// Whether the records are markers that consumers do not see.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.has(Self::CONTROL)
    }

    /// Whether the base timestamp is the time after which tombstones may go.
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.has(Self::DELETE_HORIZON)
    }

    /// The same with another compression. Only the low three bits of an unknown one count.
    #[must_use]
    pub const fn with_compression(self, compression: Compression) -> Self {
        Self(self.0 & !Self::COMPRESSION | (compression.code() as i16 & Self::COMPRESSION))
    }

    /// The same with another kind of timestamps.
    #[must_use]
    pub const fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        self.with(Self::LOG_APPEND_TIME, matches!(timestamp_type, TimestampType::LogAppendTime))
    }

    /// The same, in a transaction or not.
    #[must_use]
    pub const fn with_transactional(self, is: bool) -> Self {
        self.with(Self::TRANSACTIONAL, is)
    }

    /// The same, holding markers or not.
    #[must_use]
    pub const fn with_control(self, is: bool) -> Self {
        self.with(Self::CONTROL, is)
    }

    const fn has(self, flag: i16) -> bool {
        self.0 & flag != 0
    }

    const fn with(self, flag: i16, is: bool) -> Self {
        Self(if is { self.0 | flag } else { self.0 & !flag })
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attributes({:#06x})", self.0)
    }
}

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
    /// A code that Kafka has not given out.
    Unknown(u8),
}

impl Compression {
    /// Kafka's number for it.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
            Self::Unknown(code) => code,
        }
    }
}

/// Who set the timestamps of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer, record by record.
    CreateTime,
    /// The broker, once for all records.
    LogAppendTime,
}

/// A batch that cannot be taken, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// Where its first byte is, in the file or frame that was walked.
    pub position: usize,
    /// The base offset it claims; 0 where not even that could be read.
    pub base_offset: Offset,
    /// What is wrong with it.
    pub fault: BatchFault,
}

/// The kinds of fault that a batch can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchFault {
    /// A format before 2, as Kafka wrote it before 0.11.
    OldFormat { magic: i8 },
    /// A format that nobody here knows.
    UnknownFormat { magic: i8 },
    /// A length below zero, below the header's, or beyond what was allowed.
    Length { length: i32, least: i32, most: usize },
    /// The bytes end before the batch does.
    Incomplete { announced: Option<usize>, left: usize },
    /// The bytes are not the ones that were written.
    Crc { stored: u32, computed: u32 },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, base_offset, fault } = self;
        write!(f, "batch at byte {position} with base offset {base_offset}: {fault}")
    }
}

impl fmt::Display for BatchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OldFormat { magic } => {
                write!(f, "message format {magic} is from before Kafka 0.11, only 2 is taken")
            }
            Self::UnknownFormat { magic } => write!(f, "unknown message format {magic}"),
            Self::Length { length, least, most } => {
                write!(f, "length {length} is not between {least} and {most}")
            }
            Self::Incomplete { announced: Some(size), left } => {
                write!(f, "{size} bytes announced, {left} left")
            }
            Self::Incomplete { announced: None, left } => {
                write!(f, "{left} bytes left, too few to tell its length")
            }
            Self::Crc { stored, computed } => {
                write!(f, "CRC {stored:#010x} stored, {computed:#010x} computed")
            }
        }
    }
}

impl core::error::Error for BatchError {}

#[cfg(test)]
mod tests;
