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
