//! Connections of Kafka clients: bytes go to the server's machine, its questions to the shards that
//! own the partitions, its replies to the socket. Records go from file to socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::ids::{ConnId, ShardId, Token, TopicPartition};
use crate::io::{Done, Io, IoErrorKind, Op};
use crate::serve::{Answer, Asked, CallId, Effect, Piece, QuestionId, Watched};

use super::mail::Letter;
use super::place::owner;
use super::{Purpose, Shard};

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    peer: SocketAddr,
    stream: Stream,
    /// Shards that were asked to tell of news for the call under way.
    watched_at: BTreeSet<ShardId>,
}

/// Whether the connection is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Reading,
    /// Reading goes on in the kernel until this much is taken; nothing is asked for after that.
    Paused,
}

impl<I: Io> Shard<I> {
    pub(super) fn accepted(&mut self, token: Token, done: Done) {
        match done {
            Done::Accepted { connection, peer } => {
                if self.ending != super::Ending::No {
                    return self.io.close(connection);
                }
                if std::mem::take(&mut self.upkeep.accept_fails) {
                    tracing::info!("clients are accepted again");
                }
                let client = Client { peer, stream: Stream::Reading, watched_at: BTreeSet::new() };
                self.clients.insert(connection, client);
                let now = self.io.now();
                let mut effects = Vec::new();
                self.server.accepted(connection, peer, now, &mut effects);
                self.run_server(effects);
                if self.clients.contains_key(&connection) {
                    self.read_client(connection);
                }
            }
            Done::Failed { .. } if self.ending != super::Ending::No => {
                self.in_flight.take(token);
            }
            Done::Failed { error } => {
                // Mostly descriptors ran out, which those give back who leave.
                if !self.upkeep.accept_fails {
                    tracing::error!("no clients are accepted for now: {error}");
                }
                self.upkeep.accept_fails = true;
                self.upkeep.accept_again = Some(token);
            }
            other => unreachable!("an accept answered {other:?}"),
        }
    }

    /// Takes clients again after that failed.
    pub(super) fn accept_again(&mut self) {
        if let Some(token) = self.upkeep.accept_again.take() {
            self.io.submit(token, Op::Accept);
        }
    }

    fn read_client(&mut self, connection: ConnId) {
        let token = self.in_flight.add(Purpose::ClientStream(connection));
        self.io.submit(token, Op::ReceiveStream { connection });
    }

    pub(super) fn client_received(&mut self, token: Token, connection: ConnId, done: Done) {
        match done {
            Done::Received { bytes, .. } => {
                if !self.clients.contains_key(&connection) {
                    return;
                }
                let now = self.io.now();
                let mut effects = Vec::new();
                self.server.received(connection, &bytes, &self.catalog, now, &mut effects);
                self.run_server(effects);
            }
            Done::Failed { error } => {
                self.in_flight.take(token);
                if error.kind != IoErrorKind::Closed {
                    tracing::debug!("client connection lost: {error}");
                }
                self.lose_client(connection);
            }
            other => unreachable!("a stream answered {other:?}"),
        }
    }

    /// The connection is gone: what was under way for it is forgotten.
    fn lose_client(&mut self, connection: ConnId) {
        if self.clients.contains_key(&connection) {
            let mut effects = Vec::new();
            self.server.closed(connection, &mut effects);
            self.run_server(effects);
            self.drop_client(connection);
        }
    }

    fn drop_client(&mut self, connection: ConnId) {
        if self.clients.remove(&connection).is_some() {
            self.io.close(connection);
        }
    }

