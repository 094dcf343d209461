//! Everything but Fetch, from request to reply in every version.

use wire::api::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use wire::api::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
use wire::api::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse, RESOURCE_BROKER,
    RESOURCE_TOPIC,
};
use wire::api::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicRequest,
};
use wire::api::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use wire::api::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use wire::api::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use wire::api::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopic,
};
use wire::api::produce::{ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic};

use super::*;

/// Asks in one version and reads the answer to its end.
macro_rules! ask {
    ($world:expr, $request:expr, $response:ident, $version:expr) => {{
        let (request, version) = (&$request, $version);
        let frame =
            $world.ask($response::API_KEY, version, |writer| request.write(writer, version));
        let mut reader = body(&frame, $response::API_KEY, version);
        let response = $response::read(&mut reader, version).expect("our reply can be read");
        assert_eq!(reader.finish(), Ok(()));
        response
    }};
}

fn software(name: &str) -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: name.to_owned(),
        client_software_version: "4.4.0".to_owned(),
        ..ApiVersionsRequest::default()
    }
}

#[test]
fn tells_which_versions_are_served() {
    for version in 0..=4 {
        let response = ask!(World::new(), software("java"), ApiVersionsResponse, version);
        assert_eq!(response.error_code, ErrorCode::NONE);
        let fetch = response.versions(ApiKey::FETCH).unwrap();
        assert_eq!((fetch.least, fetch.most), (4, 18));
        assert_eq!(response.versions(ApiKey::JOIN_GROUP), None);
        assert!(response.finalized_features.is_empty());
    }
    let response = ask!(World::new(), software("no name"), ApiVersionsResponse, 3);
    assert_eq!(response.error_code, ErrorCode::INVALID_REQUEST);
}

#[test]
fn answers_versions_of_the_future_in_version_0() {
    for version in [5, 99, i16::MAX, -1] {
        let mut world = World::new();
        let frame = world.ask(ApiKey::API_VERSIONS, version, |writer| writer.raw(&[0xff; 9]));
        let mut reader = body(&frame, ApiKey::API_VERSIONS, 0);
        let response = ApiVersionsResponse::read(&mut reader, 0).unwrap();
        assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
        let versions = response.versions(ApiKey::API_VERSIONS).unwrap();
        assert_eq!((versions.least, versions.most, response.api_keys.len()), (0, 4, 1));
        let again = ask!(world, software("java"), ApiVersionsResponse, 4);
        assert_eq!(again.error_code, ErrorCode::NONE);
    }
}

fn named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic { name: Some(name.to_owned()), topic_id: TopicId::ZERO }
}

#[test]
fn describes_this_node_as_the_whole_cluster() {
    for version in 0..=13 {
        let topics = if version == 0 { Some(vec![]) } else { None };
        let request = MetadataRequest { topics, ..MetadataRequest::default() };
        let response = ask!(World::new(), request, MetadataResponse, version);
        assert_eq!(response.brokers.len(), 1);
        assert_eq!(response.brokers[0].node_id, BrokerId(9));
        assert_eq!(
            (response.brokers[0].host.as_str(), response.brokers[0].port),
            ("mirror.example", 9092)
        );
        if version >= 2 {
            assert_eq!(response.cluster_id.as_deref(), Some("cluster-1"));
            assert_eq!(response.controller_id, BrokerId(9));
        }
        let names: Vec<_> = response.topics.iter().map(|t| t.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["events", "orders"]);
        let partition = &response.topics[1].partitions[2];
        assert_eq!(partition.leader_id, BrokerId(9));
        assert_eq!(partition.isr_nodes, [BrokerId(9)]);
        if version >= 7 {
            assert_eq!(partition.leader_epoch, LeaderEpoch(5));
        }
        if version >= 10 {
            assert_eq!(response.topics[1].topic_id, topic_id("orders"));
        }
    }
}

