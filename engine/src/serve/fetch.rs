//! Fetch: asks the owners of all partitions at once, and waits for more where there is too little.
//!
//! ```text
//!             +-------------- progress: ask again about that partition
//!             v                                            ^
//!   ask --> answers to come --> all there: enough? --no--> watch
//!                                           |               |
//!                                          yes         the deadline
//!                                           v               v
//!                                         reply <-----------+
//! ```

use std::sync::Arc;
use std::time::Duration;

use wire::api::{ErrorCode, Versions};
use wire::fetch::{FetchRequest, FetchRequestHead, IsolationLevel, TopicKey};
use wire::ids::BrokerId;

use super::call::{Call, Questions, mismatch};
use super::route::{Handled, Refusal, Request, check_entries};
use super::session::{Claim, Context, TopicRef, Wish};
use super::{Answer, Asked, CallId, Question, QuestionId, Read, ReadAnswer, Watched, fetch_reply};
use crate::catalog::{Catalog, Topic};
use crate::ids::Now;

pub(super) const SERVED: Versions = Versions { least: 4, most: 18 };

/// The first version that names topics by their id.
const TOPIC_IDS: i16 = 13;

/// A fetch under way.
#[derive(Debug)]
pub(super) struct FetchCall {
    id: CallId,
    pub(super) isolation: IsolationLevel,
    /// The most bytes of records in the reply, but for a first batch that is larger.
    pub(super) bytes_max: u64,
    pub(super) context: Context,
    pub(super) entries: Vec<Entry>,
    bytes_min: u64,
    pub(super) until: Now,
    /// Answers to come.
    to_come: usize,
    /// Partitions that did not fail.
    sound: usize,
    /// Partitions that were answered since it last waited.
    fresh: Vec<u32>,
    /// Bytes that could be read when owners were last asked.
    readable: u64,
    /// Something has to be told at once: an error, logs that part.
    is_urgent: bool,
    /// Whether anything is watched.
    pub(super) is_watching: bool,
    held_bytes: usize,
}

/// A partition of a fetch.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) wish: Wish,
    /// Where it stands in the session.
    pub(super) place: Option<u64>,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Failed(ErrorCode),
    Asked,
    Answered(ReadAnswer),
    /// Answered, and its owner will say when there is more.
    Watched(ReadAnswer),
}

/// What comes next for a fetch.
#[derive(Debug)]
pub(super) enum Next {
    Wait,
    Watch(Vec<Watched>),
    Reply,
}

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let start = request.body.position();
    let body = request.body.take(request.body.left())?;
    let asked = FetchRequest::read(body, version).map_err(|mut error| {
        error.position += start;
        error
    })?;
    let forgotten = asked.forgotten_topics.iter().map(|topic| 1 + topic.partitions.len());
    let wanted = asked.topics.iter().map(|topic| 1 + topic.partitions.len());
    check_entries(wanted.chain(forgotten).sum())?;
    let head = asked.head.clone();
    match refused(&head) {
        Some(error_code) => {
            let (legal, illegal) = wishes(&asked, version, request.catalog);
            let entries = legal.into_iter().chain(illegal).map(|wish| failed(wish, error_code));
            let call = FetchCall::new(&head, Context::Without, entries.collect(), &request);
            Ok(Handled::Call(Call::Fetch(call), Questions::new()))
        }
        None => begin(&asked, request),
    }
}

