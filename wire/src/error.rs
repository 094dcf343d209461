//! Why bytes were refused, and where.

use core::fmt;

/// Bytes that are not what they claim to be. Nothing was allocated for what they claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError {
    /// What is wrong with them.
    pub fault: Fault,
    /// Where in the bytes given it was seen: the distance from their start.
    pub position: usize,
}

/// The kinds of fault that bytes can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// More bytes were announced than are there.
    Truncated { needed: usize, left: usize },
    /// A length, count or position below its least value.
    NegativeLength(i64),
    /// A count of elements that the bytes left could not hold.
    CountBeyondBytes { count: usize, left: usize },
    /// A field that may not be null is.
    UnexpectedNull,
    /// A variable-length number that goes on past its last byte.
    OverlongNumber,
    /// Text that is not UTF-8.
    NotUtf8,
    /// Bytes follow after the end of the message.
    TrailingBytes(usize),
    /// A version of this message that nobody here speaks.
    UnknownVersion(i16),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::Truncated { needed, left } => {
                write!(f, "{needed} bytes announced, {left} left")?;
            }
            Fault::NegativeLength(length) => write!(f, "length {length}")?,
            Fault::CountBeyondBytes { count, left } => {
                write!(f, "{count} elements announced, {left} bytes left")?;
            }
            Fault::UnexpectedNull => f.write_str("null where a value must stand")?,
            Fault::OverlongNumber => f.write_str("variable-length number without an end")?,
            Fault::NotUtf8 => f.write_str("text that is not UTF-8")?,
            Fault::TrailingBytes(count) => write!(f, "{count} bytes after the end")?,
            Fault::UnknownVersion(version) => write!(f, "unknown version {version}")?,
        }
        write!(f, " at byte {}", self.position)
    }
}

impl core::error::Error for WireError {}
