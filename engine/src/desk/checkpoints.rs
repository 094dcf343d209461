//! The checkpoint files of the data folder, for all shards together: Kafka's three, and one of our
//! own for the leader epochs that clients were told. A file is written only where it changed.

use std::path::Path;

use wire::ids::Offset;

use crate::io::Disk;
use crate::shard::mail::PartitionCheckpoint;
use crate::store::Damage;
use crate::store::checkpoint::{Checkpoint, Offsets};

/// What the files say, and which of them are to be written.
#[derive(Debug, Default)]
pub struct Checkpoints {
    recovery_points: Table,
    log_starts: Table,
    high_watermarks: Table,
    leader_epochs: Table,
}

#[derive(Debug, Default)]
struct Table {
    offsets: Offsets,
    changed: bool,
}

impl Table {
    fn put(&mut self, partition: &crate::ids::TopicPartition, value: Option<Offset>) {
        let old = match value {
            Some(value) => self.offsets.insert(partition.clone(), value),
            None => self.offsets.remove(partition),
        };
        self.changed |= old != value;
    }
}

impl Checkpoints {
    /// What the files say now.
    ///
    /// # Errors
    /// Where a file is damaged; the error says what to do.
    pub fn read(disk: &mut dyn Disk, data: &Path) -> Result<Self, Damage> {
        let mut table = |checkpoint: Checkpoint| {
            let offsets = checkpoint.read(disk, data)?;
            Ok::<_, Damage>(Table { offsets, changed: false })
        };
        Ok(Self {
            recovery_points: table(Checkpoint::RecoveryPoint)?,
            log_starts: table(Checkpoint::LogStart)?,
            high_watermarks: table(Checkpoint::HighWatermark)?,
            leader_epochs: table(Checkpoint::LeaderEpoch)?,
        })
    }

    /// Forgets partitions whose folders are gone: what is mirrored anew under such a name has nothing
    /// to do with them. Gives one of them.
    pub fn keep(
        &mut self,
        names: &[crate::ids::TopicPartition],
    ) -> Option<crate::ids::TopicPartition> {
        let names: std::collections::BTreeSet<_> = names.iter().collect();
        let mut known = self.recovery_points.offsets.keys();
        let gone = known.find(|name| !names.contains(name)).cloned();
        for table in [
            &mut self.recovery_points,
            &mut self.log_starts,
            &mut self.high_watermarks,
            &mut self.leader_epochs,
        ] {
            let before = table.offsets.len();
            table.offsets.retain(|name, _| names.contains(name));
            table.changed |= table.offsets.len() < before;
        }
        gone
    }

    /// What they say of one partition; zero where they do not know it.
    #[must_use]
    pub fn of(&self, partition: &crate::ids::TopicPartition) -> crate::store::Checkpointed {
        let at = |table: &Table| table.offsets.get(partition).copied().unwrap_or_default();
        crate::store::Checkpointed {
            recovery_point: at(&self.recovery_points),
            log_start: at(&self.log_starts),
            high_watermark: at(&self.high_watermarks),
        }
    }

    /// The leader epoch that clients were told of a partition.
    #[must_use]
    pub fn leader_epoch(
        &self,
        partition: &crate::ids::TopicPartition,
    ) -> Option<wire::ids::LeaderEpoch> {
        let epoch = self.leader_epochs.offsets.get(partition)?;
        i32::try_from(epoch.0).ok().map(wire::ids::LeaderEpoch)
    }

    /// Takes what a shard says of partitions that moved.
    pub fn take(&mut self, partitions: Vec<PartitionCheckpoint>) {
        for at in partitions {
            self.recovery_points.put(&at.partition, Some(at.recovery_point));
            self.log_starts.put(&at.partition, at.log_start);
            self.high_watermarks.put(&at.partition, Some(at.high_watermark));
            let epoch = Offset(i64::from(at.leader_epoch.0));
            self.leader_epochs.put(&at.partition, Some(epoch));
        }
    }

    /// Writes the files that changed. One that cannot be written is tried again the next time.
    ///
    /// # Errors
    /// The first that could not be written; the others were tried all the same.
    pub fn write(&mut self, disk: &mut dyn Disk, data: &Path) -> Result<(), Damage> {
        let mut result = Ok(());
        for (checkpoint, table) in [
            (Checkpoint::LogStart, &mut self.log_starts),
            (Checkpoint::RecoveryPoint, &mut self.recovery_points),
            (Checkpoint::HighWatermark, &mut self.high_watermarks),
            (Checkpoint::LeaderEpoch, &mut self.leader_epochs),
        ] {
            if table.changed {
                match checkpoint.write(disk, data, &table.offsets) {
                    Ok(()) => table.changed = false,
                    Err(error) => result = result.and(Err(error.into())),
                }
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TopicPartition;
    use crate::ring::HostDisk;
    use wire::ids::{LeaderEpoch, PartitionIndex};

    /// An operator removed a folder, as he is told to; what was mirrored anew in its place was cut where
    /// the old log had begun.
    #[test]
    fn a_partition_whose_folder_is_gone_is_forgotten_in_the_files_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let (data, mut disk) = (folder.path(), HostDisk);
        let name = |index| TopicPartition { topic: "t".into(), partition: PartitionIndex(index) };
        let mut checkpoints = Checkpoints::default();
        let at = |partition| PartitionCheckpoint {
            partition,
            recovery_point: Offset(70),
            log_start: Some(Offset(60)),
            high_watermark: Offset(80),
            leader_epoch: LeaderEpoch(4),
        };
        checkpoints.take(vec![at(name(0)), at(name(1))]);
        checkpoints.write(&mut disk, data).expect("written");
        let mut checkpoints = Checkpoints::read(&mut disk, data).expect("read");
        checkpoints.keep(&[name(1)]);
        checkpoints.write(&mut disk, data).expect("written");
        let checkpoints = Checkpoints::read(&mut disk, data).expect("read");
        assert_eq!(checkpoints.of(&name(0)), crate::store::Checkpointed::default());
        assert_eq!(checkpoints.leader_epoch(&name(0)), None);
        assert_eq!(checkpoints.of(&name(1)).log_start, Offset(60));
    }
}
