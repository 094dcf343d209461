//! Buffers that the kernel picks from when bytes arrive: one small set for all connections, so that
//! thousands of quiet clients hold no memory.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// The one group of buffers in a ring.
pub(super) const GROUP: u16 = 0;

/// A registered buffer ring: `entries` descriptions, then `entries` buffers, in one mapping.
///
/// Invariant, kept by this type and the kernel: a buffer is the kernel's from `give` until a
/// completion names it, and ours from then until the next `give`. We make no reference into memory
/// that is the kernel's; it is only reached by raw pointers.
#[derive(Debug)]
pub(super) struct Provided {
    memory: NonNull<u8>,
    bytes: usize,
    entries: u16,
    buffer_bytes: usize,
    /// The next free place; the kernel takes from its own head up to here.
    tail: u16,
}

impl Provided {
    /// Maps the memory, describes every buffer and tells the ring.
    pub(super) fn register(
        submitter: &Submitter<'_>,
        entries: u16,
        buffer_bytes: usize,
    ) -> io::Result<Self> {
        assert!(entries.is_power_of_two(), "the ring's places are counted with a mask");
        let bytes = usize::from(entries) * (size_of::<BufRingEntry>() + buffer_bytes);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping touches no memory that is in use.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).expect("mmap gives no null");
        let mut provided = Self { memory, bytes, entries, buffer_bytes, tail: 0 };
        let address = memory.as_ptr() as u64;
        // SAFETY: the mapping starts on a page, begins with `entries` descriptions and is unmapped
        // by `Drop` only, which the kernel's side (`Kernel::drop`) calls after the ring let go.
        unsafe { submitter.register_buf_ring_with_flags(address, entries, GROUP, 0)? };
        for buffer in 0..entries {
            provided.give(buffer);
        }
        Ok(provided)
    }

    /// Copies what arrived in a buffer and gives the buffer back.
    pub(super) fn take(&mut self, buffer: u16, into: &mut [u8]) {
        assert!(
            buffer < self.entries && into.len() <= self.buffer_bytes,
            "the kernel's own numbers"
        );
        // SAFETY: the caller passes the buffer that a completion named, so it is ours until `give`;
        // the assertion keeps the copy within it.
        unsafe {
            let from = self.memory.as_ptr().add(self.place_of(buffer));
            ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        self.give(buffer);
    }

    /// Gives back a buffer that holds nothing of interest.
    pub(super) fn give(&mut self, buffer: u16) {
        let index = usize::from(self.tail & (self.entries - 1));
        // SAFETY: `index` is below `entries`, so the description and the buffer lie within the
        // mapping; the kernel reads no description at or behind the tail before it is published.
        unsafe {
            let entry = &mut *self.memory.as_ptr().cast::<BufRingEntry>().add(index);
            entry.set_addr(self.memory.as_ptr().add(self.place_of(buffer)) as u64);
            entry.set_len(self.buffer_bytes as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies in the first description, which is mapped; both sides access it
        // atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.memory.as_ptr().cast());
            (*tail.cast::<AtomicU16>()).store(self.tail, Ordering::Release);
        }
    }

    fn place_of(&self, buffer: u16) -> usize {
        usize::from(self.entries) * size_of::<BufRingEntry>()
            + usize::from(buffer) * self.buffer_bytes
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone; `Kernel::drop` lets this run only after the kernel has
        // no request that could still fill a buffer, and leaks it otherwise.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
