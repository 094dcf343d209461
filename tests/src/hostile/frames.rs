//! Requests made with our own codec, sound ones and what becomes of them in bad hands.

use wire::api::ApiKey;
use wire::api::api_versions::ApiVersionsRequest;
use wire::api::describe_cluster::DescribeClusterRequest;
use wire::api::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use wire::api::describe_topic_partitions::{DescribeTopicPartitionsRequest, TopicRequest};
use wire::api::find_coordinator::FindCoordinatorRequest;
use wire::api::init_producer_id::InitProducerIdRequest;
use wire::api::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::api::metadata::{MetadataRequest, MetadataRequestTopic};
use wire::api::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use wire::api::produce::{ProducePartition, ProduceRequest, ProduceTopic};
use wire::codec::Writer;
use wire::fetch::{FetchPartition, FetchRequest, FetchRequestHead, FetchTopic};
use wire::frame::frame_request;
use wire::ids::{Offset, PartitionIndex, TopicId};

use crate::random::Random;

/// The topics that requests name; the last ones are not there.
const TOPICS: [&str; 5] = ["read", "live", "__consumer_offsets", "absent", ""];
/// Kafka's last API key is below.
const KEYS: u64 = 100;

fn topic(random: &mut Random) -> String {
    TOPICS[random.index(TOPICS.len())].to_owned()
}

fn partition(random: &mut Random) -> PartitionIndex {
    PartitionIndex(i32::try_from(random.below(6)).expect("few") - 1)
}

/// A sound request of any API that is spoken, in any of its versions, or one of any other API.
pub fn valid(random: &mut Random) -> Vec<u8> {
    let spoken = wire::api::SPOKEN;
    let choice = random.index(spoken.len() + 2);
    if choice == spoken.len() {
        let version = i16::try_from(4 + random.below(15)).expect("few");
        let request = FetchRequest {
            head: FetchRequestHead { max_wait_ms: 100, min_bytes: 1, max_bytes: 1 << 20, ..head() },
            topics: vec![FetchTopic {
                name: topic(random),
                partitions: (0..random.below(5)).map(|_| wish(partition(random))).collect(),
                id: TopicId::ZERO,
            }],
            ..FetchRequest::default()
        };
        return frame(ApiKey::FETCH, version, random, |w, v| request.write(w, v));
    }
    let Some(&(key, versions)) = spoken.get(choice) else {
        let key = ApiKey(i16::try_from(random.below(KEYS)).expect("few"));
        let version = i16::try_from(random.below(20)).expect("few");
        let length = random.index(200);
        let body = random.bytes(length);
        return frame(key, version, random, |writer, _| writer.raw(&body));
    };
    let count = u64::from((versions.most - versions.least).unsigned_abs()) + 1;
    let version = versions.least + i16::try_from(random.below(count)).expect("few");
    spoken_frame(key, version, random)
}

fn spoken_frame(key: ApiKey, version: i16, random: &mut Random) -> Vec<u8> {
    let name = topic(random);
    let place = partition(random);
    match key {
        ApiKey::PRODUCE => produce(version, 200, random),
        ApiKey::LIST_OFFSETS => {
            let request = ListOffsetsRequest {
                topics: vec![ListOffsetsTopic {
                    name,
                    partitions: vec![ListOffsetsPartition {
                        partition_index: place,
                        timestamp: -1 - i64::try_from(random.below(7)).expect("few"),
                        ..ListOffsetsPartition::default()
                    }],
                }],
                ..ListOffsetsRequest::default()
            };
            frame(key, version, random, |w, v| request.write(w, v))
        }
        ApiKey::METADATA => {
            let one = MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() };
            let request = MetadataRequest { topics: Some(vec![one]), ..MetadataRequest::default() };
            frame(key, version, random, |w, v| request.write(w, v))
        }
        ApiKey::FIND_COORDINATOR => {
            let request = FindCoordinatorRequest { key: name, ..FindCoordinatorRequest::default() };
            frame(key, version, random, |w, v| request.write(w, v))
        }
        ApiKey::API_VERSIONS => api_versions_of(version, random),
        ApiKey::INIT_PRODUCER_ID => {
            let request = InitProducerIdRequest::default();
            frame(key, version, random, |w, v| request.write(w, v))
        }
        ApiKey::OFFSET_FOR_LEADER_EPOCH => {
            let request = OffsetForLeaderEpochRequest {
                topics: vec![OffsetForLeaderTopic {
                    topic: name,
                    partitions: vec![OffsetForLeaderPartition {
                        partition: place,
                        ..OffsetForLeaderPartition::default()
                    }],
                }],
                ..OffsetForLeaderEpochRequest::default()
            };
            frame(key, version, random, |w, v| request.write(w, v))
        }
        ApiKey::DESCRIBE_CONFIGS => {
            let resource = DescribeConfigsResource {
                resource_type: 2,
                resource_name: name,
                ..DescribeConfigsResource::default()
            };
            let resources = vec![resource];
            let request = DescribeConfigsRequest { resources, ..DescribeConfigsRequest::default() };
            frame(key, version, random, |w, v| request.write(w, v))
        }
        ApiKey::DESCRIBE_CLUSTER => {
            let request = DescribeClusterRequest::default();
            frame(key, version, random, |w, v| request.write(w, v))
        }
        _ => {
            let request = DescribeTopicPartitionsRequest {
                topics: vec![TopicRequest { name }],
                ..DescribeTopicPartitionsRequest::default()
            };
            frame(key, version, random, |w, v| request.write(w, v))
        }
    }
}

