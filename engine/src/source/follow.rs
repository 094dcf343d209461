//! The partitions that are fetched: where each is, and what becomes of those in trouble.
//!
//! ```text
//!            no leader known                 records, an error or a divergence
//!  homeless <----------------> in a fetcher, Fetch ------------------> in a fetcher, Answered
//!     ^        leader known        | trouble   ^                           |
//!     |                            v           +------- Link::fetch -------+
//!     +------ time, news ------- Rest
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::fetch::TopicKey;
use wire::ids::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};

use super::backoff::{delay, mix};
use super::fetcher::{Fetcher, Trouble};
use super::image::SourceImage;
use super::link::{Link, Timer};
use super::{Effect, PartitionAt, SourcePartition};
use crate::ids::{Now, PartitionKey};

/// How often in a row a partition follows what brokers say of its leader before it waits as well:
/// two brokers may name each other.
const MOVES_IN_A_ROW_MAX: u8 = 3;

/// One of the fetching connections to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FetcherKey {
    pub(super) broker: BrokerId,
    pub(super) index: u32,
}

/// What is wanted for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Fetch,
    /// It brought something; the mirror will say how to go on.
    Answered,
    /// It is in trouble and waits, in no fetcher.
    Rest,
}

/// A partition that is fetched. There may be a hundred thousand.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) at: PartitionAt,
    pub(super) leader: BrokerId,
    /// None while it rests or has no leader.
    pub(super) fetcher: Option<FetcherKey>,
    pub(super) wish: Wish,
    /// The broker has it in its session.
    pub(super) in_session: bool,
    /// The next request will say something new about it.
    pub(super) changed: bool,
    /// Troubles since it was last answered without one.
    pub(super) failures: u8,
    /// What its name stood for was in doubt at this moment, last.
    pub(super) doubt: u64,
}

const _: () = assert!(size_of::<Followed>() <= 96);

impl Followed {
    /// Whether an answer can be about what is wanted now.
    pub(super) fn is_asked_for(&self) -> bool {
        self.wish == Wish::Fetch && self.in_session && !self.changed
    }
}

/// The partitions of a topic.
type Partitions = BTreeMap<PartitionIndex, PartitionKey>;

/// All partitions that are fetched, by key and by what the source calls them.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By key, which is dense.
    slots: Vec<Option<Box<Followed>>>,
    by_id: BTreeMap<TopicId, Partitions>,
    by_name: BTreeMap<Arc<str>, Partitions>,
}

impl Table {
    pub(super) fn get(&self, key: PartitionKey) -> Option<&Followed> {
        self.slots.get(key.0 as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, key: PartitionKey) -> Option<&mut Followed> {
        self.slots.get_mut(key.0 as usize)?.as_deref_mut()
    }

    pub(super) fn topic(&self, topic: TopicKey<'_>, by_id: bool) -> Option<&Partitions> {
        if by_id { self.by_id.get(&topic.id) } else { self.by_name.get(topic.name) }
    }

    pub(super) fn find(
        &self,
        topic: TopicKey<'_>,
        by_id: bool,
        partition: PartitionIndex,
    ) -> Option<PartitionKey> {
        self.topic(topic, by_id)?.get(&partition).copied()
    }

    fn insert(&mut self, key: PartitionKey, followed: Followed) {
        let SourcePartition { topic, topic_id, partition } = followed.at.source.clone();
        if !topic_id.is_zero() {
            self.by_id.entry(topic_id).or_default().insert(partition, key);
        }
        self.by_name.entry(topic).or_default().insert(partition, key);
        let slot = key.0 as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(Box::new(followed));
    }

    fn remove(&mut self, key: PartitionKey) {
        let Some(followed) = self.slots.get_mut(key.0 as usize).and_then(Option::take) else {
            return;
        };
        let SourcePartition { topic, topic_id, partition } = followed.at.source;
        drop_from(&mut self.by_id, &topic_id, partition, key);
        drop_from(&mut self.by_name, &topic, partition, key);
    }

    fn keys_of(&self, topic: &str) -> Vec<PartitionKey> {
        // Found by name: all of that name, whatever their ids, but only the newest of each index. An
        // older one belongs to a topic that is gone.
        self.by_name.get(topic).map_or_else(Vec::new, |keys| keys.values().copied().collect())
    }
}

fn drop_from<K: Ord>(
    index: &mut BTreeMap<K, Partitions>,
    topic: &K,
    partition: PartitionIndex,
    key: PartitionKey,
) {
    let Some(partitions) = index.get_mut(topic) else { return };
    if partitions.get(&partition) == Some(&key) {
        partitions.remove(&partition);
    }
    if partitions.is_empty() {
        index.remove(topic);
    }
}

impl Link {
    /// Fetches a partition from this place on, until it brings something; then waits to be called
    /// again. Takes effect with the next call that has effects; [`Link::deadline`] says at once.
    pub fn fetch(&mut self, key: PartitionKey, at: &PartitionAt) {
        self.touched = true;
        if self.table.get(key).is_some_and(|followed| followed.at.source != at.source) {
            self.unfetch(key);
        }
        let Some(followed) = self.table.get_mut(key) else {
            let followed = Followed {
                at: at.clone(),
                leader: BrokerId::NONE,
                fetcher: None,
                wish: Wish::Fetch,
                in_session: false,
                changed: false,
                failures: 0,
                doubt: 0,
            };
            self.table.insert(key, followed);
            self.look_for_leader(key);
            self.place(key);
            return;
        };
        let same = (followed.at.offset, followed.at.last_fetched_epoch)
            == (at.offset, at.last_fetched_epoch)
            && at.leader_epoch <= followed.at.leader_epoch;
        if same && followed.wish != Wish::Answered {
            return;
        }
        followed.at.offset = at.offset;
        followed.at.last_fetched_epoch = at.last_fetched_epoch;
        followed.at.leader_epoch = followed.at.leader_epoch.max(at.leader_epoch);
        match followed.fetcher {
            Some(fetcher) => {
                let session = self.fetchers.get_mut(&fetcher).expect("its fetcher exists");
                session.renew(key, followed);
                self.awake.insert(fetcher);
            }
            None if followed.wish == Wish::Answered => followed.wish = Wish::Fetch,
            None => {}
        }
    }

