//! Simulated consumers: they speak Kafka's protocol with the engine, and hold all that they are told
//! against what the source had.

use std::collections::BTreeMap;

use wire::api::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use wire::api::list_offsets::{
    EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsResponse, ListOffsetsTopic,
};
use wire::api::metadata::{MetadataRequest, MetadataResponse};
use wire::api::{ApiKey, ErrorCode, Versions};
use wire::codec::{Reader, Writer};
use wire::fetch::{
    FetchPartition, FetchRequestHead, FetchRequestWriter, FetchResponse, IsolationLevel, TopicKey,
};
use wire::frame::{frame_request, read_response_header};
use wire::ids::{Offset, PartitionIndex, TopicId};

use super::client_check::{Fetch, check};
use super::network::{Item, What};
use super::process::CLIENT_PORT;
use super::random::Random;
use super::space::{Event, Shared};
use super::truth::Truth;

/// How long an answer may take: the longest wait that clients ask for, and the network's time.
const PATIENCE_MICROS: u64 = 60_000_000;

/// One consumer.
#[derive(Debug)]
pub struct Client {
    number: usize,
    space: Shared,
    random: Random,
    link: Option<u64>,
    bytes: Vec<u8>,
    correlation_id: i32,
    versions: ApiVersionsResponse,
    /// Name, id and how many partitions.
    topics: Vec<(String, TopicId, i32)>,
    place: Option<Place>,
    asked: Option<Asked>,
    asked_at: u64,
    /// High watermarks that this connection was told.
    told: BTreeMap<(TopicId, i32), i64>,
    pub answers: u64,
    pub batches: u64,
}

/// Where a client reads.
#[derive(Clone, Debug)]
struct Place {
    topic: String,
    id: TopicId,
    index: i32,
    /// None before the log's ends were asked for.
    next: Option<i64>,
    isolation: IsolationLevel,
}

/// The request that is under way.
#[derive(Clone, Debug)]
enum Asked {
    Versions,
    Metadata(i16),
    Offsets(i16),
    Fetch(i16, Fetch),
}

impl Client {
    /// A consumer that has not connected yet.
    #[must_use]
    pub fn new(number: usize, space: &Shared) -> Self {
        let random = space.borrow_mut().random.fork();
        Self {
            number,
            space: Shared::clone(space),
            random,
            link: None,
            bytes: Vec::new(),
            correlation_id: 0,
            versions: ApiVersionsResponse::default(),
            topics: Vec::new(),
            place: None,
            asked: None,
            asked_at: 0,
            told: BTreeMap::new(),
            answers: 0,
            batches: 0,
        }
    }

    fn later(&mut self, after: u64) {
        self.space.borrow_mut().schedule(after, Event::Client { client: self.number });
    }

    /// Has its turn: connects, asks, or waits on.
    ///
    /// # Errors
    /// Where an answer takes too long.
    pub fn turn(&mut self, knock: &mut dyn FnMut(usize) -> Option<u64>) -> Result<(), String> {
        if self.asked.is_some() {
            let waited = self.space.borrow().now - self.asked_at;
            self.later(5_000_000);
            return match waited {
                PATIENCE_MICROS.. => Err(format!("no answer to {:?} for {waited} us", self.asked)),
                _ => Ok(()),
            };
        }
        match self.link {
            None => {
                self.link = knock(self.number);
                self.bytes.clear();
                self.told.clear();
                match self.link {
                    Some(_) => self.ask_versions(),
                    None => self.later(200_000),
                }
            }
            Some(_) => self.ask(),
        }
        Ok(())
    }

    /// The connection is gone.
    pub fn ended(&mut self, link: u64) {
        if self.link == Some(link) {
            self.space.borrow_mut().close(link, 0);
            self.link = None;
            self.asked = None;
            self.later(100_000);
        }
    }

    fn send(&mut self, key: ApiKey, version: i16, asked: Asked, body: impl FnOnce(&mut Writer)) {
        self.correlation_id += 1;
        let bytes = frame_request(key, version, self.correlation_id, Some("sim"), body);
        let Some(link) = self.link else { return };
        self.asked = Some(asked);
        let mut space = self.space.borrow_mut();
        self.asked_at = space.now;
        space.send(link, 0, Item { token: None, what: What::Bytes(bytes.into(), 0) });
    }

    fn ask_versions(&mut self) {
        let request = ApiVersionsRequest {
            client_software_name: "sim".into(),
            client_software_version: "1".into(),
            ..ApiVersionsRequest::default()
        };
        self.send(ApiKey::API_VERSIONS, 3, Asked::Versions, |writer| request.write(writer, 3));
    }

