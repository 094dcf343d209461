//! OffsetForLeaderEpoch: where an epoch ended, for clients that look whether their log was cut.

use wire::api::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
};
use wire::api::{ErrorCode, Versions};

use super::call::{Call, Questions, ReplyTo, Slots, mismatch};
use super::route::{Handled, Refusal, Request, check_entries};
use super::{Answer, Asked, Question, topic};

pub(super) const SERVED: Versions = Versions { least: 0, most: 4 };

/// The response, with room for the answers.
#[derive(Debug)]
pub(super) struct EndOfEpochCall {
    response: OffsetForLeaderEpochResponse,
    slots: Slots,
    response_bytes: usize,
}

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = OffsetForLeaderEpochRequest::read(&mut request.body, version)?;
    check_entries(asked.topics.iter().map(|topic| 1 + topic.partitions.len()).sum())?;
    let mut slots = Slots::default();
    let mut questions = Questions::new();
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in asked.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let mut response =
                EpochEndOffset { partition: partition.partition, ..EpochEndOffset::default() };
            match topic::find(request.catalog, &topic.topic, partition.partition) {
                None => response.error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                Some(known) => questions.push(Asked {
                    id: request.question_id(slots.add(topics.len(), partitions.len())),
                    topic: known.name.clone(),
                    partition: partition.partition,
                    question: Question::EndOfEpoch {
                        current_leader_epoch: partition.current_leader_epoch,
                        epoch: partition.leader_epoch,
                    },
                }),
            }
            partitions.push(response);
        }
        topics.push(OffsetForLeaderTopicResult { topic: topic.topic, partitions });
    }
    let response_bytes = topics
        .iter()
        .map(|topic| {
            size_of_val(topic)
                + topic.topic.capacity()
                + topic.partitions.capacity() * size_of::<EpochEndOffset>()
        })
        .sum();
    let response =
        OffsetForLeaderEpochResponse { topics, ..OffsetForLeaderEpochResponse::default() };
    let call = EndOfEpochCall { response, slots, response_bytes };
    Ok(Handled::Call(Call::EndOfEpoch(call), questions))
}

impl EndOfEpochCall {
    pub(super) fn answer(&mut self, index: u32, answer: Answer) {
        let Some((topic, partition)) = self.slots.take(index) else { return };
        let response = &mut self.response.topics[topic].partitions[partition];
        match answer {
            Answer::EndOfEpoch(Ok(answer)) => {
                response.leader_epoch = answer.epoch;
                response.end_offset = answer.end_offset;
            }
            Answer::EndOfEpoch(Err(error_code)) => response.error_code = error_code,
            other => response.error_code = mismatch(&other, "the end of an epoch"),
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
