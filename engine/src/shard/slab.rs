//! What each operation in flight was for, found again by its token.

use crate::ids::Token;

/// Values by token. A token is used again after its value was taken for good.
#[derive(Debug)]
pub struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// Nothing in flight.
    #[must_use]
    pub const fn new() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }

    /// Keeps a value under a token of its own.
    pub fn add(&mut self, value: T) -> Token {
        if let Some(index) = self.free.pop() {
            self.values[index as usize] = Some(value);
            return Token(u64::from(index));
        }
        self.values.push(Some(value));
        Token(self.values.len() as u64 - 1)
    }

    /// The value, for an operation that will answer again.
    #[must_use]
    pub fn look(&self, token: Token) -> Option<&T> {
        self.values.get(usize::try_from(token.0).ok()?)?.as_ref()
    }

    /// Takes the value of an operation that has ended.
    pub fn take(&mut self, token: Token) -> Option<T> {
        let index = usize::try_from(token.0).ok()?;
        let value = self.values.get_mut(index)?.take()?;
        self.free.push(u32::try_from(index).expect("fewer than 2^32 operations are in flight"));
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_again_only_after_its_value_was_taken() {
        let mut slab = Slab::new();
        let (first, second) = (slab.add('a'), slab.add('b'));
        assert_ne!(first, second);
        assert_eq!(slab.look(first), Some(&'a'));
        assert_eq!(slab.take(first), Some('a'));
        assert_eq!(slab.take(first), None);
        assert_eq!(slab.add('c'), first);
    }
}
