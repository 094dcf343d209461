//! Deadlines in their order: of connections that are silent, of fetches that wait for data.

use std::collections::BTreeSet;

use super::CallId;
use crate::ids::{ConnId, Now};

/// Who is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Call(CallId),
    Connection(ConnId),
}

/// One entry for each connection and each waiting call.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    queue: BTreeSet<(Now, Whose)>,
}

impl Deadlines {
    pub(super) fn set(&mut self, at: Now, whose: Whose) {
        self.queue.insert((at, whose));
    }

    pub(super) fn clear(&mut self, at: Now, whose: Whose) {
        self.queue.remove(&(at, whose));
    }

    pub(super) fn next(&self) -> Option<Now> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes the first one that is due.
    pub(super) fn take_due(&mut self, now: Now) -> Option<(Now, Whose)> {
        let due = *self.queue.first()?;
        if due.0 > now {
            return None;
        }
        self.queue.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_what_is_due_in_the_order_of_time_and_nothing_before() {
        let mut deadlines = Deadlines::default();
        let who = |number| Whose::Connection(ConnId(number));
        deadlines.set(Now(20), who(1));
        deadlines.set(Now(10), who(2));
        deadlines.set(Now(15), who(3));
        deadlines.clear(Now(15), who(3));
        assert_eq!(deadlines.next(), Some(Now(10)));
        assert_eq!(deadlines.take_due(Now(9)), None);
        assert_eq!(deadlines.take_due(Now(20)), Some((Now(10), who(2))));
        assert_eq!(deadlines.take_due(Now(20)), Some((Now(20), who(1))));
        assert_eq!(deadlines.take_due(Now(20)), None);
    }
}
