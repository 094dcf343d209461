//! Our side of the talk with Kafka clients, on one shard: bytes and answers in, effects out.
//!
//! Pure: no clock, no socket, no file. The shard feeds what arrives on its client connections,
//! carries [`Effect::Ask`] to the shards that own the partitions and their [`Answer`]s back, and
//! sends what [`Effect::Reply`] lists. Records never pass through here: a reply names the places in
//! files where they lie.
//!
//! ```text
//!   received --> conn: whole frames, in order, one worked on at a time
//!                 |
//!               route: which API, which version ----> an API that knows the answer --> Reply
//!                 |
//!               an API that must ask owners: Ask --> answer ... answer --> Reply
//!                 |                                    ^          |
//!               fetch with too little to tell          |        Watch
//!                                                      +-- progress, or the deadline
//! ```
//!
//! Memory. A connection holds at most [`CONNECTION_BYTES_MAX`] of requests, whatever it announces:
//! room is made as bytes arrive. All connections together (requests, calls under way, skeletons of
//! replies not yet sent) stay within [`ServeOptions::request_memory_bytes`], fetch sessions within
//! [`session::SESSION_PARTITION_BYTES`] for each of [`ServeOptions::session_partitions_max`]:
//! [`Server::memory_bytes`] counts both, and holds at the end of every call. While one request is
//! taken apart its fields take up to [`READ_FACTOR`] times its bytes on top, and a request other
//! than Produce is at most [`REQUEST_BYTES_MAX`] long.
//!
//! | file       | what it knows                                                            |
//! |------------|--------------------------------------------------------------------------|
//! | `server`   | all connections: events in, effects out, budgets                         |
//! | `conn`     | one connection: its frames, what it expects next                         |
//! | `route`    | the table of APIs served and their versions                              |
//! | `fetch`    | a fetch from request to reply; `fetch_reply` fills the limits and writes |
//! | `session`  | incremental fetch sessions (KIP-227)                                     |
//! | `wait`     | deadlines in their order                                                 |
//! | `topic`    | what Kafka says of topic names                                           |
//! | the others | one API each                                                             |

mod api_versions;
mod call;
mod config_table;
mod conn;
mod describe_cluster;
mod describe_configs;
mod describe_topic_partitions;
mod fetch;
mod fetch_reply;
mod init_producer_id;
mod list_offsets;
mod metadata;
mod offset_for_leader_epoch;
mod produce;
mod route;
mod server;
pub mod session;
#[cfg(test)]
mod tests;
mod topic;
mod wait;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wire::api::ErrorCode;
use wire::fetch::{AbortedTransaction, EpochEndOffset, IsolationLevel};
use wire::ids::{LeaderEpoch, Offset, PartitionIndex};

use crate::ids::{ConnId, ShardId};
use crate::limits;

pub use server::Server;

/// The largest request that is not a Produce. Kafka's clients need 33 bytes for a partition in a
/// Fetch, so that this is room for 60 000 of them at once.
pub const REQUEST_BYTES_MAX: usize = 2 << 20;

/// Topics, resources or partitions that one request may name.
pub const REQUEST_ENTRIES_MAX: usize = 100_000;

/// What the fields of a request take at most while it is worked on, by its bytes: the worst is a
/// list of empty names, each one byte long and a `String` here, in a vector that grows. A Produce is
/// counted before it is read, so that its records are all that is large.
pub const READ_FACTOR: usize = 80;

/// Bytes that may still arrive on a connection after [`Effect::Pause`], and the most that a single
/// call of [`Server::received`] may bring.
pub const OVERRUN_BYTES_MAX: usize = 1 << 20;

/// What one connection's requests may hold: the largest request, what came in the same piece as its
/// end, and what still arrived after we asked to stop.
pub const CONNECTION_BYTES_MAX: usize = limits::REQUEST_BYTES_MAX + 4 + 2 * OVERRUN_BYTES_MAX;

/// What the operator says about serving, checked.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Which of how many shards this is: fetch sessions are numbered by it, so that a client which
    /// comes back on another shard cannot name somebody else's session.
    pub shard: ShardId,
    pub shard_count: u16,
    /// Where the numbers of fetch sessions start.
    pub seed: u64,
    /// What producers are told this node mirrors: the name of the source cluster.
    pub mirror_of: Arc<str>,
    pub connections_max: usize,
    /// The budget of all connections together; see the head of this file.
    pub request_memory_bytes: usize,
    /// How long a request may take to arrive, from its first byte.
    pub request_time_max: Duration,
    /// How long a connection may be silent (`connections.max.idle.ms`).
    pub idle_time_max: Duration,
    /// The largest Fetch response, but for a single batch that is larger (`fetch.max.bytes`).
    pub fetch_bytes_max: u32,
    /// The longest that a Fetch waits for data, whatever it asks. Shorter than `idle_time_max`.
    pub fetch_wait_max: Duration,
    /// Fetch sessions of this shard (`max.incremental.fetch.session.cache.slots`).
    pub sessions_max: usize,
    /// Partitions in all of them.
    pub session_partitions_max: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            shard: ShardId(0),
            shard_count: 1,
            seed: 0,
            mirror_of: Arc::from("another cluster"),
            connections_max: limits::CLIENT_CONNECTIONS_MAX,
            request_memory_bytes: 128 << 20,
            request_time_max: Duration::from_secs(30),
            idle_time_max: Duration::from_secs(600),
            fetch_bytes_max: 55 << 20,
            fetch_wait_max: Duration::from_secs(300),
            sessions_max: 1_000,
            session_partitions_max: 50_000,
        }
    }
}

