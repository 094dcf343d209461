//! Kafka's checkpoint files: a version, a count, then one entry a line.
//!
//! ```text
//!  0                     the only version
//!  2                     how many entries follow
//!  orders 0 1234         topic, partition, offset
//!  orders 1 99
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::ids::{Offset, PartitionIndex};

use super::damage::{Damage, DamageKind};
use crate::ids::TopicPartition;
use crate::io::{Disk, DiskError, IoErrorKind};

/// The checkpoint files of a data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// Everything below is durable, so recovery begins there.
    RecoveryPoint,
    /// Everything from there on may be read; below it was deleted.
    LogStart,
    /// Everything below is on all replicas that are in sync.
    HighWatermark,
    /// The leader epoch that clients were told, in place of an offset: a file of farspan's own, in
    /// Kafka's form, that Kafka does not look at.
    LeaderEpoch,
}

impl Checkpoint {
    /// The file's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RecoveryPoint => "recovery-point-offset-checkpoint",
            Self::LogStart => "log-start-offset-checkpoint",
            Self::HighWatermark => "replication-offset-checkpoint",
            Self::LeaderEpoch => "farspan-leader-epoch-checkpoint",
        }
    }

    /// Reads the file of a data folder; a missing or empty one has no entries. Kafka goes on with
    /// no entries after damage too: that is the caller's choice.
    pub fn read(self, disk: &mut dyn Disk, data: &Path) -> Result<Offsets, Damage> {
        let file = data.join(self.name());
        let mut read = || -> Result<Offsets, Damage> {
            let Some(text) = read_text(disk, &file)? else { return Ok(Offsets::new()) };
            parse_offsets(&text, &file)
        };
        read().map_err(|damage| match damage.kind {
            DamageKind::Corrupt => Damage { remedy: WITHOUT, ..damage },
            _ => damage,
        })
    }

    /// Puts a new file in place of the old one, durably.
    pub fn write(
        self,
        disk: &mut dyn Disk,
        data: &Path,
        offsets: &Offsets,
    ) -> Result<(), DiskError> {
        disk.replace(&data.join(self.name()), format_offsets(offsets).as_bytes())
    }
}

/// What to do where a checkpoint cannot be read: the logs themselves know more.
const WITHOUT: &str = "remove this file alone: what it said is then read from the logs, but for log \
                       starts within a segment";

/// What a checkpoint file holds.
pub type Offsets = BTreeMap<TopicPartition, Offset>;

/// Reads a checkpoint's text.
pub fn parse_offsets(text: &str, file: &Path) -> Result<Offsets, Damage> {
    let mut offsets = Offsets::new();
    for (line, [topic, partition, offset]) in Lines::new(text, file)?.read::<3>()? {
        let partition = i32::try_from(line.number(partition)?).ok().filter(|&index| index >= 0);
        let partition =
            partition.ok_or_else(|| line.damage("a partition is a number from 0 on"))?;
        let partition = PartitionIndex(partition);
        let offset = Offset(line.number(offset)?);
        offsets.insert(TopicPartition { topic: Arc::from(topic), partition }, offset);
    }
    Ok(offsets)
}

/// A checkpoint's text.
#[must_use]
pub fn format_offsets(offsets: &Offsets) -> String {
    format_lines(
        offsets.iter().map(|(at, offset)| format!("{} {} {offset}", at.topic, at.partition)),
    )
}

pub(super) fn format_lines(lines: impl ExactSizeIterator<Item = String>) -> String {
    let mut text = format!("0\n{}\n", lines.len());
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The largest text file that is read: 100,000 partitions with the longest topic names.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Reads a text file whole, or `None` where it is missing.
pub(super) fn read_text(disk: &mut dyn Disk, file: &Path) -> Result<Option<String>, Damage> {
    let Some(bytes) = read_whole(disk, file, TEXT_BYTES_MAX)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let position = error.utf8_error().valid_up_to() as u64;
            Err(Damage::corrupt(file, position, "bytes that are not text"))
        }
    }
}

