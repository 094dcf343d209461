//! What leaves on a connection, in order: bytes from memory, and bytes of files by three ways.
//!
//! ```text
//!   Sendfile    file --(WillNeed)--> page cache --sendfile(2)--> socket
//!   Copy        file --Read--> buffer --Send--> socket
//!   Splice      file --SpliceIn--> pipe --SpliceOut--> socket   (`splice`)
//! ```

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use super::error::{closed, disk, is_transient, network, os_error};
use super::files::Refusal;
use super::flight::{Event, Purpose, Request, Target};
use super::sockets::small_buffer;
use super::splice::Spliced;
use super::{Ring, ServeBy, Waiter, sys};
use crate::ids::{ConnId, FileId, Token};
use crate::io::{Buffer, Chunk, Done, IoError, IoErrorKind};

/// How much of a file is read at a time where it goes through a buffer.
const COPY_BYTES_MAX: u64 = 256 << 10;

/// How much of a file is brought into the page cache at a time.
const WARM_BYTES_MAX: u64 = 512 << 10;

/// How much sendfile(2) moves before others get their turn.
const SENDFILE_BYTES_MAX: u64 = 1 << 20;

/// Bytes that leave on a connection.
pub(super) struct Sending {
    pub(super) token: Token,
    pub(super) what: What,
}

pub(super) enum What {
    Bytes { bytes: Chunk, from: usize },
    File(FilePart),
}

/// A part of a file that leaves on a connection.
pub(super) struct FilePart {
    pub(super) file: FileId,
    /// Where in the file the first byte lies that is not sent yet.
    pub(super) position: u64,
    pub(super) left: u64,
    by: ServeBy,
    /// Where in the file the bytes are that the page cache was asked for last.
    warmed: Range<u64>,
    /// Bytes that were read, and how many of them are sent.
    read: Option<(Chunk, usize)>,
    pub(super) spliced: Spliced,
    /// Waits for the peer to take bytes.
    pub(super) stalled: bool,
}

impl FilePart {
    pub(super) fn new(file: FileId, position: u64, left: u64, by: ServeBy) -> Self {
        let spliced = Spliced::default();
        Self { file, position, left, by, warmed: 0..0, read: None, spliced, stalled: false }
    }

    pub(super) fn sent(&mut self, count: u64) {
        self.position += count;
        self.left -= count;
    }
}

/// How far a send got.
pub(super) enum Progress {
    Finished,
    /// So many requests are with the kernel.
    Started(u32),
    /// In the queue of those that wait for something of ours.
    Waiting,
    /// Others first.
    Yielding,
    Failed(IoError),
}

impl Ring {
    pub(super) fn send(&mut self, connection: ConnId, sending: Sending) {
        match self.connections.get_mut(connection.0) {
            Some(open) if !open.closed && !open.broken => {
                open.sends.push_back(sending);
                self.drive_sends(connection);
            }
            _ => self.fail(sending.token, closed("the connection is closed")),
        }
    }

    /// Takes the first send of a connection further, and the next ones after it.
    pub(super) fn drive_sends(&mut self, connection: ConnId) {
        loop {
            let Some(open) = self.connections.get_mut(connection.0) else { return };
            if open.sending || open.closed || open.broken {
                return;
            }
            let more = open.sends.len() > 1;
            let Some(first) = open.sends.front_mut() else { return };
            let progress = match &mut first.what {
                What::Bytes { bytes, from } if *from == bytes.len() => Progress::Finished,
                What::Bytes { bytes, from } => {
                    let (bytes, from, socket) = (bytes.clone(), *from, open.socket.as_raw_fd());
                    let request = Request::Send { socket, bytes, from, more };
                    self.kernel.start(request, Purpose::Send { connection });
                    Progress::Started(1)
                }
                What::File(part) if part.left == 0 => {
                    if let Some(pipe) = part.spliced.pipe.take() {
                        self.pipes.take_back(pipe);
                    }
                    Progress::Finished
                }
                What::File(_) => self.drive_file_part(connection, more),
            };
            let Some(open) = self.connections.get_mut(connection.0) else { return };
            match progress {
                Progress::Finished => {
                    if let Some(sending) = open.sends.pop_front() {
                        self.ready.push((sending.token, Done::Sent { connection }));
                    }
                }
                Progress::Started(requests) => {
                    open.in_flight += requests;
                    open.sending = true;
                }
                Progress::Waiting => {
                    open.sending = true;
                    self.waiters.push_back(Waiter::Connection(connection));
                }
                Progress::Yielding => {
                    open.sending = true;
                    self.yielding.push_back(connection);
                }
                Progress::Failed(error) => return self.fail_sends(connection, error),
            }
        }
    }