    fn version(&mut self, key: ApiKey, ours: Versions) -> i16 {
        let common = self.versions.versions(key).and_then(|theirs| theirs.common(ours));
        let common = common.unwrap_or(ours);
        common.least + self.random.below((common.most - common.least + 1) as u64) as i16
    }

    /// Asks the next thing.
    fn ask(&mut self) {
        if self.topics.is_empty() || self.random.chance(30) {
            let version = self.version(ApiKey::METADATA, MetadataRequest::VERSIONS);
            let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
            return self.send(ApiKey::METADATA, version, Asked::Metadata(version), |writer| {
                request.write(writer, version);
            });
        }
        if self.place.is_none() || self.random.chance(50) {
            let (topic, id, count) = self.random.pick(&self.topics).clone();
            let index = self.random.below(u64::try_from(count).unwrap_or(1)) as i32;
            let levels = [IsolationLevel::READ_COMMITTED, IsolationLevel::READ_UNCOMMITTED];
            let isolation = *self.random.pick(&levels);
            self.place = Some(Place { topic, id, index, next: None, isolation });
        }
        let Some(place) = self.place.clone() else { return };
        match place.next {
            None => self.ask_offset(&place),
            Some(next) => self.ask_fetch(&place, next),
        }
    }

    fn ask_offset(&mut self, place: &Place) {
        let version = self.version(ApiKey::LIST_OFFSETS, ListOffsetsRequest::VERSIONS);
        let timestamp = *self.random.pick(&[EARLIEST_TIMESTAMP, LATEST_TIMESTAMP]);
        let partition = ListOffsetsPartition {
            partition_index: PartitionIndex(place.index),
            timestamp,
            ..ListOffsetsPartition::default()
        };
        let request = ListOffsetsRequest {
            isolation_level: place.isolation.0,
            topics: vec![ListOffsetsTopic {
                name: place.topic.clone(),
                partitions: vec![partition],
            }],
            ..ListOffsetsRequest::default()
        };
        self.send(ApiKey::LIST_OFFSETS, version, Asked::Offsets(version), |writer| {
            request.write(writer, version);
        });
    }

    fn ask_fetch(&mut self, place: &Place, next: i64) {
        let ours =
            Versions { least: *wire::fetch::VERSIONS.start(), most: *wire::fetch::VERSIONS.end() };
        let version = self.version(ApiKey::FETCH, ours);
        let head = FetchRequestHead {
            max_wait_ms: self.random.below(3_000) as i32,
            min_bytes: 1,
            max_bytes: self.random.between(1_000, 300_000) as i32,
            isolation_level: place.isolation,
            ..FetchRequestHead::default()
        };
        let bytes_max = self.random.between(100, 100_000) as i32;
        let fetch = FetchPartition::new(PartitionIndex(place.index), Offset(next), bytes_max);
        let asked =
            Fetch { id: place.id, index: place.index, offset: next, isolation: place.isolation };
        let (topic, id) = (place.topic.clone(), place.id);
        self.send(ApiKey::FETCH, version, Asked::Fetch(version, asked), |writer| {
            let mut request = FetchRequestWriter::start(writer, version, &head, 1);
            request.topic(TopicKey { name: &topic, id }, 1);
            request.partition(&fetch);
            request.finish(std::iter::empty());
        });
    }

    /// Bytes have arrived.
    ///
    /// # Errors
    /// What is wrong with the answer.
    pub fn readable(&mut self, link: u64, truth: &Truth) -> Result<(), String> {
        if self.link != Some(link) {
            return Ok(());
        }
        let arrived = self.space.borrow_mut().take(link, 0, usize::MAX);
        self.bytes.extend(arrived);
        let Ok(Some(size)) = wire::frame::frame_size(&self.bytes) else { return Ok(()) };
        if self.bytes.len() < size + 4 {
            return Ok(());
        }
        let rest = self.bytes.split_off(size + 4);
        let frame = std::mem::replace(&mut self.bytes, rest);
        let Some(asked) = self.asked.take() else {
            return Err("an answer that nobody asked for".into());
        };
        let told = format!("{asked:?}");
        self.answers += 1;
        self.answered(asked, &frame[4..], truth).map_err(|wrong| format!("{told}: {wrong}"))?;
        let pause = *self.random.pick(&[0, 0, 1_000, 50_000]);
        self.later(pause);
        Ok(())
    }