#[test]
fn names_and_ids_that_are_not_known_get_their_error() {
    let topics = Some(vec![named("orders"), named("orders"), named("gone"), named("a/b")]);
    let request = MetadataRequest { topics, ..MetadataRequest::default() };
    let response = ask!(World::new(), request, MetadataResponse, 9);
    let codes: Vec<_> =
        response.topics.iter().map(|t| (t.name.as_deref().unwrap(), t.error_code)).collect();
    assert_eq!(
        codes,
        [
            ("a/b", ErrorCode::INVALID_TOPIC_EXCEPTION),
            ("gone", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", ErrorCode::NONE),
        ]
    );

    let by_id = |name| MetadataRequestTopic { name: None, topic_id: topic_id(name) };
    let topics = Some(vec![by_id("orders"), by_id("gone")]);
    let request = MetadataRequest { topics, ..MetadataRequest::default() };
    let response = ask!(World::new(), request, MetadataResponse, 12);
    let codes: Vec<_> =
        response.topics.iter().map(|t| (t.name.as_deref(), t.topic_id, t.error_code)).collect();
    assert_eq!(
        codes,
        [
            (None, topic_id("gone"), ErrorCode::UNKNOWN_TOPIC_ID),
            (Some("orders"), topic_id("orders"), ErrorCode::NONE),
        ]
    );
    let response = ask!(World::new(), request, MetadataResponse, 11);
    assert!(response.topics.iter().all(|t| t.error_code == ErrorCode::INVALID_REQUEST));

    let none = MetadataRequest { topics: Some(vec![]), ..MetadataRequest::default() };
    assert!(ask!(World::new(), none, MetadataResponse, 9).topics.is_empty());
}

#[test]
fn shows_rights_that_do_not_include_writing() {
    let request = MetadataRequest {
        include_topic_authorized_operations: true,
        include_cluster_authorized_operations: true,
        ..MetadataRequest::default()
    };
    let response = ask!(World::new(), request, MetadataResponse, 8);
    assert_eq!(response.topics[0].topic_authorized_operations, 0b101_0000_1000);
    assert_eq!(response.cluster_authorized_operations, 0b101_0000_0000);
}

#[test]
fn describes_the_cluster() {
    for version in 0..=2 {
        let request = DescribeClusterRequest::default();
        let response = ask!(World::new(), request, DescribeClusterResponse, version);
        assert_eq!(response.cluster_id, "cluster-1");
        assert_eq!(response.brokers[0].broker_id, BrokerId(9));
    }
    let request = DescribeClusterRequest { endpoint_type: 2, ..Default::default() };
    let response = ask!(World::new(), request, DescribeClusterResponse, 1);
    assert_eq!(response.error_code, ErrorCode::MISMATCHED_ENDPOINT_TYPE);
}

#[test]
fn pages_of_topics_join_without_a_gap() {
    for (limit, pages) in [(1, 4), (2, 2), (3, 2), (4, 1), (2000, 1), (-1, 4)] {
        let mut world = World::new();
        let mut cursor = None;
        let mut found = Vec::new();
        for page in 1..=pages {
            let request = DescribeTopicPartitionsRequest {
                response_partition_limit: limit,
                cursor: cursor.clone(),
                ..DescribeTopicPartitionsRequest::default()
            };
            let response = ask!(world, request, DescribeTopicPartitionsResponse, 0);
            for topic in &response.topics {
                let name = topic.name.clone().unwrap();
                found.extend(topic.partitions.iter().map(|p| (name.clone(), p.partition_index.0)));
            }
            cursor = response.next_cursor;
            assert_eq!(cursor.is_none(), page == pages, "limit {limit}, page {page}");
        }
        let all = [("events", 0), ("orders", 0), ("orders", 1), ("orders", 2)];
        assert_eq!(found, all.map(|(name, index)| (name.to_owned(), index)), "limit {limit}");
    }
}

#[test]
fn a_cursor_outside_of_the_topics_asked_for_is_refused() {
    let request = DescribeTopicPartitionsRequest {
        topics: vec![TopicRequest { name: "orders".to_owned() }],
        cursor: Some(Cursor {
            topic_name: "events".to_owned(),
            partition_index: PartitionIndex(0),
        }),
        ..DescribeTopicPartitionsRequest::default()
    };
    let response = ask!(World::new(), request, DescribeTopicPartitionsResponse, 0);
    assert_eq!(response.topics[0].error_code, ErrorCode::INVALID_REQUEST);
}

#[test]
fn configs_are_those_of_the_source_over_those_of_kafka() {
    for version in 1..=4 {
        let resource =
            |resource_type, name: &str, keys: Option<Vec<&str>>| DescribeConfigsResource {
                resource_type,
                resource_name: name.to_owned(),
                configuration_keys: keys.map(|keys| keys.into_iter().map(str::to_owned).collect()),
            };
        let request = DescribeConfigsRequest {
            resources: vec![
                resource(RESOURCE_TOPIC, "orders", None),
                resource(RESOURCE_TOPIC, "gone", None),
                resource(RESOURCE_BROKER, "9", Some(vec!["auto.create.topics.enable"])),
                resource(RESOURCE_BROKER, "8", None),
            ],
            include_synonyms: true,
            include_documentation: false,
        };
        let response = ask!(World::new(), request, DescribeConfigsResponse, version);
        let orders = &response.results[0].configs;
        let find = |name: &str| orders.iter().find(|config| config.name == name).unwrap();
        let retention = find("retention.ms");
        assert_eq!((retention.value.as_deref(), retention.config_source), (Some("1000"), 1));
        assert_eq!(retention.synonyms[1].name, "log.retention.ms");
        assert_eq!(retention.synonyms[1].value.as_deref(), Some("604800000"));
        let policy = find("cleanup.policy");
        assert_eq!((policy.value.as_deref(), policy.config_source), (Some("delete"), 5));
        assert_eq!(policy.config_type, if version >= 3 { 7 } else { 0 });
        assert_eq!(find("vendor.setting").value.as_deref(), Some("x"));
        assert_eq!(response.results[1].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let broker = &response.results[2].configs;
        assert_eq!((broker.len(), broker[0].value.as_deref()), (1, Some("false")));
        assert_eq!(response.results[3].error_code, ErrorCode::INVALID_REQUEST);
    }
}

fn list_offsets(asked: &[(&str, i32, i32, i64)], isolation_level: i8) -> ListOffsetsRequest {
    let topic = |&(name, partition, epoch, timestamp): &(&str, i32, i32, i64)| ListOffsetsTopic {
        name: name.to_owned(),
        partitions: vec![ListOffsetsPartition {
            partition_index: PartitionIndex(partition),
            current_leader_epoch: LeaderEpoch(epoch),
            timestamp,
        }],
    };
    let topics = asked.iter().map(topic).collect();
    ListOffsetsRequest { isolation_level, topics, ..ListOffsetsRequest::default() }
}

fn offsets(response: &ListOffsetsResponse) -> Vec<(ErrorCode, i64, i64)> {
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|found| (found.error_code, found.offset.0, found.timestamp)).collect()
}

#[test]
fn offsets_are_found_by_their_owners() {
    for version in 1..=11 {
        let mut world = World::new();
        *world.log("orders", 1) = Log { stable: 10, ..Log::of(&[100, 100, 100]) };
        let times = [("orders", 1, -1, -2), ("orders", 0, -1, -1), ("events", 0, -1, 5_000)];
        let response = ask!(world, list_offsets(&times, 0), ListOffsetsResponse, version);
        let none = ErrorCode::NONE;
        assert_eq!(offsets(&response), [(none, 0, -1), (none, 0, -1), (none, -1, -1)]);
        let time = [("orders", 1, -1, 1_007)];
        let response = ask!(world, list_offsets(&time, 0), ListOffsetsResponse, version);
        assert_eq!(offsets(&response), [(none, 7, 1_007)]);
        for (isolation, end) in [(0, 30), (1, if version >= 2 { 10 } else { 30 })] {
            let latest = [("orders", 1, -1, -1)];
            let request = list_offsets(&latest, isolation);
            let response = ask!(world, request, ListOffsetsResponse, version);
            assert_eq!(offsets(&response), [(none, end, -1)], "version {version}");
        }
    }
}

#[test]
fn special_times_are_answered_from_their_version_on() {
    for (timestamp, since, offset) in [(-3, 7, 29), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)] {
        for version in 1..=11 {
            let mut world = World::new();
            *world.log("orders", 1) = Log::of(&[100, 100, 100]);
            let request = list_offsets(&[("orders", 1, -1, timestamp)], 0);
            let response = ask!(world, request, ListOffsetsResponse, version);
            let (error_code, found, _) = offsets(&response)[0];
            if version >= since {
                assert_eq!((error_code, found), (ErrorCode::NONE, offset));
            } else {
                assert_eq!(error_code, ErrorCode::UNSUPPORTED_VERSION, "{timestamp} in {version}");
            }
        }
    }
}