    /// Ends the first send with an error and all that follow with it.
    pub(super) fn fail_sends(&mut self, connection: ConnId, error: IoError) {
        let Some(open) = self.connections.get_mut(connection.0) else { return };
        open.broken = true;
        open.sending = false;
        let mut sends = std::mem::take(&mut open.sends).into_iter();
        if let Some(first) = sends.next() {
            self.fail(first.token, error);
        }
        for behind in sends {
            self.fail(behind.token, closed("a send before this one failed"));
        }
    }

    /// The connection's first send, which is a part of a file.
    pub(super) fn part_mut(&mut self, connection: ConnId) -> Option<&mut FilePart> {
        match self.connections.get_mut(connection.0)?.sends.front_mut()? {
            Sending { what: What::File(part), .. } => Some(part),
            Sending { what: What::Bytes { .. }, .. } => None,
        }
    }

    fn drive_file_part(&mut self, connection: ConnId, more: bool) -> Progress {
        let part = self.part_mut(connection).expect("the caller looked");
        if part.stalled {
            return self.wait_writable(connection);
        }
        match part.by {
            ServeBy::Copy => self.drive_copy(connection, more),
            ServeBy::Splice => self.drive_splice(connection, more),
            ServeBy::Sendfile if part.read.is_some() => self.drive_copy(connection, more),
            ServeBy::Sendfile => self.drive_sendfile(connection, more),
        }
    }

    fn wait_writable(&mut self, connection: ConnId) -> Progress {
        let Some(open) = self.connections.get_mut(connection.0) else { return Progress::Waiting };
        let socket = open.socket.as_raw_fd();
        self.kernel.start(Request::Writable { socket }, Purpose::Writable { connection });
        Progress::Started(1)
    }

    fn drive_copy(&mut self, connection: ConnId, more: bool) -> Progress {
        let open = self.connections.get_mut(connection.0).expect("the caller looked");
        let socket = open.socket.as_raw_fd();
        let Some(Sending { what: What::File(part), .. }) = open.sends.front_mut() else {
            return Progress::Finished;
        };
        if let Some((bytes, from)) = &part.read {
            let more = more || part.left > (bytes.len() - from) as u64;
            let request = Request::Send { socket, bytes: bytes.clone(), from: *from, more };
            self.kernel.start(request, Purpose::Send { connection });
            return Progress::Started(1);
        }
        let (file, position) = (part.file, part.position);
        let buffer = small_buffer(&self.pool, part.left.min(COPY_BYTES_MAX) as usize);
        match self.files.acquire(file, false, &mut self.kernel) {
            Ok(handle) => {
                let request = Request::Read { file: handle.target(), position, buffer };
                self.kernel.start(request, Purpose::ReadToSend { connection, file });
                Progress::Started(1)
            }
            Err(refusal) => self.refused(file, refusal),
        }
    }

    pub(super) fn refused(&self, file: FileId, refusal: Refusal) -> Progress {
        match refusal {
            Refusal::Busy => Progress::Waiting,
            Refusal::Failed(error) => {
                Progress::Failed(disk("open", &self.files.path_of(file), &error))
            }
        }
    }

    fn drive_sendfile(&mut self, connection: ConnId, more: bool) -> Progress {
        let open = self.connections.get_mut(connection.0).expect("the caller looked");
        let Some(Sending { what: What::File(part), .. }) = open.sends.front_mut() else {
            return Progress::Finished;
        };
        let file = part.file;
        let handle = match self.files.acquire(file, false, &mut self.kernel) {
            Ok(handle) => handle,
            Err(refusal) => return self.refused(file, refusal),
        };
        let is_warmed = part.warmed.contains(&part.position);
        let warm = if is_warmed { part.warmed.end - part.position } else { SENDFILE_BYTES_MAX };
        let length = part.left.min(SENDFILE_BYTES_MAX).min(warm) as usize;
        // A place in the ring's table is no descriptor.
        let Some(descriptor) = handle.as_descriptor() else {
            self.files.release(file, &mut self.kernel);
            return self.drive_copy(connection, more);
        };
        // What must come from the disk first would stop the whole shard. It comes to the page cache
        // and not to a buffer of ours, which a client that reads nothing would keep from others.
        let is_resident = sys::is_resident(descriptor, part.position, length);
        if !is_resident && !is_warmed {
            part.warmed = part.position..part.position + part.left.min(WARM_BYTES_MAX);
            let (target, range) = (handle.target(), part.warmed.clone());
            return self.warm(connection, (file, target), range);
        }
        // What the page cache could not keep is not asked for twice.
        let sent =
            is_resident.then(|| sys::sendfile(&open.socket, descriptor, part.position, length));
        self.files.release(file, &mut self.kernel);
        match sent {
            None => self.drive_copy(connection, more),
            Some(Ok(0)) => Progress::Failed(short(&self.files.path_of(file), part.position)),
            Some(Ok(count)) => {
                part.sent(count as u64);
                Progress::Yielding
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wait_writable(connection)
            }
            Some(Err(error)) => Progress::Failed(network("cannot send a file", &error)),
        }
    }

