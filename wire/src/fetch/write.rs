//! Writing a Fetch response around records that are sent from somewhere else.

use alloc::vec::Vec;
use core::ops::Range;

use super::{
    AbortedTransaction, EpochEndOffset, FLEXIBLE, FetchResponseHead, LOG_START_OFFSET,
    LeaderIdAndEpoch, NODE_ENDPOINTS, NodeEndpoint, RACK, SESSIONS, SnapshotId, TopicKey, VERSIONS,
    no_tagged_fields,
};
use crate::codec::Writer;
use crate::ids::{BrokerId, Offset, PartitionIndex};

/// What to send next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the skeleton.
    Bytes(Range<usize>),
    /// Records of the partition that was written as number `index`, counted over all topics from 0.
    Records { index: usize, length: usize },
}

/// A whole frame: its skeleton, and in which order skeleton and records are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponseFrame {
    /// The skeleton: everything but records. It begins with the frame's size.
    pub bytes: Vec<u8>,
    /// Pieces in the order of sending. No piece is empty.
    pub pieces: Vec<Piece>,
    /// Bytes of all pieces together.
    pub size: usize,
}

/// What a response says about one partition; its records go by their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionData<'a> {
    pub partition_index: PartitionIndex,
    pub error_code: i16,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    /// 5 and later.
    pub log_start_offset: Offset,
    /// Null towards readers of uncommitted records.
    pub aborted_transactions: Option<&'a [AbortedTransaction]>,
    /// 11 and later.
    pub preferred_read_replica: BrokerId,
    /// 12 and later.
    pub diverging_epoch: Option<EpochEndOffset>,
    /// 12 and later.
    pub current_leader: Option<LeaderIdAndEpoch>,
    /// 12 and later.
    pub snapshot_id: Option<SnapshotId>,
}

impl PartitionData<'_> {
    /// A partition that cannot be served, as brokers answer for it.
    #[must_use]
    pub const fn error(partition_index: PartitionIndex, error_code: i16) -> Self {
        Self {
            partition_index,
            error_code,
            high_watermark: Offset(-1),
            last_stable_offset: Offset(-1),
            log_start_offset: Offset(-1),
            aborted_transactions: Some(&[]),
            preferred_read_replica: BrokerId::NONE,
            diverging_epoch: None,
            current_leader: None,
            snapshot_id: None,
        }
    }
}

/// Writes a response as its topics and partitions come. What was announced has to come: everything
/// else is a bug of the caller and panics.
#[derive(Debug)]
#[must_use = "a response ends with `finish`"]
pub struct FetchResponseWriter {
    writer: Writer,
    pieces: Vec<Piece>,
    version: i16,
    topics_left: usize,
    partitions_left: usize,
    partitions_written: usize,
    /// Where the skeleton goes on that no piece holds yet.
    piece_start: usize,
    record_bytes: usize,
}

impl FetchResponseWriter {
    /// Begins a frame that answers the request `correlation_id`, with `topic_count` topics.
    pub fn start(
        correlation_id: i32,
        version: i16,
        head: &FetchResponseHead,
        topic_count: usize,
    ) -> Self {
        let empty = FetchResponseFrame { bytes: Vec::new(), pieces: Vec::new(), size: 0 };
        Self::start_over(empty, correlation_id, version, head, topic_count)
    }

    /// The same, in the allocations of a frame that was sent.
    pub fn start_over(
        mut sent: FetchResponseFrame,
        correlation_id: i32,
        version: i16,
        head: &FetchResponseHead,
        topic_count: usize,
    ) -> Self {
        assert!(VERSIONS.contains(&version), "fetch version {version}");
        sent.bytes.clear();
        sent.pieces.clear();
        let mut writer = Writer::over(sent.bytes);
        writer.i32(0);
        writer.i32(correlation_id);
        no_tagged_fields(&mut writer, version);
        writer.i32(head.throttle_time_ms);
        if version >= SESSIONS {
            writer.i16(head.error_code);
            writer.i32(head.session_id);
        }
        writer.count(topic_count, version >= FLEXIBLE);
        Self {
            writer,
            pieces: sent.pieces,
            version,
            topics_left: topic_count,
            partitions_left: 0,
            partitions_written: 0,
            piece_start: 0,
            record_bytes: 0,
        }
    }

    /// Begins a topic with `partition_count` partitions.
    pub fn topic(&mut self, key: TopicKey<'_>, partition_count: usize) {
        assert_eq!(self.partitions_left, 0, "the topic before has partitions left");
        self.topics_left = self.topics_left.checked_sub(1).expect("no topic left");
        self.partitions_left = partition_count;
        key.write(&mut self.writer, self.version);
        self.writer.count(partition_count, self.version >= FLEXIBLE);
        if partition_count == 0 {
            no_tagged_fields(&mut self.writer, self.version);
        }
    }

