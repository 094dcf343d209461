//! Parts of files that leave through a pipe: the kernel's workers move pages from the file into the
//! pipe and from there to the socket, and nothing waits on the shard's thread.

use std::io;
use std::os::fd::AsRawFd;

use super::Ring;
use super::error::{network, os_error};
use super::flight::{Event, Purpose, Request};
use super::pipes::Pipe;
use super::serve::{Progress, Sending, What, unread};
use crate::ids::{ConnId, FileId};

/// The pipe of a part of a file, and what its current step said.
#[derive(Default)]
pub(super) struct Spliced {
    pub(super) pipe: Option<Pipe>,
    /// Bytes that lie in the pipe.
    pub(super) piped: u32,
    /// Requests of the current step that have not come back.
    outstanding: u8,
    /// What the two halves of the step said.
    filled: i32,
    drained: i32,
}

impl Ring {
    pub(super) fn drive_splice(&mut self, connection: ConnId, more: bool) -> Progress {
        let part = self.part_mut(connection).expect("the caller looked");
        if part.spliced.pipe.is_none() {
            match self.lend_pipe() {
                Ok(Some(pipe)) => {
                    self.part_mut(connection).expect("the caller looked").spliced.pipe = Some(pipe);
                }
                Ok(None) => return Progress::Waiting,
                Err(error) => return Progress::Failed(network("no pipe for a file", &error)),
            }
        }
        let open = self.connections.get_mut(connection.0).expect("the caller looked");
        let socket = open.socket.as_raw_fd();
        let Some(Sending { what: What::File(part), .. }) = open.sends.front_mut() else {
            return Progress::Finished;
        };
        let pipe = part.spliced.pipe.as_ref().expect("lent before");
        let (reader, writer) = (pipe.reader(), pipe.writer());
        let out = |length: u32, left: u64| {
            let more = more || left > u64::from(length);
            let request = Request::SpliceOut { pipe: reader, socket, length, more };
            (request, Purpose::SpliceOut { connection })
        };
        if part.spliced.piped > 0 {
            let (request, purpose) = out(part.spliced.piped, part.left);
            part.spliced.outstanding = 1;
            part.spliced.filled = 0;
            self.kernel.start(request, purpose);
            return Progress::Started(1);
        }
        let (file, position) = (part.file, part.position);
        let length = part.left.min(u64::from(pipe.room_at(position))) as u32;
        let handle = match self.files.acquire(file, false, &mut self.kernel) {
            Ok(handle) => handle,
            Err(refusal) => return self.refused(file, refusal),
        };
        let fill = Request::SpliceIn { file: handle.target(), position, pipe: writer, length };
        part.spliced.outstanding = 2;
        let drain = out(length, part.left);
        self.kernel.start_both((fill, Purpose::SpliceIn { connection, file }), drain);
        Progress::Started(2)
    }

    /// A pipe at rest, or that of a connection whose peer takes nothing: what lies in such a pipe
    /// is read again when the peer goes on, so that slow peers cannot keep all pipes from others.
    fn lend_pipe(&mut self) -> io::Result<Option<Pipe>> {
        if let Some(pipe) = self.pipes.lend()? {
            return Ok(Some(pipe));
        }
        for open in self.connections.iter_mut() {
            if let Some(Sending { what: What::File(part), .. }) = open.sends.front_mut()
                && part.stalled
                && part.spliced.pipe.take().is_some()
            {
                part.spliced.piped = 0;
                return self.pipes.lend();
            }
        }
        Ok(None)
    }

    pub(super) fn on_splice_in(&mut self, connection: ConnId, file: FileId, event: &Event) {
        self.files.release(file, &mut self.kernel);
        if self.landed(connection).is_none() {
            return;
        }
        if let Some(part) = self.part_mut(connection) {
            part.spliced.filled = event.result;
            part.spliced.outstanding -= 1;
            // An empty file and an error are told apart below by this sign only.
            if event.result == 0 {
                part.spliced.filled = -libc::ENODATA;
            }
        }
        self.after_splice(connection);
    }

    pub(super) fn on_splice_out(&mut self, connection: ConnId, event: &Event) {
        if self.landed(connection).is_none() {
            return;
        }
        if let Some(part) = self.part_mut(connection) {
            part.spliced.drained = event.result;
            part.spliced.outstanding -= 1;
        }
        self.after_splice(connection);
    }

    /// Looks at what a step did once both halves of it are back.
    fn after_splice(&mut self, connection: ConnId) {
        let Some(part) = self.part_mut(connection) else { return };
        if part.spliced.outstanding > 0 {
            return;
        }
        let (file, position, filled) = (part.file, part.position, part.spliced.filled);
        part.spliced.piped += filled.max(0) as u32;
        let drained = part.spliced.drained;
        if drained > 0 {
            part.spliced.piped -= drained as u32;
            part.sent(drained as u64);
        }
        // The second half is cancelled where the first one brought less than it was asked for.
        let cancelled = filled > 0 && -drained == libc::ECANCELED;
        part.stalled = -drained == libc::EAGAIN;
        let stalled = part.stalled;
        if let Some(open) = self.connections.get_mut(connection.0) {
            open.sending = false;
        }
        if filled < 0 {
            let result = if -filled == libc::ENODATA { 0 } else { filled };
            let error = unread(&self.files.path_of(file), position, result);
            return self.fail_sends(connection, error);
        }
        if drained <= 0 && !stalled && !cancelled {
            let error = network("cannot send a file", &os_error(drained.min(-1)));
            return self.fail_sends(connection, error);
        }
        self.drive_sends(connection);
    }
}
