//! Files by path: opened when they are first used, and closed again when others need the room.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::flight::Target;
use super::kernel::Kernel;
use super::writer::{WriteJob, WriterKind};
use crate::ids::{FileId, Token};

/// A file that is open.
pub(super) enum Handle {
    /// Descriptors of this process: one, and one past the page cache once the direct writer asked.
    Descriptor { file: File, direct: Past },
    /// A place in the ring's table.
    Slot(u32),
}

/// The way to a file past the page cache.
pub(super) enum Past {
    Unopened,
    /// The file system has none.
    Refused,
    Open(File),
}

impl Handle {
    pub(super) fn target(&self) -> Target {
        match self {
            Self::Descriptor { file, .. } => Target::Fd(file.as_raw_fd()),
            Self::Slot(slot) => Target::Slot(*slot),
        }
    }

    /// The descriptor, for the writers that need one; they are paired with such handles.
    pub(super) fn descriptor(&self) -> &File {
        match self {
            Self::Descriptor { file, .. } => file,
            Self::Slot(_) => unreachable!("the ring's writer alone uses the table"),
        }
    }

    pub(super) fn as_descriptor(&self) -> Option<&File> {
        match self {
            Self::Descriptor { file, .. } => Some(file),
            Self::Slot(_) => None,
        }
    }

    /// The way past the page cache turned out to be none.
    pub(super) fn refuse_direct(&mut self) {
        if let Self::Descriptor { direct, .. } = self {
            *direct = Past::Refused;
        }
    }

    /// The descriptor past the page cache, which is opened the first time; `None` where the file
    /// system has no such way, or the process no descriptor to spare.
    pub(super) fn direct(&mut self) -> Option<&File> {
        let Self::Descriptor { file, direct } = self else { return None };
        if matches!(direct, Past::Unopened) {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let mut options = OpenOptions::new();
            *direct = match options.write(true).custom_flags(libc::O_DIRECT).open(path) {
                Ok(file) => Past::Open(file),
                // There may be some to spare the next time.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    Past::Unopened
                }
                Err(error) => {
                    tracing::debug!("written through the page cache, not past it: {error}");
                    Past::Refused
                }
            };
        }
        match direct {
            Past::Open(file) => Some(file),
            Past::Unopened | Past::Refused => None,
        }
    }
}

/// What waits for its turn on a file.
pub(super) enum FileOp {
    Write(WriteJob),
    Flush(Token),
}

/// A file that somebody named.
pub(super) struct Known {
    pub(super) path: Arc<Path>,
    handle: Option<Handle>,
    /// Operations that hold the handle.
    busy: u32,
    /// Used since the hand last passed.
    used: bool,
    forgotten: bool,
    /// Writes and flushes that were not started yet, in order.
    pub(super) waiting: VecDeque<FileOp>,
    /// Writes that were started and have not completed.
    pub(super) writing: usize,
    /// Is in the queue of those that wait for a handle.
    pub(super) starved: bool,
}

/// Why a file cannot be had now.
pub(super) enum Refusal {
    /// Every open file is in use; ask again when one has come to rest.
    Busy,
    Failed(io::Error),
}

/// All files of one shard.
///
/// Open files stand in a circle. To make room a hand goes round: it spares whoever is busy, gives
/// whoever was used since the last time another round, and closes the first of the others. That is
/// as good as closing the least recently used one and costs a bit per use.
pub(super) struct Files {
    kind: WriterKind,
    by_path: HashMap<Arc<Path>, FileId>,
    known: HashMap<FileId, Known>,
    next: u32,
    open: Vec<FileId>,
    hand: usize,
    open_max: usize,
    /// Places in the ring's table that are empty.
    free_slots: Vec<u32>,
}

impl Files {
    /// For the ring's writer this makes the table, as large as the limit on descriptors allows.
    pub(super) fn new(kind: WriterKind, open_max: usize, kernel: &mut Kernel) -> io::Result<Self> {
        let mut free_slots = Vec::new();
        if kind == WriterKind::Ring {
            let slots = u32::try_from(open_max).unwrap_or(u32::MAX);
            kernel.make_file_table(slots)?;
            free_slots = (0..slots).rev().collect();
        }
        let (by_path, known) = (HashMap::new(), HashMap::new());
        Ok(Self { kind, by_path, known, next: 0, open: Vec::new(), hand: 0, open_max, free_slots })
    }

    pub(super) fn name(&mut self, path: &Arc<Path>) -> FileId {
        if let Some(id) = self.by_path.get(path) {
            return *id;
        }
        let id = FileId(self.next);
        // Ids are not used again: a write that comes late must not reach another file.
        self.next = self.next.checked_add(1).expect("fewer than 2^32 files in a process's life");
        self.by_path.insert(Arc::clone(path), id);
        let known = Known {
            path: Arc::clone(path),
            handle: None,
            busy: 0,
            used: false,
            forgotten: false,
            waiting: VecDeque::new(),
            writing: 0,
            starved: false,
        };
        self.known.insert(id, known);
        id
    }

