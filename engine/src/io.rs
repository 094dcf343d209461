//! The corridor: what a shard may ask of the world, as plain data, and the one seam behind which
//! the world is either the kernel (`ring`) or a simulation under a seed.
//!
//! An operation in flight owns everything the kernel may touch. A completion gives it back.

mod buffer;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{ConnId, FileId, Now, Token};

pub use buffer::{BLOCK_BYTES, Buffer, BufferPool, Chunk};

/// What a shard asks for. Each operation answers with exactly one [`Done`] under its token, but for
/// `Accept` and `ReceiveStream`, which answer again and again until a `Failed` ends them.
#[derive(Debug)]
pub enum Op {
    /// Take connections on a listening socket that [`Io::listen`] made. Many `Accepted`.
    Accept,
    /// Connect to a broker. `Connected` or `Failed`.
    Connect { address: SocketAddr },
    /// Fill the buffer from its byte `from` on. `Filled` or `Failed`.
    ReceiveExact { connection: ConnId, buffer: Buffer, from: usize },
    /// Hand on whatever arrives. Many `Received`, then `Failed`: `Closed` where the peer ended it.
    ReceiveStream { connection: ConnId },
    /// Send all of the bytes. Operations on one connection are carried out in the order in which
    /// they were submitted. `Sent` or `Failed`.
    Send { connection: ConnId, bytes: Chunk },
    /// Send bytes of a file without copying them through user space. `Sent` or `Failed`; a file
    /// that is shorter than asked fails with `Short` and the connection is of no more use.
    SendFile { connection: ConnId, file: FileId, position: u64, length: u64 },
    /// Write all of the bytes at a position. `backfill` says that nobody is expected to read them
    /// soon, so that they need not stay in memory. `Written` or `Failed`.
    Write { file: FileId, position: u64, bytes: Chunk, backfill: bool },
    /// Make what was written to the file before durable. `Flushed` or `Failed`.
    Flush { file: FileId },
}

/// What became of an operation.
#[derive(Debug)]
pub enum Done {
    Accepted { connection: ConnId, peer: SocketAddr },
    Connected { connection: ConnId },
    Filled { connection: ConnId, buffer: Buffer },
    Received { connection: ConnId, bytes: Buffer },
    Sent { connection: ConnId },
    Written { file: FileId },
    Flushed { file: FileId },
    Failed { error: IoError },
}

/// Why an operation failed. Says where; what it carried is given back to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoError {
    pub kind: IoErrorKind,
    /// What was tried, on what, and what the system said; for a log line.
    pub detail: String,
}

/// The kinds of failure that somebody decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoErrorKind {
    /// The peer ended the connection, or we did while the operation was in flight.
    Closed,
    /// The network refused: nobody listens, no route, reset.
    Network,
    /// No room left on the disk or in the quota.
    DiskFull,
    /// There is no such file (any more).
    NotFound,
    /// The file ends before the bytes asked for.
    Short,
    /// The disk failed in another way.
    Disk,
    /// Descriptors or memory of this process ran out.
    Exhausted,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for IoError {}

/// The world of one shard.
pub trait Io {
    /// The moment of the current turn: it stands still between two calls of [`Io::turn`].
    fn now(&self) -> Now;

    /// Wall-clock time in milliseconds since 1970, for timestamps that Kafka's files carry.
    fn wall_clock_ms(&self) -> i64;

    /// A random number, for jitter.
    fn random(&mut self) -> u64;

    /// Binds a listening socket; `Op::Accept` under the same token takes its connections. Gives the
    /// address with the port that was chosen where 0 was asked for.
    fn listen(&mut self, token: Token, address: SocketAddr) -> Result<SocketAddr, IoError>;

    /// Queues an operation. It is carried out no later than in the next turn.
    fn submit(&mut self, token: Token, op: Op);

    /// Stops a stream's reading, so that its peer is slowed down by TCP. What the kernel has already
    /// taken may still be `Received`; the stream has not ended.
    fn pause(&mut self, connection: ConnId);

    /// Goes on reading a stream that was paused.
    fn resume(&mut self, connection: ConnId);

    /// Ends a connection. Operations in flight on it fail with `Closed`; closing twice is harmless.
    fn close(&mut self, connection: ConnId);

    /// Makes a file known; the same path gives the same id until it is forgotten. The file is
    /// created by the first write to it.
    fn file(&mut self, path: &Arc<Path>) -> FileId;

    /// Closes a file for good once no operation on it is in flight.
    fn forget(&mut self, file: FileId);

    /// Carries out what was queued and waits until something completes, somebody calls the
    /// [`Waker`], or `until` has come. Appends what completed to `done`.
    fn turn(&mut self, until: Option<Now>, done: &mut Vec<(Token, Done)>);

    /// Ends the wait of [`Io::turn`] from any thread.
    fn waker(&self) -> Waker;

    /// The pool that buffers are lent from.
    fn buffers(&self) -> &BufferPool;

    /// The file operations that are not worth a completion: opening logs, checkpoints, deletion.
    fn disk(&mut self) -> &mut dyn Disk;
}

/// Wakes a shard from another thread. Cheap to clone; a wake that nobody waits for is remembered.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that does `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends the current or the next wait.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// Files by path, one call at a time. For everything that happens rarely or before the first
/// partition runs; the data path uses [`Op`].
pub trait Disk {
    /// Makes a folder and its parents.
    fn create_dir_all(&mut self, path: &Path) -> Result<(), DiskError>;
    /// What a folder holds, sorted by name.
    fn list(&mut self, path: &Path) -> Result<Vec<DirEntry>, DiskError>;
    /// Reads up to `into.len()` bytes at `position`; fewer only at the end of the file.
    fn read(&mut self, path: &Path, position: u64, into: &mut [u8]) -> Result<usize, DiskError>;
    /// The length of a file in bytes.
    fn length(&mut self, path: &Path) -> Result<u64, DiskError>;
    /// Writes at a position, creating the file where it is missing. Not durable by itself.
    fn write(&mut self, path: &Path, position: u64, bytes: &[u8]) -> Result<(), DiskError>;
    /// Puts a whole file in place of another, durable and all at once: a reader after a crash finds
    /// the old bytes or the new ones.
    fn replace(&mut self, path: &Path, bytes: &[u8]) -> Result<(), DiskError>;
    /// Cuts or extends a file to a length.
    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), DiskError>;
    /// Makes a file's bytes, or a folder's entries, durable.
    fn sync(&mut self, path: &Path) -> Result<(), DiskError>;
    /// Gives a file or folder another name.
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError>;
    /// Removes a file; a missing one is no error.
    fn remove(&mut self, path: &Path) -> Result<(), DiskError>;
    /// Removes a folder and all it holds; a missing one is no error.
    fn remove_dir_all(&mut self, path: &Path) -> Result<(), DiskError>;
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    /// In bytes; 0 for folders.
    pub length: u64,
}

/// A file operation that failed, with all that a person needs to find the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    pub kind: IoErrorKind,
    /// What was tried: "read", "rename" and so on.
    pub operation: &'static str,
    pub path: PathBuf,
    /// What the system said.
    pub reason: String,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.operation, self.path.display(), self.reason)
    }
}

impl std::error::Error for DiskError {}
