//! Clients that send anything, cut anywhere, and leave at any time: what the server says is whole,
//! and what it holds is within its budget.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::catalog::{Catalog, Topic};
use engine::ids::{ConnId, Now};
use engine::serve::session::{SESSION_BYTES, SESSION_PARTITION_BYTES};
use engine::serve::{
    Answer, Asked, Effect, EpochAnswer, FilePiece, OffsetAnswer, Piece, Question, QuestionId,
    ReadAnswer, ServeOptions, Server,
};
use wire::api::ErrorCode;
use wire::ids::{BrokerId, LeaderEpoch, Offset, TopicId};

use super::choices::Choices;

/// What is served, and from which version on the header of its requests has tagged fields.
const APIS: [(i16, i16); 10] =
    [(0, 9), (1, 12), (2, 6), (3, 9), (18, 3), (22, 2), (23, 4), (32, 4), (60, 0), (75, 0)];
const CONNECTIONS: u64 = 4;
const BUDGET_BYTES: usize = 256 << 10;
const SESSIONS_MAX: usize = 3;
const SESSION_PARTITIONS_MAX: usize = 16;

struct Run {
    server: Server,
    catalog: Catalog,
    now: Now,
    open: BTreeSet<ConnId>,
    next_connection: u64,
    asked: Vec<Asked>,
    /// Replies that are on their way.
    sending: Vec<ConnId>,
    watched: Vec<QuestionId>,
    correlation_id: i32,
}

/// Plays the bytes as a script of what clients and owners of partitions do.
pub fn requests(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut run = Run::new();
    for _ in 0..CONNECTIONS {
        run.connect();
    }
    while !choices.is_empty() {
        run.step(&mut choices);
    }
    run.end();
}

