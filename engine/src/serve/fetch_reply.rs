//! The reply to a fetch: who gets how much of the room, what a session leaves out, and the frame
//! around records that stay in their files.

use wire::api::ErrorCode;
use wire::fetch::{
    FetchResponseFrame, FetchResponseHead, FetchResponseWriter, IsolationLevel, LeaderIdAndEpoch,
    NodeEndpoint, PartitionData, Piece as FramePiece, TopicKey,
};
use wire::ids::BrokerId;

use super::call::ReplyTo;
use super::fetch::{Entry, FetchCall, State, resolve};
use super::session::{Context, NO_SESSION, Sessions, Told, TopicRef, Wish};
use super::{FilePiece, Piece, ReadAnswer};
use crate::catalog::Catalog;
use crate::ids::Now;

/// The first version that names the leader after an error of leadership (KIP-951).
const LEADERS: i16 = 16;

/// A partition in the reply.
struct Line<'a> {
    entry: &'a Entry,
    /// Bytes of its records that have room.
    length: u64,
}

/// Turns a fetch into the pieces of its reply.
pub(super) fn reply(
    call: &FetchCall,
    to: ReplyTo,
    sessions: &mut Sessions,
    catalog: &Catalog,
    now: Now,
) -> Vec<Piece> {
    let mut lines = allot(&call.entries, call.bytes_max);
    let session_id = match call.context {
        Context::Without => NO_SESSION,
        Context::Begins { with_topic_ids } => {
            let told: Vec<(Wish, Told)> =
                lines.iter().map(|line| (line.entry.wish.clone(), told(line))).collect();
            sessions.begin(with_topic_ids, told.into_iter(), now)
        }
        Context::Within { id, epoch } => {
            let session = match sessions.current(id, epoch) {
                Ok(session) => session,
                Err(error_code) => return vec![Piece::Bytes(session_error(to, error_code, id))],
            };
            // What has no place in the session is told this once.
            lines.retain(|line| match line.entry.place {
                Some(place) => session.tell(place, told(line)),
                None => true,
            });
            id
        }
    };
    let frame = write(&lines, call.isolation, to, session_id, catalog);
    pieces(frame, &lines)
}

/// The reply that says what is wrong with a session.
pub(super) fn session_error(to: ReplyTo, error_code: ErrorCode, session_id: i32) -> Vec<u8> {
    let head = FetchResponseHead { throttle_time_ms: 0, error_code: error_code.0, session_id };
    FetchResponseWriter::start(to.correlation_id, to.version, &head, 0).finish(&[]).bytes
}

/// Gives the room to the partitions in their order. The first one that has records gets at least
/// its first batch whole; a later one that has no room for a whole batch gets nothing, since its
/// client could do nothing with less.
fn allot(entries: &[Entry], bytes_max: u64) -> Vec<Line<'_>> {
    let mut left = bytes_max;
    let mut is_first = true;
    let mut lines = Vec::with_capacity(entries.len());
    for entry in entries {
        let (has, least) = match &entry.state {
            State::Answered(answer) | State::Watched(answer) => {
                (answer.bytes(), answer.first_batch_bytes)
            }
            State::Asked | State::Failed(_) => (0, 0),
        };
        let mut length = has.min(left);
        if length < least.min(has) {
            length = if is_first { least.min(has) } else { 0 };
        }
        is_first &= length == 0;
        left = left.saturating_sub(length);
        lines.push(Line { entry, length });
    }
    lines
}

fn told(line: &Line<'_>) -> Told {
    match &line.entry.state {
        State::Answered(answer) | State::Watched(answer) => Told {
            has_records: line.length > 0,
            is_urgent: answer.diverging_epoch.is_some(),
            is_error: false,
            high_watermark: answer.high_watermark,
            log_start_offset: answer.log_start_offset,
        },
        State::Asked | State::Failed(_) => Told {
            has_records: false,
            is_urgent: true,
            is_error: true,
            high_watermark: wire::ids::Offset(-1),
            log_start_offset: wire::ids::Offset(-1),
        },
    }
}

