//! Three ways for bytes to reach a file, behind one face. Every one of them keeps the promise that
//! what was `Written` can be read through any other descriptor of the file at once.

mod direct;
mod inline;
mod queued;

use std::io;

pub(super) use direct::Staging;

use super::files::Handle;
use super::flight::Request;
use crate::ids::{FileId, Token};
use crate::io::Chunk;

/// Which writer a ring uses.
///
/// Receiving over loopback and rewriting a file of 256 MiB, processor seconds per GB with the
/// kernel's workers, and GB/s (`examples/ring_measure`, medians of 5, four requests in flight, two
/// cores that others used as well):
///
/// ```text
///                        64 KiB           1 MiB
/// recv(2) + pwrite(2)    0.37   0.88      0.23   1.72
/// Inline                 0.40   0.82      0.24   1.33
/// Ring                   0.47   0.86      0.28   1.24
/// Direct                 0.82   0.23      0.35   0.72   (on disk when written)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriterKind {
    /// pwrite(2) when the operation is submitted: the least processor time per byte on file systems
    /// whose buffered writes the ring hands to a worker thread anyway, which today is all of them.
    #[default]
    Inline,
    /// The ring writes, on a worker thread of the kernel: the shard never waits for the page cache.
    /// Files are places in the ring's own table, not descriptors of the process.
    Ring,
    /// Whole blocks past the page cache, for backfill that nobody reads soon; the unaligned ends of
    /// each append go through the page cache.
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
    fn advance(&mut self, job: &mut WriteJob, file: &Handle) -> Step;

    /// Gets back the memory of a request that it submitted.
    fn take_back(&mut self, _request: Request) {}

    /// How many writes to one file may be in flight.
    fn in_flight_max(&self) -> usize;
}

pub(super) fn writer_of(kind: WriterKind) -> Box<dyn Writer> {
    match kind {
        WriterKind::Inline => Box::new(inline::Inline),
        WriterKind::Ring => Box::new(queued::Queued),
        WriterKind::Direct => Box::new(direct::Direct::new()),
    }
}
