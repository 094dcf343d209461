//! A request in, an answer out: everything but Fetch, which has a file of its own.

use wire::WireError;
use wire::api::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use wire::api::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use wire::api::find_coordinator::FindCoordinatorRequest;
use wire::api::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use wire::api::metadata::MetadataRequest;
use wire::api::{ApiKey, ErrorCode};
use wire::codec::{Reader, Writer};
use wire::frame::{RequestHeader, frame_response};
use wire::ids::{BrokerId, ProducerEpoch, ProducerId};

use super::chunk::Chunks;
use super::cluster::Cluster;
use super::fetch::Parked;

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Handled {
    /// Send this: a whole frame with its size.
    Response(Chunks),
    /// Nothing is sent: a producer that wants no answer.
    Silent,
    /// The answer waits for records or for its time; see [`Cluster::resume`].
    Parked(Parked),
    /// End the connection; the reason is for a log line.
    Close(String),
}

/// A broker's side of one connection.
#[derive(Clone, Debug)]
pub struct Connection {
    broker: BrokerId,
    /// What the client called itself last.
    client_id: Option<String>,
    requests: u64,
}

impl Connection {
    /// A connection that a client just made to `broker`.
    #[must_use]
    pub const fn to(broker: BrokerId) -> Self {
        Self { broker, client_id: None, requests: 0 }
    }

    /// The broker at this end.
    #[must_use]
    pub const fn broker(&self) -> BrokerId {
        self.broker
    }

    /// What the client called itself last.
    #[must_use]
    pub fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// How many requests came.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }
}

impl Cluster {
    /// Answers a request: a frame without its size.
    pub fn handle(&mut self, connection: &mut Connection, frame: &[u8], now_ms: i64) -> Handled {
        let broker = connection.broker;
        if !self.is_up(broker) {
            return Handled::Close(format!("broker {broker} is down"));
        }
        let mut reader = Reader::new(frame);
        let header = match RequestHeader::read(&mut reader) {
            Ok(header) => header,
            Err(error) => return Handled::Close(format!("request header: {error}")),
        };
        connection.client_id.clone_from(&header.client_id);
        connection.requests += 1;
        let (key, version) = (header.api_key, header.api_version);
        if key == ApiKey::API_VERSIONS {
            return Handled::Response(Chunks::from(self.api_versions(&header)));
        }
        if !self.release.speaks(key, version) {
            return Handled::Close(format!("{key} version {version} is not spoken"));
        }
        if key == ApiKey::FETCH {
            return self.fetch(broker, &header, &frame[reader.position()..], now_ms);
        }
        match self.cold(broker, &header, &mut reader, now_ms) {
            Ok(Some(response)) => Handled::Response(Chunks::from(response)),
            Ok(None) => Handled::Silent,
            Err(error) => Handled::Close(format!("{key} version {version}: {error}")),
        }
    }

    fn cold(
        &mut self,
        broker: BrokerId,
        header: &RequestHeader,
        reader: &mut Reader<'_>,
        now_ms: i64,
    ) -> Result<Option<Vec<u8>>, WireError> {
        let version = header.api_version;
        let answer = |body: &dyn Fn(&mut Writer)| {
            Some(frame_response(header.api_key, version, header.correlation_id, body))
        };
        Ok(match header.api_key {
            ApiKey::METADATA => {
                let request = MetadataRequest::read(reader, version)?;
                let response = self.metadata(&request, version);
                answer(&|writer| response.write(writer, version))
            }
            ApiKey::LIST_OFFSETS => {
                let request = wire::api::list_offsets::ListOffsetsRequest::read(reader, version)?;
                let response = self.list_offsets(broker, &request, now_ms);
                answer(&|writer| response.write(writer, version))
            }
            ApiKey::OFFSET_FOR_LEADER_EPOCH => {
                let request =
                    wire::api::offset_for_leader_epoch::OffsetForLeaderEpochRequest::read(
                        reader, version,
                    )?;
                let response = self.offset_for_leader_epoch(broker, &request, now_ms);
                answer(&|writer| response.write(writer, version))
            }
            ApiKey::DESCRIBE_CONFIGS => {
                let request =
                    wire::api::describe_configs::DescribeConfigsRequest::read(reader, version)?;
                let response = self.describe_configs(&request);
                answer(&|writer| response.write(writer, version))
            }
            ApiKey::DESCRIBE_TOPIC_PARTITIONS => {
                let request =
                    wire::api::describe_topic_partitions::DescribeTopicPartitionsRequest::read(
                        reader, version,
                    )?;
                let response = self.describe_topic_partitions(&request);
                answer(&|writer| response.write(writer, version))
            }
            ApiKey::PRODUCE => {
                let request = wire::api::produce::ProduceRequest::read(reader, version)?;
                let response = self.produce(broker, &request);
                if request.acks == 0 {
                    return Ok(None);
                }
                answer(&|writer| response.write(writer, version))
            }
            ApiKey::DESCRIBE_CLUSTER => {
                DescribeClusterRequest::read(reader, version)?;
                let response = self.describe_cluster();
                answer(&|writer| response.write(writer, version))
            }
            ApiKey::FIND_COORDINATOR => {
                let request = FindCoordinatorRequest::read(reader, version)?;
                let reason = Some("a synthetic cluster has no groups and no coordinators");
                let error = ErrorCode::COORDINATOR_NOT_AVAILABLE;
                let response = request.refuse(version, error, reason);
                answer(&|writer| response.write(writer, version))
            }
            _ => {
                InitProducerIdRequest::read(reader, version)?;
                self.producer_ids += 1;
                let response = InitProducerIdResponse {
                    producer_id: ProducerId(self.producer_ids),
                    producer_epoch: ProducerEpoch(0),
                    ..InitProducerIdResponse::default()
                };
                answer(&|writer| response.write(writer, version))
            }
        })
    }

    /// A version that is not spoken is answered with version 0, which every client can read.
    fn api_versions(&self, header: &RequestHeader) -> Vec<u8> {
        let spoken = self.release.speaks(ApiKey::API_VERSIONS, header.api_version);
        let version = if spoken { header.api_version } else { 0 };
        let mut error_code = ErrorCode::NONE;
        if !spoken {
            error_code = ErrorCode::UNSUPPORTED_VERSION;
        }
        let api_keys = self.release.versions().map(|(api_key, versions)| ApiVersion {
            api_key,
            min_version: versions.least,
            max_version: versions.most,
        });
        let response = ApiVersionsResponse {
            error_code,
            api_keys: api_keys.collect(),
            ..ApiVersionsResponse::default()
        };
        debug_assert_eq!(ApiVersionsRequest::API_KEY, header.api_key);
        frame_response(ApiKey::API_VERSIONS, version, header.correlation_id, |writer| {
            response.write(writer, version);
        })
    }

    fn describe_cluster(&self) -> DescribeClusterResponse {
        let up = self.brokers.iter().filter(|(_, broker)| broker.is_up);
        DescribeClusterResponse {
            cluster_id: self.cluster_id.clone(),
            controller_id: self.controller(),
            brokers: up
                .map(|(id, broker)| DescribeClusterBroker {
                    broker_id: *id,
                    host: broker.host.clone(),
                    port: i32::from(broker.port),
                    rack: broker.rack.clone(),
                    is_fenced: false,
                })
                .collect(),
            ..DescribeClusterResponse::default()
        }
    }

    pub(super) fn controller(&self) -> BrokerId {
        let mut up = self.brokers.iter().filter(|(_, broker)| broker.is_up);
        up.next().map_or(BrokerId::NONE, |(id, _)| *id)
    }
}
