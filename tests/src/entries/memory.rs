//! Files in memory. Everything is durable at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use engine::io::{DirEntry, Disk, DiskError, IoErrorKind};

/// The longest file that may be asked for: beyond it some length of a stranger was believed.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryDisk {
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(super) folders: BTreeSet<PathBuf>,
}

impl MemoryDisk {
    fn file(&mut self, operation: &'static str, path: &Path) -> Result<&mut Vec<u8>, DiskError> {
        self.files.get_mut(path).ok_or_else(|| missing(operation, path))
    }
}

fn missing(operation: &'static str, path: &Path) -> DiskError {
    let reason = "no such file".to_owned();
    DiskError { kind: IoErrorKind::NotFound, operation, path: path.to_path_buf(), reason }
}

fn place(position: u64) -> usize {
    assert!(position <= FILE_BYTES_MAX, "position {position} of a small file");
    usize::try_from(position).expect("in memory")
}

impl Disk for MemoryDisk {
    fn create_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        self.folders.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn list(&mut self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        let name =
            |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let files = self.files.iter().filter(|(file, _)| file.parent() == Some(path));
        let files = files.map(|(file, bytes)| DirEntry {
            name: name(file),
            is_dir: false,
            length: bytes.len() as u64,
        });
        let folders = self.folders.iter().filter(|folder| folder.parent() == Some(path));
        let folders = folders.map(|f| DirEntry { name: name(f), is_dir: true, length: 0 });
        let mut entries: Vec<_> = files.chain(folders).collect();
        if entries.is_empty() && !self.folders.contains(path) {
            return Err(missing("list", path));
        }
        entries.sort();
        Ok(entries)
    }

    fn read(&mut self, path: &Path, position: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let file = self.file("read", path)?;
        let start = usize::try_from(position).unwrap_or(usize::MAX).min(file.len());
        let count = into.len().min(file.len() - start);
        into[..count].copy_from_slice(&file[start..start + count]);
        Ok(count)
    }

    fn length(&mut self, path: &Path) -> Result<u64, DiskError> {
        Ok(self.file("stat", path)?.len() as u64)
    }

    fn write(&mut self, path: &Path, position: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let file = self.files.entry(path.to_path_buf()).or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, end) = (place(position), place(position) + bytes.len());
        if file.len() < end {
            file.resize(end, 0);
        }
        file[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn replace(&mut self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        self.files.insert(path.to_path_buf(), bytes.to_vec());
        Ok(())
    }

    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), DiskError> {
        self.file("truncate", path)?.resize(place(length), 0);
        Ok(())
    }

    fn sync(&mut self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let bytes = self.files.remove(from).ok_or_else(|| missing("rename", from))?;
        self.files.insert(to.to_path_buf(), bytes);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), DiskError> {
        self.files.remove(path);
        Ok(())
    }

    fn remove_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        self.files.retain(|file, _| !file.starts_with(path));
        self.folders.retain(|folder| !folder.starts_with(path));
        Ok(())
    }
}