    /// Brings a part of a file, which is held, into the page cache: its last byte is read when all
    /// before it is on its way.
    fn warm(
        &mut self,
        connection: ConnId,
        (file, target): (FileId, Target),
        range: Range<u64>,
    ) -> Progress {
        let length = (range.end - range.start) as u32;
        let advice = Request::WillNeed { file: target, position: range.start, length };
        let byte = Buffer::of(vec![0; 1]);
        let read = Request::Read { file: target, position: range.end - 1, buffer: byte };
        self.kernel.start_both(
            (advice, Purpose::Warm { connection, file: None }),
            (read, Purpose::Warm { connection, file: Some(file) }),
        );
        Progress::Started(2)
    }

    /// One of the two is done; the one with the file comes last.
    pub(super) fn on_warm(&mut self, connection: ConnId, file: Option<FileId>) {
        if let Some(file) = file {
            self.files.release(file, &mut self.kernel);
        }
        let Some(open) = self.landed(connection) else { return };
        if file.is_some() {
            // Whatever became of it: sending tells.
            open.sending = false;
            self.drive_sends(connection);
        }
    }

    pub(super) fn on_send(&mut self, connection: ConnId, event: Event) {
        let Some(open) = self.landed(connection) else { return };
        open.sending = false;
        if event.result < 0 && !is_transient(event.result) {
            let error = network("cannot send", &os_error(event.result));
            return self.fail_sends(connection, error);
        }
        let count = event.result.max(0) as usize;
        match open.sends.front_mut().map(|sending| &mut sending.what) {
            Some(What::Bytes { from, .. }) => *from += count,
            Some(What::File(part)) => {
                part.sent(count as u64);
                let (bytes, from) = part.read.take().expect("it was sent from there");
                if from + count < bytes.len() {
                    part.read = Some((bytes, from + count));
                }
            }
            None => {}
        }
        self.drive_sends(connection);
    }

    pub(super) fn on_read_to_send(&mut self, connection: ConnId, file: FileId, event: Event) {
        self.files.release(file, &mut self.kernel);
        let Some(Request::Read { mut buffer, position, .. }) = event.request else { return };
        let Some(open) = self.landed(connection) else { return };
        open.sending = false;
        if is_transient(event.result) {
            return self.drive_sends(connection);
        }
        if event.result <= 0 {
            let error = unread(&self.files.path_of(file), position, event.result);
            return self.fail_sends(connection, error);
        }
        buffer.truncate(event.result as usize);
        if let Some(part) = self.part_mut(connection) {
            part.read = Some((buffer.share(), 0));
        }
        self.drive_sends(connection);
    }

    pub(super) fn on_writable(&mut self, connection: ConnId) {
        let Some(open) = self.landed(connection) else { return };
        open.sending = false;
        if let Some(part) = self.part_mut(connection) {
            part.stalled = false;
        }
        self.drive_sends(connection);
    }

    /// Goes on with connections that let others go first.
    pub(super) fn drive_yielding(&mut self) {
        let yielding: VecDeque<ConnId> = std::mem::take(&mut self.yielding);
        for connection in yielding {
            self.resume_sends(connection);
        }
    }

    pub(super) fn resume_sends(&mut self, connection: ConnId) {
        if let Some(open) = self.connections.get_mut(connection.0) {
            open.sending = false;
            self.drive_sends(connection);
        }
    }
}

fn short(path: &std::path::Path, position: u64) -> IoError {
    let detail = format!("{} ends before position {position}", path.display());
    IoError { kind: IoErrorKind::Short, detail }
}

pub(super) fn unread(path: &std::path::Path, position: u64, result: i32) -> IoError {
    if result == 0 { short(path, position) } else { disk("read", path, &os_error(result)) }
}