/// A request that waits for answers. Unique in its shard for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    pub connection: ConnId,
    pub number: u64,
}

/// A question, or a partition that is watched, of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId {
    pub call: CallId,
    pub index: u32,
}

/// What the shard has to do. In order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Carry each question to the owner of its partition. Each is answered once, through
    /// [`Server::answer`], also where the partition has gone.
    Ask { questions: Vec<Asked> },
    /// Send the pieces in order: one whole frame. [`Server::sent`] when the last one has left.
    Reply { connection: ConnId, pieces: Vec<Piece> },
    /// Call [`Server::progress`] once for each partition, as soon as readers of this isolation see
    /// more than up to `end`: at once where they already do. Also when the log is cut, since the
    /// places of records that were told no longer hold, and when it stops being served.
    Watch { partitions: Vec<Watched> },
    /// What is still watched for the call is of no more interest.
    Unwatch { call: CallId },
    /// Stop reading from the connection: it has enough requests in flight.
    Pause { connection: ConnId },
    /// Read on.
    Resume { connection: ConnId },
    /// End the connection. It is forgotten here; the reason is for the log.
    Close { connection: ConnId, peer: SocketAddr, reason: String },
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Bytes(Vec<u8>),
    File(FilePiece),
}

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePiece {
    pub path: Arc<Path>,
    pub position: u64,
    pub length: u64,
}

/// A question about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Comes back with the answer.
    pub id: QuestionId,
    pub topic: Arc<str>,
    pub partition: PartitionIndex,
    pub question: Question,
}

/// What is asked of a partition's owner. The owner compares `current_leader_epoch` with its own
/// ([`check_leader_epoch`]), because only there the epoch and the log change together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Read(Read),
    /// Where a moment of the log stands.
    Offset {
        target: OffsetTarget,
        current_leader_epoch: LeaderEpoch,
        isolation: IsolationLevel,
    },
    /// Where an epoch ended.
    EndOfEpoch {
        current_leader_epoch: LeaderEpoch,
        epoch: LeaderEpoch,
    },
}

/// Which records are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The batch that holds this offset comes first, whole.
    pub offset: Offset,
    pub current_leader_epoch: LeaderEpoch,
    /// The epoch of the client's last batch; where the logs part before `offset` the answer is a
    /// diverging epoch and no records.
    pub last_fetched_epoch: LeaderEpoch,
    /// How many bytes, but at least the first batch whole. The last one may be cut off: every
    /// client expects that.
    pub bytes_max: u64,
    pub isolation: IsolationLevel,
}

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetTarget {
    /// The log start.
    Earliest,
    /// The high watermark, or the last stable offset for readers of committed records.
    Latest,
    /// The record with the largest timestamp below it.
    MaxTimestamp,
    /// The first record at or after this moment, in milliseconds since 1970.
    AtOrAfter(i64),
}

/// What an owner says. An error is the code that the client gets: NOT_LEADER_OR_FOLLOWER where the
/// partition is not served here, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_OUT_OF_RANGE ...
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Read(Result<ReadAnswer, ErrorCode>),
    Offset(Result<OffsetAnswer, ErrorCode>),
    EndOfEpoch(Result<EpochAnswer, ErrorCode>),
}

/// Records, by where they lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAnswer {
    /// In order, and none of them empty.
    pub pieces: Vec<FilePiece>,
    /// The bytes of the first batch: less than this is of no use to the client, so that a reply
    /// which has less room left carries none of it.
    pub first_batch_bytes: u64,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
    /// Those that overlap with the records, asked for by readers of committed records only.
    pub aborted_transactions: Vec<AbortedTransaction>,
    pub diverging_epoch: Option<EpochEndOffset>,
}

impl ReadAnswer {
    /// How many bytes of records there are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.length).sum()
    }
}

/// An offset, and the record that stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// -1 where no record answers.
    pub offset: Offset,
    /// -1 where the question was not about time.
    pub timestamp: i64,
    pub leader_epoch: LeaderEpoch,
}

/// The largest epoch that is not above the one asked for, and where it ends; -1 and -1 where there
/// is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochAnswer {
    pub epoch: LeaderEpoch,
    pub end_offset: Offset,
}

/// A partition to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Comes back with the progress.
    pub id: QuestionId,
    pub topic: Arc<str>,
    pub partition: PartitionIndex,
    /// Up to where records could be read: the high watermark, or the last stable offset for readers
    /// of committed records.
    pub end: Offset,
    pub isolation: IsolationLevel,
}

/// Whether a client that believes in `asked` may be answered by a leader of epoch `current`, as
/// Kafka's `Partition.checkCurrentLeaderEpoch` decides.
pub fn check_leader_epoch(current: LeaderEpoch, asked: LeaderEpoch) -> Result<(), ErrorCode> {
    match asked {
        LeaderEpoch::UNKNOWN => Ok(()),
        _ if asked < current => Err(ErrorCode::FENCED_LEADER_EPOCH),
        _ if asked > current => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        _ => Ok(()),
    }
}
