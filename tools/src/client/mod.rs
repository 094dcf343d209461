//! A small blocking reader of Kafka: reads partitions to their end and hands on their batches as they
//! stand, so that both sides of a mirror are compared in the same way.

mod connection;
mod digest;
mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::ids::TopicPartition;
use wire::api::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use wire::api::{ApiKey, ErrorCode};
use wire::batch::Batch;
use wire::codec::Reader;
use wire::fetch::IsolationLevel;
use wire::ids::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};

#[cfg(test)]
mod tests;

use connection::Connection;
pub use digest::{Digest, Digester};

/// How to read.
#[derive(Clone, Debug)]
pub struct Settings {
    pub client_id: String,
    pub isolation: IsolationLevel,
    /// Checks the CRC of every batch.
    pub check_crcs: bool,
    pub fetch_bytes_max: i32,
    pub partition_bytes_max: i32,
    /// The greatest version of Fetch to use.
    pub fetch_version_max: i16,
    /// How long nothing may come forward before it is given up.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            client_id: "farspan-client".into(),
            isolation: IsolationLevel::READ_UNCOMMITTED,
            check_crcs: true,
            fetch_bytes_max: 16 << 20,
            partition_bytes_max: 4 << 20,
            fetch_version_max: i16::MAX,
            patience: Duration::from_secs(30),
        }
    }
}

/// A client of one cluster.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    bootstrap: Vec<String>,
    addresses: BTreeMap<BrokerId, String>,
    connections: BTreeMap<BrokerId, Connection>,
}

/// A topic as Metadata tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    pub name: Arc<str>,
    /// Zero where the cluster knows no ids.
    pub id: TopicId,
    pub partitions: Vec<PartitionView>,
}

/// A partition as Metadata tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionView {
    pub index: PartitionIndex,
    /// None while there is an election.
    pub leader: Option<BrokerId>,
    pub epoch: LeaderEpoch,
}

