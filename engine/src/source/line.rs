//! A place for one connection: it is opened when somebody needs it, and tried again after it was lost.
//!
//! ```text
//!          needed                address              open, versions
//!  Closed --------> Resolving ------------> Open(...) --------------> Open(ready)
//!    ^  ^               |                      |                          |
//!    |  |               v                      v                          |
//!    |  +-- Waiting <-- lost, refused, too late ---------------------------+
//!    +----- no longer needed, idle ---------------------------------------+
//! ```

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use wire::ids::BrokerId;

use super::backoff::delay;
use super::conn::{About, Conn};
use super::follow::FetcherKey;
use super::link::{Link, Timer, Unreachable};
use super::{Effect, PeerKey, literal_address};
use crate::ids::Now;

/// Which connection a line is the place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LineKey {
    /// To any broker, for metadata.
    Survey,
    /// To a broker, for questions that are asked once.
    Lookups(BrokerId),
    /// To a broker, for one fetch session.
    Fetcher(FetcherKey),
}

impl LineKey {
    pub(super) const fn broker(self) -> Option<BrokerId> {
        match self {
            Self::Survey => None,
            Self::Lookups(broker) => Some(broker),
            Self::Fetcher(fetcher) => Some(fetcher.broker),
        }
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

/// A place for one connection.
#[derive(Debug, Default)]
pub(super) struct Line {
    state: State,
    /// Whom it leads to, for log lines.
    name: String,
    /// Since the last useful answer.
    failures: u32,
    /// Takes turns between the addresses of a host.
    attempts: usize,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Waiting,
    Resolving(Address),
    Open(PeerKey, Conn),
}

impl Line {
    /// The connection, where requests may be sent on it.
    pub(super) fn ready(&mut self) -> Option<(PeerKey, &mut Conn)> {
        match &mut self.state {
            State::Open(peer, conn) if conn.is_ready() => Some((*peer, conn)),
            _ => None,
        }
    }

    /// The connection that `peer` stands for, if it still does.
    const fn open_as(&mut self, peer: PeerKey) -> Option<&mut Conn> {
        match &mut self.state {
            State::Open(open, conn) if open.0 == peer.0 => Some(conn),
            _ => None,
        }
    }
}

impl Link {
    /// The connection of a line where requests may be sent on it; where there is none it is opened.
    pub(super) fn ready_line(
        &mut self,
        key: LineKey,
        now: Now,
        out: &mut Vec<Effect>,
    ) -> Option<(PeerKey, &mut Conn)> {
        if matches!(self.lines.entry(key).or_default().state, State::Closed) {
            self.open_line(key, now, out);
        }
        self.lines.get_mut(&key)?.ready()
    }

    /// The line and connection of a peer that was not given up.
    pub(super) fn conn_of(&mut self, peer: PeerKey) -> Option<(LineKey, &mut Conn)> {
        let key = *self.peers.get(&peer)?;
        let conn = self.lines.get_mut(&key)?.open_as(peer)?;
        Some((key, conn))
    }

    fn open_line(&mut self, key: LineKey, now: Now, out: &mut Vec<Effect>) {
        let Some((name, advertised)) = self.target(key) else {
            return;
        };
        let address = self.rewritten(advertised);
        let line = self.lines.entry(key).or_default();
        line.name = name;
        if let Some(ip) = literal_address(&address.host) {
            self.connect_line(key, SocketAddr::new(ip, address.port), now, out);
            return;
        }
        line.state = State::Resolving(address.clone());
        self.timers.set(Timer::Line(key), now.plus(self.options.request_timeout));
        if self.resolving.insert(Arc::clone(&address.host)) {
            out.push(Effect::Resolve { host: address.host });
        }
    }

    /// Whom a line leads to: for log lines, and where they say that they listen.
    fn target(&self, key: LineKey) -> Option<(String, Address)> {
        let Some(broker) = key.broker() else {
            return self.survey.candidate(&self.options, &self.brokers);
        };
        let address = self.brokers.get(&broker)?.clone();
        Some((broker_name(broker, &address), address))
    }

    fn rewritten(&self, address: Address) -> Address {
        let advertised = (address.host.to_string(), address.port);
        match self.options.rewritten_addresses.get(&advertised) {
            Some((host, port)) => Address { host: host.as_str().into(), port: *port },
            None => address,
        }
    }

    fn connect_line(&mut self, key: LineKey, address: SocketAddr, now: Now, out: &mut Vec<Effect>) {
        let peer = PeerKey(self.next_peer);
        self.next_peer += 1;
        let line = self.lines.entry(key).or_default();
        line.state = State::Open(peer, Conn::new(Arc::clone(&self.client_id)));
        self.peers.insert(peer, key);
        self.timers.set(Timer::Line(key), now.plus(self.options.connect_timeout));
        out.push(Effect::Connect { peer, address });
    }

    /// The addresses of a host were found, or not.
    pub fn resolved(
        &mut self,
        host: &str,
        answer: Result<Vec<IpAddr>, String>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        self.resolving.remove(host);
        let waiting = self.lines.iter().filter_map(|(&key, line)| match &line.state {
            State::Resolving(address) if *address.host == *host => Some((key, address.port)),
            _ => None,
        });
        for (key, port) in waiting.collect::<Vec<_>>() {
            match &answer {
                Ok(addresses) if !addresses.is_empty() => {
                    let line = self.lines.get_mut(&key).expect("it waits for this answer");
                    let ip = addresses[line.attempts % addresses.len()];
                    self.connect_line(key, SocketAddr::new(ip, port), now, out);
                }
                Ok(_) => self.lose_line(key, &format!("{host} has no address"), now, out),
                Err(reason) => {
                    self.lose_line(key, &format!("cannot resolve {host}: {reason}"), now, out);
                }
            }
        }
        self.flush(now, out);
    }

    /// A connection is open.
    pub fn connected(&mut self, peer: PeerKey, now: Now, out: &mut Vec<Effect>) {
        let Some((key, conn)) = self.conn_of(peer) else { return };
        if let Some(bytes) = conn.connected() {
            out.push(Effect::Send { peer, bytes });
            self.timers.set(Timer::Line(key), now.plus(self.options.request_timeout));
        }
    }

    /// A connection was lost, or could not be opened.
    pub fn lost(&mut self, peer: PeerKey, reason: &str, now: Now, out: &mut Vec<Effect>) {
        if let Some((key, conn)) = self.conn_of(peer) {
            let idle = conn.is_ready() && !conn.is_waiting() && !self.is_needed(key);
            if idle {
                self.close_line(key);
            } else {
                self.lose_line(key, reason, now, out);
            }
            self.flush(now, out);
        }
    }

    /// Gives a connection up because of what the broker answered. Where it was down before and has come
    /// back as somebody else, that is news.
    pub(super) fn refuse(&mut self, key: LineKey, reason: &str, now: Now, out: &mut Vec<Effect>) {
        let Some(name) = self.lines.get(&key).map(|line| line.name.clone()) else { return };
        let was_unreachable = self.unreachable.contains_key(&name);
        self.give_up(key, reason, now, out);
        let Some(one) = self.unreachable.get_mut(&name) else { return };
        let before = one.refusal.replace(reason.to_string());
        if was_unreachable && before.as_deref() != Some(reason) {
            out.push(Effect::Unreachable { broker: name, reason: reason.to_string() });
        }
    }

    /// Gives a connection up because of what the broker did, or did not do.
    pub(super) fn give_up(&mut self, key: LineKey, reason: &str, now: Now, out: &mut Vec<Effect>) {
        let Some(line) = self.lines.get(&key) else { return };
        if let State::Open(peer, _) = line.state {
            let reason = format!("{} {reason}", line.name);
            out.push(Effect::Close { peer, reason });
        }
        self.lose_line(key, reason, now, out);
    }

    /// Ends a connection that is not needed, or leads to the wrong place. No fault of the broker.
    pub(super) fn hang_up(&mut self, key: LineKey, reason: &str, out: &mut Vec<Effect>) {
        let Some(line) = self.lines.get(&key) else { return };
        if let State::Open(peer, _) = line.state {
            out.push(Effect::Close { peer, reason: format!("{} {reason}", line.name) });
        }
        self.close_line(key);
    }

    /// The line no longer has a connection; whoever used it hears of it.
    fn close_line(&mut self, key: LineKey) {
        self.timers.clear(Timer::Line(key));
        let Some(line) = self.lines.get_mut(&key) else { return };
        let State::Open(peer, conn) = std::mem::take(&mut line.state) else { return };
        self.peers.remove(&peer);
        for about in conn.into_unanswered() {
            match about {
                About::Lookups(asked) => self.ask_again(&asked),
                About::Metadata { full } => self.survey.unanswered(full),
                About::ApiVersions | About::Fetch => {}
            }
        }
        if let LineKey::Fetcher(fetcher) = key {
            self.timers.clear(Timer::Fetcher(fetcher));
            if let Some(fetcher) = self.fetchers.get_mut(&fetcher) {
                fetcher.disconnected();
            }
        }
    }

    fn lose_line(&mut self, key: LineKey, reason: &str, now: Now, out: &mut Vec<Effect>) {
        self.close_line(key);
        let Some(line) = self.lines.get_mut(&key) else { return };
        line.failures = line.failures.saturating_add(1);
        line.attempts += 1;
        line.state = State::Waiting;
        if !line.name.is_empty()
            && let Entry::Vacant(place) = self.unreachable.entry(line.name.clone())
        {
            place.insert(Unreachable { broker: key.broker(), refusal: None });
            let (broker, reason) = (line.name.clone(), reason.to_string());
            out.push(Effect::Unreachable { broker, reason });
        }
        let options = &self.options;
        let (least, most) = (options.reconnect_backoff_least, options.reconnect_backoff_most);
        let wait = delay(least, most, line.failures, &mut self.random);
        self.timers.set(Timer::Line(key), now.plus(wait));
        match key.broker() {
            // Its partitions may have moved.
            Some(_) => self.survey.want([]),
            None => {
                (self.has_a_way, self.way_lost) = (false, true);
                self.survey.next_candidate();
            }
        }
    }

    /// A broker has given a useful answer.
    pub(super) fn line_works(&mut self, key: LineKey, out: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        line.failures = 0;
        if key == LineKey::Survey {
            (self.has_a_way, self.way_lost) = (true, false);
        }
        if !self.unreachable.is_empty() && self.unreachable.remove(&line.name).is_some() {
            out.push(Effect::Recovered { broker: line.name.clone() });
        }
    }

    /// Whether somebody waits for this connection.
    fn is_needed(&self, key: LineKey) -> bool {
        match key {
            LineKey::Survey => self.options.follows_metadata,
            LineKey::Lookups(broker) => self.lookups.is_wanted(broker),
            LineKey::Fetcher(fetcher) => {
                self.fetchers.get(&fetcher).is_some_and(super::fetcher::Fetcher::is_wanted)
            }
        }
    }

    /// Whether there is something to fetch from each broker, and from none it can be.
    pub(super) fn is_fetched_from_nobody(&self) -> bool {
        let brokers = &self.survey.image.brokers;
        let has_failed = |broker: &BrokerId| {
            let is_its =
                |key: &LineKey| matches!(key, LineKey::Fetcher(_)) && key.broker() == Some(*broker);
            let mut lines =
                self.lines.iter().filter(|(key, _)| is_its(key) && self.is_needed(**key));
            lines.next().is_some_and(|(_, line)| line.failures > 0)
                && lines.all(|(_, line)| line.failures > 0)
        };
        !brokers.is_empty() && brokers.keys().all(has_failed)
    }

    /// Whether ending this connection because nothing was heard on it would take it from somebody.
    fn is_idle(&self, key: LineKey) -> bool {
        match key {
            LineKey::Survey => false,
            LineKey::Lookups(broker) => !self.lookups.is_wanted(broker),
            LineKey::Fetcher(fetcher) => {
                self.fetchers.get(&fetcher).is_none_or(super::fetcher::Fetcher::is_empty)
            }
        }
    }

    /// The moment of a line has come.
    pub(super) fn line_due(&mut self, key: LineKey, now: Now, out: &mut Vec<Effect>) {
        let needed = self.is_needed(key);
        let idle = self.is_idle(key);
        let Some(line) = self.lines.get_mut(&key) else { return };
        match &line.state {
            State::Closed => {}
            State::Waiting => {
                line.state = State::Closed;
                if needed {
                    self.open_line(key, now, out);
                }
            }
            State::Resolving(address) => {
                let host = Arc::clone(&address.host);
                self.resolving.remove(&host);
                self.lose_line(key, &format!("no address for {host} in time"), now, out);
            }
            State::Open(_, conn) if !conn.is_connected() => {
                self.give_up(key, "took too long to connect", now, out);
            }
            State::Open(_, conn) if conn.is_waiting() => {
                self.give_up(key, "did not answer in time", now, out);
            }
            State::Open(..) if idle => self.hang_up(key, "is not needed", out),
            State::Open(..) => self.rest_line(key, now),
        }
    }

    /// Nothing is awaited on a connection: it is looked at again when it may be idle.
    pub(super) fn rest_line(&mut self, key: LineKey, now: Now) {
        self.timers.set(Timer::Line(key), now.plus(self.options.connection_max_idle));
    }

    /// Other brokers than before: lines to those that are elsewhere end, fetchers of those that are
    /// gone and have nothing to fetch as well.
    pub(super) fn brokers_changed(&mut self, out: &mut Vec<Effect>) {
        let image = Arc::clone(&self.survey.image);
        let mut moved = BTreeSet::new();
        for (&id, broker) in &image.brokers {
            let address = Address { host: Arc::clone(&broker.host), port: broker.port };
            if self.move_broker(id, address) {
                moved.insert(id);
            }
        }
        // A broker that the metadata does not name, but partitions do, may be newer than it.
        let used: BTreeSet<BrokerId> = self
            .fetchers
            .iter()
            .filter(|(_, fetcher)| !fetcher.is_empty())
            .map(|(key, _)| key.broker)
            .collect();
        let gone = |id: &BrokerId| !image.brokers.contains_key(id) && !used.contains(id);
        let gone: Vec<BrokerId> = self.brokers.keys().copied().filter(gone).collect();
        for id in gone {
            if let Some(address) = self.brokers.remove(&id) {
                self.unreachable.remove(&broker_name(id, &address));
            }
            moved.insert(id);
        }
        self.hang_up_to(&moved, out);
    }

    /// Notes where a broker listens. Says whether that is news.
    pub(super) fn move_broker(&mut self, id: BrokerId, address: Address) -> bool {
        if self.brokers.get(&id) == Some(&address) {
            return false;
        }
        if let Some(before) = self.brokers.insert(id, address) {
            self.unreachable.remove(&broker_name(id, &before));
        }
        true
    }

    /// Ends the connections to brokers that are no longer where they were.
    pub(super) fn hang_up_to(&mut self, moved: &BTreeSet<BrokerId>, out: &mut Vec<Effect>) {
        let led_there = |key: &LineKey| key.broker().is_some_and(|broker| moved.contains(&broker));
        let keys: Vec<LineKey> = self.lines.keys().copied().filter(led_there).collect();
        for key in keys {
            self.hang_up(key, "is no longer there", out);
            self.lines.remove(&key);
            if let LineKey::Fetcher(fetcher) = key {
                if self.fetchers.get(&fetcher).is_some_and(super::fetcher::Fetcher::is_empty) {
                    self.fetchers.remove(&fetcher);
                } else {
                    self.awake.insert(fetcher);
                }
            }
        }
    }
}

pub(super) fn broker_name(id: BrokerId, address: &Address) -> String {
    format!("broker {id} ({}:{})", address.host, address.port)
}
