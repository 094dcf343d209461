//! ListOffsets: where the log starts, where it ends, and what stands at a time.

use std::collections::BTreeMap;

use wire::api::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsPartitionResponse,
    ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse, MAX_TIMESTAMP,
};
use wire::api::{ErrorCode, Versions};
use wire::fetch::IsolationLevel;

use super::call::{Call, Questions, ReplyTo, Slots, mismatch};
use super::route::{Handled, Refusal, Request, check_entries};
use super::{Answer, Asked, OffsetTarget, Question, check_leader_epoch, topic};
use crate::catalog::Topic;

pub(super) const SERVED: Versions = Versions { least: 1, most: 11 };

/// The response, with room for the answers.
#[derive(Debug)]
pub(super) struct ListOffsetsCall {
    response: ListOffsetsResponse,
    slots: Slots,
    response_bytes: usize,
}

/// How a partition is answered.
enum Way {
    /// Without asking.
    Known(ErrorCode),
    /// By its owner.
    Ask(OffsetTarget),
}

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = ListOffsetsRequest::read(&mut request.body, version)?;
    check_entries(asked.topics.iter().map(|topic| 1 + topic.partitions.len()).sum())?;
    let isolation = IsolationLevel(asked.isolation_level);
    let mut named = BTreeMap::new();
    for topic in &asked.topics {
        for partition in &topic.partitions {
            *named.entry((topic.name.as_str(), partition.partition_index)).or_insert(0_u32) += 1;
        }
    }
    let mut slots = Slots::default();
    let mut questions = Questions::new();
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in &asked.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let known = topic::find(request.catalog, &topic.name, index);
            let is_named_once = named.get(&(topic.name.as_str(), index)) == Some(&1);
            let mut response = ListOffsetsPartitionResponse {
                partition_index: index,
                ..ListOffsetsPartitionResponse::default()
            };
            match way(partition, known.map(|topic| &**topic), is_named_once, version) {
                Way::Known(error_code) => response.error_code = error_code,
                Way::Ask(target) => questions.extend(known.map(|known| Asked {
                    id: request.question_id(slots.add(topics.len(), partitions.len())),
                    topic: known.name.clone(),
                    partition: index,
                    question: Question::Offset {
                        target,
                        current_leader_epoch: partition.current_leader_epoch,
                        isolation,
                    },
                })),
            }
            partitions.push(response);
        }
        topics.push(ListOffsetsTopicResponse { name: topic.name.clone(), partitions });
    }
    let response_bytes = topics
        .iter()
        .map(|topic| {
            size_of_val(topic)
                + topic.name.capacity()
                + topic.partitions.capacity() * size_of::<ListOffsetsPartitionResponse>()
        })
        .sum();
    let response = ListOffsetsResponse { topics, ..ListOffsetsResponse::default() };
    let call = ListOffsetsCall { response, slots, response_bytes };
    Ok(Handled::Call(Call::ListOffsets(call), questions))
}

/// As Kafka's `ReplicaManager.fetchOffset` and `UnifiedLog.fetchOffsetByTimestamp` decide for a log
/// without tiered storage.
fn way(
    asked: &ListOffsetsPartition,
    known: Option<&Topic>,
    is_named_once: bool,
    version: i16,
) -> Way {
    if !is_named_once {
        return Way::Known(ErrorCode::INVALID_REQUEST);
    }
    let (since, target) = match asked.timestamp {
        LATEST_TIMESTAMP => (1, Some(OffsetTarget::Latest)),
        EARLIEST_TIMESTAMP => (1, Some(OffsetTarget::Earliest)),
        MAX_TIMESTAMP => (7, Some(OffsetTarget::MaxTimestamp)),
        EARLIEST_LOCAL_TIMESTAMP => (8, Some(OffsetTarget::Earliest)),
        LATEST_TIERED_TIMESTAMP => (9, None),
        EARLIEST_PENDING_UPLOAD_TIMESTAMP => (11, None),
        time @ 0.. => (1, Some(OffsetTarget::AtOrAfter(time))),
        _ => (i16::MAX, None),
    };
    if version < since {
        return Way::Known(ErrorCode::UNSUPPORTED_VERSION);
    }
    let Some(known) = known else {
        return Way::Known(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    };
    if let Some(target) = target {
        return Way::Ask(target);
    }
    // Nothing is tiered: the answer is "no such offset", to clients that know the right epoch.
    let current = known.leader_epoch(asked.partition_index).unwrap_or_default();
    let checked = check_leader_epoch(current, asked.current_leader_epoch);
    Way::Known(checked.err().unwrap_or(ErrorCode::NONE))
}

impl ListOffsetsCall {
    pub(super) fn answer(&mut self, index: u32, answer: Answer) {
        let Some((topic, partition)) = self.slots.take(index) else { return };
        let response = &mut self.response.topics[topic].partitions[partition];
        match answer {
            Answer::Offset(Ok(answer)) => {
                response.offset = answer.offset;
                response.timestamp = answer.timestamp;
                response.leader_epoch = answer.leader_epoch;
            }
            Answer::Offset(Err(error_code)) => response.error_code = error_code,
            other => response.error_code = mismatch(&other, "an offset"),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.slots.is_complete()
    }

    pub(super) fn reply(&self, to: ReplyTo) -> Vec<u8> {
        to.frame(|writer| self.response.write(writer, to.version))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes() + self.response_bytes
    }
}
