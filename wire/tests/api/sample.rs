//! Messages with something in every field, drawn from a seed.

use wire::WireError;
use wire::api::api_versions::*;
use wire::api::describe_cluster::*;
use wire::api::describe_configs::*;
use wire::api::describe_topic_partitions::*;
use wire::api::find_coordinator::*;
use wire::api::init_producer_id::*;
use wire::api::list_offsets::*;
use wire::api::metadata::*;
use wire::api::offset_for_leader_epoch::*;
use wire::api::produce::*;
use wire::api::{ApiKey, ErrorCode, Versions};
use wire::codec::{Reader, Writer};
use wire::ids::{
    BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};

/// Numbers that depend on nothing but the seed (splitmix64).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Whether a case that should come up once in `rarity` times does.
    pub fn once_in(&mut self, rarity: usize) -> bool {
        self.below(rarity) == 0
    }
}

pub trait Sample: Sized {
    fn sample(draw: &mut Draw) -> Self;
}

impl Sample for bool {
    fn sample(draw: &mut Draw) -> Self {
        draw.once_in(2)
    }
}

macro_rules! sample_numbers {
    ($($number:ty),*) => {$(
        impl Sample for $number {
            fn sample(draw: &mut Draw) -> Self {
                match draw.below(8) {
                    0 => 0,
                    1 => -1,
                    2 => <$number>::MIN,
                    3 => <$number>::MAX,
                    _ => draw.next() as $number,
                }
            }
        }
    )*};
}
sample_numbers!(i8, i16, i32, i64);

macro_rules! sample_named_numbers {
    ($($name:ident),*) => {$(
        impl Sample for $name {
            fn sample(draw: &mut Draw) -> Self {
                Self(Sample::sample(draw))
            }
        }
    )*};
}
sample_named_numbers!(
    ApiKey,
    ErrorCode,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId
);