/// Why a whole request is refused. A replica's fetch would tell us what it has and we would have to
/// count it in; without that right Kafka answers the same.
fn refused(head: &FetchRequestHead) -> Option<ErrorCode> {
    if head.replica_id >= BrokerId(0) {
        return Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    let known = [IsolationLevel::READ_UNCOMMITTED, IsolationLevel::READ_COMMITTED];
    (!known.contains(&head.isolation_level)).then_some(ErrorCode::INVALID_REQUEST)
}

fn begin(asked: &FetchRequest, request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let head = &asked.head;
    let (wishes, illegal) = wishes(asked, version, request.catalog);
    let mut forgotten = Vec::new();
    for topic in &asked.forgotten_topics {
        let named = topic_ref(topic.key(), version, request.catalog);
        forgotten.extend(topic.partitions.iter().map(|partition| (named.clone(), *partition)));
    }
    let claim = Claim {
        id: head.session_id,
        epoch: head.session_epoch,
        with_topic_ids: version >= TOPIC_IDS,
    };
    let (context, placed) = match request.sessions.open(claim, wishes, forgotten, request.now) {
        Ok(opened) => opened,
        Err(error_code) => {
            return Ok(Handled::Reply(fetch_reply::session_error(request.to, error_code, 0)));
        }
    };
    let mut questions = Questions::with_capacity(placed.len());
    let mut entries = Vec::with_capacity(placed.len() + illegal.len());
    for (place, wish) in placed {
        let state = match resolve(&wish, request.catalog) {
            Ok(topic) => {
                let index = u32::try_from(entries.len()).expect("fewer than 2^32 partitions");
                let id = request.question_id(index);
                questions.push(question(id, topic, &wish, head.isolation_level));
                State::Asked
            }
            Err(error_code) => State::Failed(error_code),
        };
        entries.push(Entry { wish, place, state });
    }
    let illegal = illegal.into_iter();
    entries.extend(illegal.map(|wish| failed(wish, ErrorCode::INVALID_TOPIC_EXCEPTION)));
    let call = FetchCall::new(head, context, entries, &request);
    Ok(Handled::Call(Call::Fetch(call), questions))
}

/// What is wanted, and apart from it what is wanted of topics that cannot exist: that is answered,
/// but no session remembers it.
fn wishes(asked: &FetchRequest, version: i16, catalog: &Catalog) -> (Vec<Wish>, Vec<Wish>) {
    let mut wishes = (Vec::new(), Vec::new());
    for topic in &asked.topics {
        let is_legal = version >= TOPIC_IDS || crate::catalog::is_legal_name(&topic.name);
        let place = if is_legal { &mut wishes.0 } else { &mut wishes.1 };
        let named = topic_ref(topic.key(), version, catalog);
        place.extend(topic.partitions.iter().map(|partition| Wish {
            topic: named.clone(),
            partition: partition.partition,
            offset: partition.fetch_offset,
            current_leader_epoch: partition.current_leader_epoch,
            last_fetched_epoch: partition.last_fetched_epoch,
            bytes_max: u64::try_from(partition.partition_max_bytes).unwrap_or(0),
        }));
    }
    wishes
}

/// A topic as the client names it; a known name is not copied.
fn topic_ref(key: TopicKey<'_>, version: i16, catalog: &Catalog) -> TopicRef {
    if version >= TOPIC_IDS {
        return TopicRef::Id(key.id);
    }
    match catalog.topic(key.name) {
        Some(topic) => TopicRef::Name(Arc::clone(&topic.name)),
        None => TopicRef::Name(Arc::from(key.name)),
    }
}

/// The topic, where it is here and has the partition.
pub(super) fn resolve<'c>(wish: &Wish, catalog: &'c Catalog) -> Result<&'c Topic, ErrorCode> {
    let topic = match &wish.topic {
        TopicRef::Name(name) => catalog.topic(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        TopicRef::Id(id) => catalog.topic_by_id(*id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
    }?;
    match topic.leader_epoch(wish.partition) {
        Some(_) => Ok(topic),
        None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    }
}

fn question(id: QuestionId, topic: &Topic, wish: &Wish, isolation: IsolationLevel) -> Asked {
    Asked {
        id,
        topic: Arc::clone(&topic.name),
        partition: wish.partition,
        question: Question::Read(Read {
            offset: wish.offset,
            current_leader_epoch: wish.current_leader_epoch,
            last_fetched_epoch: wish.last_fetched_epoch,
            bytes_max: wish.bytes_max,
            isolation,
        }),
    }
}

fn failed(wish: Wish, error_code: ErrorCode) -> Entry {
    Entry { wish, place: None, state: State::Failed(error_code) }
}

impl FetchCall {
    fn new(
        head: &FetchRequestHead,
        context: Context,
        entries: Vec<Entry>,
        request: &Request<'_>,
    ) -> Self {
        let options = request.options;
        let bytes = |value: i32| u64::try_from(value).unwrap_or(0);
        let bytes_max = bytes(head.max_bytes).min(u64::from(options.fetch_bytes_max));
        let wait = Duration::from_millis(bytes(head.max_wait_ms)).min(options.fetch_wait_max);
        let asked = entries.iter().filter(|entry| matches!(entry.state, State::Asked)).count();
        let names = entries.chunk_by(|one, next| one.wish.topic == next.wish.topic);
        let name_bytes = names.map(|of_topic| match &of_topic[0].wish.topic {
            TopicRef::Name(name) => 2 * size_of::<usize>() + name.len(),
            TopicRef::Id(_) => 0,
        });
        let held_bytes = entries.capacity() * size_of::<Entry>() + name_bytes.sum::<usize>();
        Self {
            id: request.call,
            isolation: head.isolation_level,
            bytes_max,
            context,
            entries,
            bytes_min: bytes(head.min_bytes).min(bytes_max),
            until: request.now.plus(wait),
            to_come: asked,
            sound: asked,
            fresh: Vec::new(),
            readable: 0,
            is_urgent: false,
            is_watching: false,
            held_bytes,
        }
    }

    pub(super) fn answer(&mut self, index: u32, answer: Answer) {
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        if !matches!(entry.state, State::Asked) {
            return;
        }
        self.to_come -= 1;
        match answer {
            Answer::Read(Ok(answer)) => {
                self.readable += answer.bytes();
                self.is_urgent |= answer.diverging_epoch.is_some();
                self.held_bytes += heap_bytes(&answer);
                self.fresh.push(index);
                entry.state = State::Answered(answer);
            }
            other => {
                self.is_urgent = true;
                self.sound -= 1;
                entry.state = State::Failed(match other {
                    Answer::Read(Err(error_code)) => error_code,
                    other => mismatch(&other, "a read"),
                });
            }
        }
    }

    /// There is news of a watched partition: the question to ask again.
    pub(super) fn progress(&mut self, index: u32, catalog: &Catalog) -> Option<Asked> {
        let entry = self.entries.get_mut(index as usize)?;
        let State::Watched(answer) = &entry.state else { return None };
        self.readable -= answer.bytes();
        self.held_bytes -= heap_bytes(answer);
        match resolve(&entry.wish, catalog) {
            Ok(topic) => {
                entry.state = State::Asked;
                self.to_come += 1;
                let id = QuestionId { call: self.id, index };
                Some(question(id, topic, &entry.wish, self.isolation))
            }
            Err(error_code) => {
                entry.state = State::Failed(error_code);
                self.sound -= 1;
                self.is_urgent = true;
                None
            }
        }
    }

    /// What to do now. Kafka answers at once where nothing can be read at all, where there is
    /// enough, and where something has to be told.
    pub(super) fn next(&mut self, now: Now, catalog: &Catalog) -> Next {
        if self.to_come > 0 {
            return Next::Wait;
        }
        let is_enough = self.readable >= self.bytes_min || self.is_urgent || now >= self.until;
        if is_enough || self.sound == 0 {
            return Next::Reply;
        }
        let mut watched = Vec::with_capacity(self.fresh.len());
        for index in std::mem::take(&mut self.fresh) {
            let entry = &mut self.entries[index as usize];
            let Ok(topic) = resolve(&entry.wish, catalog) else { continue };
            entry.state = match std::mem::replace(&mut entry.state, State::Asked) {
                State::Answered(answer) => {
                    watched.push(Watched {
                        id: QuestionId { call: self.id, index },
                        topic: Arc::clone(&topic.name),
                        partition: entry.wish.partition,
                        end: match self.isolation {
                            IsolationLevel::READ_COMMITTED => answer.last_stable_offset,
                            _ => answer.high_watermark,
                        },
                        isolation: self.isolation,
                    });
                    State::Watched(answer)
                }
                state => state,
            };
        }
        if watched.is_empty() {
            return Next::Wait;
        }
        self.is_watching = true;
        Next::Watch(watched)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.held_bytes + self.fresh.capacity() * size_of::<u32>()
    }
}

/// What an answer holds besides itself; the names of files belong to their owner.
fn heap_bytes(answer: &ReadAnswer) -> usize {
    size_of_val(&*answer.pieces) + size_of_val(&*answer.aborted_transactions)
}
