//! Produce: refused for every partition, with a reason.

use wire::WireError;
use wire::api::produce::ProduceRequest;
use wire::api::{ErrorCode, Versions};
use wire::codec::Reader;

use super::route::{Handled, Refusal, Request, check_entries};
use super::topic;

pub(super) const SERVED: Versions = Versions { least: 3, most: 13 };

/// The first version that names topics by their id.
const FIRST_WITH_TOPIC_ID: i16 = 13;

/// What a producer gets for a topic that is here. KIP-1279 means READ_ONLY_TOPIC, whose number 134
/// was given to another error in Kafka 4.4. Of the codes that every client since 2.1 knows and does
/// not retry, this is the one with which Kafka's own client shows the broker's message, where it
/// replaces those of the authorization errors by its own.
const READ_ONLY: ErrorCode = ErrorCode::POLICY_VIOLATION;

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    check_entries(count(request.body, version)?)?;
    let asked = ProduceRequest::read(&mut request.body, version)?;
    let mirror_of = &request.options.mirror_of;
    if asked.acks == 0 {
        // No answer may be sent, so that ending the connection is the only way to be heard.
        let reason = format!("without waiting for an answer, to a read-only mirror of {mirror_of}");
        return Err(Refusal::Other(reason));
    }
    let mut response = asked.refuse(READ_ONLY, None);
    for (response, topic) in response.responses.iter_mut().zip(&asked.topics) {
        let known = match topic.topic_id {
            id if id.is_zero() => request.catalog.topic(topic.name),
            id => request.catalog.topic_by_id(id),
        };
        let unknown = match known {
            Some(_) => None,
            None if version >= FIRST_WITH_TOPIC_ID => Some(ErrorCode::UNKNOWN_TOPIC_ID),
            None => Some(topic::unknown(topic.name)),
        };
        for partition in &mut response.partition_responses {
            match (known, unknown) {
                (Some(topic), _) if topic.leader_epoch(partition.index).is_some() => {
                    let name = &topic.name;
                    partition.error_message =
                        Some(format!("topic {name} is a read-only mirror of {mirror_of}"));
                }
                (_, unknown) => {
                    partition.error_code = unknown.unwrap_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
                }
            }
        }
    }
    request.reply(|writer| response.write(writer, version))
}

/// How many topics and partitions are named. A Produce may be larger than other requests; counting
/// first keeps one that names nothing but empty topics from growing without bound.
fn count(mut reader: Reader<'_>, version: i16) -> Result<usize, WireError> {
    let flexible = version >= ProduceRequest::FIRST_FLEXIBLE;
    let skip_tagged_fields = |reader: &mut Reader<'_>| match flexible {
        true => reader.tagged_fields(|_, _| Ok(())),
        false => Ok(()),
    };
    reader.nullable_str(flexible)?;
    reader.take(6)?;
    let topics = reader.count(flexible)?;
    let mut entries = topics;
    for _ in 0..topics {
        if version < FIRST_WITH_TOPIC_ID {
            reader.str(flexible)?;
        } else {
            reader.topic_id()?;
        }
        let partitions = reader.count(flexible)?;
        for _ in 0..partitions {
            reader.i32()?;
            reader.nullable_bytes(flexible)?;
            skip_tagged_fields(&mut reader)?;
        }
        skip_tagged_fields(&mut reader)?;
        entries += partitions;
    }
    Ok(entries)
}
