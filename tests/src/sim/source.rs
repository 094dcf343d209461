//! The source: a synthetic cluster behind simulated connections, and the commands that its life
//! consists of. Truth learns of each.

use std::collections::{BTreeMap, VecDeque};

use tools::synthetic::{Chunks, Cluster, Connection, Handled, Parked};
use wire::api::ApiKey;
use wire::batch::Batches;
use wire::codec::Reader;
use wire::fetch::FetchResponse;
use wire::frame::read_response_header;
use wire::ids::BrokerId;

use super::network::{Item, Owner, What};
use super::space::{Event, Reached, Shared};
use super::truth::Truth;

/// Where brokers listen: the port tells which one it is.
pub const PORT_FIRST: u16 = 9_000;

/// The source cluster and all that is connected to it.
#[derive(Debug)]
pub struct Source {
    pub cluster: Cluster,
    pub truth: Truth,
    space: Shared,
    talks: BTreeMap<u64, Talk>,
    /// Answers with records whose bytes are still to be damaged on their way, once each.
    pub flips: u32,
    pub flipped: u64,
    /// Whether a batch is damaged at the source itself.
    pub damaged: bool,
}

/// A broker's side of one link.
#[derive(Debug)]
struct Talk {
    connection: Connection,
    bytes: Vec<u8>,
    frames: VecDeque<Vec<u8>>,
    parked: Option<Parked>,
    /// API and version of the request that is worked on.
    asked: (ApiKey, i16),
}

impl Source {
    /// A source that nobody is connected to.
    #[must_use]
    pub fn new(mut cluster: Cluster, space: &Shared) -> Self {
        for id in cluster.broker_ids().collect::<Vec<_>>() {
            let port = PORT_FIRST + u16::try_from(id.0).expect("few brokers");
            cluster.set_address(id, "10.0.0.1", port);
        }
        let (truth, talks) = (Truth::default(), BTreeMap::new());
        let space = Shared::clone(space);
        Self { cluster, truth, space, talks, flips: 0, flipped: 0, damaged: false }
    }

    /// A shard knocks at a broker. Gives the link where somebody opens.
    pub fn knock(&mut self, owner: Owner, port: u16, outcome: Reached) -> Option<u64> {
        let broker = BrokerId(i32::from(port.checked_sub(PORT_FIRST)?));
        if outcome != Reached::Answered || !self.cluster.is_up(broker) {
            return None;
        }
        let link = self.space.borrow_mut().link([owner, Owner::Broker], port);
        let talk = Talk {
            connection: Connection::to(broker),
            bytes: Vec::new(),
            frames: VecDeque::new(),
            parked: None,
            asked: (ApiKey::FETCH, 0),
        };
        self.talks.insert(link, talk);
        Some(link)
    }

    /// The links of a broker.
    #[must_use]
    pub fn links_of(&self, broker: BrokerId) -> Vec<u64> {
        let its = |(_, talk): &(&u64, &Talk)| talk.connection.broker() == broker;
        self.talks.iter().filter(its).map(|(link, _)| *link).collect()
    }

    /// All links.
    #[must_use]
    pub fn links(&self) -> Vec<u64> {
        self.talks.keys().copied().collect()
    }

    /// Bytes have arrived on a link.
    pub fn readable(&mut self, link: u64) {
        let Some(talk) = self.talks.get_mut(&link) else { return };
        talk.bytes.extend(self.space.borrow_mut().take(link, 1, usize::MAX));
        while let Ok(Some(size)) = wire::frame::frame_size(&talk.bytes)
            && talk.bytes.len() >= size + 4
        {
            let rest = talk.bytes.split_off(size + 4);
            let frame = std::mem::replace(&mut talk.bytes, rest);
            talk.frames.push_back(frame[4..].to_vec());
        }
        self.work(link);
    }

    /// A link is gone.
    pub fn ended(&mut self, link: u64) {
        self.talks.remove(&link);
        self.space.borrow_mut().close(link, 1);
    }

