//! Backfill past the page cache, all else through it.
//!
//! ```text
//!   append      |--head--|-------- whole blocks --------|-tail-|
//!   blocks   ...|........|........|........|........|........|...
//!               buffered              O_DIRECT           buffered
//! ```
//!
//! A block is written by one side only: one that two appends share goes through the page cache both
//! times, so nothing has to be read back, remembered or rewritten. The file grows in this order, so
//! whoever reads it meanwhile, or after a kill, finds no hole before its end. After a power cut the
//! shared blocks may be missing, as any that went through the page cache: recovery cuts there.

use std::ops::Range;
use std::os::fd::AsRawFd;

use super::inline::{write_all, write_until};
use super::{Step, WriteJob, Writer};
use crate::io::{BLOCK_BYTES, BufferPool, Chunk};
use crate::ring::files::Handle;
use crate::ring::flight::{Request, Target};

/// Shorter writes are cheaper through the page cache.
pub(in crate::ring) const DIRECT_BYTES_LEAST: usize = 256 << 10;

/// How much of what does not lie on a block in memory is copied to where it does, at a time.
const STAGING_BYTES: usize = 1 << 20;

pub(super) struct Direct;

impl Writer for Direct {
    fn advance(&mut self, job: &mut WriteJob, file: &mut Handle, pool: &BufferPool) -> Step {
        let (rest, position) = job.rest();
        let blocks = whole_blocks(position, rest.len());
        if !job.direct || blocks.len() < DIRECT_BYTES_LEAST || file.direct().is_none() {
            return write_all(job, file.descriptor());
        }
        let until = job.done + blocks.start;
        if let Err(error) = write_until(job, file.descriptor(), until) {
            return Step::Failed(error);
        }
        let aligned = aligned(&job.bytes, job.done..job.done + blocks.len(), pool);
        match (aligned, file.direct()) {
            (Some(bytes), Some(direct)) => {
                let (file, position) = (Target::Fd(direct.as_raw_fd()), job.rest().1);
                Step::Submit(Request::Write { file, position, bytes, from: 0 })
            }
            _ => write_all(job, file.descriptor()),
        }
    }

    fn in_flight_max(&self) -> usize {
        1
    }
}

/// Which of `length` bytes at `position` fill whole blocks.
fn whole_blocks(position: u64, length: usize) -> Range<usize> {
    let block = BLOCK_BYTES as u64;
    let head = (position.next_multiple_of(block) - position) as usize;
    if head >= length {
        return length..length;
    }
    head..head + (length - head) / BLOCK_BYTES * BLOCK_BYTES
}

/// These bytes where memory has them on a block, and otherwise a copy of as many of them as there
/// is room for; `None` where there is none.
fn aligned(bytes: &Chunk, range: Range<usize>, pool: &BufferPool) -> Option<Chunk> {
    let wanted = &bytes[range.clone()];
    if (wanted.as_ptr() as usize).is_multiple_of(BLOCK_BYTES) {
        return Some(bytes.slice(range));
    }
    let length = wanted.len().min(STAGING_BYTES);
    let mut staging = pool.lend(length)?;
    staging.copy_from_slice(&wanted[..length]);
    Some(staging.share())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_start_and_end_on_blocks_within_the_bytes() {
        assert_eq!(whole_blocks(0, 8_192), 0..8_192);
        assert_eq!(whole_blocks(1, 8_192), 4_095..8_191);
        assert_eq!(whole_blocks(4_095, 4_097), 1..4_097);
        assert_eq!(whole_blocks(10, 100), 100..100);
        assert_eq!(whole_blocks(4_000, 200), 96..96);
    }

    #[test]
    fn only_what_lies_askew_is_copied() {
        let pool = BufferPool::new(4 << 20);
        let mut buffer = pool.lend(STAGING_BYTES + 3 * BLOCK_BYTES).expect("within the budget");
        buffer.fill(7);
        let bytes = buffer.share();
        let straight = aligned(&bytes, BLOCK_BYTES..2 * BLOCK_BYTES, &pool).expect("there");
        assert_eq!(straight.as_ptr(), bytes[BLOCK_BYTES..].as_ptr());
        let copy = aligned(&bytes, 1..1 + STAGING_BYTES + BLOCK_BYTES, &pool).expect("room");
        assert!((copy.as_ptr() as usize).is_multiple_of(BLOCK_BYTES));
        assert!(*copy == bytes[1..1 + STAGING_BYTES]);
        let none = BufferPool::new(0);
        assert!(aligned(&bytes, 1..1 + BLOCK_BYTES, &none).is_none());
    }
}
