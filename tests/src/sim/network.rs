//! Simulated connections: bytes arrive in order, late, in pieces of any size, or not at all.

use std::collections::{BTreeMap, VecDeque};

use engine::ids::{FileId, Token};
use engine::io::{Chunk, Done, IoError, IoErrorKind};

use super::space::{Event, Micros, Space};

/// Bytes that may be under way in one direction before the sender has to wait.
const WINDOW: usize = 128 << 10;

/// Who is at one end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Shard { shard: usize, connection: engine::ids::ConnId },
    Broker,
    Client(usize),
}

/// Something that a party other than a shard is to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Bytes have arrived.
    Readable { link: u64, owner: Owner },
    /// The link is of no more use.
    Ended { link: u64, owner: Owner },
}

/// All links.
#[derive(Debug)]
pub struct Network {
    pub links: BTreeMap<u64, Link>,
    next: u64,
    pub latency: Micros,
    /// Bytes in a second, in one direction of a link.
    pub rate: u64,
    /// How often in a thousand a piece is small.
    pub small_pieces: u64,
    /// Attempts to connect that fail, in a thousand.
    pub refusals: u64,
    pub silences: u64,
}

impl Default for Network {
    fn default() -> Self {
        let (links, next) = (BTreeMap::new(), 1);
        Self {
            links,
            next,
            latency: 500,
            rate: 50 << 20,
            small_pieces: 30,
            refusals: 0,
            silences: 0,
        }
    }
}

/// A connection between two parties.
#[derive(Debug)]
pub struct Link {
    pub owners: [Owner; 2],
    /// The port at the accepting end, which tells which broker it is.
    pub port: u16,
    /// What each end sends.
    pub pipes: [Pipe; 2],
    /// Ends that want to hear no more.
    closed: [bool; 2],
}

/// One direction of a link.
#[derive(Debug, Default)]
pub struct Pipe {
    queued: VecDeque<Item>,
    flying: VecDeque<(Micros, Vec<u8>)>,
    flying_bytes: usize,
    pub arrived: VecDeque<u8>,
    last: Micros,
    pub stalled_until: Micros,
    fin_at: Option<Micros>,
    pub has_ended: bool,
    is_broken: bool,
}

/// Something to send, and whose token hears of it.
#[derive(Debug)]
pub struct Item {
    pub token: Option<Token>,
    pub what: What,
}

/// What is sent.
#[derive(Debug)]
pub enum What {
    Bytes(Chunk, usize),
    File { file: FileId, position: u64, length: u64 },
}

pub(super) fn failure(kind: IoErrorKind, detail: &str) -> Done {
    Done::Failed { error: IoError { kind, detail: detail.to_owned() } }
}

impl Space {
    /// Makes a link. The first owner is the one that connected.
    pub fn link(&mut self, owners: [Owner; 2], port: u16) -> u64 {
        let id = self.network.next;
        self.network.next += 1;
        let link = Link { owners, port, pipes: Default::default(), closed: [false; 2] };
        self.network.links.insert(id, link);
        id
    }

    /// How long a packet takes now.
    pub fn latency(&mut self) -> Micros {
        let least = self.network.latency;
        least + self.random.below(least / 4 + 50)
    }

    /// Sends from one end.
    pub fn send(&mut self, link: u64, end: usize, item: Item) {
        let open = self.network.links.get_mut(&link);
        match open.filter(|open| !open.closed[end] && !open.pipes[end].is_broken) {
            Some(open) => {
                open.pipes[end].queued.push_back(item);
                self.pump(link, end);
            }
            None => self.finish(link, end, item.token, failure(IoErrorKind::Closed, "closed")),
        }
    }

    /// Tells the owner of an end what became of its operation.
    fn finish(&mut self, link: u64, end: usize, token: Option<Token>, done: Done) {
        let owner = self.network.links.get(&link).map(|open| open.owners[end]);
        if let (Some(Owner::Shard { shard, .. }), Some(token)) = (owner, token) {
            self.complete(shard, token, done);
        }
    }

    /// Lets leave what has room.
    pub fn pump(&mut self, link: u64, end: usize) {
        loop {
            let (now, rate) = (self.now, self.network.rate);
            let small = self.network.small_pieces;
            let latency = self.latency();
            let Some(open) = self.network.links.get_mut(&link) else { return };
            let owner = open.owners[end];
            let pipe = &mut open.pipes[end];
            let under_way = pipe.flying_bytes + pipe.arrived.len();
            if under_way >= WINDOW {
                return;
            }
            let Some(item) = pipe.queued.front_mut() else { return };
            match &mut item.what {
                What::File { file, position, length } => {
                    let (file, position, length) = (*file, *position, *length);
                    let bytes = self.read_to_send(owner, file, position, length);
                    let open = self.network.links.get_mut(&link).expect("it was there");
                    match bytes {
                        Ok(bytes) => {
                            let item = open.pipes[end].queued.front_mut().expect("the file");
                            item.what = What::Bytes(bytes.into(), 0);
                        }
                        Err(done) => return self.break_sends(link, end, done),
                    }
                }
                What::Bytes(bytes, from) => {
                    let left = bytes.len() - *from;
                    let most = left.min(WINDOW - under_way);
                    let piece = match self.random.chance(small) {
                        true => self.random.size(1, 64).min(most),
                        false => self.random.size(1, 32 << 10).min(most),
                    };
                    let at = (now + latency).max(pipe.stalled_until).max(pipe.last)
                        + piece as u64 * 1_000_000 / rate;
                    if piece > 0 {
                        pipe.flying.push_back((at, bytes[*from..*from + piece].to_vec()));
                        pipe.flying_bytes += piece;
                        pipe.last = at;
                        *from += piece;
                    }
                    let token = (piece == left).then(|| pipe.queued.pop_front()).flatten();
                    if piece > 0 {
                        self.schedule_at(at, Event::Arrive { link, to: 1 - end });
                    }
                    if let (Some(item), Owner::Shard { connection, .. }) = (token, owner) {
                        self.finish(link, end, item.token, Done::Sent { connection });
                    }
                }
            }
        }
    }

