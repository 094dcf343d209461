//! Kafka's primitive types: a reader that cannot be made to read or allocate beyond what it holds,
//! and a writer that appends to a growing buffer.
//!
//! Shapes as in the Kafka protocol guide ("Protocol Primitive Types"): integers are big-endian,
//! compact lengths are one more than the length (0 is null), varints are zig-zag unless unsigned.

use alloc::vec::Vec;

use crate::error::{Fault, WireError};
use crate::ids::TopicId;

/// A cursor over bytes that were received. Every read is bounded by what is left.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// How many bytes have been read.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// How many bytes have not been read.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// The error `fault`, seen here.
    #[must_use]
    pub const fn error(&self, fault: Fault) -> WireError {
        WireError { fault, position: self.position }
    }

    /// Takes the next `count` bytes, borrowed from the input.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        match self.bytes[self.position..].get(..count) {
            Some(taken) => {
                self.position += count;
                Ok(taken)
            }
            None => Err(self.error(Fault::Truncated { needed: count, left: self.left() })),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let taken = self.take(N)?;
        let mut array = [0; N];
        array.copy_from_slice(taken);
        Ok(array)
    }

    /// BOOLEAN: any byte but zero is true.
    pub fn bool(&mut self) -> Result<bool, WireError> {
        Ok(self.array::<1>()? != [0])
    }

    /// INT8.
    pub fn i8(&mut self) -> Result<i8, WireError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    /// INT16.
    pub fn i16(&mut self) -> Result<i16, WireError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// UINT16.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// INT32.
    pub fn i32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// UINT32.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// INT64.
    pub fn i64(&mut self) -> Result<i64, WireError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// UUID.
    pub fn topic_id(&mut self) -> Result<TopicId, WireError> {
        Ok(TopicId(self.array()?))
    }

    /// UNSIGNED_VARINT: at most five bytes, seven bits each, least significant first.
    pub fn unsigned_varint(&mut self) -> Result<u32, WireError> {
        let start = *self;
        let mut value: u32 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array::<1>()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(start.error(Fault::OverlongNumber))
    }

    /// VARINT: zig-zag over [`Reader::unsigned_varint`].
    pub fn varint(&mut self) -> Result<i32, WireError> {
        let value = self.unsigned_varint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// VARLONG: zig-zag, at most ten bytes.
    pub fn varlong(&mut self) -> Result<i64, WireError> {
        let start = *self;
        let mut value: u64 = 0;
        for shift in 0..10 {
            let [byte] = self.array::<1>()?;
            value |= u64::from(byte & 0x7f) << (7 * shift);
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
            }
        }
        Err(start.error(Fault::OverlongNumber))
    }

    /// The length before a string, an array or bytes; `None` is null. `flexible` asks for the
    /// compact shape; the other is an INT16 for strings and an INT32 for everything else.
    fn length(&mut self, shape: LengthShape, flexible: bool) -> Result<Option<usize>, WireError> {
        let start = *self;
        if flexible {
            let value = self.unsigned_varint()?;
            return Ok(value.checked_sub(1).map(|length| length as usize));
        }
        let length = match shape {
            LengthShape::Short => i64::from(self.i16()?),
            LengthShape::Long => i64::from(self.i32()?),
        };
        match length {
            -1 => Ok(None),
            0.. => Ok(Some(usize::try_from(length).unwrap_or(usize::MAX))),
            _ => Err(start.error(Fault::NegativeLength(length))),
        }
    }

    /// NULLABLE_STRING or COMPACT_NULLABLE_STRING, borrowed.
    pub fn nullable_str(&mut self, flexible: bool) -> Result<Option<&'a str>, WireError> {
        let Some(length) = self.length(LengthShape::Short, flexible)? else {
            return Ok(None);
        };
        let start = *self;
        let text = self.take(length)?;
        core::str::from_utf8(text).map(Some).map_err(|_| start.error(Fault::NotUtf8))
    }

    /// STRING or COMPACT_STRING, borrowed.
    pub fn str(&mut self, flexible: bool) -> Result<&'a str, WireError> {
        let start = *self;
        self.nullable_str(flexible)?.ok_or_else(|| start.error(Fault::UnexpectedNull))
    }

    /// The length of NULLABLE_BYTES, RECORDS or their compact shapes, which come next and need not be
    /// here yet; `None` is null.
    pub fn bytes_length(&mut self, flexible: bool) -> Result<Option<usize>, WireError> {
        self.length(LengthShape::Long, flexible)
    }

    /// NULLABLE_BYTES, RECORDS or their compact shapes, borrowed.
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<&'a [u8]>, WireError> {
        match self.bytes_length(flexible)? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    /// The count before an array; `None` is null. A count that the bytes left could not hold, at one
    /// byte an element, is refused before anybody allocates for it.
    pub fn nullable_count(&mut self, flexible: bool) -> Result<Option<usize>, WireError> {
        let start = *self;
        let count = self.length(LengthShape::Long, flexible)?;
        match count {
            Some(count) if count > self.left() => {
                Err(start.error(Fault::CountBeyondBytes { count, left: self.left() }))
            }
            _ => Ok(count),
        }
    }

    /// The count before an array that may not be null.
    pub fn count(&mut self, flexible: bool) -> Result<usize, WireError> {
        let start = *self;
        self.nullable_count(flexible)?.ok_or_else(|| start.error(Fault::UnexpectedNull))
    }

    /// Steps through the tagged fields at the end of a flexible structure: `each` gets a field's tag
    /// and its bytes; tags it does not know it leaves alone.
    pub fn tagged_fields(
        &mut self,
        mut each: impl FnMut(u32, &mut Reader<'a>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let count = self.unsigned_varint()?;
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            let start = self.position;
            self.take(size)?;
            // The field's reader keeps counting from the start of the message, so errors name the place.
            let mut field = Reader { bytes: &self.bytes[..self.position], position: start };
            each(tag, &mut field)?;
        }
        Ok(())
    }

    /// Refuses bytes after the end of a message.
    pub fn finish(&self) -> Result<(), WireError> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.error(Fault::TrailingBytes(left))),
        }
    }
}

