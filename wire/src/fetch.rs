//! The Fetch API (key 1), versions 4 to 18: what both sides of the data path speak.
//!
//! Requests are read whole and written piece by piece. Responses are never taken apart: reading walks
//! over them and names the *places* of the records, writing leaves holes where records will be sent
//! from files.
//!
//! What changes with the version:
//!
//! ```text
//!  5  log start offset            12  flexible; last fetched epoch, cluster id, diverging epoch, leader
//!  7  sessions, top-level error   13  topic ids in place of names
//!  9  current leader epoch        15  replica id moves into a tagged field, with the replica's epoch
//! 11  rack, preferred replica     16  endpoints of leaders     17  directory id    18  high watermark
//! ```

mod request;
mod response;
mod write;

use core::ops::RangeInclusive;

pub use request::{
    FetchPartition, FetchRequest, FetchRequestHead, FetchRequestWriter, FetchTopic, ForgottenTopic,
};
pub use response::{
    AbortedTransactions, FetchResponse, FetchTail, FetchedPartition, NodeEndpoints,
};
pub use write::{FetchResponseFrame, FetchResponseWriter, PartitionData, Piece};

use crate::codec::{Reader, Writer};
use crate::error::{Fault, WireError};
use crate::ids::{BrokerId, LeaderEpoch, Offset, ProducerId, TopicId};

/// Fetch's number among the APIs.
pub const API_KEY: i16 = 1;
/// The versions that are read and written here: all that Kafka 4.4 has.
pub const VERSIONS: RangeInclusive<i16> = 4..=18;

const LOG_START_OFFSET: i16 = 5;
const SESSIONS: i16 = 7;
const CURRENT_LEADER_EPOCH: i16 = 9;
const RACK: i16 = 11;
const FLEXIBLE: i16 = 12;
const TOPIC_IDS: i16 = 13;
const REPLICA_STATE: i16 = 15;
const NODE_ENDPOINTS: i16 = 16;
const DIRECTORY_ID: i16 = 17;
const HIGH_WATERMARK: i16 = 18;

/// The newest version that names topics; those after it have their ids (KIP-516).
pub const NAMES_MOST: i16 = TOPIC_IDS - 1;

/// A topic as messages name it: by name up to version 12, by id from 13 on. A writer takes the one
/// that its version has; a reader leaves the other one empty or zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicKey<'a> {
    pub name: &'a str,
    pub id: TopicId,
}

impl<'a> TopicKey<'a> {
    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self, WireError> {
        if version >= TOPIC_IDS {
            return Ok(Self { name: "", id: reader.topic_id()? });
        }
        Ok(Self { name: reader.str(version >= FLEXIBLE)?, id: TopicId::ZERO })
    }

    fn write(&self, writer: &mut Writer, version: i16) {
        if version >= TOPIC_IDS {
            writer.topic_id(self.id);
        } else {
            writer.str(self.name, version >= FLEXIBLE);
        }
    }
}

/// Which records a consumer wants to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IsolationLevel(pub i8);

impl IsolationLevel {
    /// All up to the high watermark.
    pub const READ_UNCOMMITTED: Self = Self(0);
    /// Up to the last stable offset, with the list of what was aborted.
    pub const READ_COMMITTED: Self = Self(1);
}

/// What a response says before its topics. Versions below 7 have only the throttle time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchResponseHead {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub session_id: i32,
}

/// Where a transaction begins that was aborted; it ends at its producer's next abort marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
}

/// The largest epoch up to which two logs agree, and where it ends on the answering side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    pub epoch: LeaderEpoch,
    pub end_offset: Offset,
}

/// Who leads a partition, as far as the answering broker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderIdAndEpoch {
    pub leader_id: BrokerId,
    pub leader_epoch: LeaderEpoch,
}

/// A KRaft snapshot to load in place of a log that has been cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    pub end_offset: Offset,
    pub epoch: LeaderEpoch,
}

/// Where a broker listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeEndpoint<'a> {
    pub node_id: BrokerId,
    pub host: &'a str,
    pub port: i32,
    pub rack: Option<&'a str>,
}

fn check_version(reader: &Reader<'_>, version: i16) -> Result<(), WireError> {
    if VERSIONS.contains(&version) {
        Ok(())
    } else {
        Err(reader.error(Fault::UnknownVersion(version)))
    }
}

fn skip_tagged_fields(reader: &mut Reader<'_>, version: i16) -> Result<(), WireError> {
    if version >= FLEXIBLE { reader.tagged_fields(|_, _| Ok(())) } else { Ok(()) }
}

/// Tagged fields of a structure that has none set.
fn no_tagged_fields(writer: &mut Writer, version: i16) {
    if version >= FLEXIBLE {
        writer.unsigned_varint(0);
    }
}
