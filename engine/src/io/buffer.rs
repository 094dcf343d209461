//! Memory for bytes on their way: lent from a budget, written by one holder, then read by many.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::rc::Rc;

use memmap2::{Advice, MmapMut};

/// Lends buffers from a budget of bytes. A buffer comes back when its last holder lets go.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shelves: Rc<RefCell<Shelves>>,
}

/// Buffers at rest, by size class, and the account of those that are lent.
#[derive(Debug)]
struct Shelves {
    resting: Vec<Vec<Memory>>,
    bytes_resting: usize,
    bytes_lent: usize,
    bytes_max: usize,
    /// Whether large buffers are on huge pages.
    huge: bool,
}

/// What disks count in past the page cache: positions and lengths, and here addresses too.
pub const BLOCK_BYTES: usize = 4_096;

/// The smallest buffer: two pages, enough for every request but the largest.
const CLASS_BYTES_LEAST: usize = 8 << 10;

/// From this size on a buffer of a pool begins on a block. That takes up to a block more.
const ALIGNED_BYTES_LEAST: usize = 64 << 10;

/// What the processor maps at once where it is asked to.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// From this size on a buffer takes whole huge pages, up to twice what was asked for: the kernel looks
/// up each page that the disk or the network is told of, and first touches cost by the page.
const HUGE_BYTES_LEAST: usize = 1 << 20;

/// The memory of a buffer.
#[derive(Debug)]
struct Memory {
    bytes: Bytes,
    /// Where a buffer begins in it.
    first: usize,
    /// How many bytes there are from there on.
    room: usize,
    /// What it is accounted for with.
    taken: usize,
}

#[derive(Debug)]
enum Bytes {
    Heap(Box<[u8]>),
    Mapped(MmapMut),
}

impl Memory {
    fn new(size: usize, huge: bool) -> Self {
        let taken = Self::bytes_of(size, huge);
        if huge
            && size >= HUGE_BYTES_LEAST
            && let Ok(memory) = Self::of_huge_pages(taken)
        {
            return memory;
        }
        let is_aligned = size >= ALIGNED_BYTES_LEAST;
        let room = if is_aligned { BLOCK_BYTES } else { 0 };
        let bytes = vec![0; size + room].into_boxed_slice();
        let first = if is_aligned { bytes.as_ptr().align_offset(BLOCK_BYTES) } else { 0 };
        Self { bytes: Bytes::Heap(bytes), first, room: size, taken }
    }

    /// What lies around the huge pages is never touched.
    fn of_huge_pages(taken: usize) -> io::Result<Self> {
        let bytes = MmapMut::map_anon(taken + HUGE_PAGE_BYTES)?;
        let first = bytes.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // Where the kernel has none, its ordinary pages do.
        let _ = bytes.advise_range(Advice::HugePage, first, taken);
        Ok(Self { bytes: Bytes::Mapped(bytes), first, room: taken, taken })
    }

    /// How much a size takes.
    const fn bytes_of(size: usize, huge: bool) -> usize {
        match size {
            _ if size < ALIGNED_BYTES_LEAST => size,
            _ if huge && size >= HUGE_BYTES_LEAST => size.next_multiple_of(HUGE_PAGE_BYTES),
            _ => size + BLOCK_BYTES,
        }
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Heap(bytes) => bytes,
            Bytes::Mapped(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Bytes::Heap(bytes) => bytes,
            Bytes::Mapped(bytes) => bytes,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        let taken = bytes.len();
        Self { bytes: Bytes::Heap(bytes.into_boxed_slice()), first: 0, room: taken, taken }
    }
}

/// Four classes to a doubling waste at most a quarter: 8, 10, 12, 14, 16, 20 ... KiB.
fn class_of(bytes: usize) -> (usize, usize) {
    let (mut class, mut doubling) = (0, CLASS_BYTES_LEAST);
    loop {
        for quarter in 0..4 {
            let size = doubling + doubling / 4 * quarter;
            if size >= bytes {
                return (class, size);
            }
            class += 1;
        }
        doubling *= 2;
    }
}

impl BufferPool {
    /// A pool that lends at most `bytes_max` at a time.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self::with(bytes_max, false)
    }

    /// The same, with its large buffers on huge pages.
    #[must_use]
    pub fn of_huge_pages(bytes_max: usize) -> Self {
        Self::with(bytes_max, true)
    }

    fn with(bytes_max: usize, huge: bool) -> Self {
        let (resting, bytes_resting, bytes_lent) = (Vec::new(), 0, 0);
        let shelves = Shelves { resting, bytes_resting, bytes_lent, bytes_max, huge };
        Self { shelves: Rc::new(RefCell::new(shelves)) }
    }

    /// Lends a buffer of exactly `length` bytes whose contents are whatever its last holder left,
    /// or `None` where the budget is used up: the caller waits and asks again.
    #[must_use]
    pub fn lend(&self, length: usize) -> Option<Buffer> {
        let (class, size) = class_of(length);
        let mut shelves = self.shelves.borrow_mut();
        let huge = shelves.huge;
        let bytes = Memory::bytes_of(size, huge);
        if shelves.bytes_lent + bytes > shelves.bytes_max {
            return None;
        }
        shelves.bytes_lent += bytes;
        let resting = shelves.resting.get_mut(class).and_then(Vec::pop);
        let memory = match resting {
            Some(memory) => {
                shelves.bytes_resting -= bytes;
                memory
            }
            None => {
                // What rests in other sizes makes room first, so that the sum stays in the budget.
                shelves.trim(bytes);
                Memory::new(size, huge)
            }
        };
        drop(shelves);
        let start = memory.first;
        Some(Buffer { memory, start, length, home: Some((class, Rc::clone(&self.shelves))) })
    }

