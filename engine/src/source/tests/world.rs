//! A source cluster that answers by itself what is not the matter of a test, and leaves fetches and
//! lookups to the script.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use wire::api::api_versions::{ApiVersion, ApiVersionsResponse};
use wire::api::list_offsets::ListOffsetsRequest;
use wire::api::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use wire::api::offset_for_leader_epoch::OffsetForLeaderEpochRequest;
use wire::api::{ApiKey, ErrorCode};
use wire::codec::Reader;
use wire::fetch::{
    FetchRequest, FetchResponseHead, FetchResponseWriter, NodeEndpoint, PartitionData, Piece,
    TopicKey,
};
use wire::frame::{RequestHeader, SIZE_BYTES, frame_response};
use wire::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};

use super::super::backoff::Random;
use super::super::*;
use crate::ids::{Now, PartitionKey};

pub(super) struct World {
    pub(super) link: Link,
    pub(super) now: Now,
    pub(super) cluster: Cluster,
    /// Connections, and the port they lead to.
    pub(super) peers: BTreeMap<PeerKey, u16>,
    pub(super) asked: VecDeque<Asked>,
    pub(super) fetched: Vec<Fetched>,
    /// Effects that are for the shard.
    pub(super) told: Vec<Effect>,
    pub(super) closed: Vec<String>,
    pub(super) resolved: Vec<String>,
    pub(super) metadata_requests: Vec<MetadataRequest>,
    /// Cuts some answers with metadata.
    pub(super) corrupt: Option<Random>,
    /// What brokers hold in their sessions after the last request: partition and offset.
    sessions: BTreeMap<PeerKey, BTreeMap<i32, i64>>,
    /// What the mirrors wait for: key and offset. Keys are partition indexes where this is used.
    pub(super) orders: BTreeMap<u32, i64>,
    pub(super) check_sessions: bool,
}

/// The cluster as it answers: broker n listens at port 9000 + n.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) down: BTreeSet<u16>,
    pub(super) brokers: BTreeSet<i32>,
    pub(super) topics: BTreeMap<String, (TopicId, Vec<(i32, i32)>)>,
    pub(super) versions: Vec<(ApiKey, i16, i16)>,
}

/// A request that the script answers.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) peer: PeerKey,
    pub(super) broker: i32,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) request: Request,
}

#[derive(Debug)]
pub(super) enum Request {
    Fetch(FetchRequest),
    Epochs(OffsetForLeaderEpochRequest),
    Offsets(ListOffsetsRequest),
}

pub(super) const KAFKA_4: [(ApiKey, i16, i16); 5] = [
    (ApiKey::FETCH, 4, 18),
    (ApiKey::LIST_OFFSETS, 1, 11),
    (ApiKey::METADATA, 0, 13),
    (ApiKey::API_VERSIONS, 0, 4),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH, 2, 4),
];

pub(super) fn topic_id(name: &str) -> TopicId {
    let mut id = [0; 16];
    for (place, byte) in id.iter_mut().zip(name.bytes().cycle()) {
        *place = byte;
    }
    TopicId(id)
}

pub(super) fn source(topic: &str, partition: i32) -> SourcePartition {
    let (topic_id, partition) = (topic_id(topic), PartitionIndex(partition));
    SourcePartition { topic: topic.into(), topic_id, partition }
}

pub(super) fn at(topic: &str, partition: i32, offset: i64) -> PartitionAt {
    PartitionAt {
        source: source(topic, partition),
        offset: Offset(offset),
        last_fetched_epoch: LeaderEpoch(1),
        leader_epoch: LeaderEpoch(-1),
    }
}

pub(super) fn options() -> LinkOptions {
    LinkOptions { bootstrap: vec![("127.0.0.1".to_string(), 9001)], ..Default::default() }
}

impl World {
    /// Two brokers, started; topic `a` with partitions 0 and 2 at broker 1, and 1 at broker 2.
    pub(super) fn new(options: LinkOptions) -> Self {
        let mut world = Self::asleep(options);
        world.start();
        world
    }