    pub(super) fn get_mut(&mut self, id: FileId) -> Option<&mut Known> {
        self.known.get_mut(&id)
    }

    pub(super) fn path_of(&self, id: FileId) -> Arc<Path> {
        let unknown = || Arc::from(Path::new("(a file that was forgotten)"));
        self.known.get(&id).map_or_else(unknown, |known| Arc::clone(&known.path))
    }

    /// Lets go of a path; the file is closed when nothing waits for it or is in flight.
    pub(super) fn forget(&mut self, id: FileId, kernel: &mut Kernel) {
        let Some(known) = self.known.get_mut(&id) else { return };
        known.forgotten = true;
        if self.by_path.get(&known.path) == Some(&id) {
            self.by_path.remove(&known.path);
        }
        self.drop_if_forgotten(id, kernel);
    }

    /// Opens the file where needed and keeps it open until `release`.
    pub(super) fn acquire(
        &mut self,
        id: FileId,
        create: bool,
        kernel: &mut Kernel,
    ) -> Result<&Handle, Refusal> {
        let Some(known) = self.known.get(&id) else {
            return Err(Refusal::Failed(io::ErrorKind::NotFound.into()));
        };
        if known.handle.is_none() {
            let path = Arc::clone(&known.path);
            while self.open.len() >= self.open_max {
                self.evict(kernel)?;
            }
            let handle = match self.open_handle(&path, create, kernel) {
                // The process ran out before we reached our own bound: do with what we have.
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    self.evict(kernel).map_err(|_| Refusal::Failed(error))?;
                    self.open_handle(&path, create, kernel).map_err(Refusal::Failed)?
                }
                other => other.map_err(Refusal::Failed)?,
            };
            self.open.push(id);
            self.known.get_mut(&id).expect("looked up before").handle = Some(handle);
        }
        let known = self.known.get_mut(&id).expect("looked up before");
        known.busy += 1;
        known.used = true;
        Ok(known.handle.as_ref().expect("opened before"))
    }

    /// The handle of a file that is held by `acquire`.
    pub(super) fn held(&mut self, id: FileId) -> &mut Handle {
        let known = self.known.get_mut(&id).expect("held files are known");
        known.handle.as_mut().expect("held files stay open")
    }

    pub(super) fn release(&mut self, id: FileId, kernel: &mut Kernel) {
        if let Some(known) = self.known.get_mut(&id) {
            known.busy -= 1;
            self.drop_if_forgotten(id, kernel);
        }
    }

    /// Ends a forgotten file once nothing holds it and nothing waits for it.
    pub(super) fn drop_if_forgotten(&mut self, id: FileId, kernel: &mut Kernel) {
        let Some(known) = self.known.get(&id) else { return };
        if known.forgotten && known.busy == 0 && known.waiting.is_empty() {
            if let Some(place) = self.open.iter().position(|open| *open == id) {
                self.close_at(place, kernel);
            }
            self.known.remove(&id);
        }
    }

    /// Closes one file that rests.
    fn evict(&mut self, kernel: &mut Kernel) -> Result<(), Refusal> {
        // After one round nobody counts as used any more.
        for _ in 0..self.open.len() * 2 {
            self.hand = (self.hand + 1) % self.open.len();
            let known = self.known.get_mut(&self.open[self.hand]).expect("open files are known");
            if known.busy == 0 && !std::mem::take(&mut known.used) {
                self.close_at(self.hand, kernel);
                return Ok(());
            }
        }
        Err(Refusal::Busy)
    }

    fn close_at(&mut self, place: usize, kernel: &mut Kernel) {
        let id = self.open.swap_remove(place);
        let known = self.known.get_mut(&id).expect("open files are known");
        if let Some(Handle::Slot(slot)) = known.handle.take() {
            match kernel.set_file(slot, -1) {
                Ok(()) => self.free_slots.push(slot),
                Err(error) => tracing::error!("a place in the file table is lost: {error}"),
            }
        }
    }

    fn open_handle(
        &mut self,
        path: &Path,
        create: bool,
        kernel: &mut Kernel,
    ) -> io::Result<Handle> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(false);
        let file = options.open(path)?;
        match self.kind {
            WriterKind::Inline | WriterKind::Direct => {
                Ok(Handle::Descriptor { file, direct: Past::Unopened })
            }
            WriterKind::Ring => {
                let slot = self.free_slots.pop().ok_or(io::ErrorKind::QuotaExceeded)?;
                match kernel.set_file(slot, file.as_raw_fd()) {
                    // The table holds the file; our own descriptor goes.
                    Ok(()) => Ok(Handle::Slot(slot)),
                    Err(error) => {
                        self.free_slots.push(slot);
                        Err(error)
                    }
                }
            }
        }
    }
}
