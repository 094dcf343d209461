//! Decisions read from the front of arbitrary bytes; all zero where these have ended.

pub(super) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Up to `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(super) fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.array())
    }

    pub(super) fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.array())
    }

    /// A number that is mostly small, sometimes at an edge, sometimes anything.
    pub(super) fn offset(&mut self) -> i64 {
        match self.u8() {
            255 => self.i64(),
            254 => i64::MAX,
            253 => i64::MIN,
            252 => -1,
            251 => i64::from(i32::MAX),
            small => i64::from(small),
        }
    }

    /// As many bytes as the next two say.
    pub(super) fn piece(&mut self) -> &'a [u8] {
        let count = usize::from(self.u16());
        self.take(count)
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }
}
