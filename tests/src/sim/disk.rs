//! A simulated disk: folders whose entries are durable once the folder is synced, files that lose
//! what was not synced, and faults on command.
//!
//! A process that is killed leaves everything it wrote. A power cut keeps, of each folder, its
//! changes since the last sync up to some point, and of each file some pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::io::{DirEntry, DiskError, IoErrorKind};

use super::file::File;
use super::random::Random;

/// Thrown where the process dies in the middle of a disk call.
#[derive(Debug)]
pub struct Killed;

/// A file or folder, for as long as the run lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(usize);

#[derive(Debug)]
enum Node {
    File(File),
    Folder(Folder),
}

#[derive(Debug, Default)]
struct Folder {
    live: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    /// Changes since the last sync, oldest first.
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Put(String, NodeId),
    Take(String),
    Rename(String, String),
}

impl Change {
    fn apply(&self, entries: &mut BTreeMap<String, NodeId>) {
        match self {
            Self::Put(name, node) => drop(entries.insert(name.clone(), *node)),
            Self::Take(name) => drop(entries.remove(name)),
            Self::Rename(from, to) => {
                if let Some(node) = entries.remove(from) {
                    entries.insert(to.clone(), node);
                }
            }
        }
    }
}

impl Folder {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }
}

/// What goes wrong with files below a folder, until it is mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub below: PathBuf,
    pub kind: TroubleKind,
    /// How many calls it still strikes.
    pub left: u32,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    Write(IoErrorKind),
    Sync,
    /// As `Sync`, and what was to be saved is dropped for good.
    SyncDrops,
}

/// A segment file that lost its place in the log by a rename.
#[derive(Clone, Debug)]
pub struct Gone {
    pub folder: PathBuf,
    pub name: String,
    pub node: NodeId,
}

/// All files of one machine.
#[derive(Debug)]
pub struct Drive {
    nodes: Vec<Node>,
    random: Random,
    pub troubles: Vec<Trouble>,
    /// Faults that struck.
    pub struck: u64,
    /// The process dies in the call after so many more that change something.
    pub fuse: Option<u64>,
    pub gone: Vec<Gone>,
    /// The sync that fails now drops what it was to save.
    drops: bool,
    /// A sync has dropped something that is not on the disk since.
    pub dropped: bool,
}

type Outcome<T> = Result<T, DiskError>;

fn error(kind: IoErrorKind, operation: &'static str, path: &Path) -> DiskError {
    DiskError { kind, operation, path: path.to_path_buf(), reason: format!("{kind:?} (simulated)") }
}

