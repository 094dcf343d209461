//! Connections to source brokers: what the link asks for is carried out, and each answer is read
//! into one buffer lent from the pool. A large one is read in two: its first bytes say whose records
//! it brings, and the rest goes to where these lie in memory as they will in their file, so that they
//! can be written past the page cache without being copied. Where the pool has none left the connection
//! is not read on, so that the source is slowed down by TCP and memory stays in its budget.

use std::net::SocketAddr;
use std::ops::Range;

use crate::ids::ConnId;
use crate::io::{BLOCK_BYTES, Buffer, Done, Io, IoError, Op};
use crate::limits;
use crate::source::{Effect, PeerKey};

use super::mail::{DeskLetter, Letter};
use super::{Purpose, Shard};

/// A connection to a source broker, or the attempt to open one.
#[derive(Debug)]
pub(super) struct Peer {
    address: SocketAddr,
    connection: Option<ConnId>,
    /// The length of the frame that comes.
    awaited: usize,
}

/// Bytes of a frame's length.
const SIZE_BYTES: usize = wire::frame::SIZE_BYTES;

/// How much of a large frame is read first. Records begin behind some hundred bytes, unless many
/// partitions come before them that bring none.
const HEAD_BYTES: usize = 4 << 10;

/// How much is read of one that is too large, to say whose it is: what tens of thousands of partitions
/// take that come before its records.
const LARGEST_HEAD_BYTES: usize = 1 << 20;

/// How far a frame has to be moved for what begins at `start` in it to lie in a block of memory as
/// it does in a block of its file.
const fn shift_between(start: usize, position: u64) -> usize {
    let (start, position) = (start % BLOCK_BYTES, (position % BLOCK_BYTES as u64) as usize);
    (position + BLOCK_BYTES - start) % BLOCK_BYTES
}

