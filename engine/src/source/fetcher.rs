//! One fetch session (KIP-227): what is in it, what changed since the last request, whose turn it is.
//!
//! ```text
//!           request             answer with news            resume
//!   Ours ------------> Brokers ------------------> Mirrors ---------> Ours
//!                        |  answer without news, session refused       ^
//!                        +---------------------------------------------+
//! ```
//!
//! A request names what changed: its cost does not grow with the partitions of the session.

use std::collections::BTreeSet;
use std::time::Duration;

use wire::api::{ApiKey, ErrorCode};
use wire::codec::{Reader, Writer};
use wire::fetch::{
    FetchPartition, FetchRequestHead, FetchRequestWriter, FetchResponse, LeaderIdAndEpoch,
    NAMES_MOST, TopicKey,
};
use wire::ids::{BrokerId, PartitionIndex};

use super::conn::Refusal;
use super::follow::{FetcherKey, Followed, Table, Wish};
use super::options::LinkOptions;
use super::{FetchedPartition, SourcePartition};
use crate::ids::{Now, PartitionKey};

/// The fastest link that is counted on: 2 GB/s, near 20 Gbit/s, on one connection.
const BYTES_PER_MICROSECOND: u128 = 2_000;

/// The longest that a broker may have us wait. One that throttles us for longer stops reading from
/// our connection by itself; one that is broken must not silence a fetcher.
const THROTTLE_MAX: Duration = Duration::from_secs(60);

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The next request may go.
    Ours,
    /// A request is out.
    Brokers,
    /// An answer is with the mirrors.
    Mirrors,
}

/// One fetch session and the partitions that belong to it.
#[derive(Debug)]
pub(super) struct Fetcher {
    key: FetcherKey,
    pub(super) turn: Turn,
    /// No request goes before this moment: the broker asked for it.
    pub(super) not_before: Now,
    /// The doubt of the moment when the connection was made.
    pub(super) doubt: u64,
    /// When the request that is out was sent.
    pub(super) asked_at: Now,
    /// The shortest time from a request to the first byte of its answer on this connection.
    answer_begins_after: Option<Duration>,
    /// What the last request asked for at most.
    bytes_asked: i32,
    /// Answers in a row that brought nothing although the broker could have waited for something.
    pub(super) hasty_answers: u32,
    /// Sessions in a row that the broker refused.
    pub(super) refused_sessions: u32,
    members: BTreeSet<PartitionKey>,
    /// Members that are to be fetched; the others wait for their mirror.
    fetching: usize,
    /// Members of topics without an id: while there are any, topics go by name.
    without_id: usize,
    /// Members to be named in the next request.
    changed: Vec<PartitionKey>,
    /// Members that brought something, to be dropped from the session unless renewed.
    answered: Vec<PartitionKey>,
    /// Gone, and to be dropped from the session.
    forgotten: Vec<SourcePartition>,
    session_id: i32,
    /// 0 where the next request begins a session and names all members.
    session_epoch: i32,
    by_id: bool,
}

/// What an answer means.
#[derive(Debug)]
pub(super) struct Heard {
    /// For the mirrors.
    pub(super) partitions: Vec<FetchedPartition>,
    /// For the link to heal.
    pub(super) troubles: Vec<Trouble>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) throttle: Duration,
}

/// A partition that has to be fetched elsewhere, or later.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) key: PartitionKey,
    pub(super) error: ErrorCode,
    pub(super) leader: Option<LeaderIdAndEpoch>,
}

