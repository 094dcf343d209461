//! From the source's metadata to logs and mirrors: whose topics the folder holds, which partitions this
//! shard owns, when a mirror begins and when the topic has become another one.

use std::sync::Arc;
use std::time::Duration;

use wire::ids::{Offset, PartitionIndex};

use crate::catalog::Topic;
use crate::ids::{Now, PartitionKey, TopicPartition};
use crate::io::Io;
use crate::mirror::{Failure, Partition};
use crate::source::{SourceImage, SourceTopic};
use crate::store::identity::{SourceCluster, read_topic_id, write_topic_id};
use crate::store::{Checkpointed, Damage, DamageKind, Left, Log, Place, Recovery, folder_of};

use super::cell::Cell;
use super::mail::Letter;
use super::place::owner;
use super::{Shard, ShardOptions};

/// How soon a source is looked at again that could not be written down.
const SOURCE_AGAIN_AFTER: Duration = Duration::from_secs(10);

impl<I: Io> Shard<I> {
    /// Takes metadata again that could not be taken when it came.
    pub(super) fn image_again(&mut self, now: Now) {
        if let Some((_, image)) = self.upkeep.image_again.take_if(|(at, _)| *at <= now) {
            self.new_image(image);
        }
    }

    /// The metadata changed, and this shard follows it: the others are told, topics before mirrors.
    pub(super) fn new_image(&mut self, image: Arc<SourceImage>) {
        if !self.keep_source(&image) {
            let at = self.io.now().plus(SOURCE_AGAIN_AFTER);
            self.upkeep.image_again = Some((at, image));
            return;
        }
        self.upkeep.image_again = None;
        if self.image.brokers.is_empty() && image.topics.is_empty() {
            tracing::warn!(
                "the source has no topic that is to be mirrored: is the pattern of topics right, and may \
                 this node see them? topics that come later are taken"
            );
        }
        let topics: Vec<_> = changed(&self.image, &image)
            .filter(|topic| !topic.partitions.is_empty())
            .filter_map(|topic| self.grown(topic))
            .collect();
        for shard in 0..usize::from(self.options.shard_count) {
            if shard == usize::from(self.options.id.0) {
                continue;
            }
            let slot = &mut self.post.shards[shard];
            if !topics.is_empty() {
                slot.send(Letter::Topics(topics.clone()));
            }
            slot.send(Letter::Image(Arc::clone(&image)));
        }
        self.put_topics(topics);
        self.follow_image(image);
    }

    /// Writes down whose topics the folder holds, before the first of them has a log. Gives whether it is
    /// written.
    fn keep_source(&mut self, image: &SourceImage) -> bool {
        let (None, Some(cluster_id)) = (&self.options.source, &image.cluster_id) else {
            return true;
        };
        let data = Arc::clone(&self.options.data);
        let source = SourceCluster { cluster_id: Arc::clone(cluster_id) };
        match source.write(self.io.disk(), &data) {
            Ok(()) => {
                tracing::info!(
                    "{} mirrors cluster {cluster_id}, and no other from now on",
                    data.display()
                );
                self.options.source = Some(source);
                true
            }
            Err(damage) => {
                tracing::error!(
                    "nothing is mirrored yet, since it could not be written down that this folder \
                     mirrors cluster {cluster_id}: {damage}; it is tried again"
                );
                false
            }
        }
    }

    /// The topic for the catalog, where the source has one that is new here or has grown.
    fn grown(&self, theirs: &SourceTopic) -> Option<Arc<Topic>> {
        let count = theirs.partitions.len();
        let configs = match self.catalog.topic(&theirs.name) {
            // Another topic under the same name: ours stays as it is.
            Some(ours) if is_other(ours, theirs) => return None,
            Some(ours) if ours.partition_count() >= count && ours.id == theirs.id => return None,
            Some(ours) => ours.configs.clone(),
            None => Default::default(),
        };
        Some(Arc::new(Topic::new(Arc::clone(&theirs.name), theirs.id, count, configs)))
    }

    /// Takes topics into the catalog and makes the logs of those partitions that this shard owns.
    pub(super) fn put_topics(&mut self, topics: Vec<Arc<Topic>>) {
        for topic in topics {
            self.catalog.put(Arc::clone(&topic));
            for index in 0..topic.partition_count() {
                let partition = PartitionIndex(i32::try_from(index).unwrap_or(i32::MAX));
                let name = TopicPartition { topic: Arc::clone(&topic.name), partition };
                if owner(&name, self.options.shard_count) != self.options.id {
                    continue;
                }
                match self.keys.get(&name) {
                    Some(&key) => {
                        let cell = &mut self.cells[key.0 as usize];
                        let was_unknown = cell.topic.id.is_zero();
                        cell.topic = Arc::clone(&topic);
                        if was_unknown && let Err(damage) = self.keep_topic_id(key) {
                            self.damaged(key, &damage);
                        }
                    }
                    None if self.left_out.contains_key(&name) => {}
                    None => {
                        if let Err(damage) = self.create_log(&name, &topic) {
                            self.leave_out(&name, (Checkpointed::default(), true), &damage);
                        }
                    }
                }
            }
        }
    }

