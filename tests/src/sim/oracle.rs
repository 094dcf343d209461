//! What must be true of the engine's disk, whatever happens. Invariants checked:
//!
//! - every batch on disk is byte for byte one that the source had at that offset;
//! - offsets that are left out were no longer at the source, and where they were deleted there (not
//!   compacted) they are in the list of losses;
//! - the list of losses names no offset that is here or still there;
//! - the log begins no later than the source's;
//! - what was on disk survives a killed process, what was told to be durable survives a power cut;
//! - in the end everything is here that the source has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use engine::io::Disk as _;
use engine::mirror::Loss;
use engine::shard::mail::PartitionCheckpoint;
use wire::batch::Batch;
use wire::ids::TopicId;

use super::disk::{Drive, Gone, NodeId};
use super::process::DATA;
use super::truth::{Fate, PartitionTruth, Truth};

/// What the oracle knows of one partition's folder.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub id: TopicId,
    pub index: i32,
    pub topic: String,
    /// Base offset of the first segment.
    pub first: i64,
    /// The offset up to which everything was read and found right.
    pub end: i64,
    /// Where reading goes on: the segment's base and a position in it.
    place: Option<(i64, usize)>,
    /// Offsets that are left out and had been at the source.
    pub gaps: Vec<(i64, i64)>,
    /// Up to where the engine said that all is durable.
    claimed: i64,
    /// The greatest log start that the engine has adopted: what lies below it is missed by nobody.
    start_claimed: i64,
    /// After a crash, what must still be there.
    floor: Option<i64>,
    /// Nothing was read since the log began anew: its first batch may reach in from below.
    is_fresh: bool,
    /// Whether it ever held a batch: before that, where it begins is no loss.
    was_filled: bool,
    /// Where its first batch ended.
    filled_from: i64,
    /// It holds a batch that an unclean election lost at the source.
    pub has_lost: bool,
}

/// What the oracle has seen.
#[derive(Debug, Default)]
pub struct Oracle {
    pub held: BTreeMap<String, Held>,
    pub batches: u64,
    pub bytes: u64,
    pub losses: u64,
    /// Losses told of logs that never held anything.
    pub alarms_too_many: u64,
}

type Verdict = Result<(), String>;

impl Oracle {
    /// Reads what is new on disk. Where writes may be under way (`is_settled` is false), a segment
    /// that begins beyond the end of the one before may only have been faster.
    ///
    /// # Errors
    /// What is wrong.
    pub fn look(&mut self, drive: &mut Drive, truth: &Truth, is_settled: bool) -> Verdict {
        for gone in std::mem::take(&mut drive.gone) {
            self.look_at_gone(drive, truth, &gone)?;
        }
        for (name, topic, index) in folders(drive) {
            self.look_at(drive, truth, &name, (&topic, index, is_settled))
                .map_err(|wrong| format!("{name}: {wrong}"))?;
        }
        Ok(())
    }

    fn look_at_gone(&mut self, drive: &Drive, truth: &Truth, gone: &Gone) -> Verdict {
        let folder = gone.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (Some(held), Some(base)) = (self.held.get_mut(&folder), base_of(&gone.name)) else {
            return Ok(());
        };
        let Some(truth) = truth.partitions.get(&(held.id, held.index)) else { return Ok(()) };
        let (batches, bytes) = held
            .read(truth, base, drive.bytes(gone.node))
            .map_err(|wrong| format!("{folder}, {} (removed): {wrong}", gone.name))?;
        self.batches += batches;
        self.bytes += bytes;
        Ok(())
    }

