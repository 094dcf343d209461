//! What is to be looked at when: one moment for each key.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Now;

/// One moment for each key; setting it again replaces it.
#[derive(Debug)]
pub(super) struct Timers<K> {
    by_moment: BTreeSet<(Now, K)>,
    by_key: BTreeMap<K, Now>,
}

impl<K: Copy + Ord> Timers<K> {
    pub(super) const fn new() -> Self {
        Self { by_moment: BTreeSet::new(), by_key: BTreeMap::new() }
    }

    pub(super) fn set(&mut self, key: K, at: Now) {
        if let Some(before) = self.by_key.insert(key, at) {
            if before == at {
                return;
            }
            self.by_moment.remove(&(before, key));
        }
        self.by_moment.insert((at, key));
    }

    pub(super) fn clear(&mut self, key: K) {
        if let Some(before) = self.by_key.remove(&key) {
            self.by_moment.remove(&(before, key));
        }
    }

    /// The earliest moment of all.
    pub(super) fn next(&self) -> Option<Now> {
        self.by_moment.first().map(|&(at, _)| at)
    }

    /// Takes the earliest key whose moment has come.
    pub(super) fn due(&mut self, now: Now) -> Option<K> {
        let &(at, key) = self.by_moment.first()?;
        if at > now {
            return None;
        }
        self.clear(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_due_in_the_order_of_their_last_set_moments() {
        let mut timers = Timers::new();
        timers.set('a', Now(5));
        timers.set('b', Now(3));
        timers.set('c', Now(4));
        timers.set('b', Now(9));
        timers.clear('c');
        assert_eq!(timers.next(), Some(Now(5)));
        assert_eq!(timers.due(Now(4)), None);
        assert_eq!(timers.due(Now(9)), Some('a'));
        assert_eq!(timers.due(Now(9)), Some('b'));
        assert_eq!(timers.due(Now(9)), None);
        assert_eq!(timers.next(), None);
    }
}