    /// How many bytes are lent.
    #[must_use]
    pub fn bytes_lent(&self) -> usize {
        self.shelves.borrow().bytes_lent
    }

    /// How many bytes can still be lent.
    #[must_use]
    pub fn bytes_left(&self) -> usize {
        let shelves = self.shelves.borrow();
        shelves.bytes_max - shelves.bytes_lent
    }
}

impl Shelves {
    /// Frees resting buffers until `bytes` that were just lent fit into the budget.
    fn trim(&mut self, bytes: usize) {
        for shelf in self.resting.iter_mut().rev() {
            while self.bytes_lent + self.bytes_resting > self.bytes_max {
                match shelf.pop() {
                    Some(memory) => self.bytes_resting -= memory.taken,
                    None => break,
                }
            }
        }
        debug_assert!(bytes <= self.bytes_lent);
    }

    fn take_back(&mut self, class: usize, memory: Memory) {
        self.bytes_lent -= memory.taken;
        self.bytes_resting += memory.taken;
        if self.resting.len() <= class {
            self.resting.resize_with(class + 1, Vec::new);
        }
        self.resting[class].push(memory);
    }
}

/// Bytes with one holder, who may write them.
pub struct Buffer {
    memory: Memory,
    /// Where in the memory its bytes are.
    start: usize,
    length: usize,
    home: Option<(usize, Rc<RefCell<Shelves>>)>,
}

impl Buffer {
    /// A buffer that belongs to no pool: for bytes that were made, not received.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        Self { memory: bytes.into(), start: 0, length, home: None }
    }

    /// Keeps the first `length` bytes only.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Moves its bytes to where they are `shift` bytes behind the place of a buffer that was just
    /// lent, and gives it `length` bytes: those that it did not have are whatever was there.
    ///
    /// # Panics
    /// When it was lent with less than `shift + length` bytes.
    pub fn place(&mut self, shift: usize, length: usize) {
        let kept = self.length.min(length);
        let start = self.memory.first + shift;
        assert!(shift + length <= self.memory.room, "a place lies within the buffer");
        self.memory.copy_within(self.start..self.start + kept, start);
        (self.start, self.length) = (start, length);
    }

    /// Gives up writing, so that many may hold it.
    #[must_use]
    pub fn share(self) -> Chunk {
        let range = 0..self.length;
        Chunk { owner: Rc::new(self), range }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some((class, shelves)) = self.home.take() {
            shelves.borrow_mut().take_back(class, std::mem::take(&mut self.memory));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

/// A range of bytes that many may hold and nobody may write.
#[derive(Clone)]
pub struct Chunk {
    owner: Rc<Buffer>,
    range: Range<usize>,
}

impl Chunk {
    /// A part of this one, by positions within it.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let start = self.range.start + range.start;
        let end = self.range.start + range.end;
        assert!(start <= end && end <= self.range.end, "a slice lies within its chunk");
        Self { owner: Rc::clone(&self.owner), range: start..end }
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer::of(bytes).share()
    }
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.owner[self.range.clone()]
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_holder_lets_go() {
        let pool = BufferPool::new(64 << 10);
        let chunk = pool.lend(10_000).expect("the pool is empty").share();
        let part = chunk.slice(10..20);
        drop(chunk);
        assert_eq!(pool.bytes_lent(), 10 << 10);
        assert_eq!(part.len(), 10);
        drop(part);
        assert_eq!(pool.bytes_lent(), 0);
    }

    #[test]
    fn a_pool_lends_no_more_than_its_budget() {
        let pool = BufferPool::new(32 << 10);
        let held: Vec<_> = (0..4).map(|_| pool.lend(8 << 10).expect("within the budget")).collect();
        assert!(pool.lend(1).is_none());
        drop(held);
        // The four small ones rest; a large one makes them leave.
        assert!(pool.lend(32 << 10).is_some());
        let shelves = pool.shelves.borrow();
        assert!(shelves.bytes_lent + shelves.bytes_resting <= 32 << 10);
    }

    #[test]
    fn a_large_buffer_begins_on_a_block_and_moves_its_bytes_to_any_place() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.lend(100_000 + BLOCK_BYTES).expect("within the budget");
        assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 0);
        buffer.truncate(6);
        buffer.copy_from_slice(b"a head");
        buffer.place(4_095, 100_000);
        assert_eq!(buffer.len(), 100_000);
        assert!(buffer.starts_with(b"a head"));
        assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 4_095);
        buffer.place(1, 6);
        assert_eq!(&*buffer, b"a head");
        assert_eq!(&*buffer.share().slice(2..6), b"head");
        // What was moved in it does not stay with the memory.
        let again = pool.lend(100_000).expect("within the budget");
        assert_eq!(again.as_ptr() as usize % BLOCK_BYTES, 0);
    }

    #[test]
    fn a_size_class_wastes_at_most_a_quarter() {
        for bytes in [1, 8 << 10, (8 << 10) + 1, 1 << 20, (1 << 20) + 1, 10_000_000] {
            let (class, size) = class_of(bytes);
            assert!(size >= bytes);
            assert!(size <= CLASS_BYTES_LEAST.max(bytes + bytes / 4), "{bytes} in {size}");
            assert_eq!(class_of(size), (class, size));
        }
    }
}