impl Sample for TopicId {
    fn sample(draw: &mut Draw) -> Self {
        let (high, low) = (draw.next(), draw.next());
        Self(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
    }
}

impl Sample for String {
    fn sample(draw: &mut Draw) -> Self {
        // 126 and 127 are the last compact length of one byte and the first of two.
        let length = if draw.once_in(16) { 126 + draw.below(2) } else { draw.below(12) };
        (0..length).map(|_| ['a', 'Z', '.', '\0', 'ü', '語', '🦀'][draw.below(7)]).collect()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(draw: &mut Draw) -> Self {
        (!draw.once_in(4)).then(|| T::sample(draw))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(draw: &mut Draw) -> Self {
        (0..draw.below(4)).map(|_| T::sample(draw)).collect()
    }
}

macro_rules! sample_structs {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl Sample for $name {
            fn sample(draw: &mut Draw) -> Self {
                Self { $( $field: Sample::sample(draw), )* }
            }
        }
    )*};
}

/// A message, for tests that treat all of them alike.
pub trait Message: Sample + Clone + PartialEq + std::fmt::Debug {
    const API_KEY: ApiKey;
    const VERSIONS: Versions;
    const FIRST_FLEXIBLE: i16;
    fn read(reader: &mut Reader<'_>, version: i16) -> Result<Self, WireError>;
    fn write(&self, writer: &mut Writer, version: i16);

    fn to_bytes(&self, version: i16) -> Vec<u8> {
        let mut writer = Writer::new();
        self.write(&mut writer, version);
        writer.into_bytes()
    }

    /// Reads exactly these bytes.
    fn from_bytes(bytes: &[u8], version: i16) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let message = Self::read(&mut reader, version)?;
        reader.finish()?;
        Ok(message)
    }
}

macro_rules! messages {
    ($($name:ident),* $(,)?) => {$(
        impl Message for $name {
            const API_KEY: ApiKey = $name::API_KEY;
            const VERSIONS: Versions = $name::VERSIONS;
            const FIRST_FLEXIBLE: i16 = $name::FIRST_FLEXIBLE;
            fn read(reader: &mut Reader<'_>, version: i16) -> Result<Self, WireError> {
                $name::read(reader, version)
            }
            fn write(&self, writer: &mut Writer, version: i16) {
                $name::write(self, writer, version);
            }
        }
    )*};
}

messages! {
    ApiVersionsRequest, ApiVersionsResponse,
    DescribeClusterRequest, DescribeClusterResponse,
    DescribeConfigsRequest, DescribeConfigsResponse,
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse,
    ListOffsetsRequest, ListOffsetsResponse,
    MetadataRequest, MetadataResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    ProduceResponse,
}

/// Does the same with every message but the Produce request, which borrows.
macro_rules! for_each_message {
    ($visit:ident $(($argument:expr))?) => {
        $visit::<wire::api::api_versions::ApiVersionsRequest>($($argument)?);
        $visit::<wire::api::api_versions::ApiVersionsResponse>($($argument)?);
        $visit::<wire::api::describe_cluster::DescribeClusterRequest>($($argument)?);
        $visit::<wire::api::describe_cluster::DescribeClusterResponse>($($argument)?);
        $visit::<wire::api::describe_configs::DescribeConfigsRequest>($($argument)?);
        $visit::<wire::api::describe_configs::DescribeConfigsResponse>($($argument)?);
        $visit::<wire::api::describe_topic_partitions::DescribeTopicPartitionsRequest>($($argument)?);
        $visit::<wire::api::describe_topic_partitions::DescribeTopicPartitionsResponse>($($argument)?);
        $visit::<wire::api::find_coordinator::FindCoordinatorRequest>($($argument)?);
        $visit::<wire::api::find_coordinator::FindCoordinatorResponse>($($argument)?);
        $visit::<wire::api::init_producer_id::InitProducerIdRequest>($($argument)?);
        $visit::<wire::api::init_producer_id::InitProducerIdResponse>($($argument)?);
        $visit::<wire::api::list_offsets::ListOffsetsRequest>($($argument)?);
        $visit::<wire::api::list_offsets::ListOffsetsResponse>($($argument)?);
        $visit::<wire::api::metadata::MetadataRequest>($($argument)?);
        $visit::<wire::api::metadata::MetadataResponse>($($argument)?);
        $visit::<wire::api::offset_for_leader_epoch::OffsetForLeaderEpochRequest>($($argument)?);
        $visit::<wire::api::offset_for_leader_epoch::OffsetForLeaderEpochResponse>($($argument)?);
        $visit::<wire::api::produce::ProduceResponse>($($argument)?);
    };
}
pub(crate) use for_each_message;

sample_structs! {
    ApiVersionsRequest { client_software_name, client_software_version, cluster_id, node_id }
    ApiVersionsResponse {
        error_code, api_keys, throttle_time_ms, supported_features, finalized_features_epoch,
        finalized_features, zk_migration_ready,
    }
    ApiVersion { api_key, min_version, max_version }
    SupportedFeature { name, min_version, max_version }
    FinalizedFeature { name, max_version_level, min_version_level }
    DescribeClusterRequest {
        include_cluster_authorized_operations, endpoint_type, include_fenced_brokers,
    }
    DescribeClusterResponse {
        throttle_time_ms, error_code, error_message, endpoint_type, cluster_id, controller_id,
        brokers, cluster_authorized_operations,
    }
    DescribeClusterBroker { broker_id, host, port, rack, is_fenced }
    DescribeConfigsRequest { resources, include_synonyms, include_documentation }
    DescribeConfigsResource { resource_type, resource_name, configuration_keys }
    DescribeConfigsResponse { throttle_time_ms, results }
    DescribeConfigsResult { error_code, error_message, resource_type, resource_name, configs }
    DescribeConfigsResourceResult {
        name, value, read_only, config_source, is_sensitive, synonyms, config_type, documentation,
    }
    DescribeConfigsSynonym { name, value, source }
    DescribeTopicPartitionsRequest { topics, response_partition_limit, cursor }
    TopicRequest { name }
    Cursor { topic_name, partition_index }
    DescribeTopicPartitionsResponse { throttle_time_ms, topics, next_cursor }
    DescribeTopicPartitionsResponseTopic {
        error_code, name, topic_id, is_internal, partitions, topic_authorized_operations,
    }
    DescribeTopicPartitionsResponsePartition {
        error_code, partition_index, leader_id, leader_epoch, replica_nodes, isr_nodes,
        eligible_leader_replicas, last_known_elr, offline_replicas,
    }
    FindCoordinatorRequest { key, key_type, coordinator_keys }
    FindCoordinatorResponse {
        throttle_time_ms, error_code, error_message, node_id, host, port, coordinators,
    }
    Coordinator { key, node_id, host, port, error_code, error_message }
    InitProducerIdRequest { transactional_id, transaction_timeout_ms, producer_id, producer_epoch }
    InitProducerIdResponse { throttle_time_ms, error_code, producer_id, producer_epoch }
    ListOffsetsRequest { replica_id, isolation_level, topics, timeout_ms }
    ListOffsetsTopic { name, partitions }
    ListOffsetsPartition { partition_index, current_leader_epoch, timestamp }
    ListOffsetsResponse { throttle_time_ms, topics }
    ListOffsetsTopicResponse { name, partitions }
    ListOffsetsPartitionResponse { partition_index, error_code, timestamp, offset, leader_epoch }
    MetadataRequest {
        topics, allow_auto_topic_creation, include_cluster_authorized_operations,
        include_topic_authorized_operations,
    }
    MetadataRequestTopic { topic_id, name }
    MetadataResponse {
        throttle_time_ms, brokers, cluster_id, controller_id, topics, cluster_authorized_operations,
        error_code,
    }
    MetadataResponseBroker { node_id, host, port, rack }
    MetadataResponseTopic {
        error_code, name, topic_id, is_internal, partitions, topic_authorized_operations,
    }
    MetadataResponsePartition {
        error_code, partition_index, leader_id, leader_epoch, replica_nodes, isr_nodes,
        offline_replicas,
    }
    OffsetForLeaderEpochRequest { replica_id, topics }
    OffsetForLeaderTopic { topic, partitions }
    OffsetForLeaderPartition { partition, current_leader_epoch, leader_epoch }
    OffsetForLeaderEpochResponse { throttle_time_ms, topics }
    OffsetForLeaderTopicResult { topic, partitions }
    EpochEndOffset { error_code, partition, leader_epoch, end_offset }
    ProduceResponse { responses, throttle_time_ms, node_endpoints }
    TopicProduceResponse { name, topic_id, partition_responses }
    PartitionProduceResponse {
        index, error_code, base_offset, log_append_time_ms, log_start_offset, record_errors,
        error_message, current_leader,
    }
    BatchIndexAndErrorMessage { batch_index, batch_index_error_message }
    LeaderIdAndEpoch { leader_id, leader_epoch }
    NodeEndpoint { node_id, host, port, rack }
}
