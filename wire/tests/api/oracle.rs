//! Our bytes against the codec of the crate `kafka-protocol`, in both directions: what we write it
//! reads as the same fields, and what it writes of them are the same bytes.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message as _, StrBytes, VersionRange};
use proptest::prelude::*;
use wire::api::produce::{ProducePartition, ProduceRequest, ProduceTopic};
use wire::api::{
    ApiKey, ErrorCode, Versions, api_versions, describe_cluster, describe_configs,
    describe_topic_partitions, find_coordinator, init_producer_id, list_offsets, metadata,
    offset_for_leader_epoch, produce,
};
use wire::codec::{Reader, Writer};
use wire::ids::{
    BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};

use crate::sample::{Draw, Message, Sample};

/// The same value in the other codec's type.
trait Same<T> {
    fn same(&self) -> T;
}

macro_rules! same_numbers {
    ($($ours:ty => $theirs:ty: $value:expr;)*) => {$(
        impl Same<$theirs> for $ours {
            fn same(&self) -> $theirs {
                let value: fn(&$ours) -> $theirs = $value;
                value(self)
            }
        }
    )*};
}

same_numbers! {
    bool => bool: |ours| *ours;
    i8 => i8: |ours| *ours;
    i16 => i16: |ours| *ours;
    i32 => i32: |ours| *ours;
    i64 => i64: |ours| *ours;
    ApiKey => i16: |ours| ours.0;
    ErrorCode => i16: |ours| ours.0;
    BrokerId => theirs::BrokerId: |ours| theirs::BrokerId(ours.0);
    LeaderEpoch => i32: |ours| ours.0;
    Offset => i64: |ours| ours.0;
    PartitionIndex => i32: |ours| ours.0;
    ProducerEpoch => i16: |ours| ours.0;
    ProducerId => theirs::ProducerId: |ours| theirs::ProducerId(ours.0);
    String => StrBytes: |ours| StrBytes::from_string(ours.clone());
    String => theirs::TopicName: |ours| theirs::TopicName(ours.same());
    String => theirs::TransactionalId: |ours| theirs::TransactionalId(ours.same());
}

// Their UUIDs, whose crate is not ours to name.
impl<T: TryFrom<Vec<u8>, Error: std::fmt::Debug>> Same<T> for TopicId {
    fn same(&self) -> T {
        T::try_from(self.0.to_vec()).expect("sixteen bytes")
    }
}

impl<O: Same<T>, T> Same<Option<T>> for Option<O> {
    fn same(&self) -> Option<T> {
        self.as_ref().map(Same::same)
    }
}

impl<O: Same<T>, T> Same<Vec<T>> for Vec<O> {
    fn same(&self) -> Vec<T> {
        self.iter().map(Same::same).collect()
    }
}

macro_rules! same_structs {
    ($($ours:path => $theirs:ty { $($field:ident),* $(,)? })*) => {$(
        impl Same<$theirs> for $ours {
            fn same(&self) -> $theirs {
                let mut same = <$theirs>::default();
                $( same.$field = self.$field.same(); )*
                same
            }
        }
    )*};
}

fn decode<T: Decodable>(bytes: &[u8], version: i16) -> T {
    let mut bytes = Bytes::copy_from_slice(bytes);
    let message = T::decode(&mut bytes, version).expect("the other codec reads our bytes");
    assert!(bytes.is_empty(), "version {version}: {} bytes left", bytes.len());
    message
}

fn encode<T: Encodable>(message: &T, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, version).expect("the other codec writes our fields");
    bytes.to_vec()
}

fn versions(range: VersionRange) -> Versions {
    Versions { least: range.min, most: range.max }
}