impl<I: Io> Shard<I> {
    /// Carries out what the link asks for, and what follows from that.
    pub(super) fn run_link(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Resolve { host } => {
                    let shard = self.options.id;
                    self.post.desk.send(DeskLetter::Resolve { shard, host });
                }
                Effect::Connect { peer, address } => {
                    self.peers.insert(peer, Peer { address, connection: None, awaited: 0 });
                    let token = self.in_flight.add(Purpose::PeerConnect(peer));
                    self.io.submit(token, Op::Connect { address });
                }
                Effect::Send { peer, bytes } => self.send_to_peer(peer, bytes),
                Effect::Close { peer, reason } => {
                    tracing::info!("source connection closed: {reason}");
                    self.drop_peer(peer);
                }
                Effect::Fetched(fetched) => self.ingest(fetched),
                Effect::EndOfEpoch { key, asked, answer } => self.end_of_epoch(key, asked, answer),
                Effect::OffsetAt { key, question, answer } => {
                    self.offset_at(key, question, answer);
                }
                Effect::Image(image) => self.new_image(image),
                Effect::RefreshWanted { topics, ticket } => {
                    self.post.shards[0].send(Letter::RefreshWanted { topics, ticket });
                }
                Effect::LeaderMoved { key, epoch, .. } => self.leader_moved(key, epoch),
                Effect::Unreachable { broker, reason } => {
                    tracing::warn!(
                        "the source's {broker} cannot be used: {reason}; it is tried again"
                    );
                }
                Effect::Recovered { broker } => {
                    tracing::info!("the source's {broker} answers again");
                }
            }
        }
    }

    fn send_to_peer(&mut self, peer: PeerKey, bytes: Vec<u8>) {
        if let Some(connection) = self.peers.get(&peer).and_then(|peer| peer.connection) {
            let token = self.in_flight.add(Purpose::PeerSend(peer));
            self.io.submit(token, Op::Send { connection, bytes: bytes.into() });
        }
    }

    pub(super) fn drop_peer(&mut self, key: PeerKey) {
        if let Some(connection) = self.peers.remove(&key).and_then(|peer| peer.connection) {
            self.peer_connections.remove(&connection);
            self.io.close(connection);
        }
    }

    /// Tells the link that a connection is gone, once.
    fn lose_peer(&mut self, key: PeerKey, reason: &str) {
        if !self.peers.contains_key(&key) {
            return;
        }
        self.drop_peer(key);
        self.metrics.source_connections_lost.add(1);
        let now = self.io.now();
        let mut effects = Vec::new();
        if let Some(link) = &mut self.link {
            link.lost(key, reason, now, &mut effects);
        }
        self.run_link(effects);
    }

    pub(super) fn peer_connected(&mut self, key: PeerKey, done: Done) {
        let connection = match done {
            Done::Connected { connection } => connection,
            Done::Failed { error } => return self.lose_peer(key, &error.to_string()),
            other => unreachable!("a connect answered {other:?}"),
        };
        let Some(peer) = self.peers.get_mut(&key) else {
            // Given up while it was under way.
            return self.io.close(connection);
        };
        peer.connection = Some(connection);
        self.peer_connections.insert(connection, key);
        self.await_size(key, connection);
        let now = self.io.now();
        let mut effects = Vec::new();
        if let Some(link) = &mut self.link {
            link.connected(key, now, &mut effects);
        }
        self.run_link(effects);
    }

    fn await_size(&mut self, key: PeerKey, connection: ConnId) {
        let token = self.in_flight.add(Purpose::PeerSize(key));
        let buffer = Buffer::of(vec![0; SIZE_BYTES]);
        self.io.submit(token, Op::ReceiveExact { connection, buffer, from: 0 });
    }

    pub(super) fn peer_size(&mut self, key: PeerKey, done: Done) {
        let buffer = match done {
            Done::Filled { buffer, .. } => buffer,
            Done::Failed { error } => return self.lose_peer(key, &error.to_string()),
            other => unreachable!("a receive answered {other:?}"),
        };
        let size = wire::frame::frame_size(&buffer);
        let Some(peer) = self.peers.get_mut(&key) else { return };
        match size {
            Ok(Some(size)) if (1..=limits::RESPONSE_BYTES_MAX).contains(&size) => {
                peer.awaited = size;
                let now = self.io.now();
                if let Some(link) = &mut self.link {
                    link.frame_begins(key, now);
                }
                self.await_frame(key);
            }
            size => {
                let size = match size {
                    Ok(Some(size)) => size.to_string(),
                    _ => "less than 0".to_owned(),
                };
                let reason = format!(
                    "{} sent a frame of {size} bytes, where it may have 1 to {}; is it a Kafka broker, \
                     and this its listener without TLS?",
                    peer.address,
                    limits::RESPONSE_BYTES_MAX
                );
                self.lose_peer(key, &reason);
            }
        }
    }

    /// Reads the frame whose length is known, behind those that wait for the same. What is small
    /// goes by them: it costs the disk nothing, and others wait for it.
    fn await_frame(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get(&key) else { return };
        let is_small = peer.awaited < limits::LARGE_FRAME_BYTES_LEAST;
        if (is_small || self.starved.is_empty()) && self.may_read(key) && self.begin_frame(key) {
            return;
        }
        self.starved.push_back(key);
        if let Some(link) = &mut self.link {
            link.frame_waits(key);
        }
    }

    /// Buffers may have come back, or writes have ended: the connections that wait for that are
    /// served in turn.
    pub(super) fn feed_starved(&mut self) {
        while let Some(&key) = self.starved.front() {
            if !self.may_read(key) || !self.begin_frame(key) {
                return;
            }
            self.starved.pop_front();
            let now = self.io.now();
            if let Some(link) = &mut self.link {
                link.frame_goes_on(key, now);
            }
        }
    }

    /// While the disk is far behind nothing large is read: bytes wait at their source, not here.
    fn may_read(&self, key: PeerKey) -> bool {
        let awaited = self.peers.get(&key).map_or(0, |peer| peer.awaited);
        awaited < limits::LARGE_FRAME_BYTES_LEAST || self.writing_bytes < limits::WRITING_BYTES_MAX
    }

    /// Begins to read a frame. False where there is no buffer for it.
    fn begin_frame(&mut self, key: PeerKey) -> bool {
        let Some(peer) = self.peers.get(&key) else { return true };
        let Some(connection) = peer.connection else { return true };
        let awaited = peer.awaited;
        let mut is_placed = awaited >= self.options.placed_bytes_least;
        // To be put anywhere within a block.
        let room = if is_placed { BLOCK_BYTES } else { 0 };
        let pool = self.io.buffers();
        let mut buffer = pool.lend(awaited + room);
        if buffer.is_none() && pool.bytes_lent() == 0 {
            // It may fit without that.
            is_placed = false;
            buffer = pool.lend(awaited);
        }
        let Some(mut buffer) = buffer else {
            if pool.bytes_lent() > 0 {
                return false;
            }
            // No room will ever be enough. Its first bytes say whose it is.
            let buffer = Buffer::of(vec![0; LARGEST_HEAD_BYTES.min(awaited)]);
            let token = self.in_flight.add(Purpose::PeerTooLarge(key));
            self.io.submit(token, Op::ReceiveExact { connection, buffer, from: 0 });
            return true;
        };
        let purpose = if is_placed {
            buffer.truncate(HEAD_BYTES.min(awaited));
            Purpose::PeerHead(key)
        } else {
            Purpose::PeerFrame(key)
        };
        let token = self.in_flight.add(purpose);
        self.io.submit(token, Op::ReceiveExact { connection, buffer, from: 0 });
        true
    }

    /// The first bytes of a large frame are here: the rest goes behind them, in its place.
    pub(super) fn peer_head(&mut self, key: PeerKey, done: Done) {
        let (connection, mut buffer) = match done {
            Done::Filled { connection, buffer } => (connection, buffer),
            Done::Failed { error } => return self.lose_peer(key, &error.to_string()),
            other => unreachable!("a receive answered {other:?}"),
        };
        let Some(peer) = self.peers.get(&key) else { return };
        let (awaited, from) = (peer.awaited, buffer.len());
        let first = self.link.as_mut().and_then(|link| link.first_records(key, &buffer));
        let shift = first.map_or(0, |(partition, records)| {
            let position = self.cells[partition.0 as usize].log.append_position();
            shift_between(records.start, position)
        });
        buffer.place(shift, awaited);
        let token = self.in_flight.add(Purpose::PeerFrame(key));
        self.io.submit(token, Op::ReceiveExact { connection, buffer, from });
    }

    /// The first bytes of a frame are here that is larger than this shard's memory. No more is asked for
    /// at a time than half of that, so it is one batch: its partition stops, and the others are fetched
    /// without it.
    pub(super) fn peer_too_large(&mut self, key: PeerKey, done: Done) {
        let buffer = match done {
            Done::Filled { buffer, .. } => buffer,
            Done::Failed { error } => return self.lose_peer(key, &error.to_string()),
            other => unreachable!("a receive answered {other:?}"),
        };
        let Some(peer) = self.peers.get(&key) else { return };
        let reason = format!(
            "{} sent a frame of {} bytes, more than the memory this shard may use; raise --memory",
            peer.address, peer.awaited
        );
        let bytes = peer.awaited;
        let first = self.link.as_mut().and_then(|link| link.first_records(key, &buffer));
        let asked = self.options.link.as_ref().map_or(0, |link| link.fetch_bytes_max);
        let is_one_batch =
            |records: &Range<usize>| records.len() > usize::try_from(asked).unwrap_or(0);
        if let Some((partition, _)) = first.filter(|(_, records)| is_one_batch(records)) {
            let mut effects = Vec::new();
            if let Some(mirror) = &mut self.cells[partition.0 as usize].mirror {
                mirror.too_large(bytes, &mut effects);
            }
            self.run_mirror(partition, effects);
        }
        self.lose_peer(key, &reason);
    }

    pub(super) fn peer_frame(&mut self, key: PeerKey, done: Done) {
        let (connection, frame) = match done {
            Done::Filled { connection, buffer } => (connection, buffer),
            Done::Failed { error } => return self.lose_peer(key, &error.to_string()),
            other => unreachable!("a receive answered {other:?}"),
        };
        if !self.peers.contains_key(&key) {
            return;
        }
        self.metrics.source_received_bytes.add((SIZE_BYTES + frame.len()) as u64);
        self.await_size(key, connection);
        let now = self.io.now();
        let mut effects = Vec::new();
        if let Some(link) = &mut self.link {
            link.frame(key, frame, now, &mut effects);
        }
        self.run_link(effects);
    }

    pub(super) fn peer_sent(&mut self, key: PeerKey, done: Done) {
        match done {
            Done::Sent { .. } => {}
            Done::Failed { error: IoError { detail, .. } } => self.lose_peer(key, &detail),
            other => unreachable!("a send answered {other:?}"),
        }
    }
}