    pub(super) fn asleep(options: LinkOptions) -> Self {
        let mut cluster = Cluster { versions: KAFKA_4.to_vec(), ..Default::default() };
        cluster.brokers.extend([1, 2]);
        let leaders = vec![(1, 5), (2, 5), (1, 5)];
        cluster.topics.insert("a".to_string(), (topic_id("a"), leaders));
        Self {
            link: Link::new(options, 7),
            now: Now(1_000_000),
            cluster,
            peers: BTreeMap::new(),
            asked: VecDeque::new(),
            fetched: Vec::new(),
            told: Vec::new(),
            closed: Vec::new(),
            resolved: Vec::new(),
            metadata_requests: Vec::new(),
            corrupt: None,
            sessions: BTreeMap::new(),
            orders: BTreeMap::new(),
            check_sessions: false,
        }
    }

    pub(super) fn start(&mut self) {
        self.call(Link::start);
    }

    /// Calls the link and carries out what it asks for, until nothing is due.
    pub(super) fn call(&mut self, event: impl FnOnce(&mut Link, Now, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        event(&mut self.link, self.now, &mut out);
        self.carry_out(out);
        let mut turns = 0;
        while self.link.deadline().is_some_and(|deadline| deadline <= self.now) {
            let mut out = Vec::new();
            self.link.on_time(self.now, &mut out);
            self.carry_out(out);
            turns += 1;
            assert!(turns < 1_000, "the link never rests");
        }
    }

    /// Calls without effects of their own.
    pub(super) fn tell(&mut self, event: impl FnOnce(&mut Link)) {
        self.call(|link, _, _| event(link));
    }

    /// Lets time pass, from deadline to deadline.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while let Some(deadline) = self.link.deadline().filter(|&deadline| deadline <= end) {
            self.now = self.now.max(deadline);
            self.call(Link::on_time);
        }
        self.now = end;
    }

    pub(super) fn pass_ms(&mut self, ms: u64) {
        self.pass(Duration::from_millis(ms));
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Resolve { host } => {
                    self.resolved.push(host.to_string());
                    let answer = match &*host {
                        "nowhere" => Err("no such host".to_string()),
                        _ => Ok(vec!["127.0.0.1".parse().unwrap()]),
                    };
                    self.call(|link, now, out| link.resolved(&host, answer, now, out));
                }
                Effect::Connect { peer, address } => {
                    if self.cluster.down.contains(&address.port()) {
                        self.call(|link, now, out| link.lost(peer, "nobody listens", now, out));
                    } else {
                        self.peers.insert(peer, address.port());
                        self.call(|link, now, out| link.connected(peer, now, out));
                    }
                }
                Effect::Send { peer, bytes } => self.receive(peer, &bytes),
                Effect::Close { peer, reason } => {
                    self.peers.remove(&peer);
                    self.asked.retain(|asked| asked.peer != peer);
                    self.closed.push(reason);
                }
                Effect::Fetched(fetched) => {
                    for told in &fetched.partitions {
                        if !told.records.is_empty() || !told.error.is_none() {
                            let order = self.orders.remove(&told.key.0);
                            assert!(order.is_none_or(|offset| offset == told.offset.0));
                        }
                    }
                    self.fetched.push(fetched);
                }
                effect => self.told.push(effect),
            }
        }
    }

    fn receive(&mut self, peer: PeerKey, bytes: &[u8]) {
        let Some(&port) = self.peers.get(&peer) else { return };
        let mut reader = Reader::new(&bytes[SIZE_BYTES..]);
        let header = RequestHeader::read(&mut reader).unwrap();
        assert_eq!(header.client_id.as_deref(), Some("farspan"));
        let (api, version) = (header.api_key, header.api_version);
        let (_, least, most) = *self.cluster.versions.iter().find(|(key, ..)| *key == api).unwrap();
        let body = &bytes[SIZE_BYTES + reader.position()..];
        if api == ApiKey::API_VERSIONS {
            let supported = (least..=most).contains(&version);
            return self.say_versions(peer, &header, supported);
        }
        assert!((least..=most).contains(&version), "{api:?} {version}");
        if api == ApiKey::METADATA {
            let request = MetadataRequest::read(&mut reader, version).unwrap();
            let answer = self.cluster.metadata(&request);
            self.metadata_requests.push(request);
            let mut frame = frame_response(api, version, header.correlation_id, |writer| {
                answer.write(writer, version);
            });
            if let Some(random) = &mut self.corrupt
                && random.next().is_multiple_of(4)
            {
                frame.truncate(SIZE_BYTES + random.next() as usize % (frame.len() - SIZE_BYTES));
            }
            return self.deliver(peer, &frame);
        }
        let request = match api {
            ApiKey::FETCH => {
                let request = FetchRequest::read(body, version).unwrap();
                self.keep_session(peer, &request);
                Request::Fetch(request)
            }
            ApiKey::LIST_OFFSETS => {
                Request::Offsets(ListOffsetsRequest::read(&mut reader, version).unwrap())
            }
            _ => Request::Epochs(OffsetForLeaderEpochRequest::read(&mut reader, version).unwrap()),
        };
        let broker = i32::from(port) - 9000;
        let correlation_id = header.correlation_id;
        self.asked.push_back(Asked { peer, broker, version, correlation_id, request });
    }

    /// Does with the session what a broker does: begin, add, then drop. What it then holds must be
    /// what is wanted.
    fn keep_session(&mut self, peer: PeerKey, request: &FetchRequest) {
        let session = self.sessions.entry(peer).or_default();
        if request.head.session_epoch == 0 {
            session.clear();
        }
        for wish in request.topics.iter().flat_map(|topic| &topic.partitions) {
            session.insert(wish.partition.0, wish.fetch_offset.0);
        }
        for partition in request.forgotten_topics.iter().flat_map(|topic| &topic.partitions) {
            let known = session.remove(&partition.0);
            assert!(known.is_some(), "a partition is dropped that is not in the session");
        }
        if self.check_sessions {
            for (partition, offset) in session {
                let order = self.orders.get(&partition.cast_unsigned());
                assert_eq!(order, Some(&*offset), "partition {partition}");
            }
        }
    }

    fn say_versions(&mut self, peer: PeerKey, header: &RequestHeader, supported: bool) {
        let api = |&(api_key, min_version, max_version): &(ApiKey, i16, i16)| ApiVersion {
            api_key,
            min_version,
            max_version,
        };
        let (version, error_code) = if supported {
            (header.api_version, ErrorCode::NONE)
        } else {
            (0, ErrorCode::UNSUPPORTED_VERSION)
        };
        let api_keys = self.cluster.versions.iter().map(api).collect();
        let answer = ApiVersionsResponse { error_code, api_keys, ..Default::default() };
        let api = ApiKey::API_VERSIONS;
        let frame = frame_response(api, version, header.correlation_id, |writer| {
            answer.write(writer, version);
        });
        self.deliver(peer, &frame);
    }

    /// Gives a whole frame, with its size, to the link.
    pub(super) fn deliver(&mut self, peer: PeerKey, frame: &[u8]) {
        let frame = Buffer::of(frame[SIZE_BYTES..].to_vec());
        self.call(|link, now, out| link.frame(peer, frame, now, out));
    }

    /// Takes the fetch that waits at a broker.
    pub(super) fn fetch_at(&mut self, broker: i32) -> Fetch {
        let here =
            |asked: &Asked| asked.broker == broker && matches!(asked.request, Request::Fetch(_));
        let place = self.asked.iter().position(here);
        let place = place.unwrap_or_else(|| panic!("no fetch at broker {broker}"));
        let asked = self.asked.remove(place).unwrap();
        let Request::Fetch(request) = asked.request else { unreachable!() };
        let (peer, version, correlation_id) = (asked.peer, asked.version, asked.correlation_id);
        Fetch { peer, version, correlation_id, request }
    }

    pub(super) fn fetches_waiting(&self) -> usize {
        self.asked.iter().filter(|asked| matches!(asked.request, Request::Fetch(_))).count()
    }

    pub(super) fn answer(&mut self, fetch: &Fetch, answer: &Answer<'_>) {
        let frame = answer.frame(fetch);
        self.deliver(fetch.peer, &frame);
    }

    pub(super) fn resume(&mut self) {
        for fetched in std::mem::take(&mut self.fetched) {
            self.call(|link, now, out| link.resume(fetched.peer, now, out));
        }
    }

    /// The partitions that were brought, one after the other.
    pub(super) fn brought(&self) -> Vec<&FetchedPartition> {
        self.fetched.iter().flat_map(|fetched| &fetched.partitions).collect()
    }

    pub(super) fn cut(&mut self, broker: i32) {
        let port = 9000 + u16::try_from(broker).unwrap();
        let there = |(&peer, &to): (&PeerKey, &u16)| (to == port).then_some(peer);
        for peer in self.peers.iter().filter_map(there).collect::<Vec<_>>() {
            self.peers.remove(&peer);
            self.asked.retain(|asked| asked.peer != peer);
            self.call(|link, now, out| link.lost(peer, "reset", now, out));
        }
    }

    pub(super) fn follow(&mut self, key: u32, at: PartitionAt) {
        self.orders.insert(key, at.offset.0);
        self.tell(|link| link.fetch(PartitionKey(key), &at));
    }
}

