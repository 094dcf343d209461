//! The corridor: what a shard may ask of the world, as plain data, and the one seam behind which
//! the world is either the kernel (`ring`) or a simulation under a seed.
//!
//! An operation in flight owns everything the kernel may touch. A completion gives it back.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut, Range};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::ids::{ConnId, FileId, Now, Token};

/// What a shard asks for. Each operation answers with exactly one [`Done`] under its token, but for
/// `Accept` and `ReceiveStream`, which answer again and again until a `Failed` ends them.
#[derive(Debug)]
pub enum Op {
    /// Take connections on a listening socket that [`Io::listen`] made. Many `Accepted`.
    Accept,
    /// Connect to a broker. `Connected` or `Failed`.
    Connect { address: SocketAddr },
    /// Fill the whole buffer from the connection. `Filled` or `Failed`.
    ReceiveExact { connection: ConnId, buffer: Buffer },
    /// Hand on whatever arrives. Many `Received`, then `Failed`: `Closed` where the peer ended it.
    ReceiveStream { connection: ConnId },
    /// Send all of the bytes. Operations on one connection are carried out in the order in which
    /// they were submitted. `Sent` or `Failed`.
    Send { connection: ConnId, bytes: Chunk },
    /// Send bytes of a file without copying them through user space. `Sent` or `Failed`; a file
    /// that is shorter than asked fails with `Short` and the connection is of no more use.
    SendFile { connection: ConnId, file: FileId, position: u64, length: u64 },
    /// Write all of the bytes at a position. `Written` or `Failed`.
    Write { file: FileId, position: u64, bytes: Chunk },
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

/// Lends buffers from a budget of bytes. A buffer comes back when its last holder lets go.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shelves: Rc<RefCell<Shelves>>,
}

/// Buffers at rest, by size class, and the account of those that are lent.
#[derive(Debug)]
struct Shelves {
    resting: Vec<Vec<Box<[u8]>>>,
    bytes_resting: usize,
    bytes_lent: usize,
    bytes_max: usize,
}

/// The smallest buffer: two pages, enough for every request but the largest.
const CLASS_BYTES_LEAST: usize = 8 << 10;

/// Four classes to a doubling waste at most a quarter: 8, 10, 12, 14, 16, 20 ... KiB.
fn class_of(bytes: usize) -> (usize, usize) {
    let (mut class, mut doubling) = (0, CLASS_BYTES_LEAST);
    loop {
        for quarter in 0..4 {
            let size = doubling + doubling / 4 * quarter;
            if size >= bytes {
                return (class, size);
            }
            class += 1;
        }
        doubling *= 2;
    }
}

impl BufferPool {
    /// A pool that lends at most `bytes_max` at a time.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let shelves = Shelves { resting: Vec::new(), bytes_resting: 0, bytes_lent: 0, bytes_max };
        Self { shelves: Rc::new(RefCell::new(shelves)) }
    }

    /// Lends a buffer of exactly `length` bytes whose contents are whatever its last holder left,
    /// or `None` where the budget is used up: the caller waits and asks again.
    #[must_use]
    pub fn lend(&self, length: usize) -> Option<Buffer> {
        let (class, size) = class_of(length);
        let mut shelves = self.shelves.borrow_mut();
        if shelves.bytes_lent + size > shelves.bytes_max {
            return None;
        }
        shelves.bytes_lent += size;
        let resting = shelves.resting.get_mut(class).and_then(Vec::pop);
        let bytes = match resting {
            Some(bytes) => {
                shelves.bytes_resting -= size;
                bytes
            }
            None => {
                // What rests in other sizes makes room first, so that the sum stays in the budget.
                shelves.trim(size);
                vec![0; size].into_boxed_slice()
            }
        };
        drop(shelves);
        Some(Buffer { bytes, length, home: Some((class, Rc::clone(&self.shelves))) })
    }

    /// How many bytes are lent.
    #[must_use]
    pub fn bytes_lent(&self) -> usize {
        self.shelves.borrow().bytes_lent
    }

    /// How many bytes can still be lent.
    #[must_use]
    pub fn bytes_left(&self) -> usize {
        let shelves = self.shelves.borrow();
        shelves.bytes_max - shelves.bytes_lent
    }
}

impl Shelves {
    /// Frees resting buffers until `size` more bytes fit into the budget.
    fn trim(&mut self, size: usize) {
        for shelf in self.resting.iter_mut().rev() {
            while self.bytes_lent + self.bytes_resting > self.bytes_max {
                match shelf.pop() {
                    Some(bytes) => self.bytes_resting -= bytes.len(),
                    None => break,
                }
            }
        }
        debug_assert!(size <= self.bytes_lent);
    }

    fn take_back(&mut self, class: usize, bytes: Box<[u8]>) {
        self.bytes_lent -= bytes.len();
        self.bytes_resting += bytes.len();
        if self.resting.len() <= class {
            self.resting.resize_with(class + 1, Vec::new);
        }
        self.resting[class].push(bytes);
    }
}

/// Bytes with one holder, who may write them.
pub struct Buffer {
    bytes: Box<[u8]>,
    length: usize,
    home: Option<(usize, Rc<RefCell<Shelves>>)>,
}

impl Buffer {
    /// A buffer that belongs to no pool: for bytes that were made, not received.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        Self { bytes: bytes.into_boxed_slice(), length, home: None }
    }

    /// Keeps the first `length` bytes only.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Gives up writing, so that many may hold it.
    #[must_use]
    pub fn share(self) -> Chunk {
        let range = 0..self.length;
        Chunk { owner: Rc::new(self), range }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some((class, shelves)) = self.home.take() {
            shelves.borrow_mut().take_back(class, std::mem::take(&mut self.bytes));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

/// A range of bytes that many may hold and nobody may write.
#[derive(Clone)]
pub struct Chunk {
    owner: Rc<Buffer>,
    range: Range<usize>,
}

impl Chunk {
    /// A part of this one, by positions within it.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let start = self.range.start + range.start;
        let end = self.range.start + range.end;
        assert!(start <= end && end <= self.range.end, "a slice lies within its chunk");
        Self { owner: Rc::clone(&self.owner), range: start..end }
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer::of(bytes).share()
    }
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.owner.bytes[self.range.clone()]
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_holder_lets_go() {
        let pool = BufferPool::new(64 << 10);
        let chunk = pool.lend(10_000).expect("the pool is empty").share();
        let part = chunk.slice(10..20);
        drop(chunk);
        assert_eq!(pool.bytes_lent(), 10 << 10);
        assert_eq!(part.len(), 10);
        drop(part);
        assert_eq!(pool.bytes_lent(), 0);
    }

    #[test]
    fn a_pool_lends_no_more_than_its_budget() {
        let pool = BufferPool::new(32 << 10);
        let held: Vec<_> = (0..4).map(|_| pool.lend(8 << 10).expect("within the budget")).collect();
        assert!(pool.lend(1).is_none());
        drop(held);
        // The four small ones rest; a large one makes them leave.
        assert!(pool.lend(32 << 10).is_some());
        let shelves = pool.shelves.borrow();
        assert!(shelves.bytes_lent + shelves.bytes_resting <= 32 << 10);
    }

    #[test]
    fn a_size_class_wastes_at_most_a_quarter() {
        for bytes in [1, 8 << 10, (8 << 10) + 1, 1 << 20, (1 << 20) + 1, 10_000_000] {
            let (class, size) = class_of(bytes);
            assert!(size >= bytes);
            assert!(size <= CLASS_BYTES_LEAST.max(bytes + bytes / 4), "{bytes} in {size}");
            assert_eq!(class_of(size), (class, size));
        }
    }
}