/// Where a broker listens, as another one told.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) broker: BrokerId,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Fetcher {
    pub(super) const fn new(key: FetcherKey) -> Self {
        Self {
            key,
            turn: Turn::Ours,
            not_before: Now(0),
            doubt: 0,
            asked_at: Now(0),
            answer_begins_after: None,
            bytes_asked: 0,
            hasty_answers: 0,
            refused_sessions: 0,
            members: BTreeSet::new(),
            fetching: 0,
            without_id: 0,
            changed: Vec::new(),
            answered: Vec::new(),
            forgotten: Vec::new(),
            session_id: 0,
            session_epoch: 0,
            by_id: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether there is something to fetch.
    pub(super) const fn is_wanted(&self) -> bool {
        self.fetching > 0
    }

    /// Takes a partition in.
    pub(super) fn add(&mut self, key: PartitionKey, followed: &mut Followed) {
        debug_assert!(followed.fetcher.is_none() && followed.wish != Wish::Rest);
        followed.fetcher = Some(self.key);
        followed.in_session = false;
        followed.changed = false;
        self.members.insert(key);
        self.without_id += usize::from(followed.at.source.topic_id.is_zero());
        self.fetching += usize::from(followed.wish == Wish::Fetch);
        self.change(key, followed);
    }

    /// Lets a partition go.
    pub(super) fn remove(&mut self, key: PartitionKey, followed: &mut Followed) {
        debug_assert_eq!(followed.fetcher, Some(self.key));
        followed.fetcher = None;
        followed.changed = false;
        self.members.remove(&key);
        self.without_id -= usize::from(followed.at.source.topic_id.is_zero());
        self.fetching -= usize::from(followed.wish == Wish::Fetch);
        if std::mem::take(&mut followed.in_session) && self.has_session() {
            self.forgotten.push(followed.at.source.clone());
        }
    }

    /// A member is to be fetched from another place, or again.
    pub(super) fn renew(&mut self, key: PartitionKey, followed: &mut Followed) {
        if followed.wish == Wish::Answered {
            followed.wish = Wish::Fetch;
            self.fetching += 1;
        }
        self.change(key, followed);
    }

    /// Whether the broker has a session, or will have one with the request that is out. Without one
    /// the next request names all members, and changes need not be kept.
    fn has_session(&self) -> bool {
        self.session_epoch != 0 || self.turn == Turn::Brokers
    }

    /// The member will be named in the next request; answers until then are about an older wish.
    fn change(&mut self, key: PartitionKey, followed: &mut Followed) {
        if followed.wish == Wish::Fetch && !followed.changed {
            followed.changed = true;
            if self.has_session() {
                self.changed.push(key);
            }
        }
    }

    /// The next request begins a new session: the connection or the broker's memory is gone.
    pub(super) fn restart(&mut self, session_id: i32) {
        self.session_id = session_id;
        self.session_epoch = 0;
        self.changed.clear();
        self.answered.clear();
        self.forgotten.clear();
    }

    /// The connection is gone.
    pub(super) fn disconnected(&mut self) {
        self.turn = Turn::Ours;
        self.not_before = Now(0);
        self.answer_begins_after = None;
        self.bytes_asked = 0;
        self.restart(0);
    }

    /// The first bytes of an answer are here.
    pub(super) fn answer_begins(&mut self, now: Now) {
        let after = now.since(self.asked_at);
        let least = self.answer_begins_after.map_or(after, |least| least.min(after));
        self.answer_begins_after = Some(least);
    }

    /// What the next answer may bring: as much as the fastest link delivers in the time that a
    /// request and the begin of its answer take, so that waiting costs little. More than that only
    /// makes buffers that no cache holds between receiving and writing. It at most doubles from one
    /// request to the next: the first answer of a busy broker next door may be late.
    fn bytes_max(&self, options: &LinkOptions) -> i32 {
        let after = self.answer_begins_after.unwrap_or_default();
        let bytes = after.as_micros().saturating_mul(BYTES_PER_MICROSECOND);
        let bytes =
            i32::try_from(bytes).unwrap_or(i32::MAX).min(self.bytes_asked.saturating_mul(2));
        bytes.max(options.fetch_bytes_near).min(options.fetch_bytes_max)
    }

    /// The version of the next request, where the broker and we speak `spoken`.
    pub(super) const fn version(&self, spoken: i16) -> i16 {
        if self.without_id > 0 && spoken > NAMES_MOST { NAMES_MOST } else { spoken }
    }

    pub(super) const fn key(&self) -> FetcherKey {
        self.key
    }

    /// The members that the next request, of this version, may name.
    pub(super) fn next_named(&self, version: i16) -> Vec<PartitionKey> {
        let all = self.session_epoch == 0 || self.by_id != (version > NAMES_MOST);
        if all { self.members.iter().copied().collect() } else { self.changed.clone() }
    }

    /// Writes the next request.
    pub(super) fn write(
        &mut self,
        writer: &mut Writer,
        version: i16,
        table: &mut Table,
        options: &LinkOptions,
    ) {
        let by_id = version > NAMES_MOST;
        if self.by_id != by_id {
            self.by_id = by_id;
            self.restart(self.session_id);
        }
        let named = self.take_changed(table);
        let forgotten = self.take_forgotten(table);
        self.bytes_asked = self.bytes_max(options);
        let head = FetchRequestHead {
            max_wait_ms: i32::try_from(options.fetch_max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: options.fetch_min_bytes,
            max_bytes: self.bytes_asked,
            session_id: self.session_id,
            session_epoch: self.session_epoch,
            ..Default::default()
        };
        let follow = |key| table.get(key).expect("a member is followed");
        let same = |a: &PartitionKey, b: &PartitionKey| {
            same_topic(&follow(*a).at.source, &follow(*b).at.source)
        };
        let topic_count = named.chunk_by(same).count();
        let mut request = FetchRequestWriter::start(writer, version, &head, topic_count);
        for keys in named.chunk_by(same) {
            request.topic(topic_key(&follow(keys[0]).at.source), keys.len());
            for &key in keys {
                request.partition(&wished(follow(key), options.partition_fetch_bytes_max));
            }
        }
        let groups: Vec<(TopicKey<'_>, Vec<PartitionIndex>)> = forgotten
            .chunk_by(same_topic)
            .map(|group| (topic_key(&group[0]), group.iter().map(|gone| gone.partition).collect()))
            .collect();
        request.finish(groups.iter().map(|(topic, partitions)| (*topic, &partitions[..])));
    }

    /// The members to be named: all of them where a session begins.
    fn take_changed(&mut self, table: &mut Table) -> Vec<PartitionKey> {
        let mut named = std::mem::take(&mut self.changed);
        if self.session_epoch == 0 {
            named.clear();
            named.extend(&self.members);
        }
        let full = self.session_epoch == 0;
        named.retain(|&key| match table.get_mut(key) {
            Some(followed) if followed.fetcher == Some(self.key) => {
                let named = followed.wish == Wish::Fetch && (full || followed.changed);
                followed.changed = false;
                followed.in_session = named || (followed.in_session && !full);
                named
            }
            _ => false,
        });
        named.sort_unstable();
        named
    }

    /// The partitions to be dropped: not those that are back, since brokers drop after they add.
    fn take_forgotten(&mut self, table: &mut Table) -> Vec<SourcePartition> {
        let mut forgotten = std::mem::take(&mut self.forgotten);
        let answered = std::mem::take(&mut self.answered);
        if self.session_epoch == 0 {
            return Vec::new();
        }
        forgotten.retain(|gone| {
            let key = table.find(topic_key(gone), self.by_id, gone.partition);
            let back = key.and_then(|key| table.get(key));
            !back.is_some_and(|back| back.fetcher == Some(self.key) && back.wish == Wish::Fetch)
        });
        for key in answered {
            let Some(followed) = table.get_mut(key) else { continue };
            let here = followed.fetcher == Some(self.key) && followed.in_session;
            if here && followed.wish == Wish::Answered {
                followed.in_session = false;
                forgotten.push(followed.at.source.clone());
            }
        }
        forgotten
    }

    /// Takes an answer apart. Nothing has changed where it is refused.
    pub(super) fn heard(
        &mut self,
        frame: &[u8],
        body: Reader<'_>,
        version: i16,
        table: &mut Table,
    ) -> Result<Heard, Refusal> {
        let api = ApiKey::FETCH;
        let bytes = |error| Refusal::Bytes { api, version, error };
        let mut walk = FetchResponse::open(frame, body.position(), version).map_err(bytes)?;
        let head = walk.head();
        let throttle = Duration::from_millis(u64::try_from(head.throttle_time_ms).unwrap_or(0));
        let mut heard = Heard {
            partitions: Vec::new(),
            troubles: Vec::new(),
            endpoints: Vec::new(),
            throttle: throttle.min(THROTTLE_MAX),
        };
        while let Some(topic) = walk.topic(frame).map_err(bytes)? {
            let partitions = table.topic(topic, version > NAMES_MOST);
            while let Some(told) = walk.partition(frame).map_err(bytes)? {
                let key = partitions.and_then(|keys| keys.get(&told.partition_index).copied());
                let Some((key, followed)) = key.and_then(|key| Some((key, table.get(key)?))) else {
                    continue;
                };
                if followed.fetcher == Some(self.key) && followed.is_asked_for() {
                    sort_out(&mut heard, key, followed, &told);
                }
            }
        }
        for told in walk.tail(frame).map_err(bytes)?.node_endpoints {
            if let Ok(port @ 1..) = u16::try_from(told.port) {
                let host = told.host.to_string();
                heard.endpoints.push(Endpoint { broker: told.node_id, host, port });
            }
        }
        // Others than the leaders that were named are none of our business.
        let leaders: BTreeSet<BrokerId> =
            heard.troubles.iter().filter_map(|t| Some(t.leader?.leader_id)).collect();
        heard.endpoints.retain(|endpoint| leaders.contains(&endpoint.broker));
        self.keep_session(ErrorCode(head.error_code), head.session_id, version)?;
        self.settle(table, &mut heard);
        Ok(heard)
    }

    /// What the answer means for the session.
    fn keep_session(
        &mut self,
        error: ErrorCode,
        session_id: i32,
        version: i16,
    ) -> Result<(), Refusal> {
        match error {
            ErrorCode::NONE => self.refused_sessions = 0,
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID => {
                let gone = error == ErrorCode::FETCH_SESSION_ID_NOT_FOUND;
                self.restart(if gone { 0 } else { self.session_id });
                self.refused_sessions = self.refused_sessions.saturating_add(1);
                return Ok(());
            }
            error => return Err(Refusal::Error { api: ApiKey::FETCH, version, error }),
        }
        if session_id == 0 {
            // The broker keeps no session for us: every request is a whole one, until it does.
            self.restart(0);
        } else if self.session_epoch == 0 || session_id == self.session_id {
            self.session_id = session_id;
            self.session_epoch = self.session_epoch.checked_add(1).unwrap_or(1);
        } else {
            self.restart(session_id);
        }
        Ok(())
    }

    /// Marks what was answered. A partition named twice counts once.
    fn settle(&mut self, table: &mut Table, heard: &mut Heard) {
        heard.partitions.retain(|fetched| {
            let followed = table.get_mut(fetched.key).expect("it was found a moment ago");
            if !followed.is_asked_for() {
                return false;
            }
            followed.failures = 0;
            if fetched.is_answer() {
                followed.wish = Wish::Answered;
                self.fetching -= 1;
                self.answered.push(fetched.key);
            }
            true
        });
        let inconsistent = |trouble: &Trouble| trouble.error == ErrorCode::INCONSISTENT_TOPIC_ID;
        if heard.troubles.iter().any(inconsistent) {
            self.restart(self.session_id);
        }
    }
}

impl FetchedPartition {
    /// Whether this ends the partition's stay in the session until it is renewed.
    fn is_answer(&self) -> bool {
        !self.error.is_none() || self.diverging.is_some() || !self.records.is_empty()
    }
}

/// Whether the link heals this error by moving to the leader, or by waiting for it.
fn is_healed_by_the_link(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::REPLICA_NOT_AVAILABLE
            | ErrorCode::OFFSET_NOT_AVAILABLE
            | ErrorCode::NETWORK_EXCEPTION
            | ErrorCode::REQUEST_TIMED_OUT
    )
}

fn sort_out(
    heard: &mut Heard,
    key: PartitionKey,
    followed: &Followed,
    told: &wire::fetch::FetchedPartition<'_>,
) {
    let error = ErrorCode(told.error_code);
    if is_healed_by_the_link(error) {
        heard.troubles.push(Trouble { key, error, leader: told.current_leader });
        return;
    }
    heard.partitions.push(FetchedPartition {
        key,
        error,
        high_watermark: told.high_watermark,
        last_stable_offset: told.last_stable_offset,
        log_start_offset: told.log_start_offset,
        diverging: told.diverging_epoch.map(|diverging| (diverging.epoch, diverging.end_offset)),
        records: if error.is_none() { told.records.clone() } else { 0..0 },
        offset: followed.at.offset,
        leader_epoch: followed.at.leader_epoch,
    });
}

fn wished(followed: &Followed, bytes_max: i32) -> FetchPartition {
    let at = &followed.at;
    let mut wished = FetchPartition::new(at.source.partition, at.offset, bytes_max);
    wished.current_leader_epoch = at.leader_epoch;
    wished.last_fetched_epoch = at.last_fetched_epoch;
    wished
}

fn same_topic(a: &SourcePartition, b: &SourcePartition) -> bool {
    a.topic == b.topic && a.topic_id == b.topic_id
}

fn topic_key(source: &SourcePartition) -> TopicKey<'_> {
    TopicKey { name: &source.topic, id: source.topic_id }
}