impl Cluster {
    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let names: Vec<String> = match &request.topics {
            None => self.topics.keys().cloned().collect(),
            Some(topics) => topics.iter().filter_map(|topic| topic.name.clone()).collect(),
        };
        let broker = |&id: &i32| MetadataResponseBroker {
            node_id: BrokerId(id),
            host: "127.0.0.1".to_string(),
            port: 9000 + id,
            rack: None,
        };
        MetadataResponse {
            brokers: self.brokers.iter().map(broker).collect(),
            cluster_id: Some("c".to_string()),
            topics: names.into_iter().map(|name| self.topic(name)).collect(),
            ..Default::default()
        }
    }

    fn topic(&self, name: String) -> MetadataResponseTopic {
        let Some((id, leaders)) = self.topics.get(&name) else {
            let error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            return MetadataResponseTopic { name: Some(name), error_code, ..Default::default() };
        };
        let partition = |(index, &(leader, epoch))| MetadataResponsePartition {
            partition_index: PartitionIndex(index),
            leader_id: BrokerId(leader),
            leader_epoch: LeaderEpoch(epoch),
            ..Default::default()
        };
        let partitions = (0..).zip(leaders).map(partition).collect();
        MetadataResponseTopic { name: Some(name), topic_id: *id, partitions, ..Default::default() }
    }
}

