//! Incremental fetch sessions (KIP-227): what a client wants stays here from one request to the
//! next, so that a request names only what changed and a reply only what is new.
//!
//! The rules are those of Kafka's `FetchSession.scala`. A client names a session and the number of
//! its request in it (the epoch); 0 begins one and -1 wants none, and both end the one they name.
//! A new session takes the place of one that was silent for two minutes, or of one that is smaller
//! and older than two minutes; where there is none it is not made, and the client goes on without.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wire::api::ErrorCode;
use wire::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};

use super::ServeOptions;
use crate::ids::Now;

/// What a partition in a session counts for, the name of an unknown topic included.
pub const SESSION_PARTITION_BYTES: usize = 640;

/// What a session counts for besides its partitions.
pub const SESSION_BYTES: usize = 256;

/// How long a session is safe from others (`FetchSessionCache`'s `evictionMs`).
const SAFE_TIME: Duration = Duration::from_secs(120);

/// No session.
pub(super) const NO_SESSION: i32 = 0;
/// A request that begins a session.
const INITIAL_EPOCH: i32 = 0;
/// A request outside of any session.
const FINAL_EPOCH: i32 = -1;

/// A topic as the client names it. Within one session all are named in one way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TopicRef {
    Name(Arc<str>),
    Id(TopicId),
}

/// What a client wants of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) topic: TopicRef,
    pub(super) partition: PartitionIndex,
    pub(super) offset: Offset,
    pub(super) current_leader_epoch: LeaderEpoch,
    pub(super) last_fetched_epoch: LeaderEpoch,
    pub(super) bytes_max: u64,
}

/// What a reply says of a partition, as far as a session remembers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) has_records: bool,
    pub(super) is_urgent: bool,
    pub(super) is_error: bool,
    pub(super) high_watermark: Offset,
    pub(super) log_start_offset: Offset,
}

/// In which session a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    Without,
    /// In a new one, where there is room.
    Begins {
        with_topic_ids: bool,
    },
    /// In this one, which stands at this epoch as long as no later request came.
    Within {
        id: i32,
        epoch: i32,
    },
}

/// What a request says of its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) id: i32,
    pub(super) epoch: i32,
    pub(super) with_topic_ids: bool,
}

/// A wish with its place in the session, where it is in one.
pub(super) type Placed = (Option<u64>, Wish);

/// The sessions of one shard.
#[derive(Debug)]
pub(super) struct Sessions {
    sessions: BTreeMap<i32, Session>,
    partition_count: usize,
    sessions_max: usize,
    partitions_max: usize,
    /// The numbers that this shard gives: the first, and how many.
    first_id: i32,
    id_count: i32,
    random: u64,
}

#[derive(Debug)]
pub(super) struct Session {
    with_topic_ids: bool,
    created: Now,
    used: Now,
    epoch: i32,
    /// In the order in which they are served: who got records goes to the end.
    partitions: BTreeMap<u64, Cached>,
    places: BTreeMap<(TopicRef, PartitionIndex), u64>,
    next_place: u64,
}

#[derive(Debug)]
struct Cached {
    wish: Wish,
    high_watermark: Offset,
    log_start_offset: Offset,
}

impl Sessions {
    pub(super) fn new(options: &ServeOptions) -> Self {
        let id_count = i32::MAX / i32::from(options.shard_count.max(1));
        let first_id = i32::from(options.shard.0) * id_count;
        Self {
            sessions: BTreeMap::new(),
            partition_count: 0,
            sessions_max: options.sessions_max,
            partitions_max: options.session_partitions_max,
            first_id,
            id_count,
            random: options.seed,
        }
    }

