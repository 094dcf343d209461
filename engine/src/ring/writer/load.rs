//! How far the disk is behind, and who takes what is too much for it.

use crate::limits;

/// While no more than this is on its way to the disk, all backfill goes past the page cache. A shard
/// begins no large frame beyond it either (`limits::WRITING_BYTES_MAX`), so what there is more of
/// had begun to come before.
///
/// Catching up from a broker next door on two cores, medians of 5 and 6 in turns, processor seconds
/// per GB and MB/s, by this bound and the size of answers, where the page cache took all the rest:
///
/// ```text
///            512 KiB        1 MiB          2 MiB          4 MiB          8 MiB
///  2 MiB                    0.34   2742
///  4 MiB                    0.35   2405    0.41   2692
///  8 MiB     0.61   1511    0.37   2497    0.36   2796    0.33   3287
/// 16 MiB                                                  0.31   3337    0.40   2925
/// 32 MiB                                                  0.34   3201    0.37   2842
/// ```
///
/// More than 8 MiB costs more in first touches of memory than it saves: a tenth of the whole at 16.
/// Since the page cache no longer takes all the rest, answers of 2 MiB are as good as those of 4: 1.00
/// and 0.95 of the processor time in two runs, and a third less memory.
const DIRECT_BYTES_MAX: usize = limits::WRITING_BYTES_MAX;

/// Beyond that the page cache takes one byte for so many that the disk took: it makes the best of a
/// disk that is a bit slower than the source, and of one that stops for a moment, but costs several
/// times as much. By this number, in turns: none 0.32 and 1818 MB/s, 8: 0.29 and 2106, 6: 0.28 and
/// 2145, 3: 0.33 and 2299.
const BYTES_PER_CACHED: usize = 6;

/// What the page cache may be owed at most: a stop of some milliseconds.
const CREDIT_BYTES_MAX: usize = 8 << 20;

/// The writes under way of one ring.
#[derive(Debug, Default)]
pub(in crate::ring) struct Load {
    writing_bytes: usize,
    credit_bytes: usize,
}

impl Load {
    pub(in crate::ring) fn add(&mut self, bytes: usize) {
        self.writing_bytes += bytes;
    }

    pub(in crate::ring) fn remove(&mut self, bytes: usize) {
        self.writing_bytes -= bytes;
    }

    /// Whether a write of backfill that was added goes past the page cache; it has to be asked once.
    pub(in crate::ring) fn may_go_direct(&mut self, bytes: usize) -> bool {
        let is_too_much = self.writing_bytes > DIRECT_BYTES_MAX;
        if is_too_much && self.credit_bytes >= bytes {
            self.credit_bytes -= bytes;
            return false;
        }
        self.credit_bytes = (self.credit_bytes + bytes / BYTES_PER_CACHED).min(CREDIT_BYTES_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: usize = 1 << 20;

    #[test]
    fn a_disk_that_keeps_up_gets_everything() {
        let mut load = Load::default();
        for _ in 0..1_000 {
            load.add(ANSWER);
            assert!(load.may_go_direct(ANSWER));
            load.remove(ANSWER);
        }
        assert!(load.credit_bytes <= CREDIT_BYTES_MAX);
    }

    #[test]
    fn one_that_is_behind_leaves_a_share_to_the_page_cache() {
        let mut load = Load::default();
        load.add(DIRECT_BYTES_MAX);
        let (mut direct, mut cached) = (0, 0);
        for _ in 0..700 {
            load.add(ANSWER);
            *if load.may_go_direct(ANSWER) { &mut direct } else { &mut cached } += 1;
            load.remove(ANSWER);
        }
        assert_eq!(direct / cached, BYTES_PER_CACHED);
    }
}