/// How the length of a field is written in versions that are not flexible.
#[derive(Clone, Copy)]
enum LengthShape {
    Short,
    Long,
}

/// Appends Kafka's primitive types to a buffer.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Continues after what `bytes` holds, keeping its allocation.
    #[must_use]
    pub const fn over(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// What has been written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What has been written so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes have been written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Raw bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// BOOLEAN.
    pub fn bool(&mut self, value: bool) {
        self.raw(&[u8::from(value)]);
    }

    /// INT8.
    pub fn i8(&mut self, value: i8) {
        self.raw(&value.to_be_bytes());
    }

    /// INT16.
    pub fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    /// UINT16.
    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    /// INT32.
    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// UINT32.
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    /// INT64.
    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// UUID.
    pub fn topic_id(&mut self, value: TopicId) {
        self.raw(&value.0);
    }

    /// UNSIGNED_VARINT.
    pub fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.raw(&[(value & 0x7f) as u8 | 0x80]);
            value >>= 7;
        }
        self.raw(&[value as u8]);
    }

    /// VARINT.
    pub fn varint(&mut self, value: i32) {
        self.unsigned_varint(((value << 1) ^ (value >> 31)).cast_unsigned());
    }

    /// VARLONG.
    pub fn varlong(&mut self, value: i64) {
        let mut value = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while value >= 0x80 {
            self.raw(&[(value & 0x7f) as u8 | 0x80]);
            value >>= 7;
        }
        self.raw(&[value as u8]);
    }

    fn length(&mut self, length: Option<usize>, shape: LengthShape, flexible: bool) {
        if flexible {
            let value = length.map_or(0, |length| length + 1);
            self.unsigned_varint(u32::try_from(value).expect("a message is below 4 GiB"));
            return;
        }
        let value = length.map_or(-1, |length| i64::try_from(length).unwrap_or(i64::MAX));
        match shape {
            LengthShape::Short => {
                self.i16(i16::try_from(value).expect("a string is below 32 KiB"));
            }
            LengthShape::Long => self.i32(i32::try_from(value).expect("a message is below 2 GiB")),
        }
    }

    /// NULLABLE_STRING or COMPACT_NULLABLE_STRING.
    pub fn nullable_str(&mut self, value: Option<&str>, flexible: bool) {
        self.length(value.map(str::len), LengthShape::Short, flexible);
        self.raw(value.unwrap_or_default().as_bytes());
    }

    /// STRING or COMPACT_STRING.
    pub fn str(&mut self, value: &str, flexible: bool) {
        self.nullable_str(Some(value), flexible);
    }

    /// NULLABLE_BYTES or COMPACT_NULLABLE_BYTES.
    pub fn nullable_bytes(&mut self, value: Option<&[u8]>, flexible: bool) {
        self.length(value.map(<[u8]>::len), LengthShape::Long, flexible);
        self.raw(value.unwrap_or_default());
    }

    /// The length of bytes that somebody else will send right after what is written here.
    pub fn bytes_length(&mut self, length: Option<usize>, flexible: bool) {
        self.length(length, LengthShape::Long, flexible);
    }

    /// The count before an array; `None` is null.
    pub fn nullable_count(&mut self, count: Option<usize>, flexible: bool) {
        self.length(count, LengthShape::Long, flexible);
    }

    /// The count before an array.
    pub fn count(&mut self, count: usize, flexible: bool) {
        self.nullable_count(Some(count), flexible);
    }

    /// Overwrites four bytes at `position` with an INT32; used for lengths known only at the end.
    pub fn i32_at(&mut self, position: usize, value: i32) {
        self.bytes[position..position + 4].copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_written() {
        for value in [0, 1, -1, 63, 64, -64, -65, i32::MAX, i32::MIN] {
            let mut writer = Writer::new();
            writer.varint(value);
            writer.varlong(i64::from(value) * 0x1_0000);
            let mut reader = Reader::new(writer.bytes());
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.varlong(), Ok(i64::from(value) * 0x1_0000));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_left_is_refused() {
        let mut reader = Reader::new(&[0x7f, 0xff, 0xff, 0xff, 0]);
        assert_eq!(
            reader.count(false),
            Err(WireError {
                fault: Fault::CountBeyondBytes { count: 0x7fff_ffff, left: 1 },
                position: 0
            })
        );
    }

    #[test]
    fn a_length_beyond_the_bytes_left_is_refused_at_its_place() {
        let mut reader = Reader::new(&[0, 5, b'a', b'b']);
        assert_eq!(
            reader.str(false),
            Err(WireError { fault: Fault::Truncated { needed: 5, left: 2 }, position: 2 })
        );
    }

    #[test]
    fn an_endless_varint_is_refused() {
        let mut reader = Reader::new(&[0xff; 11]);
        assert_eq!(reader.unsigned_varint().map_err(|e| e.fault), Err(Fault::OverlongNumber));
    }

    #[test]
    fn a_tagged_field_is_bounded_by_its_own_size() {
        // One field, tag 3, two bytes, then one byte that belongs to somebody else.
        let mut reader = Reader::new(&[1, 3, 2, 0, 9, 77]);
        let mut seen = 0;
        let walked = reader.tagged_fields(|tag, field| {
            assert_eq!(tag, 3);
            seen = field.i16()?;
            assert!(field.i8().is_err());
            Ok(())
        });
        assert_eq!(walked, Ok(()));
        assert_eq!(seen, 9);
        assert_eq!(reader.left(), 1);
    }
}
