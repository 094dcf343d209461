//! One segment: the batches of its log, each compared with the indexes beside it.

use std::io;
use std::path::{Path, PathBuf};

use wire::batch::Batch;

use super::index::{AbortedEntry, Index, OffsetEntry, TimeEntry};
use super::item::{BatchItem, Item};
use super::log::{LogFile, Next};
use super::records;
use super::report::{Fault, Report};
use super::small::Epochs;

/// The files of a segment, as far as they are there, and which of them are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    /// From the name; files that are named otherwise have none, and no indexes either.
    pub(super) base: Option<i64>,
    pub(super) log: Option<Part>,
    pub(super) index: Option<Part>,
    pub(super) time_index: Option<Part>,
    pub(super) txn_index: Option<Part>,
}

/// A file of a segment.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    /// It is read either way, since the others are compared with it.
    pub(super) is_shown: bool,
}

/// What is true of a log up to where it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// The offset after the last batch.
    pub(super) next: Option<i64>,
    epoch: i32,
    /// A batch could not be found: what stands behind it is not known.
    pub(super) is_broken: bool,
}

/// How batches are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub(super) records: bool,
}

struct Indexes {
    offset: Option<Index<OffsetEntry>>,
    time: Option<Index<TimeEntry>>,
    txn: Option<Index<AbortedEntry>>,
}

/// Shows and checks a segment; goes on from what was reached in the segments before it.
pub(super) fn dump(
    segment: &Segment,
    depth: Depth,
    epochs: Option<&mut Epochs>,
    reached: &mut Reached,
    report: &mut Report<'_>,
) -> io::Result<()> {
    let base = segment.base.unwrap_or(0);
    let mut indexes = Indexes {
        offset: read(segment.index.as_ref(), base)?,
        time: read(segment.time_index.as_ref(), base)?,
        txn: read(segment.txn_index.as_ref(), base)?,
    };
    match &segment.log {
        Some(log) => {
            let walk = Walk { file: log, base: segment.base, depth, newest: -1 };
            walk.run(&mut indexes, epochs, reached, report)?;
        }
        None => {
            let parts = [&segment.index, &segment.time_index, &segment.txn_index];
            for part in parts.into_iter().flatten() {
                report.fault(Fault::new(&part.path, "its log is not there"))?;
            }
        }
    }
    let is_shown = |part: &Option<Part>| part.as_ref().is_some_and(|part| part.is_shown);
    if let Some(index) = indexes.offset {
        index.tell(is_shown(&segment.index), report)?;
    }
    if let Some(index) = indexes.time {
        index.tell(is_shown(&segment.time_index), report)?;
    }
    match indexes.txn {
        Some(index) => index.tell(is_shown(&segment.txn_index), report),
        None => Ok(()),
    }
}

fn read<E: super::index::Entry>(part: Option<&Part>, base: i64) -> io::Result<Option<Index<E>>> {
    part.map(|part| Index::read(&part.path, base)).transpose()
}

struct Walk<'a> {
    file: &'a Part,
    base: Option<i64>,
    depth: Depth,
    /// The newest timestamp so far.
    newest: i64,
}

