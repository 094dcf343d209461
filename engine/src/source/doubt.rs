//! What a name stands for: a partition is fetched by name only when the source was asked, after the
//! last moment at which the name may have come to stand for another topic, and told its id.
//!
//! Such moments are each new connection, since the topic may have been deleted and created again while
//! there was none, and each trouble that a broker has with the partition. They are kept as the number
//! of the first request for metadata that is to come. A shard that does not follow the metadata counts
//! the refreshes that it asks for, and learns from the image which request followed which of them.
//!
//! What is left: a topic that is created again between an answer with metadata and an answer to a fetch
//! on a connection that lives. The leader of the old one answers from its deletion on with errors
//! (`UNKNOWN_TOPIC_OR_PARTITION`, `NOT_LEADER_OR_FOLLOWER`), and fetches are out all the time: the
//! first such answer is a moment of doubt. A broker that tells old metadata is not seen through either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::api::metadata::MetadataResponse;
use wire::fetch::NAMES_MOST;

use super::backoff::delay;
use super::follow::{FetcherKey, Wish};
use super::image::{Atlas, SourceImage};
use super::link::{Link, Timer};
use crate::ids::{Now, PartitionKey, ShardId};

/// How many of its refreshes a shard remembers. An older doubt waits for what a later one brought.
const TICKETS_MAX: usize = 64;

/// A refresh that a shard asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub from: ShardId,
    pub number: u64,
}

/// Which request for metadata, by its number, told a topic last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// The last listing of all topics.
    listed: u64,
    /// Topics that it did not tell, or whose identity it left open.
    missed: BTreeSet<Arc<str>>,
    /// Told by name since.
    named: BTreeMap<Arc<str>, u64>,
    /// The last ticket of each shard, and the first request after it.
    tickets: BTreeMap<ShardId, (u64, u64)>,
}

impl Told {
    fn last(&self, topic: &str) -> u64 {
        let listed = if self.missed.contains(topic) { 0 } else { self.listed };
        self.named.get(topic).map_or(listed, |&named| named.max(listed))
    }
}

/// What is doubted, and what was asked and told since.
#[derive(Debug)]
pub(super) struct Doubts {
    shard: ShardId,
    follows: bool,
    /// Requests for metadata, or for a refresh where another shard follows it.
    asked: u64,
    told: Told,
    /// Tickets that came after the last request went.
    waiting: BTreeMap<ShardId, u64>,
    /// Another shard waits for an image, even for an unchanged one.
    echo: bool,
    /// The first request after each of our tickets.
    requests: BTreeMap<u64, u64>,
    /// Partitions that rest because of a doubt.
    resting: BTreeSet<PartitionKey>,
}

impl Doubts {
    pub(super) fn new(shard: ShardId, follows: bool) -> Self {
        Self {
            shard,
            follows,
            asked: 0,
            told: Told::default(),
            waiting: BTreeMap::new(),
            echo: false,
            requests: BTreeMap::new(),
            resting: BTreeSet::new(),
        }
    }

    /// A doubt of this moment: only what is asked from now on can settle it.
    pub(super) const fn doubt(&self) -> u64 {
        self.asked + 1
    }

    fn is_settled(&self, topic: &str, doubt: u64) -> bool {
        let request = match self.follows {
            true => Some(doubt),
            false => self.requests.range(doubt..).next().map(|(_, &request)| request),
        };
        request.is_some_and(|request| self.told.last(topic) >= request)
    }

    /// A request for metadata goes.
    pub(super) fn asks(&mut self) {
        self.asked += 1;
        for (shard, number) in std::mem::take(&mut self.waiting) {
            self.told.tickets.insert(shard, (number, self.asked));
            self.echo = true;
        }
    }

    /// A refresh by another shard is asked for.
    pub(super) const fn draw_ticket(&mut self) -> Ticket {
        self.asked += 1;
        Ticket { from: self.shard, number: self.asked }
    }

    /// The last request was answered by the same listing as the one before.
    pub(super) fn told_again(&mut self) {
        self.told.listed = self.asked;
        self.told.named.clear();
    }