/// Compares one message in one version; what comes back to us must be the same as well.
fn compare<O, T>(message: &O, version: i16, absent: fn(&mut T, i16))
where
    O: Message + Same<T>,
    T: Encodable + Decodable + PartialEq + std::fmt::Debug,
{
    let bytes = message.to_bytes(version);
    // What this version carries; the fields it does not carry are at their defaults.
    let carried = O::from_bytes(&bytes, version).expect("we read what we wrote");
    assert_eq!(carried.to_bytes(version), bytes, "version {version}");
    let mut theirs: T = decode(&bytes, version);
    absent(&mut theirs, version);
    assert_eq!(theirs, carried.same(), "version {version}");
    assert_eq!(encode(&theirs, version), bytes, "version {version}");
}

/// One property for every message: all versions that both codecs speak. `lacks` names the versions
/// that the other codec lacks; `golden` has bytes for those. `absent` brings fields that a version does
/// not carry from their default to ours.
macro_rules! compared {
    ($($test:ident: $ours:path, $theirs:ty, lacks [$($lacks:literal),*] $(, absent $absent:expr)?;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(
                #[test]
                fn $test(seed: u64) {
                    let message = <$ours>::sample(&mut Draw(seed));
                    let shared = versions(<$theirs>::VERSIONS);
                    for version in <$ours>::VERSIONS.each() {
                        let lacks: &[i16] = &[$($lacks),*];
                        prop_assert_eq!(shared.contains(version), !lacks.contains(&version));
                        if shared.contains(version) {
                            let absent: &[fn(&mut $theirs, i16)] = &[$($absent)?];
                            let absent = absent.first().copied().unwrap_or(|_, _| ());
                            compare::<$ours, $theirs>(&message, version, absent);
                        }
                    }
                }
            )*
        }
    };
}

compared! {
    api_versions_request:
        api_versions::ApiVersionsRequest, theirs::ApiVersionsRequest, lacks [5];
    api_versions_response:
        api_versions::ApiVersionsResponse, theirs::ApiVersionsResponse, lacks [5];
    metadata_request: metadata::MetadataRequest, theirs::MetadataRequest, lacks [];
    metadata_response: metadata::MetadataResponse, theirs::MetadataResponse, lacks [];
    list_offsets_request: list_offsets::ListOffsetsRequest, theirs::ListOffsetsRequest, lacks [11];
    list_offsets_response:
        list_offsets::ListOffsetsResponse, theirs::ListOffsetsResponse, lacks [11];
    offset_for_leader_epoch_request:
        offset_for_leader_epoch::OffsetForLeaderEpochRequest,
        theirs::OffsetForLeaderEpochRequest, lacks [0, 1];
    offset_for_leader_epoch_response:
        offset_for_leader_epoch::OffsetForLeaderEpochResponse,
        theirs::OffsetForLeaderEpochResponse, lacks [0, 1];
    describe_cluster_request:
        describe_cluster::DescribeClusterRequest, theirs::DescribeClusterRequest, lacks [];
    describe_cluster_response:
        describe_cluster::DescribeClusterResponse, theirs::DescribeClusterResponse, lacks [];
    describe_topic_partitions_request:
        describe_topic_partitions::DescribeTopicPartitionsRequest,
        theirs::DescribeTopicPartitionsRequest, lacks [];
    describe_topic_partitions_response:
        describe_topic_partitions::DescribeTopicPartitionsResponse,
        theirs::DescribeTopicPartitionsResponse, lacks [];
    describe_configs_request:
        describe_configs::DescribeConfigsRequest, theirs::DescribeConfigsRequest, lacks [];
    describe_configs_response:
        describe_configs::DescribeConfigsResponse, theirs::DescribeConfigsResponse, lacks [],
        absent no_documentation;
    produce_response: produce::ProduceResponse, theirs::ProduceResponse, lacks [];
    find_coordinator_request:
        find_coordinator::FindCoordinatorRequest, theirs::FindCoordinatorRequest, lacks [];
    find_coordinator_response:
        find_coordinator::FindCoordinatorResponse, theirs::FindCoordinatorResponse, lacks [],
        absent no_error_message;
    init_producer_id_request:
        init_producer_id::InitProducerIdRequest, theirs::InitProducerIdRequest, lacks [];
    init_producer_id_response:
        init_producer_id::InitProducerIdResponse, theirs::InitProducerIdResponse, lacks [];
}

