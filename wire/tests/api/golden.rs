//! Bytes that Kafka's own Java clients wrote (kafka-clients 4.4.0, and 3.9.0 for versions that left
//! Kafka with 4.0), for the versions that `kafka-protocol` lacks.

use wire::api::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature, SupportedFeature,
};
use wire::api::list_offsets::{
    EARLIEST_PENDING_UPLOAD_TIMESTAMP, ListOffsetsPartition, ListOffsetsPartitionResponse,
    ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic, ListOffsetsTopicResponse,
};
use wire::api::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition, OffsetForLeaderTopic, OffsetForLeaderTopicResult,
};
use wire::api::{ApiKey, ErrorCode};
use wire::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex};

use crate::sample::Message;

/// Both directions of one message in one version.
fn compare<M: Message>(message: &M, version: i16, hex: &str) {
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|place| u8::from_str_radix(&hex[place..place + 2], 16).unwrap())
        .collect();
    assert_eq!(message.to_bytes(version), bytes, "version {version}");
    assert_eq!(M::from_bytes(&bytes, version).as_ref(), Ok(message), "version {version}");
}

#[test]
fn api_versions_5() {
    let request = ApiVersionsRequest {
        client_software_name: "farspan".into(),
        client_software_version: "0.1".into(),
        cluster_id: Some("cluster-A".into()),
        node_id: BrokerId(7),
    };
    compare(&request, 5, "086661727370616e04302e310a636c75737465722d410000000700");
    compare(&ApiVersionsRequest::default(), 5, "010100ffffffff00");

    let response = ApiVersionsResponse {
        error_code: ErrorCode::REBOOTSTRAP_REQUIRED,
        api_keys: vec![ApiVersion { api_key: ApiKey::FETCH, min_version: 4, max_version: 18 }],
        throttle_time_ms: 3,
        supported_features: vec![SupportedFeature {
            name: "kraft.version".into(),
            min_version: 0,
            max_version: 1,
        }],
        finalized_features_epoch: 99,
        finalized_features: vec![FinalizedFeature {
            name: "metadata.version".into(),
            max_version_level: 29,
            min_version_level: 7,
        }],
        zk_migration_ready: true,
    };
    let hex = concat!(
        "0081020001000400120000000003040014020e6b726166742e76657273696f6e000000010001080000000000",
        "000063021702116d657461646174612e76657273696f6e001d000700030101",
    );
    compare(&response, 5, hex);
}

#[test]
fn list_offsets_11() {
    let request = ListOffsetsRequest {
        replica_id: BrokerId::NONE,
        isolation_level: 1,
        topics: vec![ListOffsetsTopic {
            name: "orders".into(),
            partitions: vec![ListOffsetsPartition {
                partition_index: PartitionIndex(3),
                current_leader_epoch: LeaderEpoch(5),
                timestamp: EARLIEST_PENDING_UPLOAD_TIMESTAMP,
            }],
        }],
        timeout_ms: 500,
    };
    let hex = "ffffffff0102076f7264657273020000000300000005fffffffffffffffa0000000001f400";
    compare(&request, 11, hex);

    let response = ListOffsetsResponse {
        throttle_time_ms: 2,
        topics: vec![ListOffsetsTopicResponse {
            name: "orders".into(),
            partitions: vec![ListOffsetsPartitionResponse {
                partition_index: PartitionIndex(3),
                error_code: ErrorCode::NONE,
                timestamp: -1,
                offset: Offset(4711),
                leader_epoch: LeaderEpoch(5),
            }],
        }],
    };
    let hex =
        "0000000202076f726465727302000000030000ffffffffffffffff000000000000126700000005000000";
    compare(&response, 11, hex);
}

#[test]
fn offset_for_leader_epoch_0_and_1() {
    let request = OffsetForLeaderEpochRequest {
        topics: vec![OffsetForLeaderTopic {
            topic: "orders".into(),
            partitions: vec![OffsetForLeaderPartition {
                partition: PartitionIndex(3),
                leader_epoch: LeaderEpoch(5),
                ..OffsetForLeaderPartition::default()
            }],
        }],
        ..OffsetForLeaderEpochRequest::default()
    };
    let hex = "0000000100066f7264657273000000010000000300000005";
    compare(&request, 0, hex);
    compare(&request, 1, hex);

    let response = |leader_epoch| OffsetForLeaderEpochResponse {
        topics: vec![OffsetForLeaderTopicResult {
            topic: "orders".into(),
            partitions: vec![EpochEndOffset {
                error_code: ErrorCode::NONE,
                partition: PartitionIndex(3),
                leader_epoch,
                end_offset: Offset(4711),
            }],
        }],
        ..OffsetForLeaderEpochResponse::default()
    };
    let hex = "0000000100066f7264657273000000010000000000030000000000001267";
    compare(&response(LeaderEpoch::UNKNOWN), 0, hex);
    let hex = "0000000100066f726465727300000001000000000003000000040000000000001267";
    compare(&response(LeaderEpoch(4)), 1, hex);
}