    /// Stops fetching a partition. Records of it that are on their way are not handed on.
    pub fn unfetch(&mut self, key: PartitionKey) {
        self.leave_fetcher(key);
        self.timers.clear(Timer::Partition(key));
        self.homeless.remove(&key);
        self.doubts.forget(key);
        self.table.remove(key);
    }

    /// Takes over what the image says of a partition's leader where it is news. Says whether it was.
    fn look_for_leader(&mut self, key: PartitionKey) -> bool {
        let image = &self.survey.image;
        let Some(followed) = self.table.get_mut(key) else { return false };
        let SourcePartition { topic, topic_id, partition } = &followed.at.source;
        let (leader, epoch) = match image.leadership(topic, *topic_id, *partition) {
            Some(told) => (told.leader, told.epoch),
            None => (BrokerId::NONE, followed.at.leader_epoch),
        };
        if epoch < followed.at.leader_epoch
            && (followed.leader != BrokerId::NONE || leader == BrokerId::NONE)
        {
            return false;
        }
        let epoch = epoch.max(followed.at.leader_epoch);
        let news = (leader, epoch) != (followed.leader, followed.at.leader_epoch);
        (followed.leader, followed.at.leader_epoch) = (leader, epoch);
        news
    }

    /// Puts a partition into the fetcher of its leader.
    pub(super) fn place(&mut self, key: PartitionKey) {
        let Some(followed) = self.table.get(key) else { return };
        if followed.wish == Wish::Rest {
            return;
        }
        let known = self.brokers.contains_key(&followed.leader);
        let target = known.then(|| fetcher_of(followed, self.options.fetchers_per_broker));
        if target.is_some() && followed.fetcher == target {
            let fetcher = followed.fetcher.and_then(|fetcher| self.fetchers.get_mut(&fetcher));
            let followed = self.table.get_mut(key).expect("it is followed");
            if let (Some(fetcher), Wish::Fetch) = (fetcher, followed.wish) {
                fetcher.renew(key, followed);
            }
        } else {
            self.leave_fetcher(key);
            let Some(target) = target else {
                let topic = self.table.get(key).map(|followed| &followed.at.source.topic);
                self.survey.want(topic.into_iter().cloned());
                self.homeless.insert(key);
                return;
            };
            let followed = self.table.get_mut(key).expect("it is followed");
            self.fetchers.entry(target).or_insert_with(|| Fetcher::new(target)).add(key, followed);
        }
        self.homeless.remove(&key);
        self.awake.extend(target);
    }

    pub(super) fn leave_fetcher(&mut self, key: PartitionKey) {
        let Some(followed) = self.table.get_mut(key) else { return };
        let Some(fetcher) = followed.fetcher.and_then(|key| self.fetchers.get_mut(&key)) else {
            return;
        };
        fetcher.remove(key, followed);
    }

