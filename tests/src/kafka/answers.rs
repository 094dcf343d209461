//! What the Java client answers, parsed.
use std::str::FromStr;

/// What a partition holds, as some client read it. Two equal digests are two equal readings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartitionDigest {
    pub partition: u32,
    /// The earliest offset.
    pub first: i64,
    /// The latest offset: high watermark, or last stable offset when reading committed.
    pub next: i64,
    pub records: u64,
    /// Of offset, timestamp, timestamp type, key, value and headers of each record in order.
    pub sha256: String,
    /// Of offset, timestamp, key and value: what also kcat can tell.
    pub crc32: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Isolation {
    Committed,
    Uncommitted,
}

impl Isolation {
    pub const BOTH: [Isolation; 2] = [Isolation::Committed, Isolation::Uncommitted];

    pub fn name(self) -> &'static str {
        match self {
            Isolation::Committed => "read_committed",
            Isolation::Uncommitted => "read_uncommitted",
        }
    }
}

/// An offset and the timestamp of the record there; both -1 where there is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OffsetAt {
    pub offset: i64,
    pub timestamp: i64,
}

/// What brokers answer to ListOffsets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartitionOffsets {
    pub partition: u32,
    pub earliest: i64,
    pub latest: i64,
    /// `None` where the broker does not know the question (before 3.0).
    pub max_timestamp: Option<OffsetAt>,
    /// `None` where no timestamp was asked for.
    pub by_timestamp: Option<OffsetAt>,
}

/// The sequences at the heads of the values of a partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sequences {
    pub partition: u32,
    pub records: u64,
    pub first: i64,
    pub last: i64,
    /// Sequences that were jumped over.
    pub missing: u64,
    /// Records whose sequence does not rise.
    pub repeated: u64,
}

/// What a stream had acknowledged last in a partition; -1 for nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acked {
    pub partition: u32,
    pub sequence: i64,
    pub offset: i64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartitionState {
    pub partition: u32,
    /// -1 for none.
    pub leader: i32,
    pub replicas: Vec<i32>,
    pub in_sync: Vec<i32>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transactions {
    pub committed: u64,
    pub aborted: u64,
    /// The transactional id of the one left open, for [`At::end_open`].
    pub open: Option<String>,
}

impl PartitionDigest {
    /// `partition first next records sha256 crc32`.
    pub(super) fn parse(line: &str) -> Result<PartitionDigest, String> {
        let mut fields = Fields::of(line);
        Ok(PartitionDigest {
            partition: fields.next()?,
            first: fields.next()?,
            next: fields.next()?,
            records: fields.next()?,
            sha256: fields.next()?,
            crc32: u32::from_str_radix(&fields.next::<String>()?, 16)
                .map_err(|_| format!("{line}: no crc at the end"))?,
        })
    }
}

/// The fields of a line, parted by blanks.
pub(super) struct Fields<'a> {
    line: &'a str,
    rest: std::str::SplitWhitespace<'a>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(line: &'a str) -> Self {
        Fields { line, rest: line.split_whitespace() }
    }

    pub(super) fn next<T: FromStr>(&mut self) -> Result<T, String> {
        let field = self.rest.next().and_then(|field| field.parse().ok());
        field.ok_or_else(|| format!("not an answer we know: {}", self.line))
    }
}

pub(super) fn acked(lines: &[String]) -> Result<Vec<Acked>, String> {
    let parse = |line: &String| {
        let mut fields = Fields::of(line);
        Ok(Acked { partition: fields.next()?, sequence: fields.next()?, offset: fields.next()? })
    };
    lines.iter().map(parse).collect()
}

pub(super) fn ids(list: &str) -> Result<Vec<i32>, String> {
    let id = |id: &str| id.parse().map_err(|_| format!("not a list of brokers: {list}"));
    list.split(',').map(id).collect()
}

/// `offset@timestamp`, or `-` for no answer.
pub(super) fn offset_at(text: &str) -> Result<Option<OffsetAt>, String> {
    let bad = || format!("not an offset and a timestamp: {text}");
    if text == "-" {
        return Ok(None);
    }
    let (offset, timestamp) = text.split_once('@').ok_or_else(bad)?;
    Ok(Some(OffsetAt {
        offset: offset.parse().map_err(|_| bad())?,
        timestamp: timestamp.parse().map_err(|_| bad())?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_without_a_record_is_minus_one_and_an_unknown_question_is_none() {
        assert_eq!(offset_at("-1@-1"), Ok(Some(OffsetAt { offset: -1, timestamp: -1 })));
        assert_eq!(offset_at("-"), Ok(None));
        assert!(offset_at("7").is_err());
    }

    #[test]
    fn a_digest_line_that_is_short_is_an_error_that_shows_it() {
        assert!(PartitionDigest::parse("0 1 2").unwrap_err().contains("0 1 2"));
    }
}