fn place(position: u64) -> usize {
    usize::try_from(position).expect("in memory")
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Drive {
    /// An empty disk.
    #[must_use]
    pub fn new(random: Random) -> Self {
        let nodes = vec![Node::Folder(Folder::default())];
        Self {
            nodes,
            random,
            troubles: Vec::new(),
            struck: 0,
            fuse: None,
            gone: Vec::new(),
            drops: false,
            dropped: false,
        }
    }

    /// The power goes: what was not synced is lost in parts.
    pub fn power_cut(&mut self) {
        let survive = *self.random.pick(&[0, 300, 500, 700, 950, 1_000]);
        self.dropped = false;
        for node in &mut self.nodes {
            match node {
                Node::File(file) => file.power_cut(survive, &mut self.random),
                Node::Folder(folder) => {
                    let pending = std::mem::take(&mut folder.pending);
                    let kept = match self.random.below(3) {
                        0 => 0,
                        1 => pending.len(),
                        _ => self.random.size(0, pending.len()),
                    };
                    pending[..kept].iter().for_each(|change| change.apply(&mut folder.durable));
                    folder.live.clone_from(&folder.durable);
                }
            }
        }
    }

    /// The node at a path.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<NodeId> {
        let mut at = NodeId(0);
        for part in path.iter().filter(|part| *part != "/") {
            let Node::Folder(folder) = &self.nodes[at.0] else { return None };
            at = *folder.live.get(part.to_string_lossy().as_ref())?;
        }
        Some(at)
    }

    /// The bytes of a file; none of a folder.
    #[must_use]
    pub fn bytes(&self, node: NodeId) -> &[u8] {
        match &self.nodes[node.0] {
            Node::File(file) => file.bytes(),
            Node::Folder(_) => &[],
        }
    }

    /// Whether a fault strikes now.
    pub fn strike(&mut self, path: &Path, is_sync: bool) -> Option<IoErrorKind> {
        let fits = |trouble: &&mut Trouble| {
            let is_its_kind = !matches!(trouble.kind, TroubleKind::Write(_)) == is_sync;
            trouble.left > 0 && is_its_kind && path.starts_with(&trouble.below)
        };
        let trouble = self.troubles.iter_mut().find(fits)?;
        trouble.left -= 1;
        self.struck += 1;
        match trouble.kind {
            TroubleKind::Write(kind) => Some(kind),
            TroubleKind::Sync => Some(IoErrorKind::Disk),
            TroubleKind::SyncDrops => {
                self.drops = true;
                Some(IoErrorKind::Disk)
            }
        }
    }

    /// The file at a path, made where it is missing.
    pub fn open(&mut self, path: &Path) -> Outcome<NodeId> {
        if let Some(node) = self.find(path) {
            return Ok(node);
        }
        let node = NodeId(self.nodes.len());
        let name = name_of(path);
        self.folder("open", path.parent().unwrap_or(path))?.change(Change::Put(name, node));
        self.nodes.push(Node::File(File::default()));
        Ok(node)
    }

    /// Writes to an open file, whatever its name is by now.
    pub fn write_node(&mut self, node: NodeId, position: u64, bytes: &[u8]) {
        if let Node::File(file) = &mut self.nodes[node.0] {
            file.write(place(position), bytes);
        }
    }

    /// Syncs an open file, or says that this failed.
    pub fn sync_node(&mut self, node: NodeId, fails: bool) {
        match &mut self.nodes[node.0] {
            Node::File(file) if fails && std::mem::take(&mut self.drops) => {
                self.dropped = true;
                file.sync_dropped();
            }
            Node::File(_) if fails => {}
            Node::File(file) => file.sync(),
            Node::Folder(_) if fails => {}
            Node::Folder(folder) => {
                let pending = std::mem::take(&mut folder.pending);
                pending.iter().for_each(|change| change.apply(&mut folder.durable));
            }
        }
    }

    fn folder(&mut self, operation: &'static str, path: &Path) -> Outcome<&mut Folder> {
        match self.find(path).map(|node| &mut self.nodes[node.0]) {
            Some(Node::Folder(folder)) => Ok(folder),
            _ => Err(error(IoErrorKind::NotFound, operation, path)),
        }
    }

    fn file(&mut self, operation: &'static str, path: &Path) -> Outcome<&mut File> {
        match self.find(path).map(|node| &mut self.nodes[node.0]) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(error(IoErrorKind::NotFound, operation, path)),
        }
    }

    /// Dies before or after `call`, or runs it.
    fn mortal<T>(&mut self, call: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        match &mut self.fuse {
            Some(0) => {
                self.fuse = None;
                if self.random.chance(500) {
                    let _ = call(self);
                }
                std::panic::resume_unwind(Box::new(Killed))
            }
            Some(left) => *left -= 1,
            None => {}
        }
        call(self)
    }

    fn struck(&mut self, operation: &'static str, path: &Path, is_sync: bool) -> Outcome<()> {
        match self.strike(path, is_sync) {
            Some(kind) => Err(error(kind, operation, path)),
            None => Ok(()),
        }
    }
}

impl engine::io::Disk for Drive {
    fn create_dir_all(&mut self, path: &Path) -> Outcome<()> {
        self.mortal(|drive| {
            let mut at = PathBuf::from("/");
            for part in path.iter().filter(|part| *part != "/") {
                let next = at.join(part);
                if drive.find(&next).is_none() {
                    let node = NodeId(drive.nodes.len());
                    let name = part.to_string_lossy().into_owned();
                    drive.folder("create", &at)?.change(Change::Put(name, node));
                    drive.nodes.push(Node::Folder(Folder::default()));
                }
                at = next;
            }
            Ok(())
        })
    }