/// A fetch that waits for its answer.
pub(super) struct Fetch {
    pub(super) peer: PeerKey,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) request: FetchRequest,
}

impl Fetch {
    pub(super) fn session(&self) -> (i32, i32) {
        (self.request.head.session_id, self.request.head.session_epoch)
    }

    /// Partition and offset of what is asked for.
    pub(super) fn wishes(&self) -> Vec<(i32, i64)> {
        let partitions = self.request.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|wish| (wish.partition.0, wish.fetch_offset.0)).collect()
    }

    pub(super) fn forgets(&self) -> Vec<i32> {
        let topics = self.request.forgotten_topics.iter();
        topics.flat_map(|topic| &topic.partitions).map(|partition| partition.0).collect()
    }
}

/// What the script answers to a fetch.
#[derive(Default)]
pub(super) struct Answer<'a> {
    pub(super) session_id: i32,
    pub(super) error: ErrorCode,
    pub(super) throttle_time_ms: i32,
    /// Of topic `a`: what is said, and how many bytes of records.
    pub(super) partitions: Vec<(PartitionData<'a>, usize)>,
    pub(super) endpoints: Vec<NodeEndpoint<'a>>,
}

pub(super) fn records<'a>(partition: i32, bytes: usize) -> (PartitionData<'a>, usize) {
    let mut data = PartitionData::error(PartitionIndex(partition), 0);
    data.high_watermark = Offset(100);
    (data, bytes)
}

pub(super) fn error<'a>(partition: i32, error: ErrorCode) -> (PartitionData<'a>, usize) {
    (PartitionData::error(PartitionIndex(partition), error.0), 0)
}

impl Answer<'_> {
    pub(super) fn frame(&self, fetch: &Fetch) -> Vec<u8> {
        let head = FetchResponseHead {
            throttle_time_ms: self.throttle_time_ms,
            error_code: self.error.0,
            session_id: self.session_id,
        };
        let topics = usize::from(!self.partitions.is_empty());
        let mut writer =
            FetchResponseWriter::start(fetch.correlation_id, fetch.version, &head, topics);
        if topics > 0 {
            let key = TopicKey { name: "a", id: topic_id("a") };
            writer.topic(key, self.partitions.len());
        }
        for (data, bytes) in &self.partitions {
            writer.partition(data, *bytes);
        }
        let written = writer.finish(&self.endpoints);
        let mut frame = Vec::new();
        for piece in written.pieces {
            match piece {
                Piece::Bytes(range) => frame.extend_from_slice(&written.bytes[range]),
                Piece::Records { index, length } => {
                    frame.resize(frame.len() + length, b'0' + index as u8);
                }
            }
        }
        frame
    }
}

pub(super) fn names(topics: &[Arc<str>]) -> Vec<&str> {
    topics.iter().map(|topic| &**topic).collect()
}
