//! Everything that is shown: one line of text or one JSON object each.

use std::fmt::{self, Write as _};

use serde::{Serialize, Serializer};
use wire::batch::{Batch, Compression, TimestampType};
use wire::record::{ControlKind, ControlRecord, Record};

use crate::command::quantity::Moment;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item<'a> {
    Batch(BatchItem),
    Record(RecordItem<'a>),
    OffsetEntry {
        offset: i64,
        position: u32,
    },
    TimeEntry {
        timestamp: i64,
        offset: i64,
    },
    AbortedTransaction(AbortedItem),
    Producer(ProducerItem),
    LeaderEpoch {
        epoch: &'a str,
        start_offset: &'a str,
    },
    TopicId {
        topic_id: String,
    },
    Checkpoint {
        topic: &'a str,
        partition: i32,
        offset: i64,
    },
    /// A line of a text file.
    Text {
        text: &'a str,
    },
}

/// A batch's header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct BatchItem {
    position: u64,
    size: usize,
    base_offset: i64,
    last_offset: i64,
    record_count: i32,
    leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    last_sequence: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    timestamp_type: &'static str,
    compression: String,
    transactional: bool,
    /// Which marker a control batch holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coordinator_epoch: Option<i32>,
    delete_horizon: bool,
    crc: u32,
    crc_ok: bool,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RecordItem<'a> {
    offset: i64,
    timestamp: i64,
    key: Option<Shown<'a>>,
    value: Option<Shown<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(Shown<'a>, Option<Shown<'a>>)>,
}

/// An aborted transaction, from the transaction index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AbortedItem {
    pub(super) producer_id: i64,
    pub(super) first_offset: i64,
    pub(super) last_offset: i64,
    pub(super) last_stable_offset: i64,
}

/// A producer, from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ProducerItem {
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) last_sequence: i32,
    pub(super) last_offset: i64,
    pub(super) offset_delta: i32,
    pub(super) timestamp: i64,
    pub(super) coordinator_epoch: i32,
    /// Where its open transaction begins.
    pub(super) open_since: Option<i64>,
}

impl BatchItem {
    pub(super) fn of(position: u64, batch: &Batch<'_>, crc_ok: bool) -> Self {
        let attributes = batch.attributes();
        let control = attributes.is_control().then(|| ControlRecord::of(batch));
        let marker = control.as_ref().and_then(|read| read.as_ref().ok());
        Self {
            position,
            size: batch.size(),
            base_offset: batch.base_offset().0,
            last_offset: batch.last_offset().0,
            record_count: batch.record_count(),
            leader_epoch: batch.partition_leader_epoch().0,
            producer_id: batch.producer_id().0,
            producer_epoch: batch.producer_epoch().0,
            base_sequence: batch.base_sequence(),
            last_sequence: batch.last_sequence(),
            base_timestamp: batch.base_timestamp(),
            max_timestamp: batch.max_timestamp(),
            timestamp_type: match attributes.timestamp_type() {
                TimestampType::CreateTime => "create_time",
                TimestampType::LogAppendTime => "log_append_time",
            },
            compression: compression_name(attributes.compression()),
            transactional: attributes.is_transactional(),
            control: control.as_ref().map(|read| match read {
                Ok(marker) => control_name(marker.kind),
                Err(_) => "unreadable".into(),
            }),
            coordinator_epoch: marker
                .filter(|marker| matches!(marker.kind, ControlKind::Abort | ControlKind::Commit))
                .and_then(|marker| marker.end_txn_marker().ok())
                .map(|end| end.coordinator_epoch),
            delete_horizon: attributes.has_delete_horizon(),
            crc: batch.crc(),
            crc_ok,
        }
    }
}

pub(super) fn compression_name(compression: Compression) -> String {
    match compression {
        Compression::None => "none".into(),
        Compression::Gzip => "gzip".into(),
        Compression::Snappy => "snappy".into(),
        Compression::Lz4 => "lz4".into(),
        Compression::Zstd => "zstd".into(),
        Compression::Unknown(code) => format!("unknown-{code}"),
    }
}

fn control_name(kind: ControlKind) -> String {
    match kind {
        ControlKind::Abort => "abort".into(),
        ControlKind::Commit => "commit".into(),
        ControlKind::LeaderChange => "leader_change".into(),
        ControlKind::SnapshotHeader => "snapshot_header".into(),
        ControlKind::SnapshotFooter => "snapshot_footer".into(),
        ControlKind::KraftVersion => "kraft_version".into(),
        ControlKind::KraftVoters => "kraft_voters".into(),
        ControlKind::MirrorPidReset => "mirror_pid_reset".into(),
        ControlKind::Other(code) => format!("kind_{code}"),
    }
}