    pub(super) fn create_log(
        &mut self,
        name: &TopicPartition,
        topic: &Arc<Topic>,
    ) -> Result<(), Damage> {
        let wall_ms = self.io.wall_clock_ms();
        let ShardOptions { data, log_config: config, .. } = &self.options;
        let place = Place { data, partition: name, config };
        let log = Log::create(self.io.disk(), place, topic.id, Offset(0), wall_ms)?;
        self.add(name, topic, log, true);
        Ok(())
    }

    /// Opens a log that lies in the data folder, and reads again what is in doubt.
    pub(super) fn open_log(
        &mut self,
        name: &TopicPartition,
        checkpointed: Checkpointed,
        left: Left,
    ) -> Result<PartitionKey, Damage> {
        let topic = self.catalog.topic(&name.topic).map(Arc::clone);
        let topic = topic.expect("the catalog holds the topics of the data folder");
        let has_topic_id = self.check_topic_id(name, &topic)?;
        let wall_ms = self.io.wall_clock_ms();
        let ShardOptions { data, log_config: config, .. } = &self.options;
        let place = Place { data, partition: name, config };
        let (log, recovery) = Log::open(self.io.disk(), place, checkpointed, left, wall_ms)?;
        self.tell_recovery(name, &recovery, log.log_end());
        // One that was never filled has nothing to lose: the source may begin anywhere.
        let is_new = checkpointed == Checkpointed::default() && log.log_end() == Offset(0);
        let key = self.add(name, &topic, log, is_new);
        if left != Left::Clean
            && !has_topic_id
            && let Err(damage) = self.keep_topic_id(key)
        {
            self.damaged(key, &damage);
        }
        Ok(key)
    }

    /// Counts what was read again, and says what was cut.
    pub(super) fn tell_recovery(&self, name: &TopicPartition, recovery: &Recovery, end: Offset) {
        self.metrics.recovered_bytes.add(recovery.bytes_scanned);
        if let Some(cut) = &recovery.cut {
            self.metrics.cut_bytes.add(cut.bytes);
            tracing::warn!(
                "partition {name}: {} bytes cut from {} at {}: {}; the log goes on at offset {end}",
                cut.bytes,
                cut.file.display(),
                cut.position,
                cut.why,
            );
        }
    }

    /// Whether a folder is of the topic that the catalog has under its name: one that was copied here is
    /// another topic's log. Gives whether the folder has an id.
    fn check_topic_id(&mut self, name: &TopicPartition, topic: &Topic) -> Result<bool, Damage> {
        let folder = folder_of(&self.options.data, name);
        let Some(id) = read_topic_id(self.io.disk(), &folder)? else { return Ok(false) };
        if id == topic.id || id.is_zero() || topic.id.is_zero() {
            return Ok(true);
        }
        let wrong =
            format!("it is of topic id {id}, other partitions of {} of {}", topic.name, topic.id);
        let remedy = "move away the folders of the topic that is not meant";
        Err(Damage { kind: DamageKind::Corrupt, file: folder, position: None, wrong, remedy })
    }

