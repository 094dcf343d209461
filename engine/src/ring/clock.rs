//! The moments of a shard: one monotonic, one on the wall.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::ids::Now;

/// Counts microseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn now(&self) -> Now {
        Now(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since 1970; zero for a host whose clock stands before it.
pub(super) fn wall_clock_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
