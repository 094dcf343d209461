//! Three ways for bytes to reach a file, behind one face. Every one of them keeps the promise that
//! what was `Written` can be read through any other descriptor of the file at once.

mod direct;
mod inline;
mod load;
mod queued;

use std::io;

pub(super) use direct::DIRECT_BYTES_LEAST;
pub(super) use load::Load;

use super::files::Handle;
use super::flight::Request;
use crate::ids::{FileId, Token};
use crate::io::{BufferPool, Chunk};

/// Which writer a ring uses.
///
/// Receiving over loopback and rewriting a file of 256 MiB that the page cache has, processor seconds
/// per GB with the kernel's workers, and GB/s (`examples/ring_measure`, medians of 5, four requests in
/// flight, two cores that others used as well):
///
/// ```text
///                        64 KiB           1 MiB
/// recv(2) + pwrite(2)    0.37   0.88      0.23   1.72
/// Inline                 0.40   0.82      0.24   1.33
/// Ring                   0.47   0.86      0.28   1.24
/// ```
///
/// New files are another matter, since the page cache has to find memory for them: catching up with
/// 3 GB from a broker (`perf/RESULTS.md`) took 0.48 with Inline and 0.39 with Direct in the same rounds,
/// before its buffers were on huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriterKind {
    /// pwrite(2) when the operation is submitted: the least processor time per byte on file systems
    /// whose buffered writes the ring hands to a worker thread anyway, which today is all of them.
    Inline,
    /// The ring writes, on a worker thread of the kernel: the shard never waits for the page cache.
    /// Files are places in the ring's own table, not descriptors of the process.
    Ring,
    /// Backfill that nobody reads soon past the page cache, on worker threads of the kernel; all else,
    /// and the ends of each append that fill no block, as Inline does.
    #[default]
    Direct,
}

/// One `Write` on its way.
#[derive(Clone, Debug)]
pub(super) struct WriteJob {
    pub(super) token: Token,
    pub(super) file: FileId,
    pub(super) position: u64,
    pub(super) bytes: Chunk,
    /// How many of the bytes are written.
    pub(super) done: usize,
    /// Whether it may go past the page cache.
    pub(super) direct: bool,
}

impl WriteJob {
    fn rest(&self) -> (&[u8], u64) {
        (&self.bytes[self.done..], self.position + self.done as u64)
    }
}

/// What a write needs next.
pub(super) enum Step {
    Finished,
    /// Carry this out, add what it wrote to `done` and ask again.
    Submit(Request),
    Failed(io::Error),
}

pub(super) trait Writer {
    /// Takes a write further, as far as it goes without waiting.
    fn advance(&mut self, job: &mut WriteJob, file: &mut Handle, pool: &BufferPool) -> Step;

    /// How many writes to one file may be in flight.
    fn in_flight_max(&self) -> usize;
}

pub(super) fn writer_of(kind: WriterKind) -> Box<dyn Writer> {
    match kind {
        WriterKind::Inline => Box::new(inline::Inline),
        WriterKind::Ring => Box::new(queued::Queued),
        WriterKind::Direct => Box::new(direct::Direct),
    }
}