#[test]
fn offsets_that_cannot_be_told_get_their_error() {
    let asked = [
        ("orders", 7, -1, -1),
        ("gone", 0, -1, -1),
        ("orders", 0, 4, -1),
        ("orders", 1, 6, -5),
        ("events", 0, -1, -1),
        ("events", 0, -1, -2),
        ("orders", 2, -1, -99),
    ];
    let response = ask!(World::new(), list_offsets(&asked, 0), ListOffsetsResponse, 9);
    let codes: Vec<_> = offsets(&response).into_iter().map(|(code, ..)| code).collect();
    assert_eq!(
        codes,
        [
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode::FENCED_LEADER_EPOCH,
            ErrorCode::UNKNOWN_LEADER_EPOCH,
            ErrorCode::INVALID_REQUEST,
            ErrorCode::INVALID_REQUEST,
            ErrorCode::UNSUPPORTED_VERSION,
        ]
    );
    let nothing = ask!(World::new(), list_offsets(&[], 0), ListOffsetsResponse, 9);
    assert!(nothing.topics.is_empty());
}

#[test]
fn ends_of_epochs_are_found_by_their_owners() {
    for version in 0..=4 {
        let mut world = World::new();
        *world.log("orders", 1) = Log::of(&[100, 100]);
        let partition = |index| OffsetForLeaderPartition {
            partition: PartitionIndex(index),
            leader_epoch: LeaderEpoch(3),
            ..OffsetForLeaderPartition::default()
        };
        let request = OffsetForLeaderEpochRequest {
            topics: vec![OffsetForLeaderTopic {
                topic: "orders".to_owned(),
                partitions: vec![partition(1), partition(8)],
            }],
            ..OffsetForLeaderEpochRequest::default()
        };
        let response = ask!(world, request, OffsetForLeaderEpochResponse, version);
        let ends = &response.topics[0].partitions;
        assert_eq!((ends[0].error_code, ends[0].end_offset), (ErrorCode::NONE, Offset(20)));
        assert_eq!(ends[1].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
}

fn produce<'a>(name: &'a str, version: i16, acks: i16) -> ProduceRequest<'a> {
    let id = if version >= 13 { topic_id(name) } else { TopicId::ZERO };
    let name = if version >= 13 { "" } else { name };
    let partition = |index| ProducePartition { index: PartitionIndex(index), records: Some(b"x") };
    let topic = ProduceTopic { name, topic_id: id, partitions: vec![partition(0), partition(9)] };
    ProduceRequest { acks, topics: vec![topic], ..ProduceRequest::default() }
}

