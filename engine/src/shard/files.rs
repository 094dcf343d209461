//! Files that go: who reads them reads on for a while, and nobody reaches another file by their names.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::Now;
use crate::io::Io;
use crate::store::Removed;

use super::Shard;
use super::mail::Letter;

impl<I: Io> Shard<I> {
    /// Unlinks files that have their last names once nobody has to read them any more. Until then the
    /// old names lead to them: no new segment gets one.
    pub(super) fn remove_later(&mut self, removed: Vec<Removed>, now: Now) {
        let at = self.removal_at(now);
        self.upkeep.gone.extend(removed.iter().map(|one| (at, Arc::clone(&one.log))));
        self.upkeep.remove_at(removed, at);
    }

    /// The same where a new segment may have one of the old names: they lead nowhere at once.
    pub(super) fn remove_replaced(&mut self, removed: Vec<Removed>, now: Now) {
        self.forget_files(removed.iter().map(|one| Arc::clone(&one.log)).collect());
        let at = self.removal_at(now);
        self.upkeep.remove_at(removed, at);
    }

    fn removal_at(&self, now: Now) -> Now {
        now.plus(Duration::from_millis(self.options.log_config.file_delete_delay_ms))
    }

    /// Lets go, on every shard, of what is open under names that mean other files from now on: a
    /// write or a read by such a name must not reach the file that had it before.
    pub(super) fn forget_files(&mut self, files: Vec<Arc<Path>>) {
        if files.is_empty() {
            return;
        }
        let files: Arc<[Arc<Path>]> = files.into();
        let here = usize::from(self.options.id.0);
        for (shard, slot) in self.post.shards.iter_mut().enumerate() {
            if shard != here {
                slot.send(Letter::Forget { files: Arc::clone(&files) });
            }
        }
        self.forget_here(&files);
    }

    pub(super) fn forget_here(&mut self, files: &[Arc<Path>]) {
        for path in files {
            let file = self.io.file(path);
            self.io.forget(file);
        }
    }
}
