//! Walking over a Fetch response without copying, collecting or allocating anything.
//!
//! The walk borrows the frame for one call at a time and keeps nothing but its place, so that the
//! caller may check and rewrite the records of one partition before it asks for the next.

use core::iter::FusedIterator;
use core::ops::Range;

use super::{
    AbortedTransaction, EpochEndOffset, FLEXIBLE, FetchResponseHead, LOG_START_OFFSET,
    LeaderIdAndEpoch, NODE_ENDPOINTS, NodeEndpoint, RACK, SESSIONS, SnapshotId, TopicKey,
    check_version, skip_tagged_fields,
};
use crate::codec::Reader;
use crate::error::WireError;
use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId};

/// The walk: [`topic`](Self::topic) and [`partition`](Self::partition) until each says `None`, then
/// [`tail`](Self::tail). Every call takes the frame that the walk was opened on; an error stands.
///
/// ```text
/// open -> head
/// topic -> partition partition ... None
/// topic -> partition None
/// None -> tail
/// ```
#[derive(Clone, Debug)]
pub struct FetchResponse {
    version: i16,
    head: FetchResponseHead,
    position: usize,
    topics_left: usize,
    partitions_left: usize,
}

/// What a response says about one partition.
#[derive(Clone, Debug)]
pub struct FetchedPartition<'a> {
    pub partition_index: PartitionIndex,
    pub error_code: i16,
    pub high_watermark: Offset,
    /// -1 where the version or the broker does not say.
    pub last_stable_offset: Offset,
    /// -1 where the version or the broker does not say.
    pub log_start_offset: Offset,
    /// Empty as well where it is null.
    pub aborted_transactions: AbortedTransactions<'a>,
    /// A replica to fetch from in place of this broker, or none.
    pub preferred_read_replica: BrokerId,
    /// The logs part: where, as far as the broker knows.
    pub diverging_epoch: Option<EpochEndOffset>,
    /// The leader, told with errors of leadership.
    pub current_leader: Option<LeaderIdAndEpoch>,
    /// Told where a KRaft log no longer begins early enough.
    pub snapshot_id: Option<SnapshotId>,
    /// Where in the frame the record batches are; empty as well where they are null.
    pub records: Range<usize>,
}

/// What a response says after its topics.
#[derive(Clone, Debug)]
pub struct FetchTail<'a> {
    /// Where the leaders listen that partitions were told of (16 and later).
    pub node_endpoints: NodeEndpoints<'a>,
}

/// The transactions of one partition that were aborted, in the order of the response.
#[derive(Clone, Copy, Debug)]
pub struct AbortedTransactions<'a> {
    reader: Reader<'a>,
    left: usize,
    version: i16,
}

/// Brokers and where they listen.
#[derive(Clone, Copy, Debug)]
pub struct NodeEndpoints<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl FetchResponse {
    /// Begins at the body of a response, which starts at `body_position` of `frame`.
    pub fn open(frame: &[u8], body_position: usize, version: i16) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame);
        reader.take(body_position)?;
        check_version(&reader, version)?;
        let mut head = FetchResponseHead { throttle_time_ms: reader.i32()?, ..Default::default() };
        if version >= SESSIONS {
            head.error_code = reader.i16()?;
            head.session_id = reader.i32()?;
        }
        let topics_left = reader.count(version >= FLEXIBLE)?;
        Ok(Self { version, head, position: reader.position(), topics_left, partitions_left: 0 })
    }

    /// What stands before the topics.
    #[must_use]
    pub const fn head(&self) -> FetchResponseHead {
        self.head
    }

    /// The next topic. Partitions of the one before that were not asked for are passed over.
    pub fn topic<'a>(&mut self, frame: &'a [u8]) -> Result<Option<TopicKey<'a>>, WireError> {
        while self.partition(frame)?.is_some() {}
        if self.topics_left == 0 {
            return Ok(None);
        }
        let mut reader = self.reader(frame)?;
        let key = TopicKey::read(&mut reader, self.version)?;
        let partitions_left = reader.count(self.version >= FLEXIBLE)?;
        if partitions_left == 0 {
            skip_tagged_fields(&mut reader, self.version)?;
        }
        self.topics_left -= 1;
        self.partitions_left = partitions_left;
        self.position = reader.position();
        Ok(Some(key))
    }

    /// The next partition of the topic.
    #[inline]
    pub fn partition<'a>(
        &mut self,
        frame: &'a [u8],
    ) -> Result<Option<FetchedPartition<'a>>, WireError> {
        if self.partitions_left == 0 {
            return Ok(None);
        }
        let mut reader = self.reader(frame)?;
        let partition = read_partition(&mut reader, self.version)?;
        if self.partitions_left == 1 {
            skip_tagged_fields(&mut reader, self.version)?;
        }
        self.partitions_left -= 1;
        self.position = reader.position();
        Ok(Some(partition))
    }

    /// What stands after the topics. Topics that were not asked for are passed over. Bytes after the
    /// end of the response are refused.
    pub fn tail<'a>(&mut self, frame: &'a [u8]) -> Result<FetchTail<'a>, WireError> {
        while self.topic(frame)?.is_some() {}
        let mut reader = self.reader(frame)?;
        let mut node_endpoints = NodeEndpoints { reader, left: 0 };
        if self.version >= FLEXIBLE {
            let version = self.version;
            reader.tagged_fields(|tag, field| {
                if tag == 0 && version >= NODE_ENDPOINTS {
                    node_endpoints = NodeEndpoints::read(field)?;
                }
                Ok(())
            })?;
        }
        reader.finish()?;
        Ok(FetchTail { node_endpoints })
    }

    /// Where the first records of a response will be of which only the first bytes, `head`, have
    /// come. `None` where they do not say: that is not an error, the rest may have no records either.
    #[must_use]
    pub fn first_records(
        head: &[u8],
        body_position: usize,
        version: i16,
    ) -> Option<(TopicKey<'_>, PartitionIndex, Range<usize>)> {
        let mut walk = Self::open(head, body_position, version).ok()?;
        while let Some(topic) = walk.topic(head).ok()? {
            while walk.partitions_left > 0 {
                let next = read_before_records(&mut walk.reader(head).ok()?, version).ok()?;
                if !next.records.is_empty() {
                    return Some((topic, next.partition_index, next.records));
                }
                walk.partition(head).ok()?;
            }
        }
        None
    }

    fn reader<'a>(&self, frame: &'a [u8]) -> Result<Reader<'a>, WireError> {
        let mut reader = Reader::new(frame);
        reader.take(self.position)?;
        Ok(reader)
    }
}

