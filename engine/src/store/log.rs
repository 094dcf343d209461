//! A partition's log: what it is made of, how it begins, and the offsets it has.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::ids::{LeaderEpoch, Offset, TopicId};

use super::config::LogConfig;
use super::damage::{Damage, DamageKind};
use super::epochs::LeaderEpochs;
use super::identity::write_topic_id;
use super::index::Page;
use super::names::FileKind;
use super::producers::Producers;
use super::segment::{Active, Segment};
use crate::ids::TopicPartition;
use crate::io::Disk;

/// A partition's log. It holds no file open and reads nothing that it was not asked for. Idle, with
/// two producers, it takes 1.5 KB: 504 bytes of its own, 200 for folder, segment and epoch, 700 for
/// the map of producers (measured as resident memory over 100,000 logs, in `tests/measure.rs`).
///
/// Two ends: up to `planned_end` appends are planned, up to `log_end` the shard has written them.
/// Readers see what is written. A write that failed poisons the log: what the disk holds is then
/// known to recovery alone.
#[derive(Debug)]
pub struct Log {
    pub(super) partition: TopicPartition,
    pub(super) folder: Arc<Path>,
    pub(super) config: Arc<LogConfig>,
    /// Sorted by base offset, never empty; the last one is appended to.
    pub(super) segments: Vec<Segment>,
    pub(super) active: Active,
    pub(super) epochs: LeaderEpochs,
    pub(super) producers: Producers,
    pub(super) log_start: Offset,
    pub(super) planned_end: Offset,
    pub(super) written: Written,
    pub(super) recovery_point: Offset,
    pub(super) pending: VecDeque<Pending>,
    pub(super) hints: Hints,
    /// The page of an offset index that was read last.
    pub(super) page: Option<Page>,
    /// Where the last stable offset stands, once it was looked up.
    pub(super) stable: Option<Spot>,
    /// Offset of the newest snapshot of producers.
    pub(super) last_snapshot: Offset,
    /// Whether files were made that the folder may not durably know of.
    pub(super) folder_dirty: bool,
    pub(super) poisoned: bool,
    /// The end was cut and may lie behind a gap: no segment may be named by it, since recovery takes
    /// a gap between two segments for something that is missing.
    pub(super) may_end_in_gap: bool,
}

/// How far the log is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub end: Offset,
    /// Base of the segment that the end is in.
    pub base: Offset,
    /// Where in its file.
    pub position: u64,
}

/// A planned write that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub until: Written,
    pub hint: Spot,
    pub is_written: bool,
}

/// Where the batch that has an offset stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub offset: Offset,
    /// Base of its segment.
    pub base: Offset,
    pub position: u64,
    /// Bytes of the batch.
    pub size: u64,
}

/// Where the last appends began: readers at the end of the log ask for just these offsets.
#[derive(Clone, Debug, Default)]
pub(super) struct Hints {
    spots: Vec<Spot>,
    next: usize,
}

const HINTS_MAX: usize = 8;

impl Hints {
    pub(super) fn add(&mut self, spot: Spot) {
        if self.spots.len() < HINTS_MAX {
            self.spots.push(spot);
        } else {
            self.spots[self.next] = spot;
            self.next = (self.next + 1) % HINTS_MAX;
        }
    }

    pub(super) fn find(&self, offset: Offset) -> Option<Spot> {
        self.spots.iter().find(|spot| spot.offset == offset).copied()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Which log, where, and the settings it lives by.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The data folder, as in Kafka's `log.dirs`.
    pub data: &'a Path,
    pub partition: &'a TopicPartition,
    pub config: &'a Arc<LogConfig>,
}

/// What the checkpoint files of the data folder say of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpointed {
    pub recovery_point: Offset,
    pub log_start: Offset,
    pub high_watermark: Offset,
}

