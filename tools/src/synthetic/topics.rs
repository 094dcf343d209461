//! Answers about topics and their partitions, and what producers append to them.

use wire::api::ErrorCode;
use wire::api::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, RESOURCE_TOPIC, SOURCE_TOPIC,
};
use wire::api::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use wire::api::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition,
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse, MAX_TIMESTAMP,
};
use wire::api::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use wire::api::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
};
use wire::api::produce::{
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use wire::fetch::IsolationLevel;
use wire::ids::{BrokerId, LeaderEpoch, PartitionIndex};

use super::cluster::{Cluster, Topic};
use super::partition::{Log, Partition};

impl Cluster {
    pub(super) fn metadata(&self, request: &MetadataRequest, version: i16) -> MetadataResponse {
        let topics = match &request.topics {
            Some(topics) if !request.asks_all_topics(version) => {
                topics.iter().map(|topic| self.metadata_of(topic)).collect()
            }
            _ => self.topics.iter().map(|(name, topic)| self.describe(name, topic)).collect(),
        };
        let up = self.brokers.iter().filter(|(_, broker)| broker.is_up);
        MetadataResponse {
            brokers: up
                .map(|(id, broker)| MetadataResponseBroker {
                    node_id: *id,
                    host: broker.host.clone(),
                    port: i32::from(broker.port),
                    rack: broker.rack.clone(),
                })
                .collect(),
            cluster_id: Some(self.cluster_id.clone()),
            controller_id: self.controller(),
            topics,
            ..MetadataResponse::default()
        }
    }

    fn metadata_of(&self, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
        let by_id = self.names.get(&asked.topic_id);
        let name = asked.name.as_ref().or(by_id);
        match name.and_then(|name| self.topics.get_key_value(name)) {
            Some((name, topic)) => self.describe(name, topic),
            None => MetadataResponseTopic {
                error_code: match asked.name {
                    Some(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    None => ErrorCode::UNKNOWN_TOPIC_ID,
                },
                name: asked.name.clone(),
                topic_id: asked.topic_id,
                ..MetadataResponseTopic::default()
            },
        }
    }

    fn describe(&self, name: &str, topic: &Topic) -> MetadataResponseTopic {
        let partition = |(index, partition): (i32, &Partition)| MetadataResponsePartition {
            error_code: match partition.leader {
                Some(_) => ErrorCode::NONE,
                None => ErrorCode::LEADER_NOT_AVAILABLE,
            },
            partition_index: PartitionIndex(index),
            leader_id: partition.leader.unwrap_or(BrokerId::NONE),
            leader_epoch: partition.epoch,
            replica_nodes: partition.replicas.clone(),
            isr_nodes: self.up(partition, true),
            offline_replicas: self.up(partition, false),
        };
        MetadataResponseTopic {
            name: Some(name.into()),
            topic_id: topic.id,
            partitions: (0..).zip(&topic.partitions).map(partition).collect(),
            ..MetadataResponseTopic::default()
        }
    }

    fn up(&self, partition: &Partition, is_up: bool) -> Vec<BrokerId> {
        partition.replicas.iter().copied().filter(|id| self.is_up(*id) == is_up).collect()
    }

    /// All in one page.
    pub(super) fn describe_topic_partitions(
        &self,
        request: &DescribeTopicPartitionsRequest,
    ) -> DescribeTopicPartitionsResponse {
        let asked = |name: &str| MetadataRequestTopic {
            name: Some(name.into()),
            ..MetadataRequestTopic::default()
        };
        let topics: Vec<_> = match request.topics.is_empty() {
            true => self.topics.keys().map(|name| self.metadata_of(&asked(name))).collect(),
            false => {
                request.topics.iter().map(|topic| self.metadata_of(&asked(&topic.name))).collect()
            }
        };
        let partition =
            |each: MetadataResponsePartition| DescribeTopicPartitionsResponsePartition {
                error_code: each.error_code,
                partition_index: each.partition_index,
                leader_id: each.leader_id,
                leader_epoch: each.leader_epoch,
                replica_nodes: each.replica_nodes,
                isr_nodes: each.isr_nodes,
                offline_replicas: each.offline_replicas,
                ..DescribeTopicPartitionsResponsePartition::default()
            };
        let topic = |each: MetadataResponseTopic| DescribeTopicPartitionsResponseTopic {
            error_code: each.error_code,
            name: each.name,
            topic_id: each.topic_id,
            partitions: each.partitions.into_iter().map(partition).collect(),
            ..DescribeTopicPartitionsResponseTopic::default()
        };
        DescribeTopicPartitionsResponse {
            topics: topics.into_iter().map(topic).collect(),
            ..DescribeTopicPartitionsResponse::default()
        }
    }

    pub(super) fn describe_configs(
        &self,
        request: &DescribeConfigsRequest,
    ) -> DescribeConfigsResponse {
        DescribeConfigsResponse {
            results: request.resources.iter().map(|asked| self.configs_of(asked)).collect(),
            ..DescribeConfigsResponse::default()
        }
    }

    fn configs_of(&self, asked: &DescribeConfigsResource) -> DescribeConfigsResult {
        let mut result = DescribeConfigsResult {
            resource_type: asked.resource_type,
            resource_name: asked.resource_name.clone(),
            ..DescribeConfigsResult::default()
        };
        if asked.resource_type != RESOURCE_TOPIC {
            return result;
        }
        let Some(topic) = self.topics.get(&asked.resource_name) else {
            result.error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            return result;
        };
        let wanted = |key: &str| {
            asked.configuration_keys.as_ref().is_none_or(|keys| keys.iter().any(|each| each == key))
        };
        let configs = topic.configs.iter().filter(|(key, _)| wanted(key));
        result.configs = configs
            .map(|(key, value)| DescribeConfigsResourceResult {
                name: key.clone(),
                value: Some(value.clone()),
                config_source: SOURCE_TOPIC,
                ..DescribeConfigsResourceResult::default()
            })
            .collect();
        result
    }

    pub(super) fn list_offsets(
        &self,
        broker: BrokerId,
        request: &ListOffsetsRequest,
        now_ms: i64,
    ) -> ListOffsetsResponse {
        let isolation = IsolationLevel(request.isolation_level);
        let topic = |topic: &wire::api::list_offsets::ListOffsetsTopic| ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|asked| {
                    let epoch = asked.current_leader_epoch;
                    match self.led(broker, &topic.name, asked.partition_index, epoch) {
                        Ok(partition) => list_offset(partition, asked, isolation, now_ms),
                        Err(error_code) => ListOffsetsPartitionResponse {
                            partition_index: asked.partition_index,
                            error_code,
                            ..ListOffsetsPartitionResponse::default()
                        },
                    }
                })
                .collect(),
        };
        ListOffsetsResponse {
            topics: request.topics.iter().map(topic).collect(),
            ..ListOffsetsResponse::default()
        }
    }

    pub(super) fn offset_for_leader_epoch(
        &self,
        broker: BrokerId,
        request: &OffsetForLeaderEpochRequest,
        now_ms: i64,
    ) -> OffsetForLeaderEpochResponse {
        let mut response = OffsetForLeaderEpochResponse::default();
        for topic in &request.topics {
            let mut partitions = Vec::new();
            for asked in &topic.partitions {
                let mut end =
                    EpochEndOffset { partition: asked.partition, ..EpochEndOffset::default() };
                let epoch = asked.current_leader_epoch;
                match self.led(broker, &topic.topic, asked.partition, epoch) {
                    Ok(partition) => {
                        let log_end = partition.log().end(now_ms);
                        let found = partition.epochs().end_of(asked.leader_epoch, log_end);
                        if let Some((leader_epoch, end_offset)) = found {
                            (end.leader_epoch, end.end_offset) = (leader_epoch, end_offset);
                        }
                    }
                    Err(error_code) => end.error_code = error_code,
                }
                partitions.push(end);
            }
            let topic = topic.topic.clone();
            response.topics.push(OffsetForLeaderTopicResult { topic, partitions });
        }
        response
    }

    pub(super) fn produce(
        &mut self,
        broker: BrokerId,
        request: &ProduceRequest<'_>,
    ) -> ProduceResponse {
        let mut response = ProduceResponse::default();
        for topic in &request.topics {
            let known = self.names.get(&topic.topic_id).map(String::as_str);
            let name = known.unwrap_or(topic.name).to_owned();
            let mut partition_responses = Vec::new();
            for sent in &topic.partitions {
                let mut answer =
                    PartitionProduceResponse { index: sent.index, ..Default::default() };
                let records = sent.records.unwrap_or_default();
                match self.append_sent(broker, &name, sent.index, records) {
                    Ok(base) => answer.base_offset = base,
                    Err(error) => answer.error_code = error,
                }
                partition_responses.push(answer);
            }
            let (name, topic_id) = (topic.name.into(), topic.topic_id);
            response.responses.push(TopicProduceResponse { name, topic_id, partition_responses });
        }
        response
    }

    fn append_sent(
        &mut self,
        broker: BrokerId,
        name: &str,
        index: PartitionIndex,
        records: &[u8],
    ) -> Result<wire::ids::Offset, ErrorCode> {
        let partition = self.led(broker, name, index, LeaderEpoch::UNKNOWN)?;
        if matches!(partition.log(), Log::Endless(_)) {
            return Err(ErrorCode::POLICY_VIOLATION);
        }
        let appended = self.partition(name, index.0).append_produced(records);
        appended.map_err(|_| ErrorCode::CORRUPT_MESSAGE)
    }

    /// The partition, where `broker` may answer for it.
    fn led(
        &self,
        broker: BrokerId,
        name: &str,
        index: PartitionIndex,
        epoch: LeaderEpoch,
    ) -> Result<&Partition, ErrorCode> {
        let topic = self.topics.get(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let index = usize::try_from(index.0).ok();
        let partition = index.and_then(|index| topic.partitions.get(index));
        let partition = partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        partition.check(broker, epoch)?;
        Ok(partition)
    }
}

fn list_offset(
    partition: &Partition,
    asked: &ListOffsetsPartition,
    isolation: IsolationLevel,
    now_ms: i64,
) -> ListOffsetsPartitionResponse {
    let log = partition.log();
    let upper = log.upper(isolation, now_ms);
    let (timestamp, offset, leader_epoch) = match asked.timestamp {
        LATEST_TIMESTAMP => (-1, Some(upper), partition.epoch()),
        EARLIEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP => {
            (-1, Some(log.start()), partition.epochs().of(log.start()))
        }
        asked => {
            let found = match asked {
                MAX_TIMESTAMP => log.newest(),
                asked => log.at_time(asked),
            };
            match found.filter(|(_, offset)| *offset < upper) {
                Some((time, offset)) => (time, Some(offset), partition.epochs().of(offset)),
                None => (-1, None, LeaderEpoch::UNKNOWN),
            }
        }
    };
    let mut response = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        timestamp,
        leader_epoch,
        ..ListOffsetsPartitionResponse::default()
    };
    if let Some(offset) = offset {
        response.offset = offset;
    }
    response
}
