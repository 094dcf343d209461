//! A source that is sound up to a point and then says anything: the link comes through, believes
//! nothing that is not there, and rests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::ids::{Now, PartitionKey};
use engine::io::Buffer;
use engine::source::{Effect, Link, LinkOptions, PartitionAt, PeerKey, Question, SourcePartition};
use wire::api::api_versions::{ApiVersion, ApiVersionsResponse};
use wire::api::metadata::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use wire::api::{ApiKey, ErrorCode};
use wire::codec::Reader;
use wire::frame::{RequestHeader, SIZE_BYTES, frame_response};
use wire::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};

use super::choices::Choices;

/// Turns for which something may be due at once; more is a loop.
const TURNS_MAX: usize = 1_000;

const TOPIC: TopicId = TopicId([7; 16]);

struct Asked {
    peer: PeerKey,
    header: RequestHeader,
}

struct World {
    link: Link,
    now: Now,
    peers: BTreeMap<PeerKey, ()>,
    asked: Vec<Asked>,
    told: Vec<PeerKey>,
    newest_fetch: i16,
}

/// Plays the bytes as what brokers answer, in which order, and when connections break.
pub fn link(data: &[u8]) {
    let mut choices = Choices::new(data);
    let flags = choices.u8();
    let options = LinkOptions {
        bootstrap: vec![("127.0.0.1".to_owned(), 9_001)],
        fetchers_per_broker: 1 + u32::from(flags & 1),
        ..LinkOptions::default()
    };
    let mut world = World {
        link: Link::new(options, u64::from(flags)),
        now: Now(1_000_000),
        peers: BTreeMap::new(),
        asked: Vec::new(),
        told: Vec::new(),
        newest_fetch: i16::from(choices.u8() % 15) + 4,
    };
    world.call(Link::start);
    world.settle();
    for partition in 0..3 {
        world.call(|link, now, out| {
            link.fetch(PartitionKey(partition), &at(partition, 5));
            link.on_time(now, out);
        });
    }
    world.settle();
    while !choices.is_empty() {
        world.step(&mut choices);
    }
}

fn source(partition: u32) -> SourcePartition {
    let partition = PartitionIndex(i32::try_from(partition).expect("few"));
    SourcePartition { topic: Arc::from("a"), topic_id: TOPIC, partition }
}

fn at(partition: u32, offset: i64) -> PartitionAt {
    PartitionAt {
        source: source(partition),
        offset: Offset(offset),
        last_fetched_epoch: LeaderEpoch(1),
        leader_epoch: LeaderEpoch(-1),
    }
}

impl World {
    fn step(&mut self, choices: &mut Choices<'_>) {
        let step = choices.u8();
        let place = usize::from(choices.u8());
        match step % 12 {
            // A body that is anything, under a header that is right.
            0..=4 => {
                if self.asked.is_empty() {
                    self.pass(500);
                    return;
                }
                let asked = self.asked.remove(place % self.asked.len());
                let body = choices.piece();
                let Asked { peer, header } = asked;
                let (api, version) = (header.api_key, header.api_version);
                let frame =
                    frame_response(api, version, header.correlation_id, |writer| writer.raw(body));
                self.deliver(peer, &frame[SIZE_BYTES..]);
            }
            // Anything at all.
            5 => {
                let Some(&peer) = self.peers.keys().nth(place % self.peers.len().max(1)) else {
                    return self.pass(500);
                };
                let frame = choices.piece();
                self.deliver(peer, frame);
            }
            6 => {
                let Some(&peer) = self.peers.keys().nth(place % self.peers.len().max(1)) else {
                    return;
                };
                self.forget(peer);
                self.call(|link, now, out| link.lost(peer, "it broke", now, out));
            }
            7 => {
                let time = u64::from(choices.u16());
                self.pass(time);
            }
            8 => {
                for peer in std::mem::take(&mut self.told) {
                    self.call(|link, now, out| link.resume(peer, now, out));
                }
            }
            9 => {
                let (partition, offset) = (u32::from(choices.u8() % 4), choices.offset().max(0));
                self.call(|link, now, out| {
                    link.fetch(PartitionKey(partition), &at(partition, offset));
                    link.on_time(now, out);
                });
            }
            10 => {
                let partition = u32::from(choices.u8() % 4);
                let question = match choices.u8() % 5 {
                    0 => Question::Earliest,
                    1 => Question::Latest,
                    2 => Question::AtTime(choices.offset()),
                    3 => Question::EndOfEpoch(LeaderEpoch(choices.i32())),
                    _ => {
                        self.call(|link, now, out| {
                            link.forget(PartitionKey(partition));
                            link.on_time(now, out);
                        });
                        return;
                    }
                };
                self.call(|link, now, out| {
                    let source = source(partition);
                    link.look_up(PartitionKey(partition), &source, LeaderEpoch(5), question);
                    link.on_time(now, out);
                });
            }
            // What the link asks for by itself is answered soundly.
            _ => self.settle(),
        }
    }

