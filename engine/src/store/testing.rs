//! What the tests of this room share: disks, and batches that are made quickly.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use wire::batch::{Attributes, BatchBuilder, Batches, NewRecord};
use wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use super::scan::admitted;
use crate::admitted::{AdmittedBatch, Control};
use crate::io::{DirEntry, Disk, DiskError, IoErrorKind};

/// Files in memory. Everything is durable at once, but what was not synced is remembered; tests damage
/// what they want damaged.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryDisk {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub folders: BTreeSet<PathBuf>,
    /// How many reads there were.
    pub reads: usize,
    /// Files that were changed and not synced since.
    pub unsynced: BTreeSet<PathBuf>,
    /// Files that came or went in folders that were not synced since.
    pub unsynced_names: BTreeSet<PathBuf>,
    /// Calls that change something and still succeed; then the disk is full.
    pub writes_left: Option<usize>,
}

impl MemoryDisk {
    /// A file's bytes.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        self.files.get(path).unwrap_or_else(|| panic!("no {}", path.display())).clone()
    }

    fn file(&mut self, operation: &'static str, path: &Path) -> Result<&mut Vec<u8>, DiskError> {
        match self.files.get_mut(path) {
            Some(file) => Ok(file),
            None => Err(error(IoErrorKind::NotFound, operation, path, "no such file")),
        }
    }

    fn change(&mut self, operation: &'static str, path: &Path) -> Result<(), DiskError> {
        self.unsynced.insert(path.to_path_buf());
        if operation == "remove" || operation == "rename" || !self.files.contains_key(path) {
            self.unsynced_names.insert(path.to_path_buf());
        }
        match &mut self.writes_left {
            Some(0) => Err(error(IoErrorKind::DiskFull, operation, path, "no room")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn error(
    kind: IoErrorKind,
    operation: &'static str,
    path: &Path,
    reason: &(impl ToString + ?Sized),
) -> DiskError {
    DiskError { kind, operation, path: path.to_path_buf(), reason: reason.to_string() }
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("in memory")
}

impl Disk for MemoryDisk {
    fn create_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        self.folders.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn list(&mut self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        let inside = |file: &Path| file.parent() == Some(path);
        let name = |file: &Path| file.file_name().expect("a name").to_string_lossy().into_owned();
        let mut entries: Vec<_> = self
            .files
            .iter()
            .filter(|(file, _)| inside(file))
            .map(|(file, bytes)| DirEntry {
                name: name(file),
                is_dir: false,
                length: bytes.len() as u64,
            })
            .collect();
        if entries.is_empty() && !self.folders.contains(path) {
            return Err(error(IoErrorKind::NotFound, "list", path, "no such folder"));
        }
        let folders = self.folders.iter().filter(|folder| inside(folder));
        entries.extend(folders.map(|f| DirEntry { name: name(f), is_dir: true, length: 0 }));
        entries.sort();
        Ok(entries)
    }

    fn read(&mut self, path: &Path, position: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.reads += 1;
        let file = self.file("read", path)?;
        let start = index(position).min(file.len());
        let count = into.len().min(file.len() - start);
        into[..count].copy_from_slice(&file[start..start + count]);
        Ok(count)
    }

    fn length(&mut self, path: &Path) -> Result<u64, DiskError> {
        Ok(self.file("stat", path)?.len() as u64)
    }

    fn write(&mut self, path: &Path, position: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.change("write", path)?;
        let file = self.files.entry(path.to_path_buf()).or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        let end = index(position) + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[index(position)..end].copy_from_slice(bytes);
        Ok(())
    }

    fn replace(&mut self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        self.change("replace", path)?;
        self.files.insert(path.to_path_buf(), bytes.to_vec());
        self.unsynced.remove(path);
        self.unsynced_names.remove(path);
        Ok(())
    }

    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), DiskError> {
        self.change("truncate", path)?;
        self.file("truncate", path)?.resize(index(length), 0);
        Ok(())
    }

    fn sync(&mut self, path: &Path) -> Result<(), DiskError> {
        self.unsynced.remove(path);
        self.unsynced_names.retain(|file| file.parent() != Some(path));
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.change("rename", from)?;
        let bytes = std::mem::take(self.file("rename", from)?);
        self.files.remove(from);
        self.files.insert(to.to_path_buf(), bytes);
        self.unsynced_names.insert(to.to_path_buf());
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), DiskError> {
        self.change("remove", path)?;
        self.files.remove(path);
        Ok(())
    }

    fn remove_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        self.files.retain(|file, _| !file.starts_with(path));
        self.folders.retain(|folder| !folder.starts_with(path));
        Ok(())
    }
}

/// The files of this machine, for tests that somebody else reads after.
#[derive(Debug, Default)]
pub(super) struct FileDisk;

fn lift<T>(
    operation: &'static str,
    path: &Path,
    result: std::io::Result<T>,
) -> Result<T, DiskError> {
    result.map_err(|reason| {
        let kind = match reason.kind() {
            ErrorKind::NotFound => IoErrorKind::NotFound,
            _ => IoErrorKind::Disk,
        };
        error(kind, operation, path, &reason)
    })
}

impl Disk for FileDisk {
    fn create_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        lift("create", path, std::fs::create_dir_all(path))
    }

    fn list(&mut self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        let mut entries = Vec::new();
        for entry in lift("list", path, std::fs::read_dir(path))? {
            let entry = lift("list", path, entry)?;
            let data = lift("list", path, entry.metadata())?;
            let (is_dir, length) = (data.is_dir(), if data.is_dir() { 0 } else { data.len() });
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(DirEntry { name, is_dir, length });
        }
        entries.sort();
        Ok(entries)
    }

    fn read(&mut self, path: &Path, position: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let mut file = lift("open", path, std::fs::File::open(path))?;
        lift("seek", path, file.seek(SeekFrom::Start(position)))?;
        let mut filled = 0;
        while filled < into.len() {
            match lift("read", path, file.read(&mut into[filled..]))? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    fn length(&mut self, path: &Path) -> Result<u64, DiskError> {
        Ok(lift("stat", path, std::fs::metadata(path))?.len())
    }

    fn write(&mut self, path: &Path, position: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let mut file = lift("open", path, file)?;
        lift("seek", path, file.seek(SeekFrom::Start(position)))?;
        lift("write", path, file.write_all(bytes))
    }

    fn replace(&mut self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let temporary = path.with_extension("tmp");
        lift("write", path, std::fs::write(&temporary, bytes))?;
        lift("rename", path, std::fs::rename(&temporary, path))
    }

    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), DiskError> {
        let file = lift("open", path, std::fs::OpenOptions::new().write(true).open(path))?;
        lift("truncate", path, file.set_len(length))
    }

    fn sync(&mut self, path: &Path) -> Result<(), DiskError> {
        lift("sync", path, std::fs::File::open(path).and_then(|file| file.sync_all()))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError> {
        lift("rename", from, std::fs::rename(from, to))
    }

    fn remove(&mut self, path: &Path) -> Result<(), DiskError> {
        match lift("remove", path, std::fs::remove_file(path)) {
            Err(error) if error.kind != IoErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn remove_dir_all(&mut self, path: &Path) -> Result<(), DiskError> {
        match lift("remove", path, std::fs::remove_dir_all(path)) {
            Err(error) if error.kind != IoErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A data batch of these offsets, without bytes.
pub(super) fn data(first: i64, last: i64) -> AdmittedBatch {
    AdmittedBatch {
        position: 0,
        size: 100,
        base_offset: Offset(first),
        last_offset: Offset(last),
        leader_epoch: LeaderEpoch(0),
        max_timestamp: 1_000 + last,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch(-1),
        base_sequence: -1,
        last_sequence: -1,
        is_transactional: false,
        control: None,
    }
}

/// The end of a transaction, without bytes.
pub(super) fn marker(offset: i64, producer: i64, epoch: i16, is_abort: bool) -> AdmittedBatch {
    let control = if is_abort {
        Control::Abort { coordinator_epoch: 3 }
    } else {
        Control::Commit { coordinator_epoch: 3 }
    };
    let batch = data(offset, offset).by(producer, epoch, -1).transactional();
    AdmittedBatch { control: Some(control), ..batch }
}

/// Changes to a batch.
pub(super) trait Making {
    fn by(self, producer: i64, epoch: i16, sequence: i32) -> Self;
    fn transactional(self) -> Self;
    fn at(self, timestamp: i64) -> Self;
}

impl Making for AdmittedBatch {
    fn by(mut self, producer: i64, epoch: i16, sequence: i32) -> Self {
        self.producer_id = ProducerId(producer);
        self.producer_epoch = ProducerEpoch(epoch);
        self.base_sequence = sequence;
        let delta = i32::try_from(self.last_offset.0 - self.base_offset.0).expect("small");
        self.last_sequence = if sequence < 0 { -1 } else { sequence + delta };
        self
    }

    fn transactional(mut self) -> Self {
        self.is_transactional = true;
        self
    }

    fn at(mut self, timestamp: i64) -> Self {
        self.max_timestamp = timestamp;
        self
    }
}

/// What a batch of real bytes is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub first: i64,
    pub records: i32,
    /// Bytes of each record's value.
    pub value: usize,
    /// Timestamp of the first record; each one more is a millisecond later.
    pub timestamp: i64,
    pub epoch: i32,
    /// Producer id, its epoch, and whether in a transaction.
    pub producer: Option<(i64, i16, bool)>,
    /// For the end of a transaction: whether it is an abort. It needs a producer.
    pub ends: Option<bool>,
}

impl Spec {
    pub const PLAIN: Self = Self {
        first: 0,
        records: 1,
        value: 10,
        timestamp: 1_000,
        epoch: 0,
        producer: None,
        ends: None,
    };

    pub fn next(&self) -> i64 {
        self.first + i64::from(self.records)
    }

    pub fn build(&self) -> Vec<u8> {
        let mut batch = BatchBuilder::new(Offset(self.first), self.timestamp)
            .leader_epoch(LeaderEpoch(self.epoch));
        if let Some((id, epoch, transactional)) = self.producer {
            let (id, epoch) = (ProducerId(id), ProducerEpoch(epoch));
            if let Some(is_abort) = self.ends {
                return marker_bytes(self, is_abort, id, epoch);
            }
            batch = batch.producer(id, epoch, 0);
            batch = batch.attributes(Attributes(0).with_transactional(transactional));
        }
        let value = vec![b'v'; self.value];
        for delta in 0..self.records {
            batch = batch.record(NewRecord {
                offset_delta: delta,
                timestamp_delta: i64::from(delta),
                value: Some(&value),
                ..NewRecord::default()
            });
        }
        batch.build()
    }
}

fn marker_bytes(spec: &Spec, is_abort: bool, id: ProducerId, epoch: ProducerEpoch) -> Vec<u8> {
    let key = [0, 0, 0, u8::from(!is_abort)];
    let value = [0, 0, 0, 0, 0, 3];
    BatchBuilder::new(Offset(spec.first), spec.timestamp)
        .leader_epoch(LeaderEpoch(spec.epoch))
        .producer(id, epoch, -1)
        .attributes(Attributes(0).with_transactional(true).with_control(true))
        .record(NewRecord { key: Some(&key), value: Some(&value), ..NewRecord::default() })
        .build()
}

/// What admission would say of these bytes.
pub(super) fn admit(bytes: &[u8]) -> Vec<AdmittedBatch> {
    Batches::new(bytes)
        .map(|found| {
            let (position, batch) = found.expect("whole batches");
            AdmittedBatch { position, ..admitted(&batch) }
        })
        .collect()
}