#[inline]
fn read_partition<'a>(
    reader: &mut Reader<'a>,
    version: i16,
) -> Result<FetchedPartition<'a>, WireError> {
    let mut partition = read_before_records(reader, version)?;
    reader.take(partition.records.len())?;
    if version >= FLEXIBLE {
        reader.tagged_fields(|tag, field| read_tagged(&mut partition, tag, field))?;
    }
    Ok(partition)
}

/// What stands before the records, which need not be there.
#[inline]
fn read_before_records<'a>(
    reader: &mut Reader<'a>,
    version: i16,
) -> Result<FetchedPartition<'a>, WireError> {
    let partition_index = PartitionIndex(reader.i32()?);
    let error_code = reader.i16()?;
    let high_watermark = Offset(reader.i64()?);
    let last_stable_offset = Offset(reader.i64()?);
    let log_start_offset = Offset(if version >= LOG_START_OFFSET { reader.i64()? } else { -1 });
    let aborted_transactions = AbortedTransactions::read(reader, version)?;
    let preferred_read_replica = BrokerId(if version >= RACK { reader.i32()? } else { -1 });
    let record_bytes = reader.bytes_length(version >= FLEXIBLE)?.unwrap_or(0);
    let records = reader.position()..reader.position().saturating_add(record_bytes);
    Ok(FetchedPartition {
        partition_index,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted_transactions,
        preferred_read_replica,
        diverging_epoch: None,
        current_leader: None,
        snapshot_id: None,
        records,
    })
}

#[cold]
fn read_tagged(
    partition: &mut FetchedPartition<'_>,
    tag: u32,
    field: &mut Reader<'_>,
) -> Result<(), WireError> {
    match tag {
        0 => {
            let epoch = LeaderEpoch(field.i32()?);
            let end_offset = Offset(field.i64()?);
            partition.diverging_epoch = Some(EpochEndOffset { epoch, end_offset });
        }
        1 => {
            let leader_id = BrokerId(field.i32()?);
            let leader_epoch = LeaderEpoch(field.i32()?);
            partition.current_leader = Some(LeaderIdAndEpoch { leader_id, leader_epoch });
        }
        2 => {
            let end_offset = Offset(field.i64()?);
            let epoch = LeaderEpoch(field.i32()?);
            partition.snapshot_id = Some(SnapshotId { end_offset, epoch });
        }
        _ => return Ok(()),
    }
    skip_tagged_fields(field, FLEXIBLE)
}

impl<'a> AbortedTransactions<'a> {
    /// Reads them once to find their end and that they are sound.
    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self, WireError> {
        let left = reader.nullable_count(version >= FLEXIBLE)?.unwrap_or(0);
        let read = Self { reader: *reader, left, version };
        for _ in 0..left {
            read_aborted(reader, version)?;
        }
        Ok(read)
    }

    /// How many are left.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.left
    }

    /// Whether none is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left == 0
    }
}

fn read_aborted(reader: &mut Reader<'_>, version: i16) -> Result<AbortedTransaction, WireError> {
    let producer_id = ProducerId(reader.i64()?);
    let first_offset = Offset(reader.i64()?);
    skip_tagged_fields(reader, version)?;
    Ok(AbortedTransaction { producer_id, first_offset })
}

impl Iterator for AbortedTransactions<'_> {
    type Item = AbortedTransaction;

    fn next(&mut self) -> Option<AbortedTransaction> {
        self.left = self.left.checked_sub(1)?;
        read_aborted(&mut self.reader, self.version).ok()
    }
}

impl FusedIterator for AbortedTransactions<'_> {}

impl<'a> NodeEndpoints<'a> {
    /// Reads them once to find that they are sound.
    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let left = reader.count(true)?;
        let read = Self { reader: *reader, left };
        for _ in 0..left {
            read_endpoint(reader)?;
        }
        Ok(read)
    }
}

fn read_endpoint<'a>(reader: &mut Reader<'a>) -> Result<NodeEndpoint<'a>, WireError> {
    let node_id = BrokerId(reader.i32()?);
    let host = reader.str(true)?;
    let port = reader.i32()?;
    let rack = reader.nullable_str(true)?;
    skip_tagged_fields(reader, FLEXIBLE)?;
    Ok(NodeEndpoint { node_id, host, port, rack })
}

impl<'a> Iterator for NodeEndpoints<'a> {
    type Item = NodeEndpoint<'a>;

    fn next(&mut self) -> Option<NodeEndpoint<'a>> {
        self.left = self.left.checked_sub(1)?;
        read_endpoint(&mut self.reader).ok()
    }
}

impl FusedIterator for NodeEndpoints<'_> {}