    /// What all sessions count for.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sessions.len() * SESSION_BYTES + self.partition_count * SESSION_PARTITION_BYTES
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Finds out in which session a request is and what it asks for, all in all.
    pub(super) fn open(
        &mut self,
        claim: Claim,
        wishes: Vec<Wish>,
        forgotten: Vec<(TopicRef, PartitionIndex)>,
        now: Now,
    ) -> Result<(Context, Vec<Placed>), ErrorCode> {
        let unplaced = |wishes: Vec<Wish>| wishes.into_iter().map(|wish| (None, wish)).collect();
        let with_topic_ids = claim.with_topic_ids;
        if matches!(claim.epoch, INITIAL_EPOCH | FINAL_EPOCH) {
            self.remove(claim.id);
            return Ok(match claim.epoch {
                FINAL_EPOCH => (Context::Without, unplaced(wishes)),
                _ => (Context::Begins { with_topic_ids }, unplaced(wishes)),
            });
        }
        let id = claim.id;
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != claim.epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.with_topic_ids != with_topic_ids {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        let size_before = session.partitions.len();
        for wish in &wishes {
            session.want(wish.clone());
        }
        for (topic, partition) in forgotten {
            session.forget(topic, partition);
        }
        let size = session.partitions.len();
        session.used = now;
        session.epoch = next_epoch(session.epoch);
        let context = Context::Within { id, epoch: session.epoch };
        self.partition_count = self.partition_count - size_before + size;
        if size == 0 {
            self.remove(id);
            return Ok((Context::Without, unplaced(wishes)));
        }
        if self.partition_count > self.partitions_max {
            // It grew beyond what there is room for: the client starts over with a whole request.
            self.remove(id);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        let placed = self.sessions.get(&id).into_iter().flat_map(|session| &session.partitions);
        Ok((context, placed.map(|(place, cached)| (Some(*place), cached.wish.clone())).collect()))
    }

    /// Begins a session over what a reply tells; [`NO_SESSION`] where there is no room for one.
    pub(super) fn begin(
        &mut self,
        with_topic_ids: bool,
        told: impl ExactSizeIterator<Item = (Wish, Told)>,
        now: Now,
    ) -> i32 {
        if !self.make_room(told.len(), now) {
            return NO_SESSION;
        }
        let mut session = Session {
            with_topic_ids,
            created: now,
            used: now,
            epoch: next_epoch(INITIAL_EPOCH),
            partitions: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
        };
        for (wish, told) in told {
            let place = session.want(wish);
            session.tell(place, told);
        }
        let id = self.new_id();
        self.partition_count += session.partitions.len();
        self.sessions.insert(id, session);
        id
    }

    /// The session that a reply is about to be written for, unless a later request came meanwhile.
    pub(super) fn current(&mut self, id: i32, epoch: i32) -> Result<&mut Session, ErrorCode> {
        self.sessions
            .get_mut(&id)
            .filter(|session| session.epoch == epoch)
            .ok_or(ErrorCode::INVALID_FETCH_SESSION_EPOCH)
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partition_count -= session.partitions.len();
        }
    }

    fn make_room(&mut self, size: usize, now: Now) -> bool {
        if size > self.partitions_max || self.sessions_max == 0 {
            return false;
        }
        while self.sessions.len() >= self.sessions_max
            || self.partition_count + size > self.partitions_max
        {
            match self.evictable(size, now) {
                Some(id) => self.remove(id),
                None => return false,
            }
        }
        true
    }

    fn evictable(&self, size: usize, now: Now) -> Option<i32> {
        let (id, stalest) = self.sessions.iter().min_by_key(|(id, one)| (one.used, **id))?;
        if now.since(stalest.used) > SAFE_TIME {
            return Some(*id);
        }
        let settled = |session: &Session| session.used.since(session.created) > SAFE_TIME;
        let old = self.sessions.iter().filter(|(_, session)| settled(session));
        let (id, least) = old.min_by_key(|(id, session)| (session.partitions.len(), **id))?;
        (size > least.partitions.len()).then_some(*id)
    }

    /// A number from this shard's range that no session has (splitmix64).
    fn new_id(&mut self) -> i32 {
        loop {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.random;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            let place = i32::try_from(mixed % u64::from(self.id_count.unsigned_abs()));
            let id = self.first_id + place.expect("below a positive i32");
            if id != NO_SESSION && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

impl Session {
    /// Adds a wish, or puts it in place of the one before.
    fn want(&mut self, wish: Wish) -> u64 {
        let key = (wish.topic.clone(), wish.partition);
        if let Some(place) = self.places.get(&key) {
            if let Some(cached) = self.partitions.get_mut(place) {
                cached.wish = wish;
            }
            return *place;
        }
        let place = self.next_place;
        self.next_place += 1;
        self.places.insert(key, place);
        let unknown = Offset(-1);
        let cached = Cached { wish, high_watermark: unknown, log_start_offset: unknown };
        self.partitions.insert(place, cached);
        place
    }

    fn forget(&mut self, topic: TopicRef, partition: PartitionIndex) {
        if let Some(place) = self.places.remove(&(topic, partition)) {
            self.partitions.remove(&place);
        }
    }

    /// Remembers what the client is told; whether there is anything new in it.
    pub(super) fn tell(&mut self, place: u64, told: Told) -> bool {
        let Some(cached) = self.partitions.get_mut(&place) else { return false };
        let moved = cached.high_watermark != told.high_watermark
            || cached.log_start_offset != told.log_start_offset;
        cached.high_watermark = told.high_watermark;
        cached.log_start_offset = told.log_start_offset;
        if told.is_error {
            // So that the partition is told of again when the error is gone.
            cached.high_watermark = Offset(-1);
        }
        if told.has_records {
            self.move_to_end(place);
        }
        told.has_records || told.is_urgent || told.is_error || moved
    }

    fn move_to_end(&mut self, place: u64) {
        let Some(cached) = self.partitions.remove(&place) else { return };
        let key = (cached.wish.topic.clone(), cached.wish.partition);
        self.places.insert(key, self.next_place);
        self.partitions.insert(self.next_place, cached);
        self.next_place += 1;
    }
}
#[cfg(test)]
mod tests;