#[test]
fn a_producer_hears_that_the_topic_is_a_read_only_mirror() {
    for version in 3..=13 {
        let request = produce("orders", version, -1);
        let response = ask!(World::new(), request, ProduceResponse, version);
        let partitions = &response.responses[0].partition_responses;
        assert_eq!(partitions[0].error_code, ErrorCode::POLICY_VIOLATION);
        assert!(!partitions[0].error_code.retriable());
        if version >= 8 {
            let message = partitions[0].error_message.as_deref();
            assert_eq!(message, Some("topic orders is a read-only mirror of west"));
        }
        assert_eq!(partitions[1].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
}

#[test]
fn a_producer_that_wants_no_answer_loses_its_connection() {
    let mut world = World::new();
    let request_bytes =
        request(ApiKey::PRODUCE, 9, |writer| produce("orders", 9, 0).write(writer, 9));
    world.receive(CLIENT, &request_bytes);
    let reason = world.close_reason();
    assert!(reason.contains("read-only mirror of west"), "{reason}");
    assert!(reason.contains("Produce version 9 as client \"tester\""), "{reason}");
}

/// Producers are idempotent by default and ask for an id first: when that was refused they told of
/// missing rights, and nobody found out that the topic was a mirror.
#[test]
fn a_producer_gets_an_id_so_that_its_produce_can_be_refused_with_a_reason() {
    for version in 0..=5 {
        let mut world = World::new();
        let request = InitProducerIdRequest::default();
        let first = ask!(world, request, InitProducerIdResponse, version);
        let second = ask!(world, request, InitProducerIdResponse, version);
        assert_eq!(first.error_code, ErrorCode::NONE);
        assert!(first.producer_id.0 >= 0 && second.producer_id.0 >= 0);
        assert_ne!(first.producer_id, second.producer_id);
    }
}

#[test]
fn no_transactional_producer_gets_an_id() {
    for version in 0..=5 {
        let transactional_id = Some("tx".to_owned());
        let request = InitProducerIdRequest { transactional_id, ..Default::default() };
        let response = ask!(World::new(), request, InitProducerIdResponse, version);
        assert_eq!(response.error_code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
        assert_eq!(response.producer_id, ProducerId::NONE);
    }
}