/// Reads a small file whole, or `None` where it is missing.
pub(super) fn read_whole(
    disk: &mut dyn Disk,
    file: &Path,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, Damage> {
    let length = match disk.length(file) {
        Ok(length) => length,
        Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if length > bytes_max {
        return Err(Damage::corrupt(file, bytes_max, format!("{length} bytes are too many")));
    }
    let mut bytes = vec![0; usize::try_from(length).expect("bounded above")];
    let read = disk.read(file, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// The lines of a checkpoint file after its head.
pub(super) struct Lines<'a> {
    file: &'a Path,
    lines: Vec<&'a str>,
    count: usize,
}

/// A line, for errors.
pub(super) struct Line<'a> {
    file: &'a Path,
    number: u64,
    text: &'a str,
}

impl<'a> Lines<'a> {
    /// Reads version and count. Kafka creates its checkpoint files empty: that is no entries.
    pub(super) fn new(text: &'a str, file: &'a Path) -> Result<Self, Damage> {
        let mut lines = text.lines();
        let line = |number, text| Line { file, number, text };
        let Some(version) = lines.next() else {
            return Ok(Self { file, lines: Vec::new(), count: 0 });
        };
        if version != "0" {
            return Err(line(1, version).damage("version 0 is the only one known"));
        }
        let Some(count) = lines.next() else {
            return Ok(Self { file, lines: Vec::new(), count: 0 });
        };
        let count = count.parse().map_err(|_| line(2, count).damage("a count must stand here"))?;
        Ok(Self { file, lines: lines.collect(), count })
    }

    /// Splits every line into `N` fields.
    pub(super) fn read<const N: usize>(self) -> Result<Vec<(Line<'a>, [&'a str; N])>, Damage> {
        let mut read = Vec::with_capacity(self.lines.len());
        for (index, text) in self.lines.iter().enumerate() {
            let line = Line { file: self.file, number: index as u64 + 3, text };
            let fields: Vec<_> = text.split_whitespace().collect();
            match fields.try_into() {
                Ok(fields) => read.push((line, fields)),
                Err(_) => return Err(line.damage(&format!("{N} fields must stand here"))),
            }
        }
        if read.len() == self.count {
            return Ok(read);
        }
        let wrong = format!("{} entries announced, {} there", self.count, read.len());
        Err(Line { file: self.file, number: 2, text: "" }.damage(&wrong))
    }
}

impl Line<'_> {
    pub(super) fn number(&self, field: &str) -> Result<i64, Damage> {
        field.parse().map_err(|_| self.damage(&format!("{field:?} is not a number")))
    }

    pub(super) fn damage(&self, wrong: &str) -> Damage {
        Damage {
            kind: DamageKind::Corrupt,
            file: PathBuf::from(self.file),
            position: Some(self.number),
            wrong: format!("line {} {:?}: {wrong}", self.number, self.text),
            remedy: "remove the file: it is written anew, and recovery reads more of the log",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::MemoryDisk;
    use super::*;

    #[test]
    fn a_checkpoint_is_read_back_as_it_was_written() {
        let mut disk = MemoryDisk::default();
        let at = |topic: &str, partition| TopicPartition {
            topic: Arc::from(topic),
            partition: PartitionIndex(partition),
        };
        let offsets = Offsets::from([
            (at("b", 0), Offset(7)),
            (at("a", 10), Offset(1)),
            (at("a", 9), Offset(0)),
        ]);
        let data = Path::new("/d");
        assert_eq!(Checkpoint::LogStart.read(&mut disk, data), Ok(Offsets::new()));
        Checkpoint::LogStart.write(&mut disk, data, &offsets).expect("memory");
        let text = disk.bytes(Path::new("/d/log-start-offset-checkpoint"));
        assert_eq!(text, b"0\n3\na 9 0\na 10 1\nb 0 7\n");
        assert_eq!(Checkpoint::LogStart.read(&mut disk, data), Ok(offsets));
    }

    #[test]
    fn damage_names_the_line() {
        let file = Path::new("/d/x");
        for (text, place) in [
            ("1\n0\n", "line 1 \"1\""),
            ("0\nmany\n", "line 2 \"many\""),
            ("0\n1\na 0\n", "line 3 \"a 0\""),
            ("0\n2\na 0 1\nb 0 x\n", "line 4 \"b 0 x\""),
            ("0\n1\na -1 0\n", "line 3"),
            ("0\n2\na 0 1\n", "2 entries announced, 1 there"),
        ] {
            let damage = parse_offsets(text, file).expect_err(text);
            assert!(damage.to_string().contains(place), "{damage}");
        }
        assert_eq!(parse_offsets("", file), Ok(Offsets::new()));
        assert_eq!(parse_offsets("0\n", file), Ok(Offsets::new()));
    }
}