fn frame(
    key: ApiKey,
    version: i16,
    random: &mut Random,
    body: impl FnOnce(&mut Writer, i16),
) -> Vec<u8> {
    let correlation_id = i32::try_from(random.below(1 << 30)).expect("positive");
    frame_request(key, version, correlation_id, Some("hostile"), |writer| body(writer, version))
}

fn api_versions_of(version: i16, random: &mut Random) -> Vec<u8> {
    let request = ApiVersionsRequest {
        client_software_name: "hostile".to_owned(),
        client_software_version: "1".to_owned(),
        ..ApiVersionsRequest::default()
    };
    frame(ApiKey::API_VERSIONS, version, random, |w, v| request.write(w, v))
}

/// The first request of a sound client.
pub fn api_versions(random: &mut Random) -> Vec<u8> {
    api_versions_of(3, random)
}

/// Asks for everything about every topic.
pub fn metadata_of_all(random: &mut Random) -> Vec<u8> {
    let request = MetadataRequest {
        topics: None,
        include_topic_authorized_operations: true,
        ..MetadataRequest::default()
    };
    frame(ApiKey::METADATA, 12, random, |w, v| request.write(w, v))
}

fn head() -> FetchRequestHead {
    FetchRequestHead { session_epoch: -1, ..FetchRequestHead::default() }
}

fn wish(partition: PartitionIndex) -> FetchPartition {
    FetchPartition::new(partition, Offset(0), 1 << 20)
}

/// A fetch of one partition by a sound client without a session.
pub fn fetch_one(
    name: &str,
    index: i32,
    offset: i64,
    bytes_max: i32,
    random: &mut Random,
) -> Vec<u8> {
    let request = FetchRequest {
        head: FetchRequestHead { max_wait_ms: 0, min_bytes: 1, max_bytes: bytes_max, ..head() },
        topics: vec![FetchTopic {
            name: name.to_owned(),
            partitions: vec![FetchPartition::new(PartitionIndex(index), Offset(offset), bytes_max)],
            id: TopicId::ZERO,
        }],
        ..FetchRequest::default()
    };
    frame(ApiKey::FETCH, 12, random, |w, v| request.write(w, v))
}

/// A fetch of so many partitions, most of them absent, that begins a session or waits for long.
pub fn fetch_many(partitions: i32, random: &mut Random) -> Vec<u8> {
    let (session_epoch, max_wait_ms) = if random.one_in(2) { (0, 0) } else { (-1, 2_000) };
    let named: Vec<_> = (0..partitions).map(|index| wish(PartitionIndex(index))).collect();
    let request = FetchRequest {
        head: FetchRequestHead {
            max_wait_ms,
            min_bytes: 1 << 30,
            max_bytes: 50 << 20,
            session_epoch,
            ..FetchRequestHead::default()
        },
        topics: vec![FetchTopic { name: "read".to_owned(), partitions: named, id: TopicId::ZERO }],
        ..FetchRequest::default()
    };
    frame(ApiKey::FETCH, 12, random, |w, v| request.write(w, v))
}

fn produce(version: i16, bytes: usize, random: &mut Random) -> Vec<u8> {
    let records = random.bytes(bytes);
    let name = topic(random);
    let partitions = vec![ProducePartition { index: PartitionIndex(0), records: Some(&records) }];
    let acks = if random.one_in(3) { 0 } else { -1 };
    let topics = vec![ProduceTopic { name: &name, partitions, ..ProduceTopic::default() }];
    let request = ProduceRequest { acks, timeout_ms: 1_000, topics, ..ProduceRequest::default() };
    frame(ApiKey::PRODUCE, version, random, |w, v| request.write(w, v))
}

/// A write of so many bytes, which a mirror refuses.
pub fn large_produce(bytes: usize, random: &mut Random) -> Vec<u8> {
    produce(9, bytes, random)
}

/// The frame, hurt: bits turned, numbers made edges of themselves, cut, stretched, or lied about.
pub fn mutated(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..=random.below(3) {
        let at = random.index(frame.len());
        match random.below(9) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.next().to_be_bytes()[0],
            2 => overwrite(&mut frame, at, &i32::MAX.to_be_bytes()),
            3 => overwrite(&mut frame, at, &(-1_i32).to_be_bytes()),
            4 => overwrite(&mut frame, at, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            5 => {
                frame.truncate(at.max(5));
                correct_size(&mut frame);
            }
            6 => {
                let length = random.index(64);
                let more = random.bytes(length);
                frame.splice(at..at, more);
                correct_size(&mut frame);
            }
            7 => {
                let edges = [-1, 0, 1, i32::MIN, i32::MAX, 8 << 20, (8 << 20) + 1, 2 << 20];
                overwrite(&mut frame, 0, &edges[random.index(edges.len())].to_be_bytes());
            }
            _ => {
                let size = i32::try_from(random.below(1 << 24)).expect("small");
                overwrite(&mut frame, 0, &size.to_be_bytes());
            }
        }
    }
    frame
}

fn overwrite(frame: &mut [u8], at: usize, bytes: &[u8]) {
    let end = frame.len().min(at + bytes.len());
    frame[at..end].copy_from_slice(&bytes[..end - at]);
}

/// Half of the cuts and insertions are told in the size, so that they reach the reader of the body.
fn correct_size(frame: &mut [u8]) {
    if frame.len() >= 4 {
        let size = i32::try_from(frame.len() - 4).expect("small");
        overwrite(frame, 0, &size.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_that_is_spoken_is_among_the_sound_requests() {
        let mut random = Random::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20_000 {
            let frame = valid(&mut random);
            seen.insert(i16::from_be_bytes([frame[4], frame[5]]));
        }
        assert!(wire::api::SPOKEN.iter().all(|(key, _)| seen.contains(&key.0)));
        assert!(seen.len() > 90, "and so are the others: {}", seen.len());
    }
}
