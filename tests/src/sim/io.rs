//! The seam: a shard's world, simulated.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::ids::{ConnId, FileId, Now, Token};
use engine::io::{BufferPool, DirEntry, Disk, DiskError, Done, Io, IoError, Op, Waker};

use super::network::What;
use super::space::{Micros, Shared};

/// What one shard sees of the world.
#[derive(Debug)]
pub struct SimIo {
    shard: usize,
    door: Door,
    pool: BufferPool,
    started: Micros,
    rung: Arc<AtomicBool>,
}

impl SimIo {
    /// The world of a shard that was just added to the space.
    #[must_use]
    pub fn new(space: &Shared, shard: usize) -> Self {
        let held = space.borrow();
        let (pool, started) = (held.shards[shard].pool.clone(), held.now);
        let rung = Arc::clone(&held.shards[shard].rung);
        drop(held);
        Self { shard, door: Door(Shared::clone(space)), pool, started, rung }
    }
}

impl Io for SimIo {
    fn now(&self) -> Now {
        Now(self.door.0.borrow().now - self.started)
    }

    fn wall_clock_ms(&self) -> i64 {
        self.door.0.borrow().wall_ms()
    }

    fn random(&mut self) -> u64 {
        self.door.0.borrow_mut().random.next()
    }

    fn listen(&mut self, token: Token, address: SocketAddr) -> Result<SocketAddr, IoError> {
        let _ = token;
        Ok(address)
    }

    fn submit(&mut self, token: Token, op: Op) {
        let shard = self.shard;
        let mut space = self.door.0.borrow_mut();
        match op {
            Op::Accept => space.shards[shard].accepts = Some(token),
            Op::Connect { address } => {
                space.note(format_args!("{shard} connects to {address}"));
                space.connect(shard, token, address);
            }
            Op::ReceiveExact { connection, buffer, from } => {
                space.receive(shard, token, connection, Some((buffer, from)));
            }
            Op::ReceiveStream { connection } => space.receive(shard, token, connection, None),
            Op::Send { connection, bytes } => {
                space.note(format_args!("{shard} sends {}", bytes.len()));
                space.send_from(shard, token, connection, What::Bytes(bytes, 0));
            }
            Op::SendFile { connection, file, position, length } => {
                space.note(format_args!("{shard} sends file {position} {length}"));
                let what = What::File { file, position, length };
                space.send_from(shard, token, connection, what);
            }
            Op::Write { file, position, bytes, .. } => {
                space.note(format_args!("{shard} writes {file:?} {position} {}", bytes.len()));
                space.write(shard, token, file, (position, bytes));
            }
            Op::Flush { file } => {
                space.note(format_args!("{shard} flushes {file:?}"));
                space.flush(shard, token, file);
            }
        }
    }

    fn pause(&mut self, connection: ConnId) {
        self.door.0.borrow_mut().pause(self.shard, connection, true);
    }

    fn resume(&mut self, connection: ConnId) {
        self.door.0.borrow_mut().pause(self.shard, connection, false);
    }

    fn close(&mut self, connection: ConnId) {
        self.door.0.borrow_mut().close_from(self.shard, connection);
    }

    fn file(&mut self, path: &Arc<Path>) -> FileId {
        self.door.0.borrow_mut().shards[self.shard].file(path)
    }

    fn forget(&mut self, file: FileId) {
        self.door.0.borrow_mut().shards[self.shard].forget(file);
    }

    /// Never waits: the world calls again when something has happened or the time has come.
    fn turn(&mut self, until: Option<Now>, done: &mut Vec<(Token, Done)>) {
        let mut space = self.door.0.borrow_mut();
        let side = &mut space.shards[self.shard];
        side.until = until;
        done.append(&mut side.ready);
    }

    fn waker(&self) -> Waker {
        let rung = Arc::clone(&self.rung);
        Waker::new(move || rung.store(true, Ordering::SeqCst))
    }

    fn buffers(&self) -> &BufferPool {
        &self.pool
    }

    fn disk(&mut self) -> &mut dyn Disk {
        &mut self.door
    }
}

/// The disk by itself, for the desk and for whoever starts a process.
#[derive(Debug)]
pub struct Door(pub Shared);

impl Door {
    fn note(&self, call: &str, path: &Path, end: u64) {
        self.0.borrow_mut().note(format_args!("disk {call} {} {end}", path.display()));
    }
}

impl Disk for Door {
    fn create_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        self.0.borrow_mut().drive.create_dir_all(path)
    }

    fn list(&mut self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        self.0.borrow_mut().drive.list(path)
    }

    fn read(&mut self, path: &Path, position: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.0.borrow_mut().drive.read(path, position, into)
    }

    fn length(&mut self, path: &Path) -> Result<u64, DiskError> {
        self.0.borrow_mut().drive.length(path)
    }

    fn write(&mut self, path: &Path, position: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.note("write", path, position + bytes.len() as u64);
        self.0.borrow_mut().drive.write(path, position, bytes)
    }

    fn replace(&mut self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        self.note("replace", path, bytes.len() as u64);
        self.0.borrow_mut().drive.replace(path, bytes)
    }

    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), DiskError> {
        self.note("truncate", path, length);
        self.0.borrow_mut().drive.truncate(path, length)
    }

    fn sync(&mut self, path: &Path) -> Result<(), DiskError> {
        self.note("sync", path, 0);
        self.0.borrow_mut().drive.sync(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.note("rename", to, 0);
        self.0.borrow_mut().drive.rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> Result<(), DiskError> {
        self.note("remove", path, 0);
        self.0.borrow_mut().drive.remove(path)
    }

    fn remove_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        self.0.borrow_mut().drive.remove_dir_all(path)
    }
}
