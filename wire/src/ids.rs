//! A type for every number that has a meaning, so that an offset cannot be taken for an epoch.

use core::fmt;

/// Declares a number with a meaning: ordered, copyable, printed as the bare number.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number! {
    /// The place of a record in its partition. A `next` offset is exclusive, a `last` one inclusive.
    Offset(i64)
}
number! {
    /// How often a partition has changed its leader; -1 where it is unknown.
    LeaderEpoch(i32)
}
number! {
    /// The producer that wrote a batch; -1 where it has none.
    ProducerId(i64)
}
number! {
    /// The incarnation of a producer; -1 where it has none.
    ProducerEpoch(i16)
}
number! {
    /// A broker's number in its cluster; -1 where there is none.
    BrokerId(i32)
}
number! {
    /// The index of a partition in its topic.
    PartitionIndex(i32)
}

impl LeaderEpoch {
    /// The epoch of requests and batches that know none.
    pub const UNKNOWN: Self = Self(-1);
}

impl ProducerId {
    /// The producer id of batches written without idempotence.
    pub const NONE: Self = Self(-1);
}

impl BrokerId {
    /// No broker.
    pub const NONE: Self = Self(-1);
}

impl Offset {
    /// The offset that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A topic's identity, which a topic created again under the same name does not share (KIP-516).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The id of topics whose cluster knows no topic ids (before Kafka 2.8).
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is the id of no topic.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Reads the 22 characters that Kafka prints, or `None` where they are not an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 22 {
            return None;
        }
        let mut bits: u32 = 0;
        let mut bit_count = 0;
        let mut bytes = [0; 16];
        let mut filled = 0;
        for character in text.bytes() {
            let value = BASE64_URL.iter().position(|&known| known == character)?;
            bits = (bits << 6) | u32::try_from(value).ok()?;
            bit_count += 6;
            if bit_count >= 8 && filled < 16 {
                bit_count -= 8;
                bytes[filled] = u8::try_from((bits >> bit_count) & 0xff).ok()?;
                filled += 1;
            }
        }
        // The last character carries four bits of padding, which must be zero for the text to be canonical.
        (bits & ((1 << bit_count) - 1) == 0).then_some(Self(bytes))
    }
}

/// The alphabet of Kafka's printed UUIDs: URL-safe base64 without padding (`org.apache.kafka.common.Uuid`).
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in self.0.chunks(3) {
            let mut bits: u32 = 0;
            for index in 0..3 {
                bits = (bits << 8) | u32::from(group.get(index).copied().unwrap_or(0));
            }
            for position in 0..=group.len() {
                let value = (bits >> (18 - 6 * position)) & 0x3f;
                write!(f, "{}", char::from(BASE64_URL[value as usize]))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn prints_a_topic_id_as_kafka_does() {
        let id = TopicId([
            0xbf, 0x3b, 0x5c, 0x1a, 0x5e, 0x3d, 0x4f, 0x5b, 0x8a, 0x9c, 0x2d, 0x6e, 0x7f, 0x10,
            0x21, 0x32,
        ]);
        assert_eq!(id.to_string(), "vztcGl49T1uKnC1ufxAhMg");
        assert_eq!(TopicId::parse("vztcGl49T1uKnC1ufxAhMg"), Some(id));
        assert_eq!(TopicId::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    }

    #[test]
    fn refuses_text_that_is_no_topic_id() {
        for text in ["", "short", "vztcGl49T1uKnC1ufxAhM!", "vztcGl49T1uKnC1ufxAhMh"] {
            assert_eq!(TopicId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn prints_numbers_bare_for_people_and_named_for_developers() {
        assert_eq!(format!("{}", Offset(7)), "7");
        assert_eq!(format!("{:?}", Offset(7)), "Offset(7)");
    }
}
