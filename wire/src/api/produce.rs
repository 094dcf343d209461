//! Produce: what a producer sends. The request is walked, its records are left where they lie.

use alloc::string::String;
use alloc::vec::Vec;

use super::{ApiKey, ErrorCode, Versions};
use crate::codec::{Reader, Writer};
use crate::error::{Fault, WireError};
use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::message::{message, structure};

/// The first version that names topics by their id.
const FIRST_WITH_TOPIC_ID: i16 = 13;

/// A Produce request that borrows the bytes it was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceRequest<'a> {
    pub transactional_id: Option<&'a str>,
    /// How many replicas must have it: -1 all in sync, 1 the leader. After 0 no answer is awaited,
    /// and none may be sent.
    pub acks: i16,
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic<'a>>,
}

/// What a Produce request holds for one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceTopic<'a> {
    /// Empty from version 13 on.
    pub name: &'a str,
    /// Zero before version 13.
    pub topic_id: TopicId,
    pub partitions: Vec<ProducePartition<'a>>,
}

/// What a Produce request holds for one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducePartition<'a> {
    pub index: PartitionIndex,
    pub records: Option<&'a [u8]>,
}

impl<'a> ProduceRequest<'a> {
    /// The API this message belongs to.
    pub const API_KEY: ApiKey = ApiKey::PRODUCE;

    /// The versions read and written here.
    pub const VERSIONS: Versions = Versions { least: 3, most: 13 };

    /// The first version with compact lengths and tagged fields.
    pub const FIRST_FLEXIBLE: i16 = 9;

    /// Reads the request from what follows its header; `reader` stops at its end.
    pub fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self, WireError> {
        if !Self::VERSIONS.contains(version) {
            return Err(reader.error(Fault::UnknownVersion(version)));
        }
        let flexible = version >= Self::FIRST_FLEXIBLE;
        let mut request = Self {
            transactional_id: reader.nullable_str(flexible)?,
            acks: reader.i16()?,
            timeout_ms: reader.i32()?,
            topics: Vec::new(),
        };
        for _ in 0..reader.count(flexible)? {
            request.topics.push(ProduceTopic::read(reader, version, flexible)?);
        }
        skip_tagged_fields(reader, flexible)?;
        Ok(request)
    }

    /// Writes the request as it follows its header. A version outside [`Self::VERSIONS`] is the
    /// caller's bug.
    pub fn write(&self, writer: &mut Writer, version: i16) {
        assert!(Self::VERSIONS.contains(version), "ProduceRequest has no version {version}");
        let flexible = version >= Self::FIRST_FLEXIBLE;
        writer.nullable_str(self.transactional_id, flexible);
        writer.i16(self.acks);
        writer.i32(self.timeout_ms);
        writer.count(self.topics.len(), flexible);
        for topic in &self.topics {
            topic.write(writer, version, flexible);
        }
        no_tagged_fields(writer, flexible);
    }

    /// The answer that refuses every partition with `error_code`.
    #[must_use]
    pub fn refuse(&self, error_code: ErrorCode, error_message: Option<&str>) -> ProduceResponse {
        let refuse_partition = |partition: &ProducePartition<'_>| PartitionProduceResponse {
            index: partition.index,
            error_code,
            error_message: error_message.map(String::from),
            ..PartitionProduceResponse::default()
        };
        let refuse_topic = |topic: &ProduceTopic<'_>| TopicProduceResponse {
            name: String::from(topic.name),
            topic_id: topic.topic_id,
            partition_responses: topic.partitions.iter().map(refuse_partition).collect(),
        };
        ProduceResponse {
            responses: self.topics.iter().map(refuse_topic).collect(),
            ..ProduceResponse::default()
        }
    }
}