/// Why reading failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The network, or a broker that ended the connection. Try again.
    Connection(String),
    /// A broker refused.
    Kafka(ApiKey, ErrorCode),
    /// The broker speaks no version of this API that we do.
    NoCommonVersion(ApiKey),
    /// An answer that is not what it should be.
    Bytes(String),
    /// A topic that was asked for has an error.
    Topic(String, ErrorCode),
    /// A partition cannot be read on.
    Partition(TopicPartition, String),
    /// Nothing came forward for as long as patience lasts; the reason is the last one seen.
    Patience(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(reason) => write!(f, "connection: {reason}"),
            Self::Kafka(key, error) => write!(f, "{key}: {error}"),
            Self::NoCommonVersion(key) => write!(f, "{key}: no version that both ends speak"),
            Self::Bytes(reason) => write!(f, "answer: {reason}"),
            Self::Topic(topic, error) => write!(f, "topic {topic}: {error}"),
            Self::Partition(partition, reason) => write!(f, "partition {partition}: {reason}"),
            Self::Patience(reason) => write!(f, "no progress: {reason}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl Client {
    /// A client of the cluster at `bootstrap`: addresses with commas between them. Connects when it
    /// is first asked for something.
    #[must_use]
    pub fn new(bootstrap: &str, settings: Settings) -> Self {
        Self {
            settings,
            bootstrap: bootstrap.split(',').map(|address| address.trim().into()).collect(),
            addresses: BTreeMap::new(),
            connections: BTreeMap::new(),
        }
    }

    /// What the cluster says of these topics, or of all.
    pub fn metadata(&mut self, topics: Option<&[&str]>) -> Result<Vec<TopicView>, ClientError> {
        let response = self.ask_metadata(topics)?;
        for broker in &response.brokers {
            let address = format!("{}:{}", broker.host, broker.port);
            let known = self.addresses.insert(broker.node_id, address.clone());
            if known.is_some_and(|known| known != address) {
                self.connections.remove(&broker.node_id);
            }
        }
        response.topics.into_iter().map(view).collect()
    }

    /// Reads topics, or all of them, from the start to the end that each partition has when this
    /// begins; gives every batch to `each` once, in the order of its partition.
    pub fn read_to_end(
        &mut self,
        topics: Option<&[&str]>,
        each: impl FnMut(&TopicPartition, &Batch<'_>),
    ) -> Result<(), ClientError> {
        read::to_end(self, topics, each)
    }

    /// The digest of every partition of these topics, or of all. Partitions that are empty have one,
    /// too.
    pub fn digests(
        &mut self,
        topics: Option<&[&str]>,
    ) -> Result<BTreeMap<TopicPartition, Digest>, ClientError> {
        let mut digesters: BTreeMap<TopicPartition, Digester> = BTreeMap::new();
        for topic in self.metadata(topics)? {
            for partition in topic.partitions {
                let (topic, partition) = (Arc::clone(&topic.name), partition.index);
                digesters.insert(TopicPartition { topic, partition }, Digester::default());
            }
        }
        self.read_to_end(topics, |partition, batch| {
            if let Some(digester) = digesters.get_mut(partition) {
                digester.add(batch);
            }
        })?;
        Ok(digesters.into_iter().map(|(key, digester)| (key, digester.finish())).collect())
    }

    /// Asks any broker that answers.
    fn ask_metadata(&mut self, topics: Option<&[&str]>) -> Result<MetadataResponse, ClientError> {
        let request = MetadataRequest {
            topics: topics.map(|topics| {
                let named = |name: &&str| MetadataRequestTopic {
                    name: Some((*name).into()),
                    ..MetadataRequestTopic::default()
                };
                topics.iter().map(named).collect()
            }),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let known: Vec<_> = self.addresses.keys().copied().collect();
        for broker in known {
            match self.connection(broker).and_then(|connection| exchange(connection, &request)) {
                Ok(response) => return Ok(response),
                Err(_) => drop(self.connections.remove(&broker)),
            }
        }
        let mut last = ClientError::Connection("no broker is known".into());
        for address in &self.bootstrap {
            let Settings { client_id, patience, .. } = &self.settings;
            let answer = Connection::open(address, client_id, *patience)
                .and_then(|mut connection| exchange(&mut connection, &request));
            match answer {
                Ok(response) => return Ok(response),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connection(&mut self, broker: BrokerId) -> Result<&mut Connection, ClientError> {
        if !self.connections.contains_key(&broker) {
            let unknown = || ClientError::Connection(format!("broker {broker} is not known"));
            let address = self.addresses.get(&broker).ok_or_else(unknown)?;
            let Settings { client_id, patience, .. } = &self.settings;
            let connection = Connection::open(address, client_id, *patience)?;
            self.connections.insert(broker, connection);
        }
        Ok(self.connections.get_mut(&broker).expect("it was just put there"))
    }
}

fn exchange(
    connection: &mut Connection,
    request: &MetadataRequest,
) -> Result<MetadataResponse, ClientError> {
    let key = ApiKey::METADATA;
    let version = connection.version(key, MetadataRequest::VERSIONS, i16::MAX)?;
    let body = connection.exchange(key, version, |writer| request.write(writer, version))?;
    let mut reader = Reader::new(&connection.frame()[body..]);
    MetadataResponse::read(&mut reader, version)
        .map_err(|error| ClientError::Bytes(format!("{key}: {error}")))
}

fn view(topic: wire::api::metadata::MetadataResponseTopic) -> Result<TopicView, ClientError> {
    let name = topic.name.unwrap_or_default();
    if !topic.error_code.is_none() {
        return Err(ClientError::Topic(name, topic.error_code));
    }
    let mut partitions: Vec<_> = topic
        .partitions
        .iter()
        .map(|partition| PartitionView {
            index: partition.partition_index,
            leader: (partition.leader_id != BrokerId::NONE).then_some(partition.leader_id),
            epoch: partition.leader_epoch,
        })
        .collect();
    partitions.sort_by_key(|partition| partition.index);
    Ok(TopicView { name: name.into(), id: topic.topic_id, partitions })
}