// Like Kafka's own, their default of some strings that may be null is the empty string; ours is null.

fn no_documentation(response: &mut theirs::DescribeConfigsResponse, version: i16) {
    for config in response.results.iter_mut().flat_map(|result| &mut result.configs) {
        config.documentation.take_if(|_| version < 3);
    }
}

fn no_error_message(response: &mut theirs::FindCoordinatorResponse, version: i16) {
    response.error_message.take_if(|_| version == 0 || version > 3);
}

fn their_produce_request(draw: &mut Draw, version: i16) -> theirs::ProduceRequest {
    use theirs::produce_request::{PartitionProduceData, TopicProduceData};
    let mut request = theirs::ProduceRequest::default();
    request.transactional_id = Option::<String>::sample(draw).same();
    request.acks = Sample::sample(draw);
    request.timeout_ms = Sample::sample(draw);
    for _ in 0..draw.below(4) {
        let mut topic = TopicProduceData::default();
        if version < 13 {
            topic.name = String::sample(draw).same();
        } else {
            topic.topic_id = TopicId::sample(draw).same();
        }
        for _ in 0..draw.below(4) {
            let mut partition = PartitionProduceData::default();
            partition.index = Sample::sample(draw);
            partition.records = Option::<String>::sample(draw).map(Bytes::from);
            topic.partition_data.push(partition);
        }
        request.topic_data.push(topic);
    }
    request
}

fn our_produce_request(theirs: &theirs::ProduceRequest) -> ProduceRequest<'_> {
    let topics = theirs.topic_data.iter().map(|topic| ProduceTopic {
        name: topic.name.as_str(),
        topic_id: TopicId(*topic.topic_id.as_bytes()),
        partitions: topic
            .partition_data
            .iter()
            .map(|partition| ProducePartition {
                index: PartitionIndex(partition.index),
                records: partition.records.as_deref(),
            })
            .collect(),
    });
    ProduceRequest {
        transactional_id: theirs.transactional_id.as_ref().map(|id| id.as_str()),
        acks: theirs.acks,
        timeout_ms: theirs.timeout_ms,
        topics: topics.collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn produce_request(seed: u64) {
        let mut draw = Draw(seed);
        prop_assert_eq!(versions(theirs::ProduceRequest::VERSIONS), ProduceRequest::VERSIONS);
        for version in ProduceRequest::VERSIONS.each() {
            let theirs = their_produce_request(&mut draw, version);
            let bytes = encode(&theirs, version);
            let mut reader = Reader::new(&bytes);
            let read = ProduceRequest::read(&mut reader, version).unwrap();
            prop_assert_eq!(reader.finish(), Ok(()));
            prop_assert_eq!(&read, &our_produce_request(&theirs));
            let mut writer = Writer::new();
            read.write(&mut writer, version);
            prop_assert_eq!(writer.bytes(), bytes.as_slice());
        }
    }

    #[test]
    fn tagged_fields_that_nobody_here_knows_are_skipped(seed: u64, tag in 20..1000, value: Vec<u8>) {
        let message = metadata::MetadataResponse::sample(&mut Draw(seed));
        let version = 13;
        let bytes = message.to_bytes(version);
        let mut theirs: theirs::MetadataResponse = decode(&bytes, version);
        theirs.unknown_tagged_fields.insert(tag, Bytes::from(value.clone()));
        for topic in &mut theirs.topics {
            topic.unknown_tagged_fields.insert(tag + 1, Bytes::from(value.clone()));
        }
        let read = metadata::MetadataResponse::from_bytes(&encode(&theirs, version), version);
        prop_assert_eq!(read, metadata::MetadataResponse::from_bytes(&bytes, version));
    }
}