    fn call(&mut self, event: impl FnOnce(&mut Link, Now, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        event(&mut self.link, self.now, &mut out);
        self.carry_out(out);
        let mut turns = 0;
        while self.link.deadline().is_some_and(|deadline| deadline <= self.now) {
            let mut out = Vec::new();
            self.link.on_time(self.now, &mut out);
            self.carry_out(out);
            turns += 1;
            assert!(turns < TURNS_MAX, "the link never rests");
        }
    }

    /// From deadline to deadline.
    fn pass(&mut self, ms: u64) {
        let end = self.now.plus(Duration::from_millis(ms));
        let mut turns = 0;
        while let Some(deadline) = self.link.deadline().filter(|&deadline| deadline <= end) {
            self.now = self.now.max(deadline);
            self.call(Link::on_time);
            turns += 1;
            assert!(turns < 100 * TURNS_MAX, "the link never rests");
        }
        self.now = end;
    }

    fn forget(&mut self, peer: PeerKey) {
        self.peers.remove(&peer);
        self.asked.retain(|asked| asked.peer != peer);
        self.told.retain(|told| *told != peer);
    }

    fn deliver(&mut self, peer: PeerKey, frame: &[u8]) {
        let frame = Buffer::of(frame.to_vec());
        self.call(|link, now, out| link.frame(peer, frame, now, out));
    }

    /// Answers versions and metadata as a sound broker does.
    fn settle(&mut self) {
        for _ in 0..16 {
            let ours = |asked: &Asked| {
                [ApiKey::API_VERSIONS, ApiKey::METADATA].contains(&asked.header.api_key)
            };
            let Some(place) = self.asked.iter().position(ours) else { return };
            let Asked { peer, header } = self.asked.remove(place);
            let (api, version) = (header.api_key, header.api_version);
            let newest_fetch = self.newest_fetch;
            let frame = frame_response(api, version, header.correlation_id, |writer| {
                if api == ApiKey::API_VERSIONS {
                    versions(newest_fetch).write(writer, version);
                } else {
                    metadata().write(writer, version);
                }
            });
            self.deliver(peer, &frame[SIZE_BYTES..]);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Resolve { host } => {
                    let answer = Ok(vec!["127.0.0.1".parse().expect("an address")]);
                    self.call(|link, now, out| link.resolved(&host, answer, now, out));
                }
                Effect::Connect { peer, .. } => {
                    self.peers.insert(peer, ());
                    assert!(self.peers.len() < 100, "connections without end");
                    self.call(|link, now, out| link.connected(peer, now, out));
                }
                Effect::Send { peer, bytes } => {
                    let mut reader = Reader::new(&bytes[SIZE_BYTES..]);
                    let header = RequestHeader::read(&mut reader).expect("a header");
                    self.asked.push(Asked { peer, header });
                }
                Effect::Close { peer, .. } => self.forget(peer),
                Effect::Fetched(fetched) => {
                    assert!(!fetched.partitions.is_empty());
                    for partition in &fetched.partitions {
                        assert!(partition.records.end <= fetched.frame.len());
                        assert!(partition.records.start <= partition.records.end);
                        assert!(partition.key.0 < 4, "a partition that nobody fetches");
                    }
                    self.told.push(fetched.peer);
                }
                Effect::EndOfEpoch { .. }
                | Effect::OffsetAt { .. }
                | Effect::Image(_)
                | Effect::RefreshWanted { .. }
                | Effect::LeaderMoved { .. }
                | Effect::Unreachable { .. }
                | Effect::Recovered { .. } => {}
            }
        }
    }
}

fn versions(newest_fetch: i16) -> ApiVersionsResponse {
    let spoken = [
        (ApiKey::FETCH, 4, newest_fetch),
        (ApiKey::LIST_OFFSETS, 1, 11),
        (ApiKey::METADATA, 0, 13),
        (ApiKey::API_VERSIONS, 0, 4),
        (ApiKey::OFFSET_FOR_LEADER_EPOCH, 2, 4),
    ];
    let api =
        |(api_key, min_version, max_version)| ApiVersion { api_key, min_version, max_version };
    ApiVersionsResponse {
        error_code: ErrorCode::NONE,
        api_keys: spoken.map(api).to_vec(),
        ..ApiVersionsResponse::default()
    }
}

fn metadata() -> MetadataResponse {
    let broker = |id: i32| MetadataResponseBroker {
        node_id: BrokerId(id),
        host: "127.0.0.1".to_owned(),
        port: 9_000 + id,
        rack: None,
    };
    let partition = |index: i32| MetadataResponsePartition {
        partition_index: PartitionIndex(index),
        leader_id: BrokerId(1 + index % 2),
        leader_epoch: LeaderEpoch(5),
        replica_nodes: vec![BrokerId(1)],
        isr_nodes: vec![BrokerId(1)],
        ..MetadataResponsePartition::default()
    };
    MetadataResponse {
        brokers: vec![broker(1), broker(2)],
        cluster_id: Some("source".to_owned()),
        controller_id: BrokerId(1),
        topics: vec![MetadataResponseTopic {
            name: Some("a".to_owned()),
            topic_id: TOPIC,
            partitions: (0..3).map(partition).collect(),
            ..MetadataResponseTopic::default()
        }],
        ..MetadataResponse::default()
    }
}
