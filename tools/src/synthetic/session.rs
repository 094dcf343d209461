//! Incremental fetch sessions, as a broker keeps them (KIP-227, `kafka.server.FetchSession`).

use std::collections::BTreeMap;

use wire::api::ErrorCode;
use wire::fetch::{FetchPartition, FetchRequest};
use wire::ids::{Offset, PartitionIndex, TopicId};

use super::batch::Random;

/// A broker forgets its oldest session when it has more than this (`max.incremental.fetch...`).
const SESSIONS_MAX: usize = 1000;

/// How a fetch names a partition: by the topic's id, or where that is zero by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wish {
    pub(super) id: TopicId,
    pub(super) name: String,
    pub(super) partition: PartitionIndex,
}

/// The sessions of one broker.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<i32, Session>,
    made: u64,
}

#[derive(Clone, Debug)]
struct Session {
    epoch: i32,
    by_id: bool,
    made: u64,
    /// In the order in which they are served next.
    partitions: BTreeMap<u64, Cached>,
    places: BTreeMap<Wish, u64>,
    next_place: u64,
}

#[derive(Clone, Debug)]
struct Cached {
    wish: Wish,
    fetch: FetchPartition,
    /// What the consumer was told last.
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    high_watermark: Offset,
    log_start: Offset,
}

impl Told {
    const NOTHING: Self = Self { high_watermark: Offset(-1), log_start: Offset(-1) };
}

/// In which session a fetch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// In none.
    Sessionless,
    /// It makes one: all is told.
    Full { id: i32 },
    /// It continues one: only what is new is told.
    Incremental { id: i32, epoch: i32 },
}

/// What a partition's answer says that a session cares about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) record_bytes: usize,
    pub(super) is_error: bool,
    pub(super) diverges: bool,
    pub(super) high_watermark: Offset,
    pub(super) log_start: Offset,
}

impl Context {
    /// The id that the response carries.
    pub(super) const fn session_id(self) -> i32 {
        match self {
            Self::Sessionless => 0,
            Self::Full { id } | Self::Incremental { id, .. } => id,
        }
    }
}

impl Sessions {
    /// Applies what a request says about its session; gives that session and all partitions that it
    /// fetches, in order.
    pub(super) fn begin(
        &mut self,
        request: &FetchRequest,
        by_id: bool,
        random: &mut Random,
    ) -> Result<(Context, Vec<(Wish, FetchPartition)>), ErrorCode> {
        let head = &request.head;
        if matches!(head.session_epoch, 0 | -1) {
            self.sessions.remove(&head.session_id);
            let wishes = wishes(request);
            if head.session_epoch == -1 || wishes.is_empty() {
                return Ok((Context::Sessionless, wishes));
            }
            let id = self.make(&wishes, by_id, random);
            return Ok((Context::Full { id }, wishes));
        }
        let id = head.session_id;
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != head.session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.update(request);
        session.epoch = next_epoch(session.epoch);
        let epoch = session.epoch;
        let cached = session.partitions.values();
        let wishes: Vec<_> = cached.map(|cached| (cached.wish.clone(), cached.fetch)).collect();
        if wishes.is_empty() {
            self.sessions.remove(&id);
            return Ok((Context::Sessionless, wishes));
        }
        Ok((Context::Incremental { id, epoch }, wishes))
    }

    /// Says for each answer whether the response carries it, and remembers what the consumer learns.
    pub(super) fn select(
        &mut self,
        context: Context,
        answers: &[(Wish, Answered)],
    ) -> Result<Vec<bool>, ErrorCode> {
        let (id, incremental) = match context {
            Context::Sessionless => return Ok(vec![true; answers.len()]),
            Context::Full { id } => (id, None),
            Context::Incremental { id, epoch } => (id, Some(epoch)),
        };
        let Some(session) = self.sessions.get_mut(&id) else {
            // Forgotten while the fetch waited: the next request will hear of it.
            return Ok(vec![true; answers.len()]);
        };
        if incremental.is_some_and(|epoch| epoch != session.epoch) {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        Ok(answers
            .iter()
            .map(|(wish, answered)| session.tell(wish, answered) || incremental.is_none())
            .collect())
    }

    fn make(&mut self, wishes: &[(Wish, FetchPartition)], by_id: bool, random: &mut Random) -> i32 {
        if self.sessions.len() >= SESSIONS_MAX {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.made);
            if let Some(id) = oldest.map(|(id, _)| *id) {
                self.sessions.remove(&id);
            }
        }
        let id = loop {
            let id = i32::try_from(random.next() >> 33).unwrap_or(i32::MAX);
            if id != 0 && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        self.made += 1;
        let (partitions, places) = (BTreeMap::new(), BTreeMap::new());
        let mut session =
            Session { epoch: 1, by_id, made: self.made, partitions, places, next_place: 0 };
        for (wish, fetch) in wishes {
            session.put(wish.clone(), *fetch);
        }
        self.sessions.insert(id, session);
        id
    }
}

impl Session {
    fn update(&mut self, request: &FetchRequest) {
        for topic in &request.forgotten_topics {
            for partition in &topic.partitions {
                let (id, name, partition) = (topic.id, topic.name.clone(), *partition);
                if let Some(place) = self.places.remove(&Wish { id, name, partition }) {
                    self.partitions.remove(&place);
                }
            }
        }
        for (wish, fetch) in wishes(request) {
            self.put(wish, fetch);
        }
    }

    fn put(&mut self, wish: Wish, fetch: FetchPartition) {
        match self.places.get(&wish).and_then(|place| self.partitions.get_mut(place)) {
            Some(cached) => cached.fetch = fetch,
            None => self.put_back(Cached { wish, fetch, told: Told::NOTHING }),
        }
    }

    fn put_back(&mut self, cached: Cached) {
        self.places.insert(cached.wish.clone(), self.next_place);
        self.partitions.insert(self.next_place, cached);
        self.next_place += 1;
    }

    /// Whether the consumer has to be told. A partition that gave records goes to the back, so that
    /// it does not starve those behind it (`CachedPartition.maybeUpdateResponseData`).
    fn tell(&mut self, wish: &Wish, answered: &Answered) -> bool {
        let place = self.places.get(wish).copied();
        let Some((place, cached)) =
            place.and_then(|place| Some((place, self.partitions.get_mut(&place)?)))
        else {
            return true;
        };
        let new = Told { high_watermark: answered.high_watermark, log_start: answered.log_start };
        let is_loud = answered.is_error || answered.diverges;
        let tells = answered.record_bytes > 0 || is_loud || cached.told != new;
        cached.told = new;
        if is_loud {
            cached.told.high_watermark = Offset(-1);
        }
        if answered.record_bytes > 0
            && let Some(cached) = self.partitions.remove(&place)
        {
            self.put_back(cached);
        }
        tells
    }
}

fn wishes(request: &FetchRequest) -> Vec<(Wish, FetchPartition)> {
    let of_topic = |topic: &wire::fetch::FetchTopic| {
        let (id, name) = (topic.id, topic.name.clone());
        let wish = move |fetch: &FetchPartition| {
            (Wish { id, name: name.clone(), partition: fetch.partition }, *fetch)
        };
        topic.partitions.iter().map(wish).collect::<Vec<_>>()
    };
    request.topics.iter().flat_map(of_topic).collect()
}

const fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}