impl Walk<'_> {
    fn path(&self) -> &Path {
        &self.file.path
    }

    fn run(
        mut self,
        indexes: &mut Indexes,
        mut epochs: Option<&mut Epochs>,
        reached: &mut Reached,
        report: &mut Report<'_>,
    ) -> io::Result<()> {
        let mut log = LogFile::open(self.path())?;
        report.summary.files += 1;
        self.check_name(reached, report)?;
        loop {
            match log.next()? {
                Next::End => break,
                Next::Batch { position, batch } => {
                    self.batch(position, &batch, reached, report)?;
                    indexes.compare(position, &batch, self.newest);
                    if let Some(epochs) = epochs.as_deref_mut() {
                        epochs.compare(self.path(), position, &batch);
                    }
                }
                Next::Broken { error, left } => {
                    reached.is_broken = true;
                    let what =
                        format!("{}; {left} bytes from here on are not looked at", error.fault);
                    let fault = Fault::new(self.path(), what).at(error.position as u64);
                    report.fault(fault.offset(error.base_offset.0))?;
                }
                Next::TooLarge { position, offset, size } => {
                    reached.is_broken = true;
                    let what = format!("a batch of {size} bytes is larger than can be sent");
                    report.fault(Fault::new(self.path(), what).at(position).offset(offset))?;
                }
            }
        }
        if !reached.is_broken {
            indexes.finish(log.length(), reached.next.or(self.base).unwrap_or(0));
        }
        Ok(())
    }

    /// The name of a segment is an offset that nothing before it reaches.
    fn check_name(&self, reached: &mut Reached, report: &mut Report<'_>) -> io::Result<()> {
        reached.is_broken = false;
        let (Some(base), Some(next)) = (self.base, reached.next) else { return Ok(()) };
        if base >= next {
            return Ok(());
        }
        let what = format!("the segment before it goes up to offset {}", next - 1);
        report.fault(Fault::new(self.path(), what).offset(base))
    }

    fn batch(
        &mut self,
        position: u64,
        batch: &Batch<'_>,
        reached: &mut Reached,
        report: &mut Report<'_>,
    ) -> io::Result<()> {
        let summary = &mut report.summary;
        summary.batches += 1;
        summary.records += u64::try_from(batch.record_count()).unwrap_or(0);
        summary.bytes += batch.size() as u64;
        let crc = batch.verify_crc();
        if self.file.is_shown && !report.is_quiet() {
            let item = Item::Batch(BatchItem::of(position, batch, crc.is_ok()));
            report.item(self.path(), &item)?;
        }
        let fault =
            |what: String| Fault::new(self.path(), what).at(position).offset(batch.base_offset().0);
        if let Err(wrong) = crc {
            report.fault(fault(wrong.to_string()))?;
        }
        let least = reached.next.max(self.base);
        for wrong in wrongs(batch, least, reached.epoch) {
            report.fault(fault(wrong))?;
        }
        if self.file.is_shown && self.depth.records && crc.is_ok() {
            records::dump(self.path(), position, batch, report)?;
        }
        reached.next = Some(batch.next_offset().0.max(reached.next.unwrap_or(0)));
        reached.epoch = batch.partition_leader_epoch().0.max(reached.epoch);
        self.newest = self.newest.max(batch.max_timestamp());
        Ok(())
    }
}

/// What is wrong with a batch that stands where offsets begin at `least` and epochs at `epoch`.
fn wrongs(batch: &Batch<'_>, least: Option<i64>, epoch: i32) -> Vec<String> {
    let mut wrongs = Vec::new();
    let base = batch.base_offset().0;
    if let Some(least) = least.filter(|&least| base < least) {
        wrongs.push(format!("offset {base} stands where {least} is the least"));
    }
    let (delta, count) = (batch.last_offset_delta(), batch.record_count());
    if base < 0 || delta < 0 || batch.last_offset().0 < base {
        wrongs.push(format!("its last offset is {base} + {delta}"));
    }
    if count < 0 || i64::from(count) > i64::from(delta) + 1 {
        wrongs.push(format!("{count} records do not fit into {} offsets", i64::from(delta) + 1));
    }
    let own = batch.partition_leader_epoch().0;
    if (0..epoch).contains(&own) {
        wrongs.push(format!("leader epoch {own} stands after epoch {epoch}"));
    }
    wrongs
}

impl Indexes {
    fn compare(&mut self, position: u64, batch: &Batch<'_>, newest: i64) {
        if let Some(index) = &mut self.offset {
            index.compare(position, batch);
        }
        if let Some(index) = &mut self.time {
            index.compare(batch, newest);
        }
        if let Some(index) = &mut self.txn {
            index.compare(batch);
        }
    }

    fn finish(&mut self, length: u64, next_offset: i64) {
        if let Some(index) = &mut self.offset {
            index.finish(length, next_offset);
        }
        if let Some(index) = &mut self.time {
            index.finish(next_offset);
        }
        if let Some(index) = &mut self.txn {
            index.finish(next_offset);
        }
    }
}