    fn look_at(
        &mut self,
        drive: &mut Drive,
        truth: &Truth,
        name: &str,
        (topic, index, is_settled): (&str, i32, bool),
    ) -> Verdict {
        let folder = Path::new(DATA).join(name);
        let Some(id) = topic_id(drive, &folder) else { return Ok(()) };
        let segments = segments(drive, &folder);
        let Some((&first, _)) = segments.first_key_value() else { return Ok(()) };
        let partition = truth.partitions.get(&(id, index));
        let partition = partition.ok_or("the source never had a topic of this id")?;
        let held = self.held.entry(name.to_owned()).or_insert_with(|| Held {
            id,
            index,
            topic: topic.to_owned(),
            first,
            end: first,
            is_fresh: true,
            ..Held::default()
        });
        if held.id != id {
            return Err(format!("the topic's id was {} and is {id}", held.id));
        }
        if first > partition.start {
            let start = partition.start;
            return Err(format!("the log begins at {first}, the source's at {start}"));
        }
        if first > held.end {
            // All that was there before is gone: the log has begun anew.
            held.jump(partition, first)?;
        }
        held.first = first;
        for (base, node) in segments {
            if !is_settled && held.may_lag(partition, base, drive.bytes(node)) {
                break;
            }
            let (batches, bytes) = held
                .read(partition, base, drive.bytes(node))
                .map_err(|wrong| format!("segment {base}: {wrong}"))?;
            self.batches += batches;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// The engine says where its partitions stand.
    pub fn checkpointed(&mut self, partitions: &[PartitionCheckpoint]) {
        for at in partitions {
            if let Some(held) = self.held.get_mut(&at.partition.to_string()) {
                held.claimed = held.claimed.max(at.recovery_point.0);
                let start = at.log_start.map_or(0, |start| start.0);
                held.start_claimed = held.start_claimed.max(start);
            }
        }
    }

    /// The engine says that offsets were lost.
    ///
    /// # Errors
    /// Where they were not.
    pub fn lost(&mut self, name: &str, loss: &Loss, truth: &Truth) -> Verdict {
        self.losses += 1;
        let (first, next) = (loss.first.0, loss.next.0);
        let Some(held) = self.held.get_mut(name) else {
            return Err(format!("{name}: a loss of {first} to {next} in a log that is not there"));
        };
        let Some(partition) = truth.partitions.get(&(held.id, held.index)) else { return Ok(()) };
        if next > partition.start {
            return Err(format!(
                "{name}: told that {first} to {next} are lost, but the source has all from {} on",
                partition.start
            ));
        }
        if !held.was_filled || next <= held.filled_from {
            // Nobody knows any more whether it was; an alarm too many is better than none.
            self.alarms_too_many += 1;
            return Ok(());
        }
        if first >= held.end {
            // Said before the log begins anew, and true whether or not it comes to that.
            return Ok(());
        }
        let gap = held.gaps.iter().rev().find(|gap| gap.1 == next);
        match gap {
            Some((from, _)) if first >= *from => Ok(()),
            _ => Err(format!(
                "{name}: told that {first} to {next} are lost, but what is left out is {:?}",
                held.gaps
            )),
        }
    }

    /// The process was killed, or the power went: says what must be there after the next start.
    pub fn crashed(&mut self, power: bool) {
        for held in self.held.values_mut() {
            let floor = if power { held.claimed.min(held.end) } else { held.end };
            held.floor = Some(held.floor.map_or(floor, |known| known.min(floor)));
            held.place = None;
        }
    }

    /// A new process has opened all logs, but those that a disk which refuses (`was_struck`) left
    /// half-way through their recovery.
    ///
    /// # Errors
    /// What is not there any more.
    pub fn reopened(&mut self, drive: &mut Drive, truth: &Truth, was_struck: bool) -> Verdict {
        drive.gone.clear();
        let there: BTreeSet<_> = folders(drive).into_iter().map(|(name, _, _)| name).collect();
        for (name, held) in &mut self.held {
            let Some(floor) = held.floor.filter(|_| held.place.is_none()) else { continue };
            if !there.contains(name) {
                if floor > held.first {
                    return Err(format!("{name}: gone, though it had to hold all up to {floor}"));
                }
                continue;
            }
            let segments = segments(drive, &Path::new(DATA).join(name));
            match segments.first_key_value() {
                Some((&first, _)) if first <= held.end => {
                    held.end = first;
                    held.is_fresh = true;
                }
                Some(_) => {}
                // Left between the removal of the old segments and the making of a new one.
                None => held.end = floor,
            }
        }
        self.held.retain(|name, _| there.contains(name));
        self.look(drive, truth, !was_struck)?;
        for (name, held) in &mut self.held {
            let floor = held.floor;
            // What a recovery that did not end has left may still be cut.
            held.floor = floor.filter(|_| was_struck);
            if let Some(floor) = floor
                && held.end < floor
            {
                return Err(format!("{name}: ends at {} and had to reach {floor}", held.end));
            }
        }
        Ok(())
    }

    /// How many partitions have a reason to stop: they hold what the source has lost, or the source has
    /// no such topic any more, perhaps since before it told us the id.
    pub fn may_stop(&self, drive: &mut Drive, truth: &Truth) -> u64 {
        let stopped = self.held.values().filter(|held| {
            let truth = truth.partitions.get(&(held.id, held.index));
            held.has_lost || truth.is_none_or(|truth| truth.is_past)
        });
        let nameless = folders(drive).into_iter().filter(|(name, topic, _)| {
            !self.held.contains_key(name) && !truth.ids.contains_key(topic)
        });
        (stopped.count() + nameless.count()) as u64
    }

    /// Nothing goes wrong any more and time was given: everything must be here.
    ///
    /// # Errors
    /// What is missing.
    pub fn complete(&self, drive: &mut Drive, truth: &Truth) -> Verdict {
        let recorded = recorded_losses(drive);
        for (topic, id) in &truth.ids {
            for ((_, index), partition) in truth.partitions.range((*id, 0)..=(*id, i32::MAX)) {
                let name = format!("{topic}-{index}");
                if self.held.values().any(|held| held.topic == *topic && held.id != *id) {
                    // Ours is another topic of this name, and stays as it is.
                    continue;
                }
                let Some(held) = self.held.get(&name) else {
                    return Err(format!("{name} was never mirrored"));
                };
                if held.id != *id || held.has_lost {
                    continue;
                }
                let present = partition.entries.values().filter(|each| each.fate == Fate::Present);
                let wanted = present.map(|entry| entry.next).max().unwrap_or(partition.start);
                if held.end < wanted {
                    return Err(format!("{name} ends at {}, the source at {wanted}", held.end));
                }
            }
        }
        for (name, held) in &self.held {
            let Some(partition) = truth.partitions.get(&(held.id, held.index)) else { continue };
            for &(from, to) in &held.gaps {
                if to <= held.start_claimed {
                    continue;
                }
                check_gap(partition, (from, to), recorded.get(name))
                    .map_err(|wrong| format!("{name}: {wrong}"))?;
            }
        }
        Ok(())
    }
}

impl Held {
    /// Reads on in a segment. Gives how many batches and bytes were right.
    fn read(
        &mut self,
        truth: &PartitionTruth,
        base: i64,
        bytes: &[u8],
    ) -> Result<(u64, u64), String> {
        let mut position = match self.place {
            Some((at, _)) if base < at => return Ok((0, 0)),
            Some((at, position)) if base == at => position,
            _ => 0,
        };
        let (mut batches, from) = (0, position);
        while let Some(batch) = bytes.get(position..).and_then(|rest| Batch::read(rest, 0).ok()) {
            if batch.verify_crc().is_err() {
                break;
            }
            let (first, bytes) = (batch.base_offset().0, batch.as_bytes());
            let next = truth.check_batch(first, bytes)?;
            if first < self.end && !(self.is_fresh && next > self.end) {
                return Err(format!("a batch at {first} after all up to {}", self.end));
            }
            if first > self.end {
                self.leave_out(truth, first)?;
            }
            if let Some(entry) = truth.entries.get(&first) {
                self.has_lost |= entry.versions[..entry.lost].iter().any(|lost| **lost == *bytes);
            }
            self.end = next;
            if !self.was_filled {
                self.filled_from = next;
            }
            (self.is_fresh, self.was_filled) = (false, true);
            position += bytes.len();
            batches += 1;
            self.place = Some((base, position));
        }
        Ok((batches, (position - from) as u64))
    }

    /// Whether a segment begins beyond the end while what is between may still be written.
    fn may_lag(&self, truth: &PartitionTruth, base: i64, bytes: &[u8]) -> bool {
        let is_new = base > self.place.map_or(self.first, |(at, _)| at);
        let Ok(first) = Batch::read(bytes, 0) else { return is_new };
        let first = first.base_offset().0;
        let fates = [Fate::Present, Fate::Deleted];
        is_new && first > self.end && truth.first_in(self.end, first, &fates).is_some()
    }

    fn jump(&mut self, truth: &PartitionTruth, first: i64) -> Verdict {
        let mut between = truth.entries.range(self.end..first);
        let present = between.find(|(_, each)| each.fate == Fate::Present && each.next <= first);
        if let Some((base, entry)) = present {
            return Err(format!(
                "the log begins anew at {first}, the source has {base} to {}",
                entry.next
            ));
        }
        if self.was_filled {
            self.gaps.push((self.end, first));
        }
        self.end = first;
        self.is_fresh = true;
        self.place = None;
        Ok(())
    }

    fn leave_out(&mut self, truth: &PartitionTruth, to: i64) -> Verdict {
        let from = self.end;
        if let Some((base, entry)) = truth.first_in(from, to, &[Fate::Present]) {
            let next = entry.next;
            return Err(format!("{from} to {to} are left out, the source has {base} to {next}"));
        }
        if truth.first_in(from, to, &[Fate::Deleted]).is_some() {
            self.gaps.push((from, to));
        }
        Ok(())
    }
}

/// Whether all that was deleted at the source and is left out here was written down.
fn check_gap(
    truth: &PartitionTruth,
    (from, to): (i64, i64),
    recorded: Option<&Vec<(i64, i64)>>,
) -> Verdict {
    let empty = Vec::new();
    let recorded = recorded.unwrap_or(&empty);
    let deleted = truth.entries.range(..to).filter(|(_, entry)| entry.fate == Fate::Deleted);
    for (base, entry) in deleted.filter(|(_, entry)| entry.next > from) {
        for offset in (*base).max(from)..entry.next.min(to) {
            if !recorded.iter().any(|loss| (loss.0..loss.1).contains(&offset)) {
                return Err(format!(
                    "{from} to {to} are missing and {offset} is in no recorded loss: {recorded:?}"
                ));
            }
        }
    }
    Ok(())
}

/// What the list of losses says, by partition.
fn recorded_losses(drive: &mut Drive) -> BTreeMap<String, Vec<(i64, i64)>> {
    let path = Path::new(DATA).join(engine::desk::losses::FILE);
    let bytes = drive.find(&path).map(|node| drive.bytes(node).to_vec()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut losses: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for line in text.lines() {
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            Some(rest[..end].trim_matches('"').to_owned())
        };
        let number = |name: &str| field(name)?.parse().ok();
        let (Some(topic), Some(index)) = (field("topic"), number("partition")) else { continue };
        if let (Some(first), Some(next)) = (number("first_offset"), number("next_offset")) {
            losses.entry(format!("{topic}-{index}")).or_default().push((first, next));
        }
    }
    losses
}

/// The partitions' folders: name, topic, index.
fn folders(drive: &mut Drive) -> Vec<(String, String, i32)> {
    let entries = drive.list(Path::new(DATA)).unwrap_or_default();
    let folders = entries.into_iter().filter(|entry| entry.is_dir);
    folders
        .filter_map(|entry| {
            let (topic, index) = entry.name.rsplit_once('-')?;
            Some((entry.name.clone(), topic.to_owned(), index.parse().ok()?))
        })
        .collect()
}

fn topic_id(drive: &Drive, folder: &Path) -> Option<TopicId> {
    let node = drive.find(&folder.join("partition.metadata"))?;
    let text = String::from_utf8_lossy(drive.bytes(node)).into_owned();
    TopicId::parse(text.lines().nth(1)?.strip_prefix("topic_id: ")?)
}

fn base_of(name: &str) -> Option<i64> {
    name.strip_suffix(".log")?.parse().ok()
}

fn segments(drive: &mut Drive, folder: &Path) -> BTreeMap<i64, NodeId> {
    let entries = drive.list(folder).unwrap_or_default();
    let mut segments = BTreeMap::new();
    for entry in entries {
        if let (Some(base), Some(node)) =
            (base_of(&entry.name), drive.find(&folder.join(&entry.name)))
        {
            segments.insert(base, node);
        }
    }
    segments
}