    fn answered(&mut self, asked: Asked, frame: &[u8], truth: &Truth) -> Result<(), String> {
        let mut reader = Reader::new(frame);
        let (key, version) = match &asked {
            Asked::Versions => (ApiKey::API_VERSIONS, 3),
            Asked::Metadata(version) => (ApiKey::METADATA, *version),
            Asked::Offsets(version) => (ApiKey::LIST_OFFSETS, *version),
            Asked::Fetch(version, _) => (ApiKey::FETCH, *version),
        };
        let bytes = |error: wire::WireError| format!("{key}: {error}");
        read_response_header(&mut reader, key, version).map_err(bytes)?;
        match asked {
            Asked::Versions => {
                self.versions = ApiVersionsResponse::read(&mut reader, version).map_err(bytes)?;
            }
            Asked::Metadata(_) => {
                let response = MetadataResponse::read(&mut reader, version).map_err(bytes)?;
                self.learn(response, truth);
            }
            Asked::Offsets(_) => {
                let response = ListOffsetsResponse::read(&mut reader, version).map_err(bytes)?;
                self.placed(&response);
            }
            Asked::Fetch(version, fetch) => {
                if version <= wire::fetch::NAMES_MOST && self.is_another_by_now(&fetch, truth) {
                    // A fetch by name may be answered from either topic: ours stays where it was
                    // mirrored, and is the new one where it never could be.
                    self.place = None;
                    return Ok(());
                }
                let response =
                    FetchResponse::open(frame, reader.position(), version).map_err(bytes)?;
                self.fetched(&fetch, response, frame, truth)?;
            }
        }
        Ok(())
    }

    /// Whether the source has another topic under the name that was asked for.
    fn is_another_by_now(&self, asked: &Fetch, truth: &Truth) -> bool {
        let name = self.place.as_ref().map(|place| &place.topic);
        name.and_then(|name| truth.ids.get(name)).is_some_and(|id| *id != asked.id)
    }

    fn learn(&mut self, response: MetadataResponse, truth: &Truth) {
        self.topics.clear();
        for topic in response.topics {
            let name = topic.name.unwrap_or_default();
            let mut id = topic.topic_id;
            if id.is_zero() {
                // Old versions name no ids; where a name had two topics we cannot tell which it is.
                id = truth.ids.get(&name).copied().unwrap_or_default();
            }
            let count = i32::try_from(topic.partitions.len()).unwrap_or(0);
            let is_known = truth.partitions.contains_key(&(id, 0));
            if is_known && count > 0 && !topic.topic_id.is_zero() {
                self.topics.push((name, id, count));
            }
        }
    }

    fn placed(&mut self, response: &ListOffsetsResponse) {
        let answer = response.topics.first().and_then(|topic| topic.partitions.first());
        let Some(place) = &mut self.place else { return };
        match answer.filter(|answer| answer.error_code.is_none()) {
            Some(answer) => {
                let back = *self.random.pick(&[0, 0, 10, 200]);
                place.next = Some((answer.offset.0 - back).max(0));
            }
            None => self.place = None,
        }
    }

    fn fetched(
        &mut self,
        asked: &Fetch,
        mut response: FetchResponse,
        frame: &[u8],
        truth: &Truth,
    ) -> Result<(), String> {
        let bytes = |error: wire::WireError| format!("Fetch: {error}");
        let Some(truth) = truth.partitions.get(&(asked.id, asked.index)) else { return Ok(()) };
        while response.topic(frame).map_err(bytes)?.is_some() {
            while let Some(partition) = response.partition(frame).map_err(bytes)? {
                let error = ErrorCode(partition.error_code);
                if !error.is_none() {
                    if error == ErrorCode::OFFSET_OUT_OF_RANGE {
                        self.place = None;
                    }
                    continue;
                }
                let records = &frame[partition.records.clone()];
                let told = self.told.entry((asked.id, asked.index)).or_default();
                if partition.high_watermark.0 < *told {
                    let now = partition.high_watermark;
                    return Err(format!("the high watermark went back from {told} to {now}"));
                }
                *told = partition.high_watermark.0;
                let (batches, next) = check(asked, &partition, records, truth)?;
                self.batches += batches;
                if let Some(place) = &mut self.place {
                    place.next = Some(next);
                }
            }
        }
        response.tail(frame).map_err(bytes)?;
        Ok(())
    }

    /// Whether this knocks at the engine's door.
    #[must_use]
    pub const fn port() -> u16 {
        CLIENT_PORT
    }
}
