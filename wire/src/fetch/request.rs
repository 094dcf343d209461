//! Fetch requests: read whole on the serving side, written piece by piece on the fetching side.

use alloc::string::String;
use alloc::vec::Vec;

use super::{
    CURRENT_LEADER_EPOCH, DIRECTORY_ID, FLEXIBLE, HIGH_WATERMARK, IsolationLevel, LOG_START_OFFSET,
    RACK, REPLICA_STATE, SESSIONS, TopicKey, VERSIONS, check_version, no_tagged_fields,
    skip_tagged_fields,
};
use crate::codec::{Reader, Writer};
use crate::error::WireError;
use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};

/// Everything that a request says besides its topics. Fields that a version does not have are not
/// written, and stand at their default when read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequestHead {
    /// The cluster that the fetcher takes the broker to be in (12 and later).
    pub cluster_id: Option<String>,
    /// -1 for a consumer.
    pub replica_id: BrokerId,
    /// The broker epoch of a replica; -1 where it is unknown (15 and later).
    pub replica_epoch: i64,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation_level: IsolationLevel,
    /// 0 asks for a new session (7 and later).
    pub session_id: i32,
    /// 0 begins a session, -1 wants none, others count its requests (7 and later).
    pub session_epoch: i32,
    /// Where the consumer is, to be sent to a replica near it (11 and later).
    pub rack_id: String,
}

/// One partition to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    pub partition: PartitionIndex,
    /// The leader epoch that the fetcher knows (9 and later).
    pub current_leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    /// The epoch of the fetcher's last batch: asks to be told where the logs part (12 and later).
    pub last_fetched_epoch: LeaderEpoch,
    /// A replica's log start; -1 for a consumer (5 and later).
    pub log_start_offset: Offset,
    pub partition_max_bytes: i32,
    /// A KRaft voter's directory (17 and later).
    pub replica_directory_id: TopicId,
    /// What a replica knows as high watermark; `i64::MAX` where it does not take part (18 and later).
    pub high_watermark: Offset,
}

/// A topic to fetch from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTopic {
    pub name: String,
    pub id: TopicId,
    pub partitions: Vec<FetchPartition>,
}

/// Partitions to drop from a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenTopic {
    pub name: String,
    pub id: TopicId,
    pub partitions: Vec<PartitionIndex>,
}

/// A whole request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchRequest {
    pub head: FetchRequestHead,
    pub topics: Vec<FetchTopic>,
    pub forgotten_topics: Vec<ForgottenTopic>,
}

impl Default for FetchRequestHead {
    fn default() -> Self {
        Self {
            cluster_id: None,
            replica_id: BrokerId::NONE,
            replica_epoch: -1,
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: i32::MAX,
            isolation_level: IsolationLevel::READ_UNCOMMITTED,
            session_id: 0,
            session_epoch: -1,
            rack_id: String::new(),
        }
    }
}

impl FetchPartition {
    /// A consumer's wish for `partition` from `fetch_offset` on, with nothing said about epochs.
    #[must_use]
    pub const fn new(partition: PartitionIndex, fetch_offset: Offset, max_bytes: i32) -> Self {
        Self {
            partition,
            current_leader_epoch: LeaderEpoch::UNKNOWN,
            fetch_offset,
            last_fetched_epoch: LeaderEpoch::UNKNOWN,
            log_start_offset: Offset(-1),
            partition_max_bytes: max_bytes,
            replica_directory_id: TopicId::ZERO,
            high_watermark: Offset(i64::MAX),
        }
    }

