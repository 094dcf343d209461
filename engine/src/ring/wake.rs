//! Ends a shard's wait from any thread, for the price of one atomic where the shard is awake.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::sys;
use crate::io::Waker;

/// What the shard and its wakers share.
///
/// No wake is lost: the shard says `asleep` before it looks at `called`, a waker says `called`
/// before it looks at `asleep`, and both are sequentially consistent, so at least one of them sees
/// the other: either the shard does not wait or the waker rings the bell.
#[derive(Debug)]
pub(super) struct Bell {
    called: AtomicBool,
    asleep: AtomicBool,
    /// An eventfd; the ring always has a read of it in flight.
    bell: File,
}

impl Bell {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let bell = File::from(sys::eventfd()?);
        Ok(Arc::new(Self { called: AtomicBool::new(false), asleep: AtomicBool::new(false), bell }))
    }

    pub(super) fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        let shared = Arc::clone(self);
        Waker::new(move || shared.ring())
    }

    fn ring(&self) {
        // Many wakes before the shard looks are one.
        if !self.called.swap(true, Ordering::SeqCst) && self.asleep.load(Ordering::SeqCst) {
            // It can only fail where the counter is full, and then the bell rings already.
            let _ = (&self.bell).write(&1_u64.to_ne_bytes());
        }
    }

    /// Says that the shard is about to wait; false where somebody called and it must not.
    pub(super) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        !self.called.load(Ordering::SeqCst)
    }

    /// Says that the shard is awake; true where somebody called since the last time.
    pub(super) fn awake(&self) -> bool {
        self.asleep.store(false, Ordering::SeqCst);
        self.called.swap(false, Ordering::SeqCst)
    }
}