same_structs! {
    api_versions::ApiVersionsRequest => theirs::ApiVersionsRequest {
        client_software_name, client_software_version,
    }
    api_versions::ApiVersionsResponse => theirs::ApiVersionsResponse {
        error_code, api_keys, throttle_time_ms, supported_features, finalized_features_epoch,
        finalized_features, zk_migration_ready,
    }
    api_versions::ApiVersion => theirs::api_versions_response::ApiVersion {
        api_key, min_version, max_version,
    }
    api_versions::SupportedFeature => theirs::api_versions_response::SupportedFeatureKey {
        name, min_version, max_version,
    }
    api_versions::FinalizedFeature => theirs::api_versions_response::FinalizedFeatureKey {
        name, max_version_level, min_version_level,
    }
    describe_cluster::DescribeClusterRequest => theirs::DescribeClusterRequest {
        include_cluster_authorized_operations, endpoint_type, include_fenced_brokers,
    }
    describe_cluster::DescribeClusterResponse => theirs::DescribeClusterResponse {
        throttle_time_ms, error_code, error_message, endpoint_type, cluster_id, controller_id,
        brokers, cluster_authorized_operations,
    }
    describe_cluster::DescribeClusterBroker => theirs::describe_cluster_response::DescribeClusterBroker {
        broker_id, host, port, rack, is_fenced,
    }
    describe_configs::DescribeConfigsRequest => theirs::DescribeConfigsRequest {
        resources, include_synonyms, include_documentation,
    }
    describe_configs::DescribeConfigsResource => theirs::describe_configs_request::DescribeConfigsResource {
        resource_type, resource_name, configuration_keys,
    }
    describe_configs::DescribeConfigsResponse => theirs::DescribeConfigsResponse {
        throttle_time_ms, results,
    }
    describe_configs::DescribeConfigsResult => theirs::describe_configs_response::DescribeConfigsResult {
        error_code, error_message, resource_type, resource_name, configs,
    }
    describe_configs::DescribeConfigsResourceResult => theirs::describe_configs_response::DescribeConfigsResourceResult {
        name, value, read_only, config_source, is_sensitive, synonyms, config_type, documentation,
    }
    describe_configs::DescribeConfigsSynonym => theirs::describe_configs_response::DescribeConfigsSynonym {
        name, value, source,
    }
    describe_topic_partitions::DescribeTopicPartitionsRequest => theirs::DescribeTopicPartitionsRequest {
        topics, response_partition_limit, cursor,
    }
    describe_topic_partitions::TopicRequest => theirs::describe_topic_partitions_request::TopicRequest {
        name,
    }
    describe_topic_partitions::Cursor => theirs::describe_topic_partitions_request::Cursor {
        topic_name, partition_index,
    }
    describe_topic_partitions::Cursor => theirs::describe_topic_partitions_response::Cursor {
        topic_name, partition_index,
    }
    describe_topic_partitions::DescribeTopicPartitionsResponse => theirs::DescribeTopicPartitionsResponse {
        throttle_time_ms, topics, next_cursor,
    }
    describe_topic_partitions::DescribeTopicPartitionsResponseTopic => theirs::describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic {
        error_code, name, topic_id, is_internal, partitions, topic_authorized_operations,
    }
    describe_topic_partitions::DescribeTopicPartitionsResponsePartition => theirs::describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition {
        error_code, partition_index, leader_id, leader_epoch, replica_nodes, isr_nodes,
        eligible_leader_replicas, last_known_elr, offline_replicas,
    }
    find_coordinator::FindCoordinatorRequest => theirs::FindCoordinatorRequest {
        key, key_type, coordinator_keys,
    }
    find_coordinator::FindCoordinatorResponse => theirs::FindCoordinatorResponse {
        throttle_time_ms, error_code, error_message, node_id, host, port, coordinators,
    }
    find_coordinator::Coordinator => theirs::find_coordinator_response::Coordinator {
        key, node_id, host, port, error_code, error_message,
    }
    init_producer_id::InitProducerIdRequest => theirs::InitProducerIdRequest {
        transactional_id, transaction_timeout_ms, producer_id, producer_epoch,
    }
    init_producer_id::InitProducerIdResponse => theirs::InitProducerIdResponse {
        throttle_time_ms, error_code, producer_id, producer_epoch,
    }
    list_offsets::ListOffsetsRequest => theirs::ListOffsetsRequest {
        replica_id, isolation_level, topics, timeout_ms,
    }
    list_offsets::ListOffsetsTopic => theirs::list_offsets_request::ListOffsetsTopic {
        name, partitions,
    }
    list_offsets::ListOffsetsPartition => theirs::list_offsets_request::ListOffsetsPartition {
        partition_index, current_leader_epoch, timestamp,
    }
    list_offsets::ListOffsetsResponse => theirs::ListOffsetsResponse {
        throttle_time_ms, topics,
    }
    list_offsets::ListOffsetsTopicResponse => theirs::list_offsets_response::ListOffsetsTopicResponse {
        name, partitions,
    }
    list_offsets::ListOffsetsPartitionResponse => theirs::list_offsets_response::ListOffsetsPartitionResponse {
        partition_index, error_code, timestamp, offset, leader_epoch,
    }
    metadata::MetadataRequest => theirs::MetadataRequest {
        topics, allow_auto_topic_creation, include_cluster_authorized_operations,
        include_topic_authorized_operations,
    }
    metadata::MetadataRequestTopic => theirs::metadata_request::MetadataRequestTopic {
        topic_id, name,
    }
    metadata::MetadataResponse => theirs::MetadataResponse {
        throttle_time_ms, brokers, cluster_id, controller_id, topics, cluster_authorized_operations,
        error_code,
    }
    metadata::MetadataResponseBroker => theirs::metadata_response::MetadataResponseBroker {
        node_id, host, port, rack,
    }
    metadata::MetadataResponseTopic => theirs::metadata_response::MetadataResponseTopic {
        error_code, name, topic_id, is_internal, partitions, topic_authorized_operations,
    }
    metadata::MetadataResponsePartition => theirs::metadata_response::MetadataResponsePartition {
        error_code, partition_index, leader_id, leader_epoch, replica_nodes, isr_nodes,
        offline_replicas,
    }
    offset_for_leader_epoch::OffsetForLeaderEpochRequest => theirs::OffsetForLeaderEpochRequest {
        replica_id, topics,
    }
    offset_for_leader_epoch::OffsetForLeaderTopic => theirs::offset_for_leader_epoch_request::OffsetForLeaderTopic {
        topic, partitions,
    }
    offset_for_leader_epoch::OffsetForLeaderPartition => theirs::offset_for_leader_epoch_request::OffsetForLeaderPartition {
        partition, current_leader_epoch, leader_epoch,
    }
    offset_for_leader_epoch::OffsetForLeaderEpochResponse => theirs::OffsetForLeaderEpochResponse {
        throttle_time_ms, topics,
    }
    offset_for_leader_epoch::OffsetForLeaderTopicResult => theirs::offset_for_leader_epoch_response::OffsetForLeaderTopicResult {
        topic, partitions,
    }
    offset_for_leader_epoch::EpochEndOffset => theirs::offset_for_leader_epoch_response::EpochEndOffset {
        error_code, partition, leader_epoch, end_offset,
    }
    produce::ProduceResponse => theirs::ProduceResponse {
        responses, throttle_time_ms, node_endpoints,
    }
    produce::TopicProduceResponse => theirs::produce_response::TopicProduceResponse {
        name, topic_id, partition_responses,
    }
    produce::PartitionProduceResponse => theirs::produce_response::PartitionProduceResponse {
        index, error_code, base_offset, log_append_time_ms, log_start_offset, record_errors,
        error_message, current_leader,
    }
    produce::BatchIndexAndErrorMessage => theirs::produce_response::BatchIndexAndErrorMessage {
        batch_index, batch_index_error_message,
    }
    produce::LeaderIdAndEpoch => theirs::produce_response::LeaderIdAndEpoch {
        leader_id, leader_epoch,
    }
    produce::NodeEndpoint => theirs::produce_response::NodeEndpoint {
        node_id, host, port, rack,
    }
}