    /// The last request was answered, which made this image.
    pub(super) fn told(
        &mut self,
        full: bool,
        answer: &MetadataResponse,
        image: &SourceImage,
        atlas: &Atlas,
    ) {
        if full {
            self.told_again();
            self.told.missed = image.topics.keys().cloned().collect();
        }
        for topic in &answer.topics {
            let Some(name) = topic.name.as_deref().filter(|_| topic.error_code.is_none()) else {
                continue;
            };
            // An answer that was not believed says nothing of what is there now.
            let Some((name, known)) = image.topics.get_key_value(name) else { continue };
            if known.id != topic.topic_id || atlas.is_in_dispute(name) {
                continue;
            }
            if full {
                self.told.missed.remove(name);
            } else {
                self.told.named.insert(Arc::clone(name), self.asked);
            }
        }
    }

    /// What the other shards are to be told with a new image, or with the known one where one of them
    /// waits for an answer.
    pub(super) fn stamp(&mut self, image: &mut SourceImage) {
        self.echo = false;
        image.told = self.told.clone();
    }

    pub(super) const fn wants_echo(&self) -> bool {
        self.echo
    }

    /// The image of another shard has come.
    pub(super) fn take(&mut self, image: &SourceImage) {
        self.told = image.told.clone();
        if let Some(&(ticket, request)) = self.told.tickets.get(&self.shard) {
            self.requests.insert(ticket, request);
            if self.requests.len() > TICKETS_MAX {
                self.requests.pop_first();
            }
        }
    }

    pub(super) fn forget(&mut self, key: PartitionKey) {
        self.resting.remove(&key);
    }
}

impl Link {
    /// A shard that does not follow the metadata asks for newer: it is told the image again even
    /// where it does not change, as that is the answer to its doubts.
    pub fn refresh_for(&mut self, ticket: Ticket, topics: &[Arc<str>]) {
        self.doubts.waiting.insert(ticket.from, ticket.number);
        self.refresh(topics);
    }

    /// Takes partitions whose name is in doubt out of a fetcher whose next request would name them.
    /// Those that are in the broker's session were named when there was no doubt.
    pub(super) fn rest_the_doubtful(&mut self, key: FetcherKey, spoken: i16, now: Now) {
        let Some(fetcher) = self.fetchers.get(&key) else { return };
        let version = fetcher.version(spoken);
        if version > NAMES_MOST {
            return;
        }
        let since_connected = fetcher.doubt;
        for key in fetcher.next_named(version) {
            let Some(followed) = self.table.get_mut(key) else { continue };
            let doubt = followed.doubt.max(since_connected);
            let topic = &followed.at.source.topic;
            let in_fetcher = followed.fetcher == Some(fetcher.key());
            if !in_fetcher || followed.wish != Wish::Fetch || self.doubts.is_settled(topic, doubt) {
                continue;
            }
            followed.doubt = doubt;
            self.doubtful.push(key);
        }
        for key in std::mem::take(&mut self.doubtful) {
            self.rest_in_doubt(key, now);
        }
    }

    fn rest_in_doubt(&mut self, key: PartitionKey, now: Now) {
        self.leave_fetcher(key);
        let followed = self.table.get_mut(key).expect("it is followed");
        followed.wish = Wish::Rest;
        self.survey.want([Arc::clone(&followed.at.source.topic)]);
        self.doubts.resting.insert(key);
        // An answer may be lost, or leave the topic out: then it is asked for again.
        let (least, most) = (self.options.retry_backoff_least, self.options.retry_backoff_most);
        let failures = u32::from(followed.failures).max(1);
        let wait = delay(least, most, failures, &mut self.random);
        self.timers.set(Timer::Partition(key), now.plus(wait));
    }

    /// Metadata has come: partitions that waited for it are fetched.
    pub(super) fn settle_doubts(&mut self) {
        for key in std::mem::take(&mut self.doubts.resting) {
            let Some(followed) = self.table.get_mut(key).filter(|it| it.wish == Wish::Rest) else {
                continue;
            };
            if self.doubts.is_settled(&followed.at.source.topic, followed.doubt) {
                followed.wish = Wish::Fetch;
                self.timers.clear(Timer::Partition(key));
                self.place(key);
            } else {
                self.doubts.resting.insert(key);
            }
        }
    }
}
