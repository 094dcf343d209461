//! One core's world: the only room with sockets, files, a clock and `unsafe`.
//!
//! ```text
//!   submit ──> sockets / serve / filework ──> kernel ──> io_uring
//!                  (orders per connection       (owns what is
//!                   and per file)                in flight)
//!   turn   <── ready <── dispatch <───────── completions
//! ```
//!
//! `unsafe` stands in three files: `kernel` (requests that own their memory), `provided` (buffers
//! that the kernel picks from) and `sys` (system calls that have no other face).

mod clock;
mod disk;
mod error;
mod files;
mod filework;
mod flight;
mod kernel;
mod pipes;
mod provided;
mod serve;
mod slots;
mod sockets;
mod splice;
mod sys;
#[cfg(test)]
mod tests;
mod wake;
mod writer;

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use disk::HostDisk;
pub use error::RingError;
pub use writer::WriterKind;

use crate::ids::{ConnId, FileId, Now, Token};
use crate::io::{BufferPool, Disk, Done, Io, IoError, Op, Waker};
use crate::limits::FILES_OPEN_MAX;
use clock::Clock;
use files::{FileOp, Files};
use flight::{Event, Purpose, Request};
use kernel::{Kernel, Wait};
use pipes::Pipes;
use serve::{FilePart, Sending, What};
use slots::Slots;
use sockets::{Connection, Listener};
use wake::Bell;
use writer::{Load, WriteJob, Writer};

/// How many completions are looked at before those who wait for something get it.
const COMPLETIONS_PER_ROUND: usize = 4_096;

/// How a ring is made. `RingOptions::default()` is right for everything but the memory.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// Requests that are handed to the kernel at once; more are queued in front.
    pub entries: u32,
    /// What [`Io::buffers`] may lend at a time.
    pub memory_bytes: usize,
    pub writer: WriterKind,
    /// How many rings the process has: they share its descriptors.
    pub rings: usize,
    /// Files open at once; without one, [`FILES_OPEN_MAX`] or what the limit on descriptors leaves
    /// (for the ring's own writer, whose files are no descriptors, all that it allows).
    pub files_open_max: Option<usize>,
    /// Keeps the thread that makes the ring on this processor.
    pub cpu: Option<usize>,
    /// How parts of files leave.
    pub serve_by: ServeBy,
    pub splice_bytes_least: u64,
    /// Pipes for [`ServeBy::Splice`].
    pub pipes_max: usize,
    /// Threads that the kernel may use for this ring, of each of its two kinds.
    pub workers_max: u32,
    /// Buffers that all [`Op::ReceiveStream`] share, a power of two.
    pub stream_buffers: u16,
    pub stream_buffer_bytes: usize,
    /// The size of a socket's receive buffer; without one, the kernel adapts it to the path.
    pub socket_receive_bytes: Option<i32>,
    /// How long a connection may take to be made.
    pub connect_time_max: Duration,
    pub features: FeatureUse,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self {
            entries: 1_024,
            memory_bytes: 256 << 20,
            writer: WriterKind::default(),
            rings: 1,
            files_open_max: None,
            cpu: None,
            serve_by: ServeBy::default(),
            splice_bytes_least: 64 << 10,
            pipes_max: 64,
            workers_max: 8,
            stream_buffers: 256,
            stream_buffer_bytes: 16 << 10,
            socket_receive_bytes: None,
            connect_time_max: Duration::from_secs(10),
            features: FeatureUse::default(),
        }
    }
}

/// How parts of files reach a socket.
///
/// Processor seconds per GB of the serving side over loopback from the page cache, workers included
/// (`examples/ring_measure`, medians of 5, one request in the queue / four, two busy cores):
///
/// ```text
///             4 KiB         32 KiB        64 KiB        256 KiB       1 MiB
/// Sendfile    0.44 / 0.44   0.16 / 0.15   0.15 / 0.15   0.14 / 0.14   0.14 / 0.14
/// Copy        0.85 / 0.69   0.18 / 0.19   0.18 / 0.18   0.17 / 0.16   0.17 / 0.16
/// Splice      4.5  / 2.9    0.52 / 0.74   0.31 / 0.57   0.46 / 0.16   0.23 / 0.30
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServeBy {
    /// sendfile(2) on the shard's thread, once the page cache has the bytes. Files that are no
    /// descriptors ([`WriterKind::Ring`]) are copied, as is what does not stay in the page cache.
    #[default]
    Sendfile,
    /// The ring reads into a buffer and sends from there. The shard waits for nothing.
    Copy,
    /// Through a pipe, by the kernel's workers: no copy and no waiting, but every step costs two
    /// changes of thread. What is shorter than `splice_bytes_least` is copied.
    Splice,
}

/// Which of the kernel's abilities a ring uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureUse {
    /// All that it has.
    #[default]
    Probed,
    /// Those of Linux 5.19 only, so that the way for old kernels is tested on new ones.
    Least,
}