/// Writes the frame with a hole for each partition's records. Neighbours of one topic share its name.
fn write(
    lines: &[Line<'_>],
    isolation: IsolationLevel,
    to: ReplyTo,
    session_id: i32,
    catalog: &Catalog,
) -> FetchResponseFrame {
    let by_topic = || lines.chunk_by(|one, next| one.entry.wish.topic == next.entry.wish.topic);
    let head = FetchResponseHead { throttle_time_ms: 0, error_code: 0, session_id };
    let mut writer =
        FetchResponseWriter::start(to.correlation_id, to.version, &head, by_topic().count());
    let mut names_leaders = false;
    for of_topic in by_topic() {
        writer.topic(key(&of_topic[0].entry.wish.topic), of_topic.len());
        for line in of_topic {
            let data = match &line.entry.state {
                State::Answered(answer) | State::Watched(answer) => sound(line, answer, isolation),
                State::Failed(code) => failed(&line.entry.wish, *code, to.version, catalog),
                State::Asked => {
                    debug_assert!(false, "a reply waits for all answers");
                    let code = ErrorCode::UNKNOWN_SERVER_ERROR;
                    failed(&line.entry.wish, code, to.version, catalog)
                }
            };
            names_leaders |= data.current_leader.is_some();
            let length = usize::try_from(line.length).expect("a reply is below 2 GiB");
            writer.partition(&data, length);
        }
    }
    let this_node = NodeEndpoint {
        node_id: catalog.node_id,
        host: &catalog.host,
        port: i32::from(catalog.port),
        rack: None,
    };
    writer.finish(if names_leaders { std::slice::from_ref(&this_node) } else { &[] })
}

fn key(topic: &TopicRef) -> TopicKey<'_> {
    match topic {
        TopicRef::Name(name) => TopicKey { name, id: wire::ids::TopicId::ZERO },
        TopicRef::Id(id) => TopicKey { name: "", id: *id },
    }
}

fn sound<'a>(
    line: &Line<'_>,
    answer: &'a ReadAnswer,
    isolation: IsolationLevel,
) -> PartitionData<'a> {
    let aborted_transactions =
        (isolation == IsolationLevel::READ_COMMITTED).then_some(match line.length {
            0 => &[][..],
            _ => &answer.aborted_transactions[..],
        });
    PartitionData {
        partition_index: line.entry.wish.partition,
        error_code: 0,
        high_watermark: answer.high_watermark,
        last_stable_offset: answer.last_stable_offset,
        log_start_offset: answer.log_start_offset,
        aborted_transactions,
        preferred_read_replica: BrokerId::NONE,
        diverging_epoch: answer.diverging_epoch,
        current_leader: None,
        snapshot_id: None,
    }
}

fn failed(
    wish: &Wish,
    error_code: ErrorCode,
    version: i16,
    catalog: &Catalog,
) -> PartitionData<'static> {
    let mut data = PartitionData::error(wish.partition, error_code.0);
    let of_leadership = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH];
    if version >= LEADERS && of_leadership.contains(&error_code) {
        let epoch = resolve(wish, catalog).ok().and_then(|t| t.leader_epoch(wish.partition));
        data.current_leader =
            epoch.map(|leader_epoch| LeaderIdAndEpoch { leader_id: catalog.node_id, leader_epoch });
    }
    data
}

/// Puts the places of the records into the holes of the frame.
fn pieces(frame: FetchResponseFrame, lines: &[Line<'_>]) -> Vec<Piece> {
    if frame.pieces.len() == 1 {
        return vec![Piece::Bytes(frame.bytes)];
    }
    let mut pieces = Vec::with_capacity(frame.pieces.len());
    for piece in &frame.pieces {
        match piece {
            FramePiece::Bytes(range) => {
                pieces.push(Piece::Bytes(frame.bytes[range.clone()].to_vec()))
            }
            FramePiece::Records { index, .. } => {
                let line = &lines[*index];
                let mut left = line.length;
                if let State::Answered(answer) | State::Watched(answer) = &line.entry.state {
                    for piece in &answer.pieces {
                        let length = piece.length.min(left);
                        left -= length;
                        if length > 0 {
                            pieces.push(Piece::File(FilePiece { length, ..piece.clone() }));
                        }
                    }
                }
            }
        }
    }
    pieces
}
