//! pwrite(2) on the shard's own thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Step, WriteJob, Writer};
use crate::io::BufferPool;
use crate::ring::files::Handle;
use crate::ring::sys;

/// How much is written at a time, and where a write ends: at multiples of this in the file. The page
/// cache takes memory in pieces as large as a write and as its place in the file allows: one that
/// begins on such a multiple gets a single piece of its size, one that begins anywhere gets many. From
/// 2 MiB on pieces are huge pages, which a virtual machine's host often has to find first.
///
/// Processor seconds per GB that 1.2 GB into 8 new files take (medians of 5, two busy cores, a guest
/// whose free memory goes back to its host), and with [`RESERVE_BYTES_LEAST`] heeded:
///
/// ```text
///             64 KiB   256 KiB   1 MiB         2 MiB         4 MiB
/// as it is    0.20     0.16      0.17 .. 1.3   0.17 .. 1.0   0.16 .. 1.2
/// reserved    0.20     0.12      0.11          0.98
/// reserved, written in pieces of 256 KiB       0.11     0.10
/// ```
///
/// Appends of odd lengths into 8 files, reserved, 2 GB (medians of 7 in turns):
///
/// ```text
///                                  300 KB   1 MB     8 MB
/// pieces of 256 KiB                0.273    0.267    0.212
/// the same, ending on multiples    0.227    0.224    0.187
/// ```
const PIECE_BYTES_MAX: usize = 256 << 10;

/// From this size on a write's blocks are reserved in one step, so that the file system does not
/// look for each of them.
const RESERVE_BYTES_LEAST: usize = 256 << 10;

pub(super) struct Inline;

impl Writer for Inline {
    fn advance(&mut self, job: &mut WriteJob, file: &mut Handle, _pool: &BufferPool) -> Step {
        write_all(job, file.descriptor())
    }

    fn in_flight_max(&self) -> usize {
        1
    }
}

/// Writes all that is left of a job.
pub(super) fn write_all(job: &mut WriteJob, file: &File) -> Step {
    let until = job.bytes.len();
    if until - job.done >= RESERVE_BYTES_LEAST {
        sys::reserve(file, job.position + job.done as u64, until - job.done);
    }
    match write_until(job, file, until) {
        Ok(()) => Step::Finished,
        Err(error) => Step::Failed(error),
    }
}

/// Writes the job's bytes up to the one at `until`.
pub(super) fn write_until(job: &mut WriteJob, file: &File, until: usize) -> io::Result<()> {
    while job.done < until {
        let position = job.position + job.done as u64;
        let end = until.min(job.done + piece_bytes(position));
        match file.write_at(&job.bytes[job.done..end], position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => job.done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How much of a write at `position` fills its piece of the file.
const fn piece_bytes(position: u64) -> usize {
    PIECE_BYTES_MAX - (position % PIECE_BYTES_MAX as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_ends_with_its_piece_of_the_file() {
        let piece = PIECE_BYTES_MAX as u64;
        for (position, bytes) in [(0, piece), (1, piece - 1), (piece - 1, 1), (5 * piece, piece)] {
            assert_eq!(piece_bytes(position) as u64, bytes, "at {position}");
        }
    }
}