    /// Writes the next partition of the topic, around `record_bytes` bytes of records.
    pub fn partition(&mut self, partition: &PartitionData<'_>, record_bytes: usize) {
        self.partitions_left = self.partitions_left.checked_sub(1).expect("no partition left");
        let flexible = self.version >= FLEXIBLE;
        write_before_records(&mut self.writer, partition, self.version);
        self.writer.bytes_length(Some(record_bytes), flexible);
        self.leave_hole(record_bytes);
        if flexible {
            write_after_records(&mut self.writer, partition);
        }
        if self.partitions_left == 0 {
            no_tagged_fields(&mut self.writer, self.version);
        }
        self.partitions_written += 1;
    }

    /// Writes where leaders listen, which versions before 16 leave out, and the frame's size.
    ///
    /// # Panics
    /// When the frame is above 2 GiB, which the bounds of a request do not allow.
    #[must_use]
    pub fn finish(mut self, node_endpoints: &[NodeEndpoint<'_>]) -> FetchResponseFrame {
        let left = (self.topics_left, self.partitions_left);
        assert_eq!(left, (0, 0), "topics or partitions left");
        if self.version >= NODE_ENDPOINTS && !node_endpoints.is_empty() {
            write_endpoints(&mut self.writer, node_endpoints);
        } else {
            no_tagged_fields(&mut self.writer, self.version);
        }
        self.end_piece();
        let size = self.writer.len() + self.record_bytes;
        let announced = i32::try_from(size - 4).expect("a response is below 2 GiB");
        self.writer.i32_at(0, announced);
        FetchResponseFrame { bytes: self.writer.into_bytes(), pieces: self.pieces, size }
    }

    fn leave_hole(&mut self, length: usize) {
        if length > 0 {
            self.end_piece();
            self.pieces.push(Piece::Records { index: self.partitions_written, length });
            self.record_bytes += length;
        }
    }

    /// There always are bytes: at least a length stands before every hole, and an array's count, a
    /// partition's index or tagged fields after it. Only the end of an old version has none.
    fn end_piece(&mut self) {
        let piece = self.piece_start..self.writer.len();
        if !piece.is_empty() {
            self.piece_start = piece.end;
            self.pieces.push(Piece::Bytes(piece));
        }
    }
}

fn write_before_records(writer: &mut Writer, partition: &PartitionData<'_>, version: i16) {
    let flexible = version >= FLEXIBLE;
    writer.i32(partition.partition_index.0);
    writer.i16(partition.error_code);
    writer.i64(partition.high_watermark.0);
    writer.i64(partition.last_stable_offset.0);
    if version >= LOG_START_OFFSET {
        writer.i64(partition.log_start_offset.0);
    }
    writer.nullable_count(partition.aborted_transactions.map(<[_]>::len), flexible);
    for aborted in partition.aborted_transactions.unwrap_or_default() {
        writer.i64(aborted.producer_id.0);
        writer.i64(aborted.first_offset.0);
        no_tagged_fields(writer, version);
    }
    if version >= RACK {
        writer.i32(partition.preferred_read_replica.0);
    }
}

fn write_after_records(writer: &mut Writer, partition: &PartitionData<'_>) {
    let PartitionData { diverging_epoch, current_leader, snapshot_id, .. } = *partition;
    let count = u32::from(diverging_epoch.is_some())
        + u32::from(current_leader.is_some())
        + u32::from(snapshot_id.is_some());
    writer.unsigned_varint(count);
    // Each is its tag, its size, its two numbers, and no tagged fields of its own.
    if let Some(EpochEndOffset { epoch, end_offset }) = diverging_epoch {
        writer.raw(&[0, 13]);
        writer.i32(epoch.0);
        writer.i64(end_offset.0);
        writer.unsigned_varint(0);
    }
    if let Some(LeaderIdAndEpoch { leader_id, leader_epoch }) = current_leader {
        writer.raw(&[1, 9]);
        writer.i32(leader_id.0);
        writer.i32(leader_epoch.0);
        writer.unsigned_varint(0);
    }
    if let Some(SnapshotId { end_offset, epoch }) = snapshot_id {
        writer.raw(&[2, 13]);
        writer.i64(end_offset.0);
        writer.i32(epoch.0);
        writer.unsigned_varint(0);
    }
}

fn write_endpoints(writer: &mut Writer, node_endpoints: &[NodeEndpoint<'_>]) {
    let mut field = Writer::new();
    field.count(node_endpoints.len(), true);
    for endpoint in node_endpoints {
        field.i32(endpoint.node_id.0);
        field.str(endpoint.host, true);
        field.i32(endpoint.port);
        field.nullable_str(endpoint.rack, true);
        field.unsigned_varint(0);
    }
    writer.raw(&[1, 0]);
    writer.unsigned_varint(u32::try_from(field.len()).expect("endpoints are below 4 GiB"));
    writer.raw(field.bytes());
}