/// Who waits for something of which there is a bounded number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiter {
    File(FileId),
    Connection(ConnId),
}

/// The world of one shard, on the kernel's io_uring. It stays on the thread that made it.
pub struct Ring {
    /// First, so that it is dropped first: it waits for the kernel to let go of everything.
    kernel: Kernel,
    options: RingOptions,
    clock: Clock,
    now: Now,
    random: u64,
    pool: BufferPool,
    disk: HostDisk,
    bell: Arc<Bell>,
    listeners: Vec<Listener>,
    /// Listening sockets that were made elsewhere and are shared with other rings.
    adopted: Vec<TcpListener>,
    connections: Slots<Connection>,
    files: Files,
    writer: Box<dyn Writer>,
    load: Load,
    pipes: Pipes,
    /// Completions that `turn` has not handed out yet.
    ready: Vec<(Token, Done)>,
    /// Streams to be asked for again when this round's buffers are back.
    rearm: Vec<ConnId>,
    /// Sends that could go on and let others go first.
    yielding: VecDeque<ConnId>,
    waiters: VecDeque<Waiter>,
}

impl Ring {
    /// Sets up a ring for the calling thread.
    pub fn new(options: RingOptions) -> Result<Self, RingError> {
        if let Some(cpu) = options.cpu {
            let refused =
                |e| RingError::new(format!("cannot keep a shard on processor {cpu}: {e}"));
            sys::pin_to(cpu).map_err(refused)?;
        }
        let open_max = files_open_max(&options);
        let mut kernel = Kernel::new(&options)?;
        let no_table = |e| RingError::new(format!("no table for {open_max} open files: {e}"));
        let files = Files::new(options.writer, open_max, &mut kernel).map_err(no_table)?;
        let no_bell = |e| RingError::new(format!("no descriptor to wake a shard by: {e}"));
        let bell = Bell::new().map_err(no_bell)?;
        let clock = Clock::start();
        let mut ring = Self {
            kernel,
            clock,
            now: clock.now(),
            // Zero is the one number from which no other would follow.
            random: RandomState::new().build_hasher().finish() | 1,
            pool: BufferPool::of_huge_pages(options.memory_bytes),
            disk: HostDisk,
            bell,
            listeners: Vec::new(),
            adopted: Vec::new(),
            connections: Slots::new(),
            files,
            writer: writer::writer_of(options.writer),
            load: Load::default(),
            pipes: Pipes::new(options.pipes_max.max(1)),
            ready: Vec::new(),
            rearm: Vec::new(),
            yielding: VecDeque::new(),
            waiters: VecDeque::new(),
            options,
        };
        ring.watch_bell();
        Ok(ring)
    }

    fn watch_bell(&mut self) {
        let request = Request::Bell { fd: self.bell.fd(), count: Box::default() };
        self.kernel.start(request, Purpose::Bell);
    }

    /// Looks at what has completed and goes on with what that makes possible.
    fn reap(&mut self) {
        for _ in 0..COMPLETIONS_PER_ROUND {
            let Some(event) = self.kernel.reap() else { break };
            self.dispatch(event);
        }
        self.rearm_streams();
        self.drive_yielding();
        self.drive_waiters();
    }

    fn dispatch(&mut self, mut event: Event) {
        match std::mem::replace(&mut event.purpose, Purpose::Bell) {
            Purpose::Bell => self.watch_bell(),
            Purpose::Accept { token } => self.on_accept(token, &event),
            Purpose::Connect { token, address } => self.on_connect(token, address, event),
            Purpose::Receive { connection } => self.on_receive(connection, event),
            Purpose::Stream { connection } => self.on_stream(connection, event),
            Purpose::Send { connection } => self.on_send(connection, event),
            Purpose::ReadToSend { connection, file } => {
                self.on_read_to_send(connection, file, event);
            }
            Purpose::Warm { connection, file } => self.on_warm(connection, file),
            Purpose::SpliceIn { connection, file } => self.on_splice_in(connection, file, &event),
            Purpose::SpliceOut { connection } => self.on_splice_out(connection, &event),
            Purpose::Writable { connection } => self.on_writable(connection),
            Purpose::Write { job } => self.on_write(job, event),
            Purpose::Flush { token, file } => self.on_flush(token, file, &event),
        }
    }

    /// Goes on with those who wait for a file or a pipe, first come first served.
    fn drive_waiters(&mut self) {
        for _ in 0..self.waiters.len() {
            let Some(waiter) = self.waiters.pop_front() else { return };
            match waiter {
                Waiter::File(file) => {
                    if let Some(known) = self.files.get_mut(file) {
                        known.starved = false;
                        self.drive_file(file);
                    }
                }
                Waiter::Connection(connection) => self.resume_sends(connection),
            }
            // It waits again: those behind it would as well. It keeps its place.
            if self.waiters.back() == Some(&waiter) {
                self.waiters.rotate_right(1);
                return;
            }
        }
    }
}