    /// A broker could not serve a partition: it is fetched from the leader that the broker names, or
    /// waits for better knowledge. No other partition notices.
    pub(super) fn in_trouble(
        &mut self,
        trouble: &Trouble,
        from: BrokerId,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let key = trouble.key;
        if self.table.get(key).is_none_or(|followed| followed.wish != Wish::Fetch) {
            return;
        }
        self.leave_fetcher(key);
        let followed = self.table.get_mut(key).expect("it is followed");
        followed.failures = followed.failures.saturating_add(1);
        followed.doubt = self.doubts.doubt();
        self.survey.want([Arc::clone(&followed.at.source.topic)]);
        let known = (followed.leader, followed.at.leader_epoch);
        let told = trouble.leader.filter(|told| {
            let newer = told.leader_epoch > known.1;
            let elsewhere = told.leader_epoch == known.1 && told.leader_id != from;
            (newer || elsewhere) && self.brokers.contains_key(&told.leader_id)
        });
        match told {
            Some(told) if followed.failures <= MOVES_IN_A_ROW_MAX => {
                followed.leader = told.leader_id;
                followed.at.leader_epoch = told.leader_epoch;
                let (leader, epoch) = (told.leader_id, told.leader_epoch);
                out.push(Effect::LeaderMoved { key, leader, epoch });
                self.place(key);
            }
            _ => {
                followed.wish = Wish::Rest;
                let (least, most) =
                    (self.options.retry_backoff_least, self.options.retry_backoff_most);
                let failures = u32::from(followed.failures);
                let wait = delay(least, most, failures, &mut self.random);
                self.timers.set(Timer::Partition(key), now.plus(wait));
            }
        }
    }

    /// A partition has rested long enough.
    pub(super) fn rested(&mut self, key: PartitionKey, out: &mut Vec<Effect>) {
        self.doubts.forget(key);
        let Some(followed) = self.table.get_mut(key) else { return };
        if followed.wish == Wish::Rest {
            followed.wish = Wish::Fetch;
        }
        self.follow_leader(key, out);
        self.place(key);
    }

    /// The metadata changed: partitions go to their new leaders, also those that rest.
    pub(super) fn follow_leaders(&mut self, before: &SourceImage, out: &mut Vec<Effect>) {
        let image = Arc::clone(&self.survey.image);
        let unchanged = |name: &Arc<str>| {
            matches!(
                (before.topics.get(name), image.topics.get(name)),
                (Some(before), Some(after)) if Arc::ptr_eq(before, after)
            )
        };
        let topics = before
            .topics
            .keys()
            .chain(image.topics.keys().filter(|name| !before.topics.contains_key(*name)));
        for name in topics.filter(|name| !unchanged(name)) {
            for key in self.table.keys_of(name) {
                if self.follow_leader(key, out) {
                    let followed = self.table.get_mut(key).expect("it is followed");
                    if followed.wish == Wish::Rest {
                        followed.wish = Wish::Fetch;
                        self.timers.clear(Timer::Partition(key));
                    }
                    self.place(key);
                }
            }
        }
        self.house_the_homeless();
    }

    /// Tries again for partitions whose leader was not known, or not where it listens.
    pub(super) fn house_the_homeless(&mut self) {
        for key in std::mem::take(&mut self.homeless) {
            let leader = self.table.get(key).map(|followed| followed.leader);
            if leader.is_some_and(|leader| self.brokers.contains_key(&leader)) {
                self.place(key);
            } else {
                self.homeless.insert(key);
            }
        }
    }

    fn follow_leader(&mut self, key: PartitionKey, out: &mut Vec<Effect>) -> bool {
        let news = self.look_for_leader(key);
        if let (true, Some(followed)) = (news, self.table.get(key)) {
            let (leader, epoch) = (followed.leader, followed.at.leader_epoch);
            out.push(Effect::LeaderMoved { key, leader, epoch });
        }
        news
    }

    /// The leader epoch that a partition is fetched with, as far as it is known.
    #[must_use]
    pub fn leader_epoch(&self, key: PartitionKey) -> Option<LeaderEpoch> {
        Some(self.table.get(key)?.at.leader_epoch)
    }
}

/// The fetcher of a partition at its leader: always the same, spread whatever the order of brokers.
fn fetcher_of(followed: &Followed, fetchers_per_broker: u32) -> FetcherKey {
    let source = &followed.at.source;
    let topic = source.topic.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let spread = mix(topic ^ u64::from(source.partition.0.cast_unsigned()).rotate_left(32));
    let index = spread % u64::from(fetchers_per_broker.max(1));
    FetcherKey { broker: followed.leader, index: index as u32 }
}
