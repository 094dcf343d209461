//! A loss that the desk has written down, or could not.

use crate::ids::TopicPartition;
use crate::io::Io;
use crate::mirror::Loss;

use super::Shard;

impl<I: Io> Shard<I> {
    pub(super) fn loss_recorded(
        &mut self,
        partition: &TopicPartition,
        loss: &Loss,
        result: Result<(), String>,
    ) {
        let Some(&key) = self.keys.get(partition) else { return };
        match &result {
            Ok(()) => {
                tracing::error!(
                    "partition {partition}: offsets {} to {} are lost: the source no longer had \
                     them ({})",
                    loss.first,
                    loss.next.0 - 1,
                    loss.reason
                );
                self.metrics.losses.add(1);
                let lost = u64::try_from(loss.next.0 - loss.first.0).unwrap_or(0);
                self.metrics.lost_offsets.add(lost);
            }
            Err(reason) => tracing::error!(
                "partition {partition}: the source no longer has offsets {} to {}, and that could \
                 not be written down: {reason}; the partition waits until it can",
                loss.first,
                loss.next.0 - 1
            ),
        }
        let now = self.io.now();
        let mut effects = Vec::new();
        if let Some(mirror) = &mut self.cells[key.0 as usize].mirror {
            mirror.loss_recorded(loss, result, now, &mut effects);
        }
        self.run_mirror(key, effects);
    }
}