impl<'a> RecordItem<'a> {
    pub(super) fn of(batch: &Batch<'_>, record: &Record<'a>) -> Self {
        let by_broker = batch.attributes().timestamp_type() == TimestampType::LogAppendTime;
        Self {
            offset: batch.base_offset().0.wrapping_add(i64::from(record.offset_delta)),
            timestamp: match by_broker {
                true => batch.max_timestamp(),
                false => batch.base_timestamp().wrapping_add(record.timestamp_delta),
            },
            key: record.key.map(Shown),
            value: record.value.map(Shown),
            headers: record.headers.map(|(key, value)| (Shown(key), value.map(Shown))).collect(),
        }
    }
}

/// Bytes of a key or value: text where they are text, hexadecimal digits where not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown<'a>(pub(super) &'a [u8]);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Hex {
            hex: String,
        }
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Hex { hex: hex(self.0) }.serialize(serializer),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// How many characters, or bytes in digits, of a value are shown in a line of text.
const SHOWN_MAX: usize = 80;

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.len();
        match std::str::from_utf8(self.0) {
            Ok(text) => match text.char_indices().nth(SHOWN_MAX) {
                None => write!(f, "{text:?}"),
                Some((end, _)) => write!(f, "{:?}... ({all} bytes)", &text[..end]),
            },
            Err(_) if all <= SHOWN_MAX / 2 => write!(f, "0x{}", hex(self.0)),
            Err(_) => write!(f, "0x{}... ({all} bytes)", hex(&self.0[..SHOWN_MAX / 2])),
        }
    }
}

fn or_null(shown: Option<Shown<'_>>) -> String {
    shown.map_or("null".into(), |shown| shown.to_string())
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch(batch) => batch.fmt(f),
            Self::Record(record) => record.fmt(f),
            Self::OffsetEntry { offset, position } => {
                write!(f, "offset {offset} at position {position}")
            }
            Self::TimeEntry { timestamp, offset } => {
                write!(f, "{} newest up to offset {offset}", Moment(*timestamp))
            }
            Self::AbortedTransaction(aborted) => {
                let AbortedItem { producer_id, first_offset, last_offset, last_stable_offset } =
                    aborted;
                write!(
                    f,
                    "producer {producer_id} aborted {first_offset}..{last_offset}, last stable \
                     offset {last_stable_offset}"
                )
            }
            Self::Producer(producer) => producer.fmt(f),
            Self::LeaderEpoch { epoch, start_offset } => {
                write!(f, "epoch {epoch} from offset {start_offset}")
            }
            Self::TopicId { topic_id } => write!(f, "topic id {topic_id}"),
            Self::Checkpoint { topic, partition, offset } => {
                write!(f, "{topic}-{partition} offset {offset}")
            }
            Self::Text { text } => f.write_str(text),
        }
    }
}

impl fmt::Display for BatchItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, size, base_offset, last_offset, record_count, leader_epoch, .. } =
            self;
        write!(
            f,
            "offsets {base_offset}..{last_offset} at {position} size {size} records {record_count} \
             epoch {leader_epoch}"
        )?;
        if self.producer_id >= 0 {
            write!(f, " producer {}/{}", self.producer_id, self.producer_epoch)?;
        }
        if self.base_sequence >= 0 {
            write!(f, " sequence {}..{}", self.base_sequence, self.last_sequence)?;
        }
        if self.compression != "none" {
            write!(f, " {}", self.compression)?;
        }
        if self.transactional {
            f.write_str(" transactional")?;
        }
        if let Some(control) = &self.control {
            write!(f, " control {control}")?;
        }
        if let Some(epoch) = self.coordinator_epoch {
            write!(f, " coordinator epoch {epoch}")?;
        }
        let base = if self.delete_horizon { "delete horizon" } else { "time" };
        write!(f, " {base} {}", Moment(self.base_timestamp))?;
        if self.max_timestamp != self.base_timestamp {
            write!(f, "..{}", Moment(self.max_timestamp))?;
        }
        if self.timestamp_type == "log_append_time" {
            f.write_str(" (log append time)")?;
        }
        write!(f, " crc {:08x} {}", self.crc, if self.crc_ok { "ok" } else { "WRONG" })
    }
}

impl fmt::Display for RecordItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = (or_null(self.key), or_null(self.value));
        write!(f, "  offset {} {} key {key} value {value}", self.offset, Moment(self.timestamp))?;
        for (key, value) in &self.headers {
            write!(f, " header {key}={}", or_null(*value))?;
        }
        Ok(())
    }
}

impl fmt::Display for ProducerItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "producer {}/{} last sequence {} last offset {} (+{}) {} coordinator epoch {}",
            self.producer_id,
            self.producer_epoch,
            self.last_sequence,
            self.last_offset,
            self.offset_delta,
            Moment(self.timestamp),
            self.coordinator_epoch
        )?;
        match self.open_since {
            Some(first) => write!(f, " transaction open since {first}"),
            None => Ok(()),
        }
    }
}