impl Log {
    /// Makes the folder of a new log that starts at `start`.
    pub fn create(
        disk: &mut dyn Disk,
        place: Place<'_>,
        id: TopicId,
        start: Offset,
        wall_ms: i64,
    ) -> Result<Self, Damage> {
        let folder: Arc<Path> = folder_of(place.data, place.partition).into();
        disk.create_dir_all(&folder)?;
        if !disk.list(&folder)?.iter().all(|entry| FileKind::parse(&entry.name).is_none()) {
            return Err(Damage {
                kind: DamageKind::Order,
                file: folder.to_path_buf(),
                position: None,
                wrong: "a log is there already".into(),
                remedy: "open it, or move the folder away",
            });
        }
        if !id.is_zero() {
            write_topic_id(disk, &folder, id)?;
        }
        disk.write(&FileKind::Log.path(&folder, start), 0, &[])?;
        disk.sync(&folder)?;
        disk.sync(place.data)?;
        let segment = Segment::empty(start, wall_ms);
        let active = Active::new(wall_ms);
        Ok(Self::assemble(place, folder, vec![segment], active, start))
    }

    /// A log of these segments that ends at `end`; what it knows besides is set by the caller.
    pub(super) fn assemble(
        place: Place<'_>,
        folder: Arc<Path>,
        segments: Vec<Segment>,
        active: Active,
        end: Offset,
    ) -> Self {
        let last = segments.last().expect("a log has a segment");
        let written = Written { end, base: last.base, position: last.size };
        Self {
            partition: place.partition.clone(),
            folder,
            config: Arc::clone(place.config),
            log_start: segments[0].base,
            segments,
            active,
            epochs: LeaderEpochs::default(),
            producers: Producers::default(),
            planned_end: end,
            written,
            recovery_point: end,
            pending: VecDeque::new(),
            hints: Hints::default(),
            page: None,
            stable: None,
            last_snapshot: Offset(0),
            folder_dirty: false,
            poisoned: false,
            may_end_in_gap: false,
        }
    }

    /// Whether a write failed.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Which partition this is.
    #[must_use]
    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Arc<Path> {
        &self.folder
    }

    /// The settings it lives by.
    #[must_use]
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// The files of batches, by the names that they have.
    #[must_use]
    pub fn segment_paths(&mut self) -> Vec<Arc<Path>> {
        let folder = Arc::clone(&self.folder);
        self.segments.iter_mut().map(|segment| segment.log_path(&folder)).collect()
    }

    /// Other settings from now on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// The offset after the last record that is written: the next one to ask the source for.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        self.written.end
    }

    /// The offset after the last record that is planned.
    #[must_use]
    pub fn planned_end(&self) -> Offset {
        self.planned_end
    }

    /// Where in its file the next batch goes, unless the log rolls before it.
    #[must_use]
    pub fn append_position(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.size)
    }

    /// The offset after the last record that consumers may read. This node has the only copy that it
    /// answers for, so that is all of them.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.written.end
    }

    /// The first offset that may be read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// The offset up to which every transaction is decided.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        match self.producers.first_unstable() {
            // A transaction may have begun with records that were deleted since.
            Some(first) => first.max(self.log_start).min(self.written.end),
            None => self.written.end,
        }
    }

    /// The leader epoch of the newest batch that is planned.
    #[must_use]
    pub fn last_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.last()
    }

    /// Where each epoch begins.
    #[must_use]
    pub fn epochs(&self) -> &LeaderEpochs {
        &self.epochs
    }

    /// Answers OffsetsForLeaderEpoch: the largest epoch not above `epoch` and where it ends; `None`
    /// is undefined (-1, -1).
    #[must_use]
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.epochs.end_offset_for(epoch, self.written.end)
    }

    /// The producers and transactions that the log has seen.
    #[must_use]
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// How many segments it has.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Whether it holds no batch at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.len() == 1 && self.segments[0].size == 0
    }

    /// Bytes that the log takes on the heap besides its own size, estimated.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let segments: usize =
            self.segments.iter().map(|segment| segment.heap_bytes(&self.folder)).sum();
        self.folder.as_os_str().len()
            + segments
            + self.segments.capacity() * size_of::<Segment>()
            + self.active.heap_bytes()
            + self.epochs.heap_bytes()
            + self.pending.capacity() * size_of::<Pending>()
            + self.hints.spots.capacity() * size_of::<Spot>()
    }
}

/// Where a partition's files are.
#[must_use]
pub fn folder_of(data: &Path, partition: &TopicPartition) -> PathBuf {
    data.join(partition.to_string())
}
