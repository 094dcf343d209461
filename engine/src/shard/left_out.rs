//! Partitions whose logs could not be opened: those that the disk refused are tried again, others wait
//! for a person and the next start.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Now, TopicPartition};
use crate::io::{Io, IoErrorKind};
use crate::store::{Checkpointed, Damage, DamageKind, Left, folder_of};

use super::Shard;

/// How soon an operator who freed a disk sees his partitions come back.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Opening reads logs on the shard's thread.
const PER_TURN_MAX: usize = 16;

/// Why a partition is left out, and how it would be opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOut {
    checkpointed: Checkpointed,
    /// It was to be made, and has never held a batch.
    is_new: bool,
}

impl<I: Io> Shard<I> {
    pub(super) fn leave_out(
        &mut self,
        name: &TopicPartition,
        (checkpointed, is_new): (Checkpointed, bool),
        damage: &Damage,
    ) {
        let is_tried_again = matches!(damage.kind, DamageKind::Disk(_));
        let what = if is_tried_again { "; it is tried again" } else { "" };
        tracing::error!("partition {name} is left out: {damage}{what}");
        self.left_out.insert(name.clone(), LeftOut { checkpointed, is_new });
        if is_tried_again {
            let at = self.io.now().plus(AGAIN_AFTER);
            self.upkeep.open_again.push_back((at, name.clone()));
        }
    }

    /// Tries those whose time has come.
    pub(super) fn open_left_out(&mut self, now: Now) {
        for _ in 0..PER_TURN_MAX {
            let due = self.upkeep.open_again.pop_front_if(|(at, _)| *at <= now);
            let Some((_, name)) = due else { return };
            let Some(left) = self.left_out.remove(&name) else { continue };
            if let Err(damage) = self.open_again(&name, left) {
                self.leave_out(&name, (left.checkpointed, left.is_new), &damage);
                continue;
            }
            tracing::info!("partition {name} is no longer left out");
            if let Some(theirs) = self.image.topics.get(&name.topic).map(Arc::clone) {
                self.follow_topic(&theirs);
            }
        }
    }

    fn open_again(&mut self, name: &TopicPartition, left: LeftOut) -> Result<(), Damage> {
        let folder = folder_of(&self.options.data, name);
        let topic = self.catalog.topic(&name.topic).map(Arc::clone);
        let topic = topic.expect("partitions that are left out are of topics in the catalog");
        match self.io.disk().list(&folder) {
            Err(error) if error.kind == IoErrorKind::NotFound => {
                self.create_log(name, &topic)?;
                self.checkpoint_now(self.keys[name]);
                Ok(())
            }
            Err(error) => Err(error.into()),
            // What the attempt before has left half-way is looked at whole.
            Ok(_) => {
                let key = self.open_log(name, left.checkpointed, Left::FlushFailed)?;
                self.cells[key.0 as usize].is_new = left.is_new;
                Ok(())
            }
        }
    }
}
