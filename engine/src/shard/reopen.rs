//! What the disk refuses: the partition stops, and its log is opened again once the disk works.

use std::sync::Arc;

use wire::ids::Offset;

use crate::ids::PartitionKey;
use crate::io::{DirEntry, DiskError, Io, IoError, IoErrorKind};
use crate::store::identity::FlushFailed;
use crate::store::{
    Checkpointed, Damage, DamageKind, Left, Log, Place, Recovery, folder_of, remedy_for,
};

use super::Shard;

/// How much room is looked for at most before a log is read again that a full disk has stopped.
const ROOM_BYTES_MAX: usize = 4 << 20;
/// And at least, where what it had no room for was not a batch.
const ROOM_BYTES_LEAST: usize = 64 << 10;

impl<I: Io> Shard<I> {
    /// A log on disk is not as it must be, or the disk refused something of it.
    pub(super) fn damaged(&mut self, key: PartitionKey, damage: &Damage) {
        if let DamageKind::Disk(kind) = damage.kind {
            if kind == IoErrorKind::DiskFull {
                let cell = &mut self.cells[key.0 as usize];
                cell.room_bytes = cell.room_bytes.max(ROOM_BYTES_LEAST);
            }
            self.flush_in_doubt(key);
        }
        self.disk_failed(key, damage.to_string());
    }

    /// The disk refused a write. A full one has taken nothing, and lost nothing.
    pub(super) fn write_refused(&mut self, key: PartitionKey, bytes: usize, error: &IoError) {
        if error.kind == IoErrorKind::DiskFull {
            self.cells[key.0 as usize].room_bytes = bytes.min(ROOM_BYTES_MAX);
        } else {
            self.flush_in_doubt(key);
        }
        self.disk_failed(key, format!("{error}; {}", remedy_for(error.kind)));
    }

    /// A flush failed, and the kernel may count as written what it could not write.
    pub(super) fn flush_refused(&mut self, key: PartitionKey, error: &IoError) {
        self.flush_in_doubt(key);
        self.disk_failed(key, format!("{error}; {}", remedy_for(error.kind)));
    }

    /// What is not known to be on disk is written again when the log is opened, here or by the process
    /// after this one.
    fn flush_in_doubt(&mut self, key: PartitionKey) {
        self.cells[key.0 as usize].left = Left::FlushFailed;
        self.mark_flush_failed();
    }

    /// Writes down that a flush has failed, once in the life of a process.
    pub(super) fn mark_flush_failed(&mut self) {
        if std::mem::replace(&mut self.upkeep.flush_failed, true) {
            return;
        }
        let data = Arc::clone(&self.options.data);
        if let Err(damage) = FlushFailed::mark(self.io.disk(), &data) {
            // Until then the next process does not know.
            self.upkeep.flush_failed = false;
            tracing::error!("that a flush has failed could not be written down: {damage}");
        }
    }

    /// The partition stops, all others go on.
    fn disk_failed(&mut self, key: PartitionKey, reason: String) {
        self.metrics.append_failures.add(1);
        let now = self.io.now();
        let cell = &mut self.cells[key.0 as usize];
        cell.log.append_failed();
        let mut effects = Vec::new();
        match &mut cell.mirror {
            Some(mirror) if !mirror.has_failed() => mirror.disk_failed(reason, now, &mut effects),
            _ => tracing::error!("partition {}: {reason}", cell.name),
        }
        self.run_mirror(key, effects);
    }

    /// Opens a log again that the disk had refused something of, once nothing is under way in it.
    pub(super) fn reopen(&mut self, key: PartitionKey) {
        let cell = &mut self.cells[key.0 as usize];
        if !cell.reopening || cell.writes > 0 || cell.flushing.is_some() {
            return;
        }
        cell.reopening = false;
        // To read it again while the disk is full would end as the last time.
        let room_bytes = cell.room_bytes;
        if room_bytes > 0 && self.look_for_room(room_bytes).is_err() {
            let now = self.io.now();
            if let Some(mirror) = &mut self.cells[key.0 as usize].mirror {
                mirror.still_refused(now);
            }
            return self.account(key);
        }
        // Recovery may remove segments and others take their names: before it, and once more for those
        // who have named them while it was at work.
        let segments = self.cells[key.0 as usize].log.segment_paths();
        self.forget_files(segments.clone());
        let opened = self.open_refused(key);
        self.forget_files(segments);
        match opened {
            Ok((log, recovery)) => {
                let name = self.cells[key.0 as usize].name.clone();
                self.tell_recovery(&name, &recovery, log.log_end());
                tracing::info!("partition {name}: the log is open again, up to {}", log.log_end());
                let cell = &mut self.cells[key.0 as usize];
                cell.log = log;
                // Of a log that was made anew nothing may be believed that was said of the old one.
                self.checkpoint_now(key);
                let cell = &mut self.cells[key.0 as usize];
                cell.left = Left::Unclean;
                cell.room_bytes = 0;
                cell.file = None;
                cell.closed.clear();
                let position = cell.position();
                let mut effects = Vec::new();
                if let Some(mirror) = &mut cell.mirror {
                    mirror.reopened(position, &mut effects);
                }
                self.run_mirror(key, effects);
                self.upkeep.touched(key);
                self.wake_all_watchers(key);
            }
            Err(damage) => self.damaged(key, &damage),
        }
    }

    /// What was written after the last flush is in doubt: recovery looks at all of it. A folder that an
    /// operator has moved away is made anew, as for a topic that was never here; so is one without a
    /// segment, which is what is left where that failed half-way.
    fn open_refused(&mut self, key: PartitionKey) -> Result<(Log, Recovery), Damage> {
        let wall_ms = self.io.wall_clock_ms();
        let data = Arc::clone(&self.options.data);
        let cell = &mut self.cells[key.0 as usize];
        let (name, config) = (cell.name.clone(), Arc::clone(cell.log.config()));
        let (checkpointed, left, id) = (cell.log.checkpointed(), cell.left, cell.topic.id);
        let place = Place { data: &data, partition: &name, config: &config };
        let disk = self.io.disk();
        let folder = folder_of(&data, &name);
        let is_segment = |entry: &DirEntry| entry.name.ends_with(".log");
        match disk.list(&folder) {
            Err(error) if error.kind == IoErrorKind::NotFound => {
                // Where the data folder itself is gone, this would make another one.
                disk.list(&data)?;
                tracing::warn!("partition {name}: its folder was moved away, and it begins anew");
                let log = Log::create(disk, place, id, Offset(0), wall_ms)?;
                self.cells[key.0 as usize].is_new = true;
                Ok((log, Recovery::default()))
            }
            Err(error) => Err(error.into()),
            Ok(entries) if !entries.iter().any(is_segment) => {
                let opened = Log::open(disk, place, Checkpointed::default(), left, wall_ms)?;
                self.keep_topic_id(key)?;
                self.cells[key.0 as usize].is_new = true;
                Ok(opened)
            }
            Ok(_) => Log::open(disk, place, checkpointed, left, wall_ms),
        }
    }

    /// Whether the disk takes as many bytes as it had no room for.
    fn look_for_room(&mut self, bytes: usize) -> Result<(), DiskError> {
        let file = self.options.data.join(format!("farspan-room-{}.tmp", self.options.id.0));
        let disk = self.io.disk();
        let written = disk.write(&file, 0, &vec![0; bytes]);
        let removed = disk.remove(&file);
        written.and(removed)
    }
}