    /// Fails the first send with `done` and all behind it.
    fn break_sends(&mut self, link: u64, end: usize, done: Done) {
        let Some(open) = self.network.links.get_mut(&link) else { return };
        open.pipes[end].is_broken = true;
        let items = std::mem::take(&mut open.pipes[end].queued);
        let mut done = Some(done);
        for item in items {
            let told = done.take().unwrap_or_else(|| failure(IoErrorKind::Closed, "broken"));
            self.finish(link, end, item.token, told);
        }
    }

    /// Bytes or the end of the stream have come to an end of a link.
    pub fn arrive(&mut self, link: u64, to: usize) {
        let now = self.now;
        let Some(open) = self.network.links.get_mut(&link) else { return };
        let (is_deaf, owner) = (open.closed[to], open.owners[to]);
        let pipe = &mut open.pipes[1 - to];
        while let Some((_, bytes)) = pipe.flying.pop_front_if(|(at, _)| *at <= now) {
            pipe.flying_bytes -= bytes.len();
            if !is_deaf {
                pipe.arrived.extend(bytes);
            }
        }
        let ends = pipe.fin_at.is_some_and(|at| at <= now) && pipe.flying.is_empty();
        if ends && !pipe.has_ended {
            pipe.has_ended = true;
            // Who ended it takes nothing any more.
            self.break_sends(link, to, failure(IoErrorKind::Network, "reset by the peer"));
        }
        if is_deaf {
            self.pump(link, 1 - to);
            return self.drop_if_over(link);
        }
        self.look(link, owner, ends);
    }

    fn look(&mut self, link: u64, owner: Owner, ends: bool) {
        match owner {
            Owner::Shard { shard, connection } => self.feed(shard, connection),
            Owner::Broker | Owner::Client(_) if ends => {
                self.notices.push_back(Notice::Readable { link, owner });
                self.notices.push_back(Notice::Ended { link, owner });
            }
            Owner::Broker | Owner::Client(_) => {
                self.notices.push_back(Notice::Readable { link, owner });
            }
        }
    }

    /// Takes what has arrived at an end, at most `most` bytes.
    pub fn take(&mut self, link: u64, end: usize, most: usize) -> Vec<u8> {
        let Some(open) = self.network.links.get_mut(&link) else { return Vec::new() };
        let arrived = &mut open.pipes[1 - end].arrived;
        let count = arrived.len().min(most);
        let bytes = arrived.drain(..count).collect();
        self.pump(link, 1 - end);
        bytes
    }

    /// Ends a link from one end: what is under way still arrives, what waits is not sent.
    pub fn close(&mut self, link: u64, end: usize) {
        let latency = self.latency();
        let Some(open) = self.network.links.get_mut(&link) else { return };
        if std::mem::replace(&mut open.closed[end], true) {
            return;
        }
        let at = (self.now + latency).max(open.pipes[end].last);
        open.pipes[end].fin_at = Some(at);
        open.pipes[1 - end].arrived.clear();
        self.break_sends(link, end, failure(IoErrorKind::Closed, "closed by us"));
        self.schedule_at(at, Event::Arrive { link, to: 1 - end });
        self.pump(link, 1 - end);
        self.drop_if_over(link);
    }

    /// Cuts a link: both ends hear of it at once.
    pub fn cut(&mut self, link: u64) {
        let Some(open) = self.network.links.get_mut(&link) else { return };
        let owners = open.owners;
        for pipe in &mut open.pipes {
            pipe.flying.clear();
            pipe.flying_bytes = 0;
            pipe.arrived.clear();
            pipe.fin_at = Some(self.now);
        }
        for (end, owner) in owners.into_iter().enumerate() {
            if self.network.links.get(&link).is_some_and(|open| open.closed[end]) {
                continue;
            }
            self.break_sends(link, end, failure(IoErrorKind::Network, "cut"));
            if let Some(open) = self.network.links.get_mut(&link) {
                open.pipes[1 - end].has_ended = true;
            }
            self.look(link, owner, true);
        }
    }

    fn drop_if_over(&mut self, link: u64) {
        let is_over = |open: &Link| {
            open.closed == [true; 2] && open.pipes.iter().all(|pipe| pipe.queued.is_empty())
        };
        if self.network.links.get(&link).is_some_and(is_over) {
            self.network.links.remove(&link);
        }
    }

    /// Holds up what a link carries for a while, in one direction or both.
    pub fn stall(&mut self, link: u64, time: Micros) {
        let until = self.now + time;
        let both = self.random.chance(500);
        let first = self.random.size(0, 1);
        if let Some(open) = self.network.links.get_mut(&link) {
            open.pipes[first].stalled_until = until;
            if both {
                open.pipes[1 - first].stalled_until = until;
            }
        }
    }
}