    /// Carries out what the server asks for, and what follows from that.
    pub(super) fn run_server(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Ask { questions } => self.ask(questions),
                Effect::Reply { connection, pieces } => self.reply(connection, pieces),
                Effect::Watch { partitions } => self.spread_watch(partitions),
                Effect::Unwatch { call } => self.end_watch(call),
                Effect::Pause { connection } => {
                    if let Some(client) = self.clients.get_mut(&connection) {
                        client.stream = Stream::Paused;
                    }
                    self.io.pause(connection);
                }
                Effect::Resume { connection } => {
                    if let Some(client) = self.clients.get_mut(&connection)
                        && client.stream == Stream::Paused
                    {
                        client.stream = Stream::Reading;
                        self.io.resume(connection);
                    }
                }
                Effect::Close { connection, reason, .. } => {
                    self.metrics.client_connections_refused.add(1);
                    tracing::info!("client connection closed: {reason}");
                    self.drop_client(connection);
                }
            }
        }
    }

    /// Asks the owners; this shard's own partitions answer at once.
    fn ask(&mut self, questions: Vec<Asked>) {
        let mut elsewhere: BTreeMap<ShardId, Vec<Asked>> = BTreeMap::new();
        let mut here = Vec::new();
        for asked in questions {
            let name = TopicPartition { topic: asked.topic.clone(), partition: asked.partition };
            let shard = owner(&name, self.options.shard_count);
            if shard == self.options.id {
                here.push(asked);
            } else {
                elsewhere.entry(shard).or_default().push(asked);
            }
        }
        for (shard, questions) in elsewhere {
            let from = self.options.id;
            let letter = Letter::Ask { from, questions };
            self.post.shards[usize::from(shard.0)].send(letter);
        }
        let answers = self.answer_all(&here);
        self.hand_answers(answers);
    }

    pub(super) fn hand_answers(&mut self, answers: Vec<(QuestionId, Answer)>) {
        let now = self.io.now();
        let mut effects = Vec::new();
        for (id, answer) in answers {
            self.server.answer(id, answer, &self.catalog, now, &mut effects);
        }
        self.run_server(effects);
    }

    fn reply(&mut self, connection: ConnId, pieces: Vec<Piece>) {
        self.metrics.client_requests.add(1);
        let last = pieces.len().saturating_sub(1);
        for (index, piece) in pieces.into_iter().enumerate() {
            let is_last = index == last;
            let (record_bytes, op) = match piece {
                Piece::Bytes(bytes) => (0, Op::Send { connection, bytes: bytes.into() }),
                Piece::File(piece) => {
                    let file = self.io.file(&piece.path);
                    let (position, length) = (piece.position, piece.length);
                    (length, Op::SendFile { connection, file, position, length })
                }
            };
            let purpose = Purpose::ClientSend { connection, record_bytes, is_last };
            let token = self.in_flight.add(purpose);
            self.io.submit(token, op);
        }
    }

    pub(super) fn client_sent(
        &mut self,
        connection: ConnId,
        record_bytes: u64,
        is_last: bool,
        done: Done,
    ) {
        let now = self.io.now();
        match done {
            Done::Sent { .. } => {
                self.metrics.served_bytes.add(record_bytes);
                if !is_last {
                    return self.server.sent_some(connection, now);
                }
                let mut effects = Vec::new();
                self.server.sent(connection, &self.catalog, now, &mut effects);
                self.run_server(effects);
            }
            Done::Failed { error } => {
                if let Some(client) = self.clients.get(&connection)
                    && error.kind != IoErrorKind::Closed
                {
                    // A segment that was removed meanwhile, or a client that went away: the frame
                    // cannot be finished, so the connection cannot go on.
                    tracing::info!("client {}: reply broke off: {error}", client.peer);
                }
                self.lose_client(connection);
            }
            other => unreachable!("a send answered {other:?}"),
        }
    }

    fn spread_watch(&mut self, partitions: Vec<Watched>) {
        let mut by_shard: BTreeMap<ShardId, Vec<Watched>> = BTreeMap::new();
        for watched in partitions {
            let name =
                TopicPartition { topic: watched.topic.clone(), partition: watched.partition };
            let shard = owner(&name, self.options.shard_count);
            by_shard.entry(shard).or_default().push(watched);
        }
        let from = self.options.id;
        let call = by_shard.values().flatten().next().map(|watched| watched.id.call);
        if let Some(client) = call.and_then(|call| self.clients.get_mut(&call.connection)) {
            client.watched_at.extend(by_shard.keys());
        }
        let here = by_shard.remove(&from);
        for (shard, partitions) in by_shard {
            let letter = Letter::Watch { from, partitions };
            self.post.shards[usize::from(shard.0)].send(letter);
        }
        if let Some(partitions) = here {
            self.watch(from, partitions);
        }
    }

    fn end_watch(&mut self, call: CallId) {
        let Some(client) = self.clients.get_mut(&call.connection) else { return };
        let from = self.options.id;
        for shard in std::mem::take(&mut client.watched_at) {
            if shard == from {
                self.unwatch(from, call);
            } else {
                let letter = Letter::Unwatch { from, call };
                self.post.shards[usize::from(shard.0)].send(letter);
            }
        }
    }

    /// Tells whoever watched that there is news.
    pub(super) fn tell_progress(&mut self, from: ShardId, id: QuestionId) {
        if from == self.options.id {
            self.client_progress(id);
        } else {
            self.post.shards[usize::from(from.0)].send(Letter::Progress { id });
        }
    }

    pub(super) fn client_progress(&mut self, id: QuestionId) {
        let now = self.io.now();
        let mut effects = Vec::new();
        self.server.progress(id, &self.catalog, now, &mut effects);
        self.run_server(effects);
    }
}
