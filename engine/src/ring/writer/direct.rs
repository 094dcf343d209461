//! Whole blocks past the page cache.
//!
//! ```text
//!   append      |--head--|-------- whole blocks --------|-tail-|
//!   blocks   ...|........|........|........|........|........|...
//!               buffered   O_DIRECT from an aligned copy buffered
//! ```
//!
//! A block is written by one side only: one that two appends share goes through the page cache both
//! times, so nothing has to be read back, remembered or rewritten.

use std::ops::Range;
use std::os::fd::AsRawFd;

use super::inline::write_until;
use super::{Step, WriteJob, Writer};
use crate::ring::files::Handle;
use crate::ring::flight::Request;

/// What O_DIRECT asks of positions, lengths and memory on every disk we know.
const BLOCK: usize = 4_096;

/// Shorter writes are cheaper through the page cache.
const DIRECT_BYTES_LEAST: usize = 64 << 10;

/// How much goes to the disk at a time.
const STAGING_BYTES: usize = 1 << 20;

/// Copies that rest between writes; more are made where more writes are in flight.
const STAGING_RESTING_MAX: usize = 8;

pub(super) struct Direct {
    resting: Vec<Staging>,
}

impl Direct {
    pub(super) fn new() -> Self {
        Self { resting: Vec::new() }
    }
}

impl Writer for Direct {
    fn advance(&mut self, job: &mut WriteJob, file: &Handle) -> Step {
        let (rest, position) = job.rest();
        let blocks = whole_blocks(position, rest.len());
        // A file system without O_DIRECT gets all of it through the page cache.
        let direct = file.direct().filter(|_| blocks.len() >= DIRECT_BYTES_LEAST);
        let buffered = if direct.is_some() { blocks.start } else { rest.len() };
        let until = job.done + buffered;
        if let Err(error) = write_until(job, file.descriptor(), until) {
            return Step::Failed(error);
        }
        let Some(direct) = direct else { return Step::Finished };
        let mut staging = self.resting.pop().unwrap_or_else(Staging::new);
        let (rest, position) = job.rest();
        let range = 0..blocks.len().min(STAGING_BYTES);
        staging.bytes_mut()[range.clone()].copy_from_slice(&rest[range.clone()]);
        Step::Submit(Request::WriteDirect { file: direct.as_raw_fd(), position, staging, range })
    }

    fn take_back(&mut self, request: Request) {
        if let Request::WriteDirect { staging, .. } = request
            && self.resting.len() < STAGING_RESTING_MAX
        {
            self.resting.push(staging);
        }
    }

    fn in_flight_max(&self) -> usize {
        1
    }
}

/// Which of `length` bytes at `position` fill whole blocks.
fn whole_blocks(position: u64, length: usize) -> Range<usize> {
    let head = (position.next_multiple_of(BLOCK as u64) - position) as usize;
    if head >= length {
        return length..length;
    }
    head..head + (length - head) / BLOCK * BLOCK
}

/// Memory that starts on a block, within memory that need not.
pub(in crate::ring) struct Staging {
    memory: Box<[u8]>,
    start: usize,
}

impl Staging {
    fn new() -> Self {
        let memory = vec![0; STAGING_BYTES + BLOCK].into_boxed_slice();
        let start = memory.as_ptr().align_offset(BLOCK);
        Self { memory, start }
    }

    pub(in crate::ring) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + STAGING_BYTES]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + STAGING_BYTES]
    }
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
        assert_eq!(Staging::new().bytes().as_ptr() as usize % BLOCK, 0);
    }
}
