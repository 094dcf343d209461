//! The small files of a log and of a data folder: snapshots, epochs, ids, checkpoints.

use std::io;
use std::path::{Path, PathBuf};

use engine::ring::HostDisk;
use engine::store::checkpoint::{Offsets, parse_offsets};
use engine::store::identity::read_topic_id;
use engine::store::{Damage, LeaderEpochs, Producers};
use wire::batch::Batch;
use wire::ids::{LeaderEpoch, Offset};

use super::item::{Item, ProducerItem};
use super::report::{Fault, Report};

/// The largest of these files that is read.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A small file whole; what is larger is told as a fault.
fn read(path: &Path, report: &mut Report<'_>) -> io::Result<Option<Vec<u8>>> {
    report.summary.files += 1;
    let length = std::fs::metadata(path)?.len();
    if length > FILE_BYTES_MAX {
        report.fault(Fault::new(path, format!("{length} bytes are too many for such a file")))?;
        return Ok(None);
    }
    std::fs::read(path).map(Some)
}

fn read_text(path: &Path, report: &mut Report<'_>) -> io::Result<Option<String>> {
    let Some(bytes) = read(path, report)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let place = error.utf8_error().valid_up_to() as u64;
            report.fault(Fault::new(path, "bytes that are not text").at(place))?;
            Ok(None)
        }
    }
}

fn damage(path: &Path, damage: &Damage, report: &mut Report<'_>) -> io::Result<()> {
    // In text files the wrong says the line itself.
    report.fault(Fault::new(path, damage.wrong.clone()))
}

/// Shows the producers of a snapshot.
pub(super) fn snapshot(path: &Path, report: &mut Report<'_>) -> io::Result<()> {
    let Some(bytes) = read(path, report)? else { return Ok(()) };
    // Nobody has expired at the beginning of time.
    let producers = match Producers::read(&bytes, path, 0, i64::MAX) {
        Ok(producers) => producers,
        Err(wrong) => return damage(path, &wrong, report),
    };
    for (id, producer) in producers.iter() {
        let item = ProducerItem {
            producer_id: id.0,
            producer_epoch: producer.epoch.0,
            last_sequence: producer.last_sequence,
            last_offset: producer.last_offset,
            offset_delta: producer.offset_delta,
            timestamp: producer.timestamp,
            coordinator_epoch: producer.coordinator_epoch,
            open_since: producer.transaction.map(|first| first.0),
        };
        report.item(path, &Item::Producer(item))?;
    }
    Ok(())
}

/// Shows the id of a topic.
pub(super) fn topic_id(path: &Path, report: &mut Report<'_>) -> io::Result<()> {
    report.summary.files += 1;
    let folder = path.parent().unwrap_or(Path::new(""));
    match read_topic_id(&mut HostDisk, folder) {
        Ok(Some(id)) => report.item(path, &Item::TopicId { topic_id: id.to_string() }),
        Ok(None) => Ok(()),
        Err(wrong) => damage(path, &wrong, report),
    }
}

/// Shows a checkpoint of a data folder and gives what it says.
pub(super) fn checkpoint(path: &Path, report: &mut Report<'_>) -> io::Result<Offsets> {
    let Some(text) = read_text(path, report)? else { return Ok(Offsets::new()) };
    let offsets = match parse_offsets(&text, path) {
        Ok(offsets) => offsets,
        Err(wrong) => {
            damage(path, &wrong, report)?;
            return Ok(Offsets::new());
        }
    };
    for (at, offset) in &offsets {
        let (topic, partition, offset) = (&*at.topic, at.partition.0, offset.0);
        report.item(path, &Item::Checkpoint { topic, partition, offset })?;
    }
    Ok(offsets)
}

/// Shows the lines of a text file.
pub(super) fn text(path: &Path, report: &mut Report<'_>) -> io::Result<()> {
    let Some(text) = read_text(path, report)? else { return Ok(()) };
    for line in text.lines() {
        report.item(path, &Item::Text { text: line })?;
    }
    Ok(())
}

/// Where epochs begin, as the file of a partition says, to be compared with its batches.
pub(super) struct Epochs {
    path: PathBuf,
    epochs: LeaderEpochs,
    fault: Option<Fault>,
}

impl Epochs {
    /// Shows the file and reads it.
    pub(super) fn read(path: &Path, report: &mut Report<'_>) -> io::Result<Option<Self>> {
        let Some(text) = read_text(path, report)? else { return Ok(None) };
        for line in text.lines().skip(2) {
            let (epoch, start_offset) = line.split_once(' ').unwrap_or((line, ""));
            report.item(path, &Item::LeaderEpoch { epoch, start_offset })?;
        }
        let epochs = match LeaderEpochs::parse(&text, path) {
            Ok(epochs) => epochs,
            Err(wrong) => {
                damage(path, &wrong, report)?;
                return Ok(None);
            }
        };
        // Reading leaves out entries that contradict each other.
        let entries = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
        if entries(&epochs.format()) != entries(&text) {
            report.fault(Fault::new(path, "epochs or offsets in it do not rise"))?;
        }
        Ok(Some(Self { path: path.into(), epochs, fault: None }))
    }

    /// A batch of the log. Only the first that does not fit is told of.
    pub(super) fn compare(&mut self, log: &Path, position: u64, batch: &Batch<'_>) {
        let own = batch.partition_leader_epoch();
        if self.fault.is_some() || own == LeaderEpoch::UNKNOWN {
            return;
        }
        let base: Offset = batch.base_offset();
        let said = self.epochs.at(base);
        // What lies below the log's start is forgotten there before it is deleted here.
        let is_forgotten = said.is_none() && self.epochs.first().is_some();
        if said != Some(own) && !is_forgotten {
            let said = said.map_or("no epoch".into(), |epoch| format!("epoch {epoch}"));
            let what = format!(
                "says {said} for offset {base}, where {} has a batch of epoch {own} at position \
                 {position}",
                log.display()
            );
            self.fault = Some(Fault::new(&self.path, what).offset(base.0));
        }
    }

    pub(super) fn finish(self, report: &mut Report<'_>) -> io::Result<()> {
        self.fault.map_or(Ok(()), |fault| report.fault(fault))
    }
}
