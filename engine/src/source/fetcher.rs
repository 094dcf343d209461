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

use wire::codec::Writer;
use wire::fetch::{FetchPartition, FetchRequestHead, FetchRequestWriter, NAMES_MOST, TopicKey};
use wire::ids::PartitionIndex;

use super::SourcePartition;
use super::follow::{FetcherKey, Followed, Table, Wish};
use super::options::LinkOptions;
use crate::ids::{Now, PartitionKey};

mod heard;

pub(super) use heard::{Endpoint, Trouble};

/// The fastest link that is counted on: 2 GB/s, near 20 Gbit/s, on one connection.
const BYTES_PER_MICROSECOND: u128 = 2_000;

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