impl Run {
    fn new() -> Self {
        let options = ServeOptions {
            connections_max: usize::try_from(CONNECTIONS).expect("few"),
            request_memory_bytes: BUDGET_BYTES,
            sessions_max: SESSIONS_MAX,
            session_partitions_max: SESSION_PARTITIONS_MAX,
            ..ServeOptions::default()
        };
        let mut catalog = Catalog::new("cluster".into(), BrokerId(1), "localhost".into(), 9092);
        for (name, id, partitions) in [("a", 1, 3), ("topic", 2, 1), ("__offsets", 3, 2)] {
            let topic = Topic::new(name.into(), TopicId([id; 16]), partitions, BTreeMap::new());
            catalog.put(Arc::new(topic));
        }
        Self {
            server: Server::new(options),
            catalog,
            now: Now(1_000),
            open: BTreeSet::new(),
            next_connection: 1,
            asked: Vec::new(),
            sending: Vec::new(),
            watched: Vec::new(),
            correlation_id: 0,
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let step = choices.u8();
        let place = usize::from(choices.u8());
        match step % 16 {
            0..=5 => {
                let frame = self.frame(choices);
                let cut = usize::from(choices.u8());
                self.receive(place, &frame, cut);
            }
            6 => {
                let bytes = choices.piece().to_vec();
                let cut = usize::from(choices.u8());
                self.receive(place, &bytes, cut);
            }
            7..=9 => self.answer_one(place, choices),
            10 => {
                if !self.sending.is_empty() {
                    let connection = self.sending.swap_remove(place % self.sending.len());
                    let mut out = Vec::new();
                    self.server.sent(connection, &self.catalog, self.now, &mut out);
                    self.carry_out(out);
                }
            }
            11 => {
                if !self.watched.is_empty() {
                    let id = self.watched.swap_remove(place % self.watched.len());
                    let mut out = Vec::new();
                    self.server.progress(id, &self.catalog, self.now, &mut out);
                    self.carry_out(out);
                }
            }
            12 => {
                let seconds = u64::from(choices.u16());
                self.now = self.now.plus(Duration::from_millis(seconds * seconds));
                let mut out = Vec::new();
                self.server.on_time(&self.catalog, self.now, &mut out);
                self.carry_out(out);
            }
            13 => {
                if let Some(connection) = self.chosen(place) {
                    self.open.remove(&connection);
                    let mut out = Vec::new();
                    self.server.closed(connection, &mut out);
                    self.carry_out(out);
                }
            }
            14 => self.connect(),
            _ => {
                // Everything goes well for a while.
                while !(self.asked.is_empty() && self.sending.is_empty()) {
                    while !self.asked.is_empty() {
                        self.answer_one(0, choices);
                    }
                    for connection in std::mem::take(&mut self.sending) {
                        let mut out = Vec::new();
                        self.server.sent(connection, &self.catalog, self.now, &mut out);
                        self.carry_out(out);
                    }
                }
            }
        }
    }

    /// A frame whose size and header are sound, so that its body is what is tried.
    fn frame(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let (key, flexible) = APIS[usize::from(choices.u8()) % APIS.len()];
        let version = i16::from(choices.u8() % 20);
        self.correlation_id += 1;
        let mut frame = Vec::new();
        frame.extend(key.to_be_bytes());
        frame.extend(version.to_be_bytes());
        frame.extend(self.correlation_id.to_be_bytes());
        frame.extend([0xff, 0xff]);
        if version >= flexible {
            frame.push(0);
        }
        frame.extend(choices.piece());
        let size = i32::try_from(frame.len()).expect("short");
        [&size.to_be_bytes()[..], &frame].concat()
    }

    fn chosen(&self, place: usize) -> Option<ConnId> {
        self.open.iter().nth(place % self.open.len().max(1)).copied()
    }

    fn connect(&mut self) {
        let connection = ConnId(self.next_connection);
        self.next_connection += 1;
        self.open.insert(connection);
        let peer = ([127, 0, 0, 1], 5_000).into();
        let mut out = Vec::new();
        self.server.accepted(connection, peer, self.now, &mut out);
        self.carry_out(out);
    }

    fn receive(&mut self, place: usize, bytes: &[u8], cut: usize) {
        let Some(connection) = self.chosen(place) else { return };
        for piece in bytes.chunks(if cut == 0 { bytes.len().max(1) } else { cut }) {
            let mut out = Vec::new();
            self.server.received(connection, piece, &self.catalog, self.now, &mut out);
            self.carry_out(out);
        }
    }

    fn answer_one(&mut self, place: usize, choices: &mut Choices<'_>) {
        if self.asked.is_empty() {
            return;
        }
        let asked = self.asked.swap_remove(place % self.asked.len());
        let kind = choices.u8();
        let error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
        let answer = match asked.question {
            Question::Read(_) if kind == 255 => Answer::Read(Err(error)),
            Question::Read(_) => {
                let length = u64::from(kind) * 16;
                let path = std::path::Path::new("/segment").into();
                let piece = FilePiece { path, position: 0, length };
                Answer::Read(Ok(ReadAnswer {
                    pieces: if length == 0 { Vec::new() } else { vec![piece] },
                    first_batch_bytes: length.min(100),
                    high_watermark: Offset(choices.offset()),
                    ..ReadAnswer::default()
                }))
            }
            Question::Offset { .. } if kind == 255 => Answer::Offset(Err(error)),
            Question::Offset { .. } => Answer::Offset(Ok(OffsetAnswer {
                offset: Offset(choices.offset()),
                timestamp: -1,
                leader_epoch: LeaderEpoch(0),
            })),
            Question::EndOfEpoch { .. } if kind == 255 => Answer::EndOfEpoch(Err(error)),
            Question::EndOfEpoch { .. } => Answer::EndOfEpoch(Ok(EpochAnswer {
                epoch: LeaderEpoch(0),
                end_offset: Offset(choices.offset()),
            })),
        };
        let mut out = Vec::new();
        self.server.answer(asked.id, answer, &self.catalog, self.now, &mut out);
        self.carry_out(out);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Ask { questions } => {
                    assert!(!questions.is_empty());
                    self.asked.extend(questions);
                }
                Effect::Reply { connection, pieces } => {
                    assert!(self.open.contains(&connection), "a reply to nobody");
                    check_frame(&pieces);
                    assert!(!self.sending.contains(&connection), "one reply at a time");
                    self.sending.push(connection);
                }
                Effect::Watch { partitions } => {
                    self.watched.extend(partitions.iter().map(|watched| watched.id));
                }
                Effect::Unwatch { call } => self.watched.retain(|id| id.call != call),
                Effect::Pause { connection } | Effect::Resume { connection } => {
                    assert!(self.open.contains(&connection));
                }
                Effect::Close { connection, reason, .. } => {
                    assert!(self.open.remove(&connection), "closed twice: {reason}");
                    self.sending.retain(|sending| *sending != connection);
                }
            }
        }
        let sessions =
            SESSIONS_MAX * SESSION_BYTES + SESSION_PARTITIONS_MAX * SESSION_PARTITION_BYTES;
        let held = self.server.memory_bytes();
        assert!(held <= BUDGET_BYTES + sessions, "{held} bytes are held");
        assert!(self.server.connection_count() <= self.open.len());
    }

    /// All leave: nothing is left of them.
    fn end(mut self) {
        for connection in std::mem::take(&mut self.open) {
            let mut out = Vec::new();
            self.server.closed(connection, &mut out);
            for effect in out {
                if let Effect::Unwatch { call } = effect {
                    self.watched.retain(|id| id.call != call);
                }
            }
        }
        assert_eq!(self.server.connection_count(), 0);
        assert_eq!(self.server.deadline(), None, "nobody is waited for");
        let sessions = self.server.session_count() * SESSION_BYTES
            + SESSION_PARTITIONS_MAX * SESSION_PARTITION_BYTES;
        assert!(self.server.memory_bytes() <= sessions);
        let mut out = Vec::new();
        for asked in std::mem::take(&mut self.asked) {
            let answer = Answer::Read(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
            self.server.answer(asked.id, answer, &self.catalog, self.now, &mut out);
        }
        assert!(out.is_empty(), "late answers are dropped");
    }
}

/// One whole frame: the size in front is that of all pieces.
fn check_frame(pieces: &[Piece]) {
    let Some(Piece::Bytes(first)) = pieces.first() else { panic!("a frame begins with its size") };
    let size = first.first_chunk::<4>().copied().expect("a size");
    let length: u64 = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File(part) => part.length,
        })
        .sum();
    assert_eq!(i64::from(i32::from_be_bytes(size)) + 4, i64::try_from(length).expect("small"));
}
