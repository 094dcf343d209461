//! All client connections of a shard: events in, effects out, and the budgets between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::call::{Call, Working};
use super::conn::{Connection, Expects};
use super::fetch::Next;
use super::route::{self, Handled};
use super::session::Sessions;
use super::wait::{Deadlines, Whose};
use super::{Answer, CallId, Effect, Piece, QuestionId, ServeOptions, fetch_reply};
use crate::catalog::Catalog;
use crate::ids::{ConnId, Now};

/// All client connections of this shard. See the head of `serve` for how it is used.
#[derive(Debug)]
pub struct Server {
    options: ServeOptions,
    connections: BTreeMap<ConnId, Connection>,
    sessions: Sessions,
    deadlines: Deadlines,
    next_call: u64,
    /// What all connections hold.
    connection_bytes: usize,
}

impl Server {
    /// A shard without connections.
    #[must_use]
    pub fn new(options: ServeOptions) -> Self {
        Self {
            sessions: Sessions::new(&options),
            options,
            connections: BTreeMap::new(),
            deadlines: Deadlines::default(),
            next_call: 0,
            connection_bytes: 0,
        }
    }

    /// What requests, calls under way, skeletons of replies and fetch sessions hold.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.connection_bytes + self.sessions.memory_bytes()
    }

    /// How many connections there are.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// How many fetch sessions there are.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// A client has connected.
    pub fn accepted(
        &mut self,
        connection: ConnId,
        peer: SocketAddr,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let connections_max = self.options.connections_max;
        if self.connections.len() >= connections_max {
            let reason = format!("{peer} is one more than the limit of {connections_max} clients");
            out.push(Effect::Close { connection, peer, reason });
            return;
        }
        let armed = now.plus(self.options.idle_time_max);
        self.deadlines.set(armed, Whose::Connection(connection));
        self.connections.insert(connection, Connection::new(peer, now, armed));
        self.settle(connection, now, out);
    }

    /// Bytes have arrived: any piece of the stream, at most [`super::OVERRUN_BYTES_MAX`] long.
    pub fn received(
        &mut self,
        connection: ConnId,
        bytes: &[u8],
        catalog: &Catalog,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        state.last_active = now;
        state.inbox.push(bytes);
        self.advance(connection, catalog, now, out);
    }

    /// A piece of the reply has left, and it is not the last one: the client is alive.
    pub fn sent_some(&mut self, connection: ConnId, now: Now) {
        if let Some(state) = self.connections.get_mut(&connection) {
            state.last_active = now;
        }
    }

    /// The whole reply has left: the next request may start.
    pub fn sent(&mut self, connection: ConnId, catalog: &Catalog, now: Now, out: &mut Vec<Effect>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        if !matches!(state.expects, Expects::Sent) {
            return;
        }
        state.last_active = now;
        state.reply_bytes = 0;
        state.expects = Expects::Request;
        self.advance(connection, catalog, now, out);
    }

    /// The connection has ended, whoever ended it.
    pub fn closed(&mut self, connection: ConnId, out: &mut Vec<Effect>) {
        self.forget(connection, out);
    }

    /// An owner has answered. An answer that nobody waits for any more is dropped.
    pub fn answer(
        &mut self,
        id: QuestionId,
        answer: Answer,
        catalog: &Catalog,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let QuestionId { call, index } = id;
        let Some(working) = working(&mut self.connections, call) else { return };
        match &mut working.call {
            Call::Fetch(fetch) => fetch.answer(index, answer),
            Call::ListOffsets(list) => list.answer(index, answer),
            Call::EndOfEpoch(end) => end.answer(index, answer),
        }
        self.proceed(call, catalog, now, out);
        self.advance(call.connection, catalog, now, out);
    }

    /// There is news of a watched partition.
    pub fn progress(&mut self, id: QuestionId, catalog: &Catalog, now: Now, out: &mut Vec<Effect>) {
        let QuestionId { call, index } = id;
        let Some(working) = working(&mut self.connections, call) else { return };
        let Call::Fetch(fetch) = &mut working.call else { return };
        match fetch.progress(index, catalog) {
            Some(asked) => out.push(Effect::Ask { questions: vec![asked] }),
            None => self.proceed(call, catalog, now, out),
        }
        self.advance(call.connection, catalog, now, out);
    }

    /// The next moment at which [`Server::on_time`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        self.deadlines.next()
    }

    /// Time has passed.
    pub fn on_time(&mut self, catalog: &Catalog, now: Now, out: &mut Vec<Effect>) {
        while let Some((at, whose)) = self.deadlines.take_due(now) {
            match whose {
                Whose::Call(call) => {
                    self.proceed(call, catalog, now, out);
                    self.advance(call.connection, catalog, now, out);
                }
                Whose::Connection(connection) => self.expire(connection, at, now, out),
            }
        }
    }

    /// Works on requests as long as the next one may start.
    fn advance(&mut self, connection: ConnId, catalog: &Catalog, now: Now, out: &mut Vec<Effect>) {
        while let Some(state) = self.connections.get_mut(&connection) {
            if !matches!(state.expects, Expects::Request) {
                break;
            }
            let peer = state.peer;
            if let Some(fault) = state.inbox.fault() {
                self.close(connection, fault.reason(peer), out);
                return;
            }
            let Some(frame) = state.inbox.frame() else { break };
            let number = self.next_call;
            self.next_call += 1;
            let call = CallId { connection, number };
            let from = (catalog, &self.options, &mut self.sessions);
            let handled = route::handle(frame, call, from, now);
            state.inbox.pop();
            match handled {
                Err(what) => self.close(connection, format!("{peer} sent {what}"), out),
                Ok((_, Handled::Reply(bytes))) => {
                    self.reply(connection, vec![Piece::Bytes(bytes)], out);
                }
                Ok((to, Handled::Call(work, questions))) => {
                    let working = Working { number, to, call: work };
                    state.expects = Expects::Answers(Box::new(working));
                    if !questions.is_empty() {
                        out.push(Effect::Ask { questions });
                    }
                    self.proceed(call, catalog, now, out);
                }
            }
        }
        self.settle(connection, now, out);
    }

    /// Looks whether a call has all it needs, and replies if so.
    fn proceed(&mut self, call: CallId, catalog: &Catalog, now: Now, out: &mut Vec<Effect>) {
        let Some(working) = working(&mut self.connections, call) else { return };
        let to = working.to;
        let pieces = match &mut working.call {
            Call::ListOffsets(list) if list.is_complete() => vec![Piece::Bytes(list.reply(to))],
            Call::EndOfEpoch(end) if end.is_complete() => vec![Piece::Bytes(end.reply(to))],
            Call::ListOffsets(_) | Call::EndOfEpoch(_) => return,
            Call::Fetch(fetch) => match fetch.next(now, catalog) {
                Next::Wait => return,
                Next::Watch(partitions) => {
                    let until = fetch.until;
                    out.push(Effect::Watch { partitions });
                    self.deadlines.set(until, Whose::Call(call));
                    return;
                }
                Next::Reply => {
                    if fetch.is_watching {
                        out.push(Effect::Unwatch { call });
                        self.deadlines.clear(fetch.until, Whose::Call(call));
                    }
                    fetch_reply::reply(fetch, to, &mut self.sessions, catalog, now)
                }
            },
        };
        self.reply(call.connection, pieces, out);
    }

    fn reply(&mut self, connection: ConnId, pieces: Vec<Piece>, out: &mut Vec<Effect>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        state.expects = Expects::Sent;
        state.reply_bytes = pieces.iter().map(held_bytes).sum();
        out.push(Effect::Reply { connection, pieces });
    }

    /// After something happened to a connection: whether to read from it, how long to wait for it,
    /// what it counts for.
    fn settle(&mut self, connection: ConnId, now: Now, out: &mut Vec<Effect>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let wants_pause = state.wants_pause();
        if wants_pause != state.paused {
            state.paused = wants_pause;
            out.push(if wants_pause {
                Effect::Pause { connection }
            } else {
                Effect::Resume { connection }
            });
        }
        let is_arriving = matches!(state.expects, Expects::Request) && state.inbox.waiting() > 0;
        state.partial_since = is_arriving.then(|| state.partial_since.unwrap_or(now));
        let deadline = deadline(state, &self.options);
        if deadline < state.armed {
            self.deadlines.clear(state.armed, Whose::Connection(connection));
            self.deadlines.set(deadline, Whose::Connection(connection));
            state.armed = deadline;
        }
        self.count(connection);
        self.keep_budget(out);
    }

    fn count(&mut self, connection: ConnId) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let bytes = state.memory_bytes();
        self.connection_bytes = self.connection_bytes - state.counted_bytes + bytes;
        state.counted_bytes = bytes;
    }

    /// Ends the connections that hold the most, the newest of them first, until the rest is within
    /// the budget.
    fn keep_budget(&mut self, out: &mut Vec<Effect>) {
        let budget = self.options.request_memory_bytes;
        while self.connection_bytes > budget {
            let largest =
                self.connections.iter().max_by_key(|(id, state)| (state.counted_bytes, **id));
            let Some((&connection, state)) = largest else { return };
            let reason = format!(
                "{} holds {} bytes, the most of all, and requests of all clients are above their \
                 budget of {budget}",
                state.peer, state.counted_bytes
            );
            self.close(connection, reason, out);
        }
    }

    /// A connection's place in the queue came up: it is silent, or it has moved since.
    fn expire(&mut self, connection: ConnId, at: Now, now: Now, out: &mut Vec<Effect>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        if state.armed != at {
            return;
        }
        let deadline = deadline(state, &self.options);
        if deadline > now {
            state.armed = deadline;
            self.deadlines.set(deadline, Whose::Connection(connection));
            return;
        }
        let peer = state.peer;
        let waiting = state.inbox.waiting();
        let reason = match state.partial_since {
            Some(since) if now.since(since) >= self.options.request_time_max => format!(
                "{peer} sent {waiting} bytes of a request and not the rest within {:?}",
                self.options.request_time_max
            ),
            _ => format!("{peer} was silent for {:?}", self.options.idle_time_max),
        };
        self.close(connection, reason, out);
    }

    fn close(&mut self, connection: ConnId, reason: String, out: &mut Vec<Effect>) {
        if let Some(peer) = self.forget(connection, out) {
            out.push(Effect::Close { connection, peer, reason });
        }
    }

    fn forget(&mut self, connection: ConnId, out: &mut Vec<Effect>) -> Option<SocketAddr> {
        let state = self.connections.remove(&connection)?;
        self.connection_bytes -= state.counted_bytes;
        self.deadlines.clear(state.armed, Whose::Connection(connection));
        if let Expects::Answers(working) = &state.expects {
            let call = CallId { connection, number: working.number };
            if let Call::Fetch(fetch) = &working.call {
                self.deadlines.clear(fetch.until, Whose::Call(call));
                if fetch.is_watching {
                    out.push(Effect::Unwatch { call });
                }
            }
        }
        Some(state.peer)
    }
}

/// What waits for the answers to this call, if anything still does.
fn working(connections: &mut BTreeMap<ConnId, Connection>, call: CallId) -> Option<&mut Working> {
    match &mut connections.get_mut(&call.connection)?.expects {
        Expects::Answers(working) if working.number == call.number => Some(working),
        Expects::Request | Expects::Sent | Expects::Answers(_) => None,
    }
}

/// Until when something has to happen on a connection.
fn deadline(state: &Connection, options: &ServeOptions) -> Now {
    let idle = state.last_active.plus(options.idle_time_max);
    match state.partial_since {
        Some(since) => idle.min(since.plus(options.request_time_max)),
        None => idle,
    }
}

/// What a piece of a reply holds until it was sent.
fn held_bytes(piece: &Piece) -> usize {
    size_of::<Piece>()
        + match piece {
            Piece::Bytes(bytes) => bytes.capacity(),
            Piece::File(_) => 0,
        }
}
