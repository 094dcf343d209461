//! Files by path on this host: what happens rarely, one blocking call at a time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::disk_kind;
use crate::io::{DirEntry, Disk, DiskError, IoErrorKind};

/// The host's file system. It holds nothing, so every thread may have its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDisk;

impl Disk for HostDisk {
    fn create_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        fs::create_dir_all(path).map_err(|e| failed("create the folder", path, &e))
    }

    fn list(&mut self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        let mut entries = entries_of(path).map_err(|e| failed("list", path, &e))?;
        entries.sort_unstable();
        Ok(entries)
    }

    fn read(&mut self, path: &Path, position: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        read_at(path, position, into).map_err(|e| failed("read", path, &e))
    }

    fn length(&mut self, path: &Path) -> Result<u64, DiskError> {
        fs::metadata(path).map(|m| m.len()).map_err(|e| failed("measure", path, &e))
    }

    fn write(&mut self, path: &Path, position: u64, bytes: &[u8]) -> Result<(), DiskError> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .and_then(|file| file.write_all_at(bytes, position))
            .map_err(|e| failed("write", path, &e))
    }

    fn replace(&mut self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        replace(path, bytes).map_err(|e| failed("replace", path, &e))
    }

    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), DiskError> {
        OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|file| file.set_len(length))
            .map_err(|e| failed("truncate", path, &e))
    }

    fn sync(&mut self, path: &Path) -> Result<(), DiskError> {
        File::open(path).and_then(|file| file.sync_all()).map_err(|e| failed("sync", path, &e))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError> {
        fs::rename(from, to).map_err(|e| failed("rename", from, &e))
    }

    fn remove(&mut self, path: &Path) -> Result<(), DiskError> {
        missing_is_fine(fs::remove_file(path)).map_err(|e| failed("remove", path, &e))
    }

    fn remove_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        missing_is_fine(fs::remove_dir_all(path)).map_err(|e| failed("remove", path, &e))
    }
}

fn failed(operation: &'static str, path: &Path, error: &io::Error) -> DiskError {
    let kind = disk_kind(error);
    DiskError { kind, operation, path: path.to_owned(), reason: error.to_string() }
}

fn entries_of(path: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // What vanished between the listing and the look is not there.
        let about = match entry.metadata() {
            Ok(about) => about,
            Err(error) if disk_kind(&error) == IoErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let is_dir = about.is_dir();
        let length = if is_dir { 0 } else { about.len() };
        let name = entry.file_name().to_string_lossy().into_owned();
        entries.push(DirEntry { name, is_dir, length });
    }
    Ok(entries)
}

fn read_at(path: &Path, position: u64, into: &mut [u8]) -> io::Result<usize> {
    let file = File::open(path)?;
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The new bytes are durable under another name before they take the old one's place, and the
/// folder is durable before we say so.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder_of(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = folder.join(name);
    let file = File::create(&temporary)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(&folder)?.sync_all()
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_holds_the_new_bytes_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut disk, path) = (HostDisk, folder.path().join("checkpoint"));
        disk.replace(&path, b"a long first version").expect("replaced");
        disk.replace(&path, b"second").expect("replaced");
        let mut bytes = [0; 32];
        assert_eq!(disk.read(&path, 0, &mut bytes).expect("read"), 6);
        assert_eq!(&bytes[..6], b"second");
        let names: Vec<_> = disk.list(folder.path()).expect("listed");
        assert_eq!(names, [DirEntry { name: "checkpoint".to_owned(), is_dir: false, length: 6 }]);
    }

    #[test]
    fn a_file_is_created_written_cut_renamed_and_removed_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut disk = HostDisk;
        let (deep, other) = (folder.path().join("a/b"), folder.path().join("a/c.log"));
        disk.create_dir_all(&deep).expect("created");
        let path = deep.join("0.log");
        disk.write(&path, 4, b"tail").expect("written");
        disk.write(&path, 0, b"head").expect("written");
        disk.truncate(&path, 6).expect("cut");
        disk.sync(&path).expect("synced");
        disk.sync(&deep).expect("synced");
        disk.rename(&path, &other).expect("renamed");
        assert_eq!(disk.length(&other).expect("measured"), 6);
        let mut bytes = [0; 6];
        assert_eq!(disk.read(&other, 2, &mut bytes).expect("read"), 4);
        assert_eq!(&bytes[..4], b"adta");
        assert_eq!(disk.length(&path).expect_err("gone").kind, IoErrorKind::NotFound);
        for _ in 0..2 {
            disk.remove(&other).expect("removed");
            disk.remove_dir_all(&deep).expect("removed");
        }
    }
}
