//! A response as pieces of memory that may be shared with the logs it was read from.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// Shared pieces below this size are copied: a copy costs less than one more entry of a vectored
/// write.
const SHARED_BYTES_MIN: usize = 4 << 10;
/// A piece of our own that is as large grows no more: growing would copy it again.
const OWN_BYTES_MAX: usize = 64 << 10;

/// One piece.
#[derive(Clone, Debug)]
pub enum Chunk {
    Own(Vec<u8>),
    Shared { bytes: Arc<[u8]>, range: Range<usize> },
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared { bytes, range } => &bytes[range.clone()],
        }
    }
}

/// Bytes in the making, in order: headers of our own between records that are shared.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    chunks: Vec<Chunk>,
    length: usize,
}

impl Chunks {
    /// Appends bytes by copying them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        match self.chunks.last_mut() {
            Some(Chunk::Own(last)) if last.len() < OWN_BYTES_MAX => last.extend_from_slice(bytes),
            _ if bytes.is_empty() => {}
            _ => self.chunks.push(Chunk::Own(bytes.to_vec())),
        }
    }

    /// Appends a part of shared bytes.
    pub fn share(&mut self, bytes: &Arc<[u8]>, range: Range<usize>) {
        if range.len() < SHARED_BYTES_MIN {
            return self.push(&bytes[range]);
        }
        self.length += range.len();
        self.chunks.push(Chunk::Shared { bytes: Arc::clone(bytes), range });
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Self) {
        for chunk in other.chunks {
            match chunk {
                Chunk::Own(bytes) if bytes.len() < SHARED_BYTES_MIN => self.push(&bytes),
                Chunk::Own(bytes) => {
                    self.length += bytes.len();
                    self.chunks.push(Chunk::Own(bytes));
                }
                Chunk::Shared { bytes, range } => self.share(&bytes, range),
            }
        }
    }

    /// Cuts to the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        while self.length > length {
            let excess = self.length - length;
            let last = self.chunks.last_mut().expect("the length is the sum of the chunks");
            let size = last.len();
            if size <= excess {
                self.length -= size;
                self.chunks.pop();
                continue;
            }
            self.length -= excess;
            match last {
                Chunk::Own(bytes) => bytes.truncate(size - excess),
                Chunk::Shared { range, .. } => range.end -= excess,
            }
        }
    }

    /// The pieces in order.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// How many bytes they are together.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All of them in one piece.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.length);
        self.chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
        all
    }
}

impl From<Vec<u8>> for Chunks {
    fn from(bytes: Vec<u8>) -> Self {
        Self { length: bytes.len(), chunks: vec![Chunk::Own(bytes)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pieces_are_shared_and_small_ones_copied_and_any_of_them_can_be_cut() {
        let stored: Arc<[u8]> = (0..=255).cycle().take(20_000).collect();
        let mut chunks = Chunks::from(vec![1, 2]);
        chunks.share(&stored, 0..10);
        chunks.share(&stored, 100..19_000);
        chunks.push(&[9]);
        assert_eq!(chunks.chunks().len(), 3);
        let whole = chunks.to_vec();
        for length in [whole.len(), whole.len() - 1, 10_000, 12, 5, 0] {
            chunks.truncate(length);
            assert_eq!(chunks.to_vec(), whole[..length]);
            assert_eq!(chunks.len(), length);
        }
    }
}
