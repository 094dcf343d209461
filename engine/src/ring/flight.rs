//! What is in flight: everything that the kernel may touch, owned in one place, and what it is for.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use super::sys::SocketAddress;
use super::writer::WriteJob;
use crate::ids::{ConnId, FileId, Token};
use crate::io::{Buffer, Chunk};

/// An open file as the ring knows it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// A descriptor of this process.
    Fd(RawFd),
    /// A place in the ring's own table of files.
    Slot(u32),
}

/// One request to the kernel with the memory that it reads or fills. From the moment that it is
/// started until its last completion was reaped nobody else can reach that memory.
pub(super) enum Request {
    AcceptMany {
        listener: RawFd,
    },
    Connect {
        socket: OwnedFd,
        address: Box<SocketAddress>,
    },
    /// Fills `buffer[from..]`; returns early only where `whole` is false or the peer ends.
    Receive {
        socket: RawFd,
        buffer: Buffer,
        from: usize,
        whole: bool,
    },
    /// Receives again and again into the buffers that all connections share.
    ReceiveMany {
        socket: RawFd,
    },
    /// Sends `bytes[from..]`; `more` says that other bytes follow at once.
    Send {
        socket: RawFd,
        bytes: Chunk,
        from: usize,
        more: bool,
    },
    Read {
        file: Target,
        position: u64,
        buffer: Buffer,
    },
    /// Begins to bring a part of a file into the page cache.
    WillNeed {
        file: Target,
        position: u64,
        length: u32,
    },
    Write {
        file: Target,
        position: u64,
        bytes: Chunk,
        from: usize,
    },
    Sync {
        file: Target,
    },
    SpliceIn {
        file: Target,
        position: u64,
        pipe: RawFd,
        length: u32,
    },
    SpliceOut {
        pipe: RawFd,
        socket: RawFd,
        length: u32,
        more: bool,
    },
    /// Waits until the socket takes bytes again.
    Writable {
        socket: RawFd,
    },
    /// Waits until somebody rings the bell.
    Bell {
        fd: RawFd,
        count: Box<[u8; 8]>,
    },
}

/// Whom a completion is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Bell,
    Accept {
        token: Token,
    },
    Connect {
        token: Token,
        address: SocketAddr,
    },
    Receive {
        connection: ConnId,
    },
    Stream {
        connection: ConnId,
    },
    Send {
        connection: ConnId,
    },
    /// A part of a file on its way into a buffer, to be sent from there.
    ReadToSend {
        connection: ConnId,
        file: FileId,
    },
    /// A part of a file on its way into the page cache, to be sent from there: the advice has no
    /// file, what waits for it has.
    Warm {
        connection: ConnId,
        file: Option<FileId>,
    },
    SpliceIn {
        connection: ConnId,
        file: FileId,
    },
    SpliceOut {
        connection: ConnId,
    },
    Writable {
        connection: ConnId,
    },
    Write {
        job: WriteJob,
    },
    Flush {
        token: Token,
        file: FileId,
    },
}

/// A completion.
pub(super) struct Event {
    pub(super) purpose: Purpose,
    /// The request with its memory, back from the kernel; `None` where more completions follow.
    pub(super) request: Option<Request>,
    pub(super) result: i32,
    pub(super) flags: u32,
}
