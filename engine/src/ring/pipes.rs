//! A few pipes that carry pages of files to sockets.

use std::cell::Cell;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use super::sys;

/// What we ask a pipe to hold. Where the user's quota for pipes is used up it holds less.
const PIPE_BYTES: u32 = 1 << 20;

/// A pipe; it counts itself out when it is dropped.
pub(super) struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
    capacity: u32,
    made: Rc<Cell<usize>>,
}

impl Pipe {
    pub(super) fn reader(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    pub(super) fn writer(&self) -> RawFd {
        self.writer.as_raw_fd()
    }

    /// How many bytes from `position` of a file fit into the empty pipe: it holds pages, and the
    /// first one may be used in part only.
    pub(super) fn room_at(&self, position: u64) -> u32 {
        self.capacity - (position % 4_096) as u32
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.made.set(self.made.get() - 1);
    }
}

/// Lends pipes, at most so many at a time.
pub(super) struct Pipes {
    resting: Vec<Pipe>,
    made: Rc<Cell<usize>>,
    pipes_max: usize,
}

impl Pipes {
    pub(super) fn new(pipes_max: usize) -> Self {
        Self { resting: Vec::new(), made: Rc::default(), pipes_max }
    }

    /// An empty pipe, or `None` where all of them are out.
    pub(super) fn lend(&mut self) -> io::Result<Option<Pipe>> {
        if let Some(pipe) = self.resting.pop() {
            return Ok(Some(pipe));
        }
        if self.made.get() >= self.pipes_max {
            return Ok(None);
        }
        let (reader, writer) = io::pipe()?;
        let capacity = sys::set_pipe_bytes(writer.as_raw_fd(), PIPE_BYTES)?;
        self.made.set(self.made.get() + 1);
        Ok(Some(Pipe { reader, writer, capacity, made: Rc::clone(&self.made) }))
    }

    /// Takes an empty pipe back: of a part that was sent whole. Others are dropped with their part.
    pub(super) fn take_back(&mut self, pipe: Pipe) {
        self.resting.push(pipe);
    }
}