    /// Works on what a link has sent, one request after the other.
    fn work(&mut self, link: u64) {
        loop {
            let now_ms = self.space.borrow().wall_ms();
            let Some(talk) = self.talks.get_mut(&link).filter(|talk| talk.parked.is_none()) else {
                return;
            };
            let Some(frame) = talk.frames.pop_front() else { return };
            let number = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
            talk.asked = (ApiKey(number(0)), number(2));
            let handled = self.cluster.handle(&mut talk.connection, &frame, now_ms);
            self.handled(link, handled);
        }
    }

    /// Looks again at a request that waits.
    pub fn resume(&mut self, link: u64) {
        let now_ms = self.space.borrow().wall_ms();
        let Some(talk) = self.talks.get_mut(&link) else { return };
        let Some(parked) = talk.parked.take() else { return };
        let handled = self.cluster.resume(parked, now_ms);
        self.handled(link, handled);
        self.work(link);
    }

    /// Something has changed that requests may wait for.
    pub fn resume_all(&mut self) {
        let waits = |(_, talk): &(&u64, &Talk)| talk.parked.is_some();
        let links: Vec<_> = self.talks.iter().filter(waits).map(|(link, _)| *link).collect();
        links.into_iter().for_each(|link| self.resume(link));
    }

    fn handled(&mut self, link: u64, handled: Handled) {
        match handled {
            Handled::Response(chunks) => self.respond(link, &chunks),
            Handled::Silent => {}
            Handled::Close(_) => self.ended(link),
            Handled::Parked(parked) => {
                let mut space = self.space.borrow_mut();
                let wait_ms = parked.until_ms().saturating_sub(space.wall_ms()).max(1);
                let after = u64::try_from(wait_ms).unwrap_or(1) * 1_000;
                space.schedule(after, Event::Broker { link });
                if let Some(talk) = self.talks.get_mut(&link) {
                    talk.parked = Some(parked);
                }
            }
        }
    }

    fn respond(&mut self, link: u64, chunks: &Chunks) {
        let mut bytes = chunks.to_vec();
        let asked = self.talks.get(&link).map(|talk| talk.asked);
        let mut space = self.space.borrow_mut();
        if self.flips > 0
            && let Some((ApiKey::FETCH, version)) = asked
        {
            let parts = sealed_parts(&bytes, version);
            if !parts.is_empty() {
                let part = space.random.pick(&parts).clone();
                bytes[space.random.size(part.start, part.end - 1)] ^= 1 << space.random.below(8);
                space.note(format_args!("a bit flips in {part:?}"));
                self.flips -= 1;
                self.flipped += 1;
            }
        }
        space.send(link, 1, Item { token: None, what: What::Bytes(bytes.into(), 0) });
    }

    /// Takes a broker down and cuts its links, or brings it up.
    pub fn set_up(&mut self, broker: BrokerId, is_up: bool) {
        let now_ms = self.space.borrow().wall_ms();
        if is_up {
            self.cluster.start_broker(broker, now_ms);
        } else {
            self.cluster.stop_broker(broker, now_ms);
            for link in self.links_of(broker) {
                self.talks.remove(&link);
                let mut space = self.space.borrow_mut();
                space.cut(link);
                space.close(link, 1);
            }
        }
        self.resume_all();
    }
}

/// The places in a Fetch response that a CRC seals: where damage on the way must be noticed.
fn sealed_parts(bytes: &[u8], version: i16) -> Vec<std::ops::Range<usize>> {
    let frame = &bytes[4..];
    let mut reader = Reader::new(frame);
    let mut parts = Vec::new();
    if read_response_header(&mut reader, ApiKey::FETCH, version).is_err() {
        return parts;
    }
    let Ok(mut response) = FetchResponse::open(frame, reader.position(), version) else {
        return parts;
    };
    while let Ok(Some(_)) = response.topic(frame) {
        while let Ok(Some(partition)) = response.partition(frame) {
            let start = 4 + partition.records.start;
            for (at, batch) in Batches::new(&frame[partition.records]).flatten() {
                // From the CRC on: what stands before it is sealed by nothing.
                parts.push(start + at + 17..start + at + batch.as_bytes().len());
            }
        }
    }
    parts
}