    fn read(reader: &mut Reader<'_>, version: i16) -> Result<Self, WireError> {
        let mut read = Self::new(PartitionIndex(reader.i32()?), Offset(0), 0);
        if version >= CURRENT_LEADER_EPOCH {
            read.current_leader_epoch = LeaderEpoch(reader.i32()?);
        }
        read.fetch_offset = Offset(reader.i64()?);
        if version >= FLEXIBLE {
            read.last_fetched_epoch = LeaderEpoch(reader.i32()?);
        }
        if version >= LOG_START_OFFSET {
            read.log_start_offset = Offset(reader.i64()?);
        }
        read.partition_max_bytes = reader.i32()?;
        if version >= FLEXIBLE {
            reader.tagged_fields(|tag, field| {
                match tag {
                    0 if version >= DIRECTORY_ID => read.replica_directory_id = field.topic_id()?,
                    1 if version >= HIGH_WATERMARK => read.high_watermark = Offset(field.i64()?),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(read)
    }

    fn write(&self, writer: &mut Writer, version: i16) {
        writer.i32(self.partition.0);
        if version >= CURRENT_LEADER_EPOCH {
            writer.i32(self.current_leader_epoch.0);
        }
        writer.i64(self.fetch_offset.0);
        if version >= FLEXIBLE {
            writer.i32(self.last_fetched_epoch.0);
        }
        if version >= LOG_START_OFFSET {
            writer.i64(self.log_start_offset.0);
        }
        writer.i32(self.partition_max_bytes);
        if version < FLEXIBLE {
            return;
        }
        let directory = version >= DIRECTORY_ID && !self.replica_directory_id.is_zero();
        let watermark = version >= HIGH_WATERMARK && self.high_watermark != Offset(i64::MAX);
        writer.unsigned_varint(u32::from(directory) + u32::from(watermark));
        if directory {
            writer.raw(&[0, 16]);
            writer.topic_id(self.replica_directory_id);
        }
        if watermark {
            writer.raw(&[1, 8]);
            writer.i64(self.high_watermark.0);
        }
    }
}

impl FetchTopic {
    /// How requests name it.
    #[must_use]
    pub fn key(&self) -> TopicKey<'_> {
        TopicKey { name: &self.name, id: self.id }
    }
}

impl ForgottenTopic {
    /// How requests name it.
    #[must_use]
    pub fn key(&self) -> TopicKey<'_> {
        TopicKey { name: &self.name, id: self.id }
    }
}

impl FetchRequest {
    /// Reads the body of a request: the bytes after its header, to the end.
    pub fn read(bytes: &[u8], version: i16) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        check_version(&reader, version)?;
        let mut head = FetchRequestHead::default();
        if version < REPLICA_STATE {
            head.replica_id = BrokerId(reader.i32()?);
        }
        head.max_wait_ms = reader.i32()?;
        head.min_bytes = reader.i32()?;
        head.max_bytes = reader.i32()?;
        head.isolation_level = IsolationLevel(reader.i8()?);
        if version >= SESSIONS {
            head.session_id = reader.i32()?;
            head.session_epoch = reader.i32()?;
        }
        let topics = read_topics(&mut reader, version, FetchPartition::read, |key, partitions| {
            FetchTopic { name: key.name.into(), id: key.id, partitions }
        })?;
        let mut forgotten_topics = Vec::new();
        if version >= SESSIONS {
            let index = |reader: &mut Reader<'_>, _| reader.i32().map(PartitionIndex);
            forgotten_topics = read_topics(&mut reader, version, index, |key, partitions| {
                ForgottenTopic { name: key.name.into(), id: key.id, partitions }
            })?;
        }
        if version >= RACK {
            head.rack_id = reader.str(version >= FLEXIBLE)?.into();
        }
        if version >= FLEXIBLE {
            reader.tagged_fields(|tag, field| read_tagged(&mut head, tag, field, version))?;
        }
        reader.finish()?;
        Ok(Self { head, topics, forgotten_topics })
    }

    /// Writes the body of a request.
    ///
    /// # Panics
    /// On an unknown version, and when a version without sessions should forget topics.
    pub fn write(&self, writer: &mut Writer, version: i16) {
        let topic_count = self.topics.len();
        let mut out = FetchRequestWriter::start(writer, version, &self.head, topic_count);
        for topic in &self.topics {
            out.topic(topic.key(), topic.partitions.len());
            for partition in &topic.partitions {
                out.partition(partition);
            }
        }
        out.finish(self.forgotten_topics.iter().map(|topic| (topic.key(), &topic.partitions[..])));
    }
}

fn read_tagged(
    head: &mut FetchRequestHead,
    tag: u32,
    field: &mut Reader<'_>,
    version: i16,
) -> Result<(), WireError> {
    match tag {
        0 => head.cluster_id = field.nullable_str(true)?.map(String::from),
        1 if version >= REPLICA_STATE => {
            head.replica_id = BrokerId(field.i32()?);
            head.replica_epoch = field.i64()?;
            skip_tagged_fields(field, version)?;
        }
        _ => {}
    }
    Ok(())
}

/// Elements that are allocated for on the word of a count; more come as they are read.
const RESERVED_MAX: usize = 1024;

/// Reads topics, each with its partitions in the shape that `partition` reads.
fn read_topics<'a, P, T>(
    reader: &mut Reader<'a>,
    version: i16,
    partition: impl Fn(&mut Reader<'a>, i16) -> Result<P, WireError>,
    topic: impl Fn(TopicKey<'a>, Vec<P>) -> T,
) -> Result<Vec<T>, WireError> {
    let flexible = version >= FLEXIBLE;
    let count = reader.count(flexible)?;
    let mut topics = Vec::with_capacity(count.min(RESERVED_MAX));
    for _ in 0..count {
        let key = TopicKey::read(reader, version)?;
        let count = reader.count(flexible)?;
        // A partition is at least its index.
        let mut partitions = Vec::with_capacity(count.min(reader.left() / 4).min(RESERVED_MAX));
        for _ in 0..count {
            partitions.push(partition(reader, version)?);
        }
        skip_tagged_fields(reader, version)?;
        topics.push(topic(key, partitions));
    }
    Ok(topics)
}

/// Writes the body of a request as its topics and partitions come, without collecting them.
/// What was announced has to come: everything else is a bug of the caller and panics.
#[derive(Debug)]
#[must_use = "a request ends with `finish`"]
pub struct FetchRequestWriter<'w> {
    writer: &'w mut Writer,
    version: i16,
    head: &'w FetchRequestHead,
    topics_left: usize,
    partitions_left: usize,
}

impl<'w> FetchRequestWriter<'w> {
    /// Writes what stands before `topic_count` topics.
    pub fn start(
        writer: &'w mut Writer,
        version: i16,
        head: &'w FetchRequestHead,
        topic_count: usize,
    ) -> Self {
        assert!(VERSIONS.contains(&version), "fetch version {version}");
        if version < REPLICA_STATE {
            writer.i32(head.replica_id.0);
        }
        writer.i32(head.max_wait_ms);
        writer.i32(head.min_bytes);
        writer.i32(head.max_bytes);
        writer.i8(head.isolation_level.0);
        if version >= SESSIONS {
            writer.i32(head.session_id);
            writer.i32(head.session_epoch);
        }
        writer.count(topic_count, version >= FLEXIBLE);
        Self { writer, version, head, topics_left: topic_count, partitions_left: 0 }
    }

