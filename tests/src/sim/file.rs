//! A simulated file: what was written, and what of it survives when the power goes.

use std::collections::BTreeSet;

use super::random::Random;

/// Pages survive a power cut one by one.
const PAGE: usize = 4 << 10;

/// A file's bytes as processes see them and as the disk holds them.
#[derive(Clone, Debug, Default)]
pub struct File {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Pages that were written since the last sync.
    dirty: BTreeSet<usize>,
}

impl File {
    /// What processes see.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.live
    }

    /// Writes at a position; what lies between the end and there becomes zeros.
    pub fn write(&mut self, position: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (start, end) = (position.min(self.live.len()), position + bytes.len());
        if self.live.len() < end {
            self.live.resize(end, 0);
        }
        self.live[position..end].copy_from_slice(bytes);
        self.dirty.extend(start / PAGE..=(end - 1) / PAGE);
    }

    /// Cuts or extends.
    pub fn truncate(&mut self, length: usize) {
        let old = self.live.len();
        self.live.resize(length, 0);
        if length > old {
            self.dirty.extend(old / PAGE..=(length - 1) / PAGE);
        }
    }

    /// Everything written before is durable.
    pub fn sync(&mut self) {
        self.durable.resize(self.live.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            copy_page(&self.live, &mut self.durable, page);
        }
    }

    /// A sync failed, and what it was to save is dropped: the pages count as clean from now on and
    /// are not on the disk, as some file systems of Linux have it.
    pub fn sync_dropped(&mut self) {
        self.dirty.clear();
    }

    /// Keeps what the disk holds: of what was not synced, some pages and any length.
    pub fn power_cut(&mut self, survive_per_mille: u64, random: &mut Random) {
        let (old, new) = (self.durable.len(), self.live.len());
        let length = match random.below(4) {
            0 => old,
            1 => new,
            _ if new > old => random.size(old, new),
            2 => old,
            _ => new,
        };
        self.durable.resize(old.max(new), 0);
        for page in std::mem::take(&mut self.dirty) {
            if random.chance(survive_per_mille) {
                copy_page(&self.live, &mut self.durable, page);
            }
        }
        self.durable.truncate(length);
        self.live.clone_from(&self.durable);
    }
}

fn copy_page(from: &[u8], to: &mut [u8], page: usize) {
    let end = ((page + 1) * PAGE).min(from.len()).min(to.len());
    let start = (page * PAGE).min(end);
    to[start..end].copy_from_slice(&from[start..end]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_the_rest_is_old_or_new() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut file = File::default();
            file.write(0, &[1; 10_000]);
            file.sync();
            file.write(9_000, &[2; 9_000]);
            file.power_cut(500, &mut random);
            assert_eq!(file.bytes()[..9_000], [1; 9_000]);
            assert!((10_000..=18_000).contains(&file.bytes().len()));
            assert!(file.bytes()[9_000..].iter().all(|byte| [0, 1, 2].contains(byte)));
        }
    }

    #[test]
    fn after_a_failed_sync_the_next_one_saves_only_what_came_after() {
        let mut file = File::default();
        file.write(0, &[1; 3 * PAGE]);
        file.sync_dropped();
        file.write(PAGE, &[2; PAGE]);
        file.sync();
        file.power_cut(1_000, &mut Random::new(1));
        assert_eq!(file.bytes()[..PAGE], [0; PAGE]);
        assert_eq!(file.bytes()[PAGE..2 * PAGE], [2; PAGE]);
    }
}
