//! Walking the batches of a byte range: a Fetch response's records, a segment, or a piece of one.

use super::{
    Batch, BatchError, BatchFault, BatchHeader, BatchMut, HEADER_SIZE, LENGTH_END, MAGIC, MAGIC_AT,
    OLD_LENGTH_MIN, SIZE_MAX,
};
use crate::ids::Offset;

/// Yields whole batches, one after another. The first fault ends the walk.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    place: Place,
}

/// The same over bytes that may be rewritten on the way. It lends one batch at a time.
#[derive(Debug)]
pub struct BatchesMut<'a> {
    bytes: &'a mut [u8],
    place: Place,
}

/// What a walk has not yielded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Where it begins.
    pub position: usize,
    /// How many bytes are there.
    pub left: usize,
    /// How large the batch there claims to be, where its length can be read and is a sound one:
    /// as much has to be asked for to get it whole.
    pub announced: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    position: usize,
    size_max: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// Walks from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, place: Place::START }
    }

    /// The same walk from `position` on, which still counts from the start of the bytes.
    #[must_use]
    pub const fn from_position(mut self, position: usize) -> Self {
        self.place.position = position;
        self
    }

    /// The same walk, refusing batches above `size` bytes.
    #[must_use]
    pub const fn size_max(mut self, size: usize) -> Self {
        self.place.size_max = size;
        self
    }

    /// What has not been yielded; after the walk, the incomplete batch at the end or the faulty one.
    #[must_use]
    pub fn rest(&self) -> Rest {
        self.place.rest(self.bytes)
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<(usize, Batch<'a>), BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.bytes;
        let (position, size) = match self.place.advance(bytes)? {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let bytes = &bytes[position..position + size];
        // `advance` has seen that a batch is never below a header.
        let header = BatchHeader { bytes: bytes.first_chunk()? };
        Some(Ok((position, Batch { header, bytes })))
    }
}

impl<'a> BatchesMut<'a> {
    /// Walks from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, place: Place::START }
    }

    /// The same walk, refusing batches above `size` bytes.
    #[must_use]
    pub const fn size_max(mut self, size: usize) -> Self {
        self.place.size_max = size;
        self
    }

    /// The next whole batch and where it stands.
    #[expect(clippy::should_implement_trait, reason = "what is lent ends before the next call")]
    pub fn next(&mut self) -> Option<Result<(usize, BatchMut<'_>), BatchError>> {
        match self.place.advance(self.bytes)? {
            Ok((position, size)) => {
                Some(Ok((position, BatchMut::whole(&mut self.bytes[position..position + size]))))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// What has not been yielded; after the walk, the incomplete batch at the end or the faulty one.
    #[must_use]
    pub fn rest(&self) -> Rest {
        self.place.rest(self.bytes)
    }
}

impl Place {
    const START: Self = Self { position: 0, size_max: SIZE_MAX, failed: false };

    /// Position and size of the next whole batch, if there is one; moves past it.
    #[inline]
    fn advance(&mut self, bytes: &[u8]) -> Option<Result<(usize, usize), BatchError>> {
        if self.failed {
            return None;
        }
        let position = self.position;
        let left = bytes.get(position..)?;
        match announced(left, position, self.size_max) {
            // A batch too short for its header was refused, so a whole one has it.
            Ok(Some(size)) if size <= left.len() => {
                self.position += size;
                Some(Ok((position, size)))
            }
            Ok(_) => None,
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }

    fn rest(&self, bytes: &[u8]) -> Rest {
        let left = bytes.get(self.position..).unwrap_or_default();
        Rest {
            position: self.position,
            left: left.len(),
            announced: announced(left, self.position, self.size_max).unwrap_or(None),
        }
    }
}

/// The size that the batch at the start of `bytes` claims, or `None` while its length is not there.
/// Length and magic are checked as soon as they can be seen.
#[inline]
pub(super) fn announced(
    bytes: &[u8],
    position: usize,
    size_max: usize,
) -> Result<Option<usize>, BatchError> {
    let Some(&[b0, b1, b2, b3, b4, b5, b6, b7, l0, l1, l2, l3]) = bytes.first_chunk::<LENGTH_END>()
    else {
        return Ok(None);
    };
    let length = i32::from_be_bytes([l0, l1, l2, l3]);
    let magic = bytes.get(MAGIC_AT).map(|magic| magic.cast_signed());
    let least = match magic {
        Some(0 | 1) | None => OLD_LENGTH_MIN,
        Some(_) => (HEADER_SIZE - LENGTH_END) as i32,
    };
    let most = size_max.saturating_sub(LENGTH_END);
    let fault = match (usize::try_from(length), magic) {
        (Ok(size), Some(MAGIC) | None) if length >= least && size <= most => {
            return Ok(Some(LENGTH_END + size));
        }
        (Ok(size), Some(magic @ (0 | 1))) if length >= least && size <= most => {
            BatchFault::OldFormat { magic }
        }
        (Ok(size), Some(magic)) if length >= least && size <= most => {
            BatchFault::UnknownFormat { magic }
        }
        _ => BatchFault::Length { length, least, most },
    };
    let base_offset = Offset(i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]));
    Err(BatchError { position, base_offset, fault })
}

/// The error of a batch that does not end within `bytes`.
pub(super) fn incomplete(bytes: &[u8], position: usize, announced: Option<usize>) -> BatchError {
    let base_offset = bytes.first_chunk().map_or(0, |first| i64::from_be_bytes(*first));
    BatchError {
        position,
        base_offset: Offset(base_offset),
        fault: BatchFault::Incomplete { announced, left: bytes.len() },
    }
}
