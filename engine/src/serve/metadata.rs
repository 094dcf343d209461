//! Metadata: this node is the whole cluster, and leads every partition it has.

use std::collections::BTreeSet;

use wire::api::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic, OPERATIONS_UNKNOWN,
};
use wire::api::{ErrorCode, Versions};
use wire::ids::TopicId;

use super::route::{Handled, Refusal, Request, check_entries};
use super::topic;
use crate::catalog::{Catalog, Topic};

pub(super) const SERVED: Versions = Versions { least: 0, most: 13 };

/// The first version in which a topic may be asked for by its id.
const TOPIC_IDS: i16 = 12;

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = MetadataRequest::read(&mut request.body, version)?;
    check_entries(asked.topics.as_ref().map_or(0, Vec::len))?;
    let catalog = request.catalog;
    let mut topics = topics(&asked, version, catalog);
    if asked.include_topic_authorized_operations {
        for topic in topics.iter_mut().filter(|topic| topic.error_code.is_none()) {
            topic.topic_authorized_operations = topic::TOPIC_OPERATIONS;
        }
    }
    let response = MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: catalog.node_id,
            host: catalog.host.to_string(),
            port: i32::from(catalog.port),
            rack: None,
        }],
        cluster_id: Some(catalog.cluster_id.to_string()),
        controller_id: catalog.node_id,
        topics,
        cluster_authorized_operations: if asked.include_cluster_authorized_operations {
            topic::CLUSTER_OPERATIONS
        } else {
            OPERATIONS_UNKNOWN
        },
        ..MetadataResponse::default()
    };
    request.reply(|writer| response.write(writer, version))
}

/// Each topic once, however often it was named. As in Kafka one id makes names of no account.
fn topics(asked: &MetadataRequest, version: i16, catalog: &Catalog) -> Vec<MetadataResponseTopic> {
    if asked.asks_all_topics(version) {
        return catalog.topics().map(|topic| known(topic, catalog)).collect();
    }
    let named = asked.topics.as_deref().unwrap_or_default();
    if version < TOPIC_IDS
        && named.iter().any(|topic| topic.name.is_none() || !topic.topic_id.is_zero())
    {
        let refuse = |name: &Option<String>| MetadataResponseTopic {
            name: name.clone(),
            ..failed(ErrorCode::INVALID_REQUEST)
        };
        return named.iter().map(|topic| refuse(&topic.name)).collect();
    }
    let ids: BTreeSet<TopicId> =
        named.iter().map(|topic| topic.topic_id).filter(|id| !id.is_zero()).collect();
    if !ids.is_empty() {
        let by_id = |id| match catalog.topic_by_id(id) {
            Some(topic) => known(topic, catalog),
            None => MetadataResponseTopic { topic_id: id, ..failed(ErrorCode::UNKNOWN_TOPIC_ID) },
        };
        return ids.into_iter().map(by_id).collect();
    }
    let names: BTreeSet<&str> = named.iter().filter_map(|topic| topic.name.as_deref()).collect();
    let by_name = |name: &str| match catalog.topic(name) {
        Some(topic) => known(topic, catalog),
        None => MetadataResponseTopic {
            name: Some(name.to_owned()),
            is_internal: topic::is_internal(name),
            ..failed(topic::unknown(name))
        },
    };
    names.into_iter().map(by_name).collect()
}

fn failed(error_code: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic { error_code, ..MetadataResponseTopic::default() }
}

fn known(topic: &Topic, catalog: &Catalog) -> MetadataResponseTopic {
    let partition = |partition_index| MetadataResponsePartition {
        partition_index,
        leader_id: catalog.node_id,
        leader_epoch: topic.leader_epoch(partition_index).unwrap_or_default(),
        replica_nodes: vec![catalog.node_id],
        isr_nodes: vec![catalog.node_id],
        ..MetadataResponsePartition::default()
    };
    MetadataResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: topic::is_internal(&topic.name),
        partitions: topic::partitions(topic).map(partition).collect(),
        ..MetadataResponseTopic::default()
    }
}
