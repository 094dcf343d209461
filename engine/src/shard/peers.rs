//! Connections to source brokers: what the link asks for is carried out, and each answer is read
//! whole into one buffer lent from the pool. Where the pool has none left the connection is not read
//! on, so that the source is slowed down by TCP and memory stays in its budget.

use std::net::SocketAddr;

use crate::ids::ConnId;
use crate::io::{Buffer, Done, Io, IoError, Op};
use crate::limits;
use crate::source::{Effect, PeerKey};

use super::mail::{DeskLetter, Letter};
use super::{Purpose, Shard};

/// A connection to a source broker, or the attempt to open one.
#[derive(Debug)]
pub(super) struct Peer {
    address: SocketAddr,
    connection: Option<ConnId>,
    /// The length of the frame that waits for a buffer.
    awaited: usize,
}

/// Bytes of a frame's length.
const SIZE_BYTES: usize = wire::frame::SIZE_BYTES;

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
                    self.upkeep.unreachable += 1;
                    tracing::warn!("source broker {broker} cannot be reached: {reason}");
                }
                Effect::Recovered { broker } => {
                    self.upkeep.unreachable = self.upkeep.unreachable.saturating_sub(1);
                    tracing::info!("source broker {broker} is reached again");
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
        self.starved.remove(&key);
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
        self.io.submit(token, Op::ReceiveExact { connection, buffer });
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
                let reason = format!(
                    "{} sent a frame of {size:?} bytes, above the limit of {}",
                    peer.address,
                    limits::RESPONSE_BYTES_MAX
                );
                self.lose_peer(key, &reason);
            }
        }
    }

    /// Reads the frame whose length is known, as soon as there is a buffer for it.
    fn await_frame(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get(&key) else { return };
        let Some(connection) = peer.connection else { return };
        match self.io.buffers().lend(peer.awaited) {
            Some(buffer) => {
                self.starved.remove(&key);
                let token = self.in_flight.add(Purpose::PeerFrame(key));
                self.io.submit(token, Op::ReceiveExact { connection, buffer });
            }
            None if self.io.buffers().bytes_lent() == 0 => {
                let reason = format!(
                    "{} sent a frame of {} bytes, more than the memory this shard may use; \
                     raise --memory",
                    peer.address, peer.awaited
                );
                self.lose_peer(key, &reason);
            }
            None => {
                self.starved.insert(key);
            }
        }
    }

    /// Buffers may have come back: the connections that wait for one are served in turn.
    pub(super) fn feed_starved(&mut self) {
        while let Some(&key) = self.starved.first() {
            self.await_frame(key);
            if self.starved.contains(&key) {
                break;
            }
        }
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
