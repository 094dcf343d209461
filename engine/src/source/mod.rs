//! Our side of the talk with the source cluster: who is there, who leads, and a steady flow of fetches.
//!
//! ```text
//!  link       the whole talk of one shard: events in, effects out
//!  line       a place for one connection: resolve, connect, lose, wait, try again
//!  conn       one connection: versions first, then answers in their order
//!  image      what the source consists of; never goes back
//!  fetcher    one fetch session: what is in it, what changed, whose turn it is
//!  follow     which partition is fetched where, and what becomes of its errors
//!  doubt      whether a name still stands for the topic that it stood for
//!  lookup     where an epoch ended, where a log begins and ends
//!  filter     which topics are wanted
//! ```
//!
//! This room knows no clock, no socket, no file and no record: it finds in each answer the place of
//! every partition's records and hands the whole frame on.

#![forbid(unsafe_code)]

mod backoff;
mod conn;
mod doubt;
mod fetcher;
mod filter;
mod follow;
mod image;
mod line;
mod link;
mod lookup;
mod options;
mod survey;
#[cfg(test)]
mod tests;
mod timers;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use wire::api::ErrorCode;
use wire::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};

pub use doubt::Ticket;
pub use filter::{Exclusion, TopicFilter};
pub use image::{Leadership, SourceBroker, SourceImage, SourceTopic};
pub use link::Link;
pub use lookup::Question;
pub use options::LinkOptions;

use crate::ids::PartitionKey;
use crate::io::Buffer;

/// One attempt to be connected to a broker. Each attempt has a new one, so that what is told of an
/// attempt that was given up is recognised and left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerKey(pub u64);

/// A partition at the source, by all that it is named by there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePartition {
    pub topic: Arc<str>,
    /// Zero where the source knows no topic ids.
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
}

impl fmt::Display for SourcePartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// From where on a partition is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAt {
    pub source: SourcePartition,
    pub offset: Offset,
    /// The epoch of the last batch before `offset`, so that the source can tell where the logs part.
    pub last_fetched_epoch: LeaderEpoch,
    /// The leader epoch that the mirror knows of; the link uses a newer one where it knows it.
    pub leader_epoch: LeaderEpoch,
}

/// What the shard does for the link.
#[derive(Debug)]
pub enum Effect {
    /// Find the addresses of a host; the answer goes to [`Link::resolved`].
    Resolve { host: Arc<str> },
    /// Open a connection; the answer is [`Link::connected`] or [`Link::lost`].
    Connect { peer: PeerKey, address: SocketAddr },
    /// Send all of the bytes, after what was sent before.
    Send { peer: PeerKey, bytes: Vec<u8> },
    /// End a connection, or the attempt to open it. Nothing more is expected of it: [`Link::lost`]
    /// need not be called.
    Close { peer: PeerKey, reason: String },
    /// Records or news of partitions have come. Answered by [`Link::resume`].
    Fetched(Fetched),
    /// Where an epoch ends at the source. The answer to [`Link::look_up`].
    EndOfEpoch { key: PartitionKey, asked: LeaderEpoch, answer: Result<EndOfEpoch, ErrorCode> },
    /// An offset of the source. The answer to [`Link::look_up`].
    OffsetAt { key: PartitionKey, question: Question, answer: Result<OffsetAt, ErrorCode> },
    /// The metadata changed, or another shard asked for it again. Where the link follows it, the
    /// other shards' links are to be told, even where the topics are the same.
    Image(Arc<SourceImage>),
    /// These topics' metadata is wanted newer (all topics where none is named), by a link that does
    /// not follow it itself: for [`Link::refresh_for`] of the one that does.
    RefreshWanted { topics: Vec<Arc<str>>, ticket: Ticket },
    /// A followed partition has a new leader or a new leader epoch; no broker where there is none.
    LeaderMoved { key: PartitionKey, leader: BrokerId, epoch: LeaderEpoch },
    /// For a log line: a broker cannot be spoken with, for the first time since it last could.
    Unreachable { broker: String, reason: String },
    /// For a log line: a broker can be spoken with again.
    Recovered { broker: String },
}

/// An answer to a fetch, with the places of the records in it.
#[derive(Debug)]
pub struct Fetched {
    pub peer: PeerKey,
    pub frame: Buffer,
    /// Only partitions that are still wanted at the place they were fetched from. Never empty.
    pub partitions: Vec<FetchedPartition>,
}

/// What a fetch brought for one partition.
///
/// A partition that brought records, an error or a divergence is not fetched again until
/// [`Link::fetch`] says from where; one that brought watermarks only goes on by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    pub key: PartitionKey,
    /// An error that the mirror must decide on. What moving to the leader or waiting can heal is
    /// healed by the link and never told.
    pub error: ErrorCode,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
    /// The largest epoch up to which the logs agree and where it ends at the source.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// Where in the frame the record batches are; the last one may be cut.
    pub records: Range<usize>,
    /// Where in the log was fetched from.
    pub offset: Offset,
    /// The leader epoch that was fetched with.
    pub leader_epoch: LeaderEpoch,
}

/// Where an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfEpoch {
    /// The greatest epoch of the source that is not above the one asked for; unknown where there is
    /// none.
    pub epoch: LeaderEpoch,
    /// The offset after its last record; -1 where there is none.
    pub end_offset: Offset,
}

/// An offset and the epoch of the record there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAt {
    /// -1 where no record answers the question.
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    /// -1 where the question was not about time.
    pub timestamp: i64,
}

/// The address that a host stands for where it is one already.
fn literal_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}