    fn list(&mut self, path: &Path) -> Outcome<Vec<DirEntry>> {
        let entries = self.folder("list", path)?.live.clone();
        let entry = |(name, node): (String, NodeId)| {
            let is_dir = matches!(self.nodes[node.0], Node::Folder(_));
            DirEntry { name, is_dir, length: self.bytes(node).len() as u64 }
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    fn read(&mut self, path: &Path, position: u64, into: &mut [u8]) -> Outcome<usize> {
        let bytes = self.file("read", path)?.bytes();
        let start = place(position).min(bytes.len());
        let count = into.len().min(bytes.len() - start);
        into[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn length(&mut self, path: &Path) -> Outcome<u64> {
        Ok(self.file("measure", path)?.bytes().len() as u64)
    }

    fn write(&mut self, path: &Path, position: u64, bytes: &[u8]) -> Outcome<()> {
        let whole = bytes.len();
        let torn = if self.fuse == Some(0) { self.random.size(0, whole) } else { whole };
        self.mortal(|drive| {
            drive.struck("write", path, false)?;
            let node = drive.open(path)?;
            drive.write_node(node, position, &bytes[..torn]);
            Ok(())
        })
    }

    fn replace(&mut self, path: &Path, bytes: &[u8]) -> Outcome<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        self.write(&temporary, 0, &[])?;
        self.truncate(&temporary, 0)?;
        self.write(&temporary, 0, bytes)?;
        self.sync(&temporary)?;
        self.rename(&temporary, path)?;
        self.sync(path.parent().unwrap_or(path))
    }

    fn truncate(&mut self, path: &Path, length: u64) -> Outcome<()> {
        self.mortal(|drive| {
            drive.struck("truncate", path, false)?;
            drive.file("truncate", path)?.truncate(place(length));
            Ok(())
        })
    }

    fn sync(&mut self, path: &Path) -> Outcome<()> {
        self.mortal(|drive| {
            let missing = || error(IoErrorKind::NotFound, "sync", path);
            let node = drive.find(path).ok_or_else(missing)?;
            let struck = drive.struck("sync", path, true);
            drive.sync_node(node, struck.is_err());
            struck
        })
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Outcome<()> {
        self.mortal(|drive| {
            drive.struck("rename", from, false)?;
            let missing = || error(IoErrorKind::NotFound, "rename", from);
            let node = drive.find(from).ok_or_else(missing)?;
            let parent = from.parent().unwrap_or(from);
            assert_eq!(Some(parent), to.parent(), "renames stay in their folder");
            let (old, new) = (name_of(from), name_of(to));
            if old.ends_with(".log") {
                drive.gone.push(Gone { folder: parent.to_path_buf(), name: old.clone(), node });
            }
            drive.folder("rename", parent)?.change(Change::Rename(old, new));
            Ok(())
        })
    }

    fn remove(&mut self, path: &Path) -> Outcome<()> {
        self.mortal(|drive| {
            if drive.find(path).is_some() {
                let name = name_of(path);
                drive.folder("remove", path.parent().unwrap_or(path))?.change(Change::Take(name));
            }
            Ok(())
        })
    }

    fn remove_dir_all(&mut self, path: &Path) -> Outcome<()> {
        self.remove(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::io::Disk as _;

    #[test]
    fn a_replaced_file_is_the_old_or_the_new_one_wherever_the_power_goes() {
        for seed in 0..300 {
            let mut drive = Drive::new(Random::new(seed));
            let (folder, path) = (Path::new("/d"), Path::new("/d/f"));
            drive.create_dir_all(folder).expect("made");
            drive.sync(Path::new("/")).expect("synced");
            drive.replace(path, b"old").expect("replaced");
            drive.fuse = Some(seed % 8);
            let dies = std::panic::AssertUnwindSafe(|| drive.replace(path, b"new, and longer"));
            let lived = std::panic::catch_unwind(dies).is_ok();
            drive.power_cut();
            let bytes = drive.bytes(drive.find(path).expect("one of them")).to_vec();
            let is_new = bytes == b"new, and longer";
            assert!(is_new || !lived && bytes == b"old", "{bytes:?}");
        }
    }

    #[test]
    fn a_file_whose_folder_was_not_synced_may_be_gone() {
        let mut kept = 0;
        for seed in 0..100 {
            let mut drive = Drive::new(Random::new(seed));
            drive.create_dir_all(Path::new("/d")).expect("made");
            drive.sync(Path::new("/")).expect("synced");
            drive.write(Path::new("/d/f"), 0, b"x").expect("written");
            drive.sync(Path::new("/d/f")).expect("synced");
            drive.power_cut();
            kept += u32::from(drive.find(Path::new("/d/f")).is_some());
        }
        assert!((1..100).contains(&kept));
    }
}