    /// Begins a topic with `partition_count` partitions.
    pub fn topic(&mut self, key: TopicKey<'_>, partition_count: usize) {
        assert_eq!(self.partitions_left, 0, "the topic before has partitions left");
        self.topics_left = self.topics_left.checked_sub(1).expect("no topic left");
        self.partitions_left = partition_count;
        key.write(self.writer, self.version);
        self.writer.count(partition_count, self.version >= FLEXIBLE);
        if partition_count == 0 {
            no_tagged_fields(self.writer, self.version);
        }
    }

    /// Writes the next partition of the topic.
    pub fn partition(&mut self, partition: &FetchPartition) {
        self.partitions_left = self.partitions_left.checked_sub(1).expect("no partition left");
        partition.write(self.writer, self.version);
        if self.partitions_left == 0 {
            no_tagged_fields(self.writer, self.version);
        }
    }

    /// Writes the partitions that the session shall forget, and the end.
    pub fn finish<'t>(
        self,
        forgotten: impl ExactSizeIterator<Item = (TopicKey<'t>, &'t [PartitionIndex])>,
    ) {
        let Self { writer, version, head, topics_left, partitions_left } = self;
        assert_eq!((topics_left, partitions_left), (0, 0), "topics or partitions left");
        let flexible = version >= FLEXIBLE;
        if version >= SESSIONS {
            writer.count(forgotten.len(), flexible);
            for (key, partitions) in forgotten {
                key.write(writer, version);
                writer.count(partitions.len(), flexible);
                for partition in partitions {
                    writer.i32(partition.0);
                }
                no_tagged_fields(writer, version);
            }
        } else {
            assert_eq!(forgotten.len(), 0, "version {version} has no sessions");
        }
        if version >= RACK {
            writer.str(&head.rack_id, flexible);
        }
        if flexible {
            write_tagged(writer, head, version);
        }
    }
}

fn write_tagged(writer: &mut Writer, head: &FetchRequestHead, version: i16) {
    let is_replica = head.replica_id != BrokerId::NONE || head.replica_epoch != -1;
    let replica_state = version >= REPLICA_STATE && is_replica;
    writer.unsigned_varint(u32::from(head.cluster_id.is_some()) + u32::from(replica_state));
    if let Some(cluster_id) = &head.cluster_id {
        let mut field = Writer::new();
        field.str(cluster_id, true);
        writer.unsigned_varint(0);
        writer.unsigned_varint(u32::try_from(field.len()).expect("a name is short"));
        writer.raw(field.bytes());
    }
    if replica_state {
        writer.raw(&[1, 13]);
        writer.i32(head.replica_id.0);
        writer.i64(head.replica_epoch);
        writer.unsigned_varint(0);
    }
}