    /// Writes the topic's id down where a crash while the log was made has left it out: without it
    /// a topic that was created again would be taken for ours.
    pub(super) fn keep_topic_id(&mut self, key: PartitionKey) -> Result<(), Damage> {
        let cell = &self.cells[key.0 as usize];
        let (id, folder) = (cell.topic.id, Arc::clone(cell.log.folder()));
        if !id.is_zero() && read_topic_id(self.io.disk(), &folder)?.is_none() {
            write_topic_id(self.io.disk(), &folder, id)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        name: &TopicPartition,
        topic: &Arc<Topic>,
        log: Log,
        is_new: bool,
    ) -> PartitionKey {
        let key = PartitionKey(u32::try_from(self.cells.len()).expect("fewer than 2^32"));
        if let Some(epoch) = log.last_epoch() {
            topic.raise_leader_epoch(name.partition, epoch);
        }
        self.cells.push(Cell::new(name.clone(), Arc::clone(topic), log, is_new));
        self.keys.insert(name.clone(), key);
        self.upkeep.touched(key);
        self.metrics.partitions.set(self.cells.len() as u64);
        key
    }

    /// Begins the mirrors of topics that the source has, and ends those of topics that it no longer
    /// has or that have become others.
    pub(super) fn follow_image(&mut self, image: Arc<SourceImage>) {
        let before = std::mem::replace(&mut self.image, Arc::clone(&image));
        let now = self.io.now();
        if !self.options.link.as_ref().is_some_and(|link| link.follows_metadata) {
            let mut effects = Vec::new();
            if let Some(link) = &mut self.link {
                link.image(Arc::clone(&image), now, &mut effects);
            }
            self.run_link(effects);
        }
        let topics: Vec<_> = changed(&before, &image).map(Arc::clone).collect();
        for topic in topics {
            self.follow_topic(&topic);
        }
        let mut gone: Vec<_> = before.topics.keys().cloned().collect();
        if before.brokers.is_empty() {
            // The first listing: what was mirrored before this process began may be gone meanwhile.
            gone.extend(self.mirrored_before());
        }
        gone.retain(|name| !image.topics.contains_key(name) && !image.excluded.contains_key(name));
        for name in gone {
            self.each_partition(&name, |shard, key| {
                shard.source_changed(key, Failure::SourceDeleted);
            });
        }
    }

    /// Topics that are here, and that the operator wants mirrored.
    fn mirrored_before(&self) -> Vec<Arc<str>> {
        let Some(link) = &self.options.link else { return Vec::new() };
        let names = self.catalog.topics().map(|topic| &topic.name);
        names.filter(|name| link.topics.check(name, false).is_ok()).cloned().collect()
    }

    pub(super) fn follow_topic(&mut self, theirs: &Arc<SourceTopic>) {
        let name = Arc::clone(&theirs.name);
        let theirs = Arc::clone(theirs);
        // A crash while a topic's logs were made leaves some of them out.
        if let Some(ours) = self.catalog.topic(&name).map(Arc::clone)
            && !is_other(&ours, &theirs)
        {
            self.put_topics(vec![ours]);
        }
        self.each_partition(&name, move |shard, key| {
            let cell = &mut shard.cells[key.0 as usize];
            let leadership = usize::try_from(cell.name.partition.0)
                .ok()
                .and_then(|index| theirs.partitions.get(index));
            if cell.is_other(theirs.id) {
                let failure = Failure::Recreated { ours: cell.topic.id, theirs: theirs.id };
                return shard.source_changed(key, failure);
            }
            let Some(leadership) = leadership else { return };
            cell.topic.raise_leader_epoch(cell.name.partition, leadership.epoch);
            if let Some(mirror) = &mut cell.mirror
                && !mirror.source_is_gone()
            {
                mirror.leader(leadership.epoch);
                return;
            }
            let mut mirror = Partition::new(cell.position());
            mirror.leader(leadership.epoch);
            let mut effects = Vec::new();
            mirror.begin(&mut effects);
            cell.mirror = Some(mirror);
            shard.run_mirror(key, effects);
        });
    }

    /// The topic at the source is gone or another one: what is here stays, and takes no more.
    fn source_changed(&mut self, key: PartitionKey, failure: Failure) {
        let cell = &mut self.cells[key.0 as usize];
        let position = cell.position();
        let mirror = cell.mirror.get_or_insert_with(|| Partition::new(position));
        let mut effects = Vec::new();
        mirror.source_changed(failure, &mut effects);
        self.run_mirror(key, effects);
    }

    /// Calls `act` with each partition of a topic that this shard owns.
    fn each_partition(&mut self, topic: &Arc<str>, act: impl Fn(&mut Self, PartitionKey)) {
        let count = self.catalog.topic(topic).map_or(0, |topic| topic.partition_count());
        for index in 0..count {
            let partition = PartitionIndex(i32::try_from(index).unwrap_or(i32::MAX));
            if let Some(key) = self.key(topic, partition) {
                act(self, key);
            }
        }
    }
}

/// The topics that are not the same as before.
fn changed<'a>(
    before: &'a SourceImage,
    after: &'a SourceImage,
) -> impl Iterator<Item = &'a Arc<SourceTopic>> {
    after.topics.values().filter(|topic| {
        before.topics.get(&topic.name).is_none_or(|known| !Arc::ptr_eq(known, topic))
    })
}

fn is_other(ours: &Topic, theirs: &SourceTopic) -> bool {
    !ours.id.is_zero() && !theirs.id.is_zero() && ours.id != theirs.id
}
