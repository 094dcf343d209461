//! DescribeTopicPartitions: topics by name in pages, each ending where the next begins.

use std::collections::BTreeSet;

use wire::api::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use wire::api::{ErrorCode, Versions};
use wire::ids::PartitionIndex;

use super::route::{Handled, Refusal, Request, check_entries};
use super::topic;
use crate::catalog::{Catalog, Topic};

pub(super) const SERVED: Versions = Versions { least: 0, most: 0 };

/// Partitions on one page (`max.request.partition.size.limit`).
const PARTITIONS_MAX: usize = 2_000;

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = DescribeTopicPartitionsRequest::read(&mut request.body, version)?;
    check_entries(asked.topics.len())?;
    let response = match &asked.cursor {
        Some(cursor) if !is_sound(cursor, &asked) => refuse(&asked),
        _ => page(&asked, request.catalog),
    };
    request.reply(|writer| response.write(writer, version))
}

/// A cursor must be on one of the topics asked for.
fn is_sound(cursor: &Cursor, asked: &DescribeTopicPartitionsRequest) -> bool {
    let named = || asked.topics.iter().any(|topic| topic.name == cursor.topic_name);
    cursor.partition_index.0 >= 0 && (asked.topics.is_empty() || named())
}

fn refuse(asked: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let failed = |name: &str| failed(ErrorCode::INVALID_REQUEST, name);
    DescribeTopicPartitionsResponse {
        topics: asked.topics.iter().map(|topic| failed(&topic.name)).collect(),
        ..DescribeTopicPartitionsResponse::default()
    }
}

fn page(
    asked: &DescribeTopicPartitionsRequest,
    catalog: &Catalog,
) -> DescribeTopicPartitionsResponse {
    let (first_topic, first_partition) = match &asked.cursor {
        Some(cursor) => (cursor.topic_name.as_str(), cursor.partition_index),
        None => ("", PartitionIndex(0)),
    };
    let names: BTreeSet<&str> = match asked.topics.as_slice() {
        [] => catalog.topics().map(|topic| &*topic.name).collect(),
        named => named.iter().map(|topic| topic.name.as_str()).collect(),
    };
    let limit = usize::try_from(asked.response_partition_limit).unwrap_or(0);
    let mut left = limit.clamp(1, PARTITIONS_MAX);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.range(first_topic..) {
        let from = if *name == first_topic { first_partition } else { PartitionIndex(0) };
        let next = |partition_index| Cursor { topic_name: (*name).to_owned(), partition_index };
        if left == 0 {
            response.next_cursor = Some(next(PartitionIndex(0)));
            break;
        }
        let Some(topic) = catalog.topic(name) else {
            response.topics.push(failed(topic::unknown(name), name));
            continue;
        };
        let partitions: Vec<_> = topic::partitions(topic)
            .filter(|&index| index >= from)
            .take(left)
            .map(|index| partition(topic, index, catalog))
            .collect();
        left -= partitions.len();
        let end = partitions.last().map(|last| PartitionIndex(last.partition_index.0 + 1));
        response.topics.push(known(topic, partitions));
        if let Some(end) = end.filter(|end| topic.leader_epoch(*end).is_some()) {
            response.next_cursor = Some(next(end));
            break;
        }
    }
    response
}

fn failed(error_code: ErrorCode, name: &str) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code,
        name: Some(name.to_owned()),
        is_internal: topic::is_internal(name),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn known(
    topic: &Topic,
    partitions: Vec<DescribeTopicPartitionsResponsePartition>,
) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: topic::is_internal(&topic.name),
        partitions,
        topic_authorized_operations: topic::TOPIC_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn partition(
    topic: &Topic,
    partition_index: PartitionIndex,
    catalog: &Catalog,
) -> DescribeTopicPartitionsResponsePartition {
    DescribeTopicPartitionsResponsePartition {
        partition_index,
        leader_id: catalog.node_id,
        leader_epoch: topic.leader_epoch(partition_index).unwrap_or_default(),
        replica_nodes: vec![catalog.node_id],
        isr_nodes: vec![catalog.node_id],
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        ..DescribeTopicPartitionsResponsePartition::default()
    }
}