impl<'a> ProduceTopic<'a> {
    fn read(reader: &mut Reader<'a>, version: i16, flexible: bool) -> Result<Self, WireError> {
        let mut topic = Self::default();
        if version < FIRST_WITH_TOPIC_ID {
            topic.name = reader.str(flexible)?;
        } else {
            topic.topic_id = reader.topic_id()?;
        }
        for _ in 0..reader.count(flexible)? {
            topic.partitions.push(ProducePartition {
                index: PartitionIndex(reader.i32()?),
                records: reader.nullable_bytes(flexible)?,
            });
            skip_tagged_fields(reader, flexible)?;
        }
        skip_tagged_fields(reader, flexible)?;
        Ok(topic)
    }

    fn write(&self, writer: &mut Writer, version: i16, flexible: bool) {
        if version < FIRST_WITH_TOPIC_ID {
            writer.str(self.name, flexible);
        } else {
            writer.topic_id(self.topic_id);
        }
        writer.count(self.partitions.len(), flexible);
        for partition in &self.partitions {
            writer.i32(partition.index.0);
            writer.nullable_bytes(partition.records, flexible);
            no_tagged_fields(writer, flexible);
        }
        no_tagged_fields(writer, flexible);
    }
}

fn skip_tagged_fields(reader: &mut Reader<'_>, flexible: bool) -> Result<(), WireError> {
    if flexible { reader.tagged_fields(|_, _| Ok(())) } else { Ok(()) }
}

fn no_tagged_fields(writer: &mut Writer, flexible: bool) {
    if flexible {
        writer.unsigned_varint(0);
    }
}

message! {
    pub struct ProduceResponse: PRODUCE 3..=13, flexible 9.. {
        responses: Vec<TopicProduceResponse> [3..],
        throttle_time_ms: i32 [3..],
        /// Where the leaders named above are reached.
        node_endpoints: Vec<NodeEndpoint> [10.., tag 0],
    }
}

structure! {
    pub struct TopicProduceResponse {
        name: String [3..=12],
        topic_id: TopicId [13..],
        partition_responses: Vec<PartitionProduceResponse> [3..],
    }
}

structure! {
    pub struct PartitionProduceResponse {
        index: PartitionIndex [3..],
        error_code: ErrorCode [3..],
        /// The offset of the first record; -1 where none was written.
        base_offset: Offset [3.., default Offset(-1)],
        /// -1 where the topic keeps the producer's times.
        log_append_time_ms: i64 [3.., default -1],
        log_start_offset: Offset [5.., default Offset(-1)],
        record_errors: Vec<BatchIndexAndErrorMessage> [8..],
        error_message: Option<String> [8..],
        /// The leader to ask instead, after NOT_LEADER_OR_FOLLOWER.
        current_leader: LeaderIdAndEpoch [10.., tag 0],
    }
}

structure! {
    pub struct BatchIndexAndErrorMessage {
        batch_index: i32 [8..],
        batch_index_error_message: Option<String> [8..],
    }
}

structure! {
    pub struct LeaderIdAndEpoch {
        leader_id: BrokerId [10.., default BrokerId::NONE],
        leader_epoch: LeaderEpoch [10.., default LeaderEpoch::UNKNOWN],
    }
}

structure! {
    pub struct NodeEndpoint {
        node_id: BrokerId [10..],
        host: String [10..],
        port: i32 [10..],
        rack: Option<String> [10..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_refusal_names_every_partition_that_was_sent() {
        let partition =
            |index| ProducePartition { index: PartitionIndex(index), records: Some(b"records") };
        let request = ProduceRequest {
            topics: vec![ProduceTopic {
                name: "orders",
                topic_id: TopicId::ZERO,
                partitions: vec![partition(2), partition(5)],
            }],
            ..ProduceRequest::default()
        };
        let refusal = request.refuse(ErrorCode::POLICY_VIOLATION, Some("read only"));
        assert_eq!(refusal.responses[0].name, "orders");
        let partitions = &refusal.responses[0].partition_responses;
        assert_eq!(partitions.len(), 2);
        assert_eq!(partitions[1].index, PartitionIndex(5));
        assert_eq!(partitions[1].error_code, ErrorCode::POLICY_VIOLATION);
        assert_eq!(partitions[1].base_offset, Offset(-1));
        assert_eq!(partitions[1].error_message.as_deref(), Some("read only"));
    }
}