/// How many files may be open, after raising the limit on descriptors as far as we may.
fn files_open_max(options: &RingOptions) -> usize {
    let limit = sys::raise_open_files() / options.rings.max(1);
    let room = match options.writer {
        WriterKind::Ring => limit,
        // Half for sockets; the direct writer opens every file twice.
        WriterKind::Inline => (limit / 2).min(FILES_OPEN_MAX),
        WriterKind::Direct => (limit / 4).min(FILES_OPEN_MAX),
    };
    options.files_open_max.map_or(room, |wanted| wanted.min(limit)).max(1)
}

impl Ring {
    /// Takes a listening socket that several rings share: [`Io::listen`] on its address uses it, and
    /// each connection is accepted by one of them. A port that was bound for all rings at once
    /// cannot be taken by another process in between, as one with SO_REUSEPORT could.
    pub fn adopt(&mut self, listener: TcpListener) {
        self.adopted.push(listener);
    }
}

impl Io for Ring {
    fn now(&self) -> Now {
        self.now
    }

    fn wall_clock_ms(&self) -> i64 {
        clock::wall_clock_ms()
    }

    fn random(&mut self) -> u64 {
        // Marsaglia's xorshift64*: enough for jitter.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn listen(&mut self, token: Token, address: SocketAddr) -> Result<SocketAddr, IoError> {
        let is_it = |socket: &TcpListener| socket.local_addr().is_ok_and(|at| at == address);
        let socket = match self.adopted.iter().position(is_it) {
            Some(index) => Ok(self.adopted.swap_remove(index)),
            None => TcpListener::bind(address),
        };
        let socket = socket.and_then(|socket| sockets::listen_on(&self.options, socket));
        let bound = socket.and_then(|socket| Ok((socket.local_addr()?, socket)));
        let refused = |e| error::network(&format!("cannot listen on {address}"), &e);
        let (local, socket) = bound.map_err(refused)?;
        self.listeners.push(Listener { token, socket });
        Ok(local)
    }

    fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Accept => self.accept(token),
            Op::Connect { address } => self.connect(token, address),
            Op::ReceiveExact { connection, buffer, from } => {
                self.receive_exact(token, connection, buffer, from);
            }
            Op::ReceiveStream { connection } => self.receive_stream(token, connection),
            Op::Send { connection, bytes } => {
                self.send(connection, Sending { token, what: What::Bytes { bytes, from: 0 } });
            }
            Op::SendFile { connection, file, position, length } => {
                let by = match self.options.serve_by {
                    ServeBy::Splice if length < self.options.splice_bytes_least => ServeBy::Copy,
                    by => by,
                };
                let part = FilePart::new(file, position, length, by);
                self.send(connection, Sending { token, what: What::File(part) });
            }
            Op::Write { file, position, bytes, backfill } => {
                // A write on this thread takes its time: whoever waits for us in the network, as a
                // source does for its next request, is served first.
                self.kernel.hand_over();
                let job = WriteJob { token, file, position, bytes, done: 0, direct: backfill };
                self.work_on(file, FileOp::Write(job));
            }
            Op::Flush { file } => self.work_on(file, FileOp::Flush(token)),
        }
    }

    fn pause(&mut self, connection: ConnId) {
        self.pause_stream(connection, true);
    }

    fn resume(&mut self, connection: ConnId) {
        self.pause_stream(connection, false);
    }

    fn close(&mut self, connection: ConnId) {
        self.close_connection(connection);
    }

    fn file(&mut self, path: &Arc<Path>) -> FileId {
        self.files.name(path)
    }

    fn forget(&mut self, file: FileId) {
        self.files.forget(file, &mut self.kernel);
    }

    fn turn(&mut self, until: Option<Now>, done: &mut Vec<(Token, Done)>) {
        let before = done.len();
        loop {
            done.append(&mut self.ready);
            let now = self.clock.now();
            let over = until.is_some_and(|until| now >= until);
            let pressing = done.len() > before || over || !self.yielding.is_empty();
            let wait = match until {
                _ if pressing || !self.bell.may_sleep() => Wait::No,
                Some(until) => Wait::AtMost(until.since(now)),
                None => Wait::Forever,
            };
            self.kernel.enter(wait);
            let called = self.bell.awake();
            self.reap();
            done.append(&mut self.ready);
            if done.len() > before || called || over {
                break;
            }
        }
        self.now = self.clock.now();
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn buffers(&self) -> &BufferPool {
        &self.pool
    }

    fn disk(&mut self) -> &mut dyn Disk {
        &mut self.disk
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("writer", &self.options.writer).finish_non_exhaustive()
    }
}
