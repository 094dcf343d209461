//! The room as a whole: clients in front of it, owners of partitions behind it, both made up.

mod budgets;
mod cold;
mod fetches;
mod streams;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wire::api::{ApiKey, ErrorCode};
use wire::codec::{Reader, Writer};
use wire::fetch::{AbortedTransaction, EpochEndOffset, IsolationLevel};
use wire::frame::{SIZE_BYTES, frame_request, read_response_header};
use wire::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId};

use super::*;
use crate::catalog::{Catalog, Topic};
use crate::ids::Now;

/// The first client.
const CLIENT: ConnId = ConnId(1);
const CORRELATION: i32 = 77;
const BATCH_RECORDS: i64 = 10;

/// The log of a partition: batches of ten records, each of so many bytes, all in one file.
#[derive(Clone, Debug)]
struct Log {
    batch_bytes: Vec<u64>,
    leader_epoch: LeaderEpoch,
    /// Where committed records end; at the high watermark where it is larger.
    stable: i64,
    aborted: Vec<AbortedTransaction>,
}

impl Log {
    fn of(batch_bytes: &[u64]) -> Self {
        Self {
            batch_bytes: batch_bytes.to_vec(),
            leader_epoch: LeaderEpoch(5),
            stable: i64::MAX,
            aborted: Vec::new(),
        }
    }

    fn end(&self) -> i64 {
        i64::try_from(self.batch_bytes.len()).unwrap() * BATCH_RECORDS
    }

    fn answer(&self, path: &Arc<Path>, question: Question) -> Answer {
        match question {
            Question::Read(read) => Answer::Read(self.read(path, read)),
            Question::Offset { target, current_leader_epoch, isolation } => {
                let checked = check_leader_epoch(self.leader_epoch, current_leader_epoch);
                Answer::Offset(checked.map(|()| self.offset(target, isolation)))
            }
            Question::EndOfEpoch { current_leader_epoch, epoch } => {
                let checked = check_leader_epoch(self.leader_epoch, current_leader_epoch);
                let end_offset = Offset(self.end());
                Answer::EndOfEpoch(checked.map(|()| EpochAnswer { epoch, end_offset }))
            }
        }
    }

    fn offset(&self, target: OffsetTarget, isolation: IsolationLevel) -> OffsetAnswer {
        let (offset, timestamp) = match target {
            OffsetTarget::Earliest => (0, -1),
            OffsetTarget::Latest if isolation == IsolationLevel::READ_COMMITTED => {
                (self.stable.min(self.end()), -1)
            }
            OffsetTarget::Latest => (self.end(), -1),
            OffsetTarget::MaxTimestamp => (self.end() - 1, 1_000 + self.end() - 1),
            OffsetTarget::AtOrAfter(time) if time - 1_000 >= self.end() => (-1, -1),
            OffsetTarget::AtOrAfter(time) => ((time - 1_000).max(0), time.max(1_000)),
        };
        let leader_epoch = if offset < 0 { LeaderEpoch::UNKNOWN } else { self.leader_epoch };
        OffsetAnswer { offset: Offset(offset), timestamp, leader_epoch }
    }

    fn read(&self, path: &Arc<Path>, read: Read) -> Result<ReadAnswer, ErrorCode> {
        check_leader_epoch(self.leader_epoch, read.current_leader_epoch)?;
        if read.offset.0 < 0 || read.offset.0 > self.end() {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        let mut answer = ReadAnswer {
            high_watermark: Offset(self.end()),
            last_stable_offset: Offset(self.stable.min(self.end())),
            log_start_offset: Offset(0),
            ..ReadAnswer::default()
        };
        if read.last_fetched_epoch > self.leader_epoch {
            let (epoch, end_offset) = (self.leader_epoch, Offset(self.end()));
            answer.diverging_epoch = Some(EpochEndOffset { epoch, end_offset });
            return Ok(answer);
        }
        let committed = read.isolation == IsolationLevel::READ_COMMITTED;
        let end = if committed { answer.last_stable_offset.0 } else { self.end() };
        let batch = usize::try_from(read.offset.0 / BATCH_RECORDS).unwrap();
        let end = usize::try_from(end / BATCH_RECORDS).unwrap();
        let readable = self.batch_bytes.get(batch..end).unwrap_or_default();
        let all: u64 = readable.iter().sum();
        answer.first_batch_bytes = readable.first().copied().unwrap_or(0);
        let length = all.min(read.bytes_max.max(answer.first_batch_bytes));
        if length > 0 {
            let position = self.batch_bytes[..batch].iter().sum();
            answer.pieces.push(FilePiece { path: Arc::clone(path), position, length });
        }
        if committed {
            answer.aborted_transactions = self.aborted.clone();
        }
        Ok(answer)
    }
}

/// A server with a catalog in front of logs, whose owners answer when they are told to.
struct World {
    server: Server,
    catalog: Catalog,
    logs: BTreeMap<(String, i32), Log>,
    now: Now,
    /// What the server asked for and nobody took yet.
    out: Vec<Effect>,
}

fn topic_id(name: &str) -> TopicId {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    TopicId(id)
}

impl World {
    fn new() -> Self {
        Self::with(ServeOptions { mirror_of: Arc::from("west"), ..ServeOptions::default() })
    }

    /// Two topics: `orders` with three partitions and `events` with one.
    fn with(options: ServeOptions) -> Self {
        let host = Arc::from("mirror.example");
        let mut world = Self {
            server: Server::new(options),
            catalog: Catalog::new(Arc::from("cluster-1"), BrokerId(9), host, 9092),
            logs: BTreeMap::new(),
            now: Now(1_000_000),
            out: Vec::new(),
        };
        let configs = BTreeMap::from([
            ("retention.ms".to_owned(), "1000".to_owned()),
            ("vendor.setting".to_owned(), "x".to_owned()),
        ]);
        world.topic("orders", 3, configs);
        world.topic("events", 1, BTreeMap::new());
        world.connect(CLIENT);
        world
    }

    fn topic(&mut self, name: &str, partitions: i32, configs: BTreeMap<String, String>) {
        let count = usize::try_from(partitions).unwrap();
        let topic = Topic::new(Arc::from(name), topic_id(name), count, configs);
        for index in 0..partitions {
            topic.raise_leader_epoch(PartitionIndex(index), LeaderEpoch(5));
            self.logs.insert((name.to_owned(), index), Log::of(&[]));
        }
        self.catalog.put(Arc::new(topic));
    }

    fn log(&mut self, topic: &str, partition: i32) -> &mut Log {
        self.logs.get_mut(&(topic.to_owned(), partition)).unwrap()
    }

    fn connect(&mut self, connection: ConnId) {
        let peer = peer(connection);
        self.server.accepted(connection, peer, self.now, &mut self.out);
    }

    fn receive(&mut self, connection: ConnId, bytes: &[u8]) {
        self.server.received(connection, bytes, &self.catalog, self.now, &mut self.out);
    }

    fn sent(&mut self, connection: ConnId) {
        self.server.sent(connection, &self.catalog, self.now, &mut self.out);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.server.on_time(&self.catalog, self.now, &mut self.out);
    }

    fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.out)
    }

    fn progress(&mut self, call: CallId, index: u32) {
        let id = QuestionId { call, index };
        self.server.progress(id, &self.catalog, self.now, &mut self.out);
    }

    /// Lets the owners answer all that was asked. What else was asked for stays.
    fn answer(&mut self) {
        for effect in self.take() {
            let Effect::Ask { questions } = effect else {
                self.out.push(effect);
                continue;
            };
            for asked in questions {
                let Asked { id, topic, partition, question } = asked;
                let path: Arc<Path> = Arc::from(Path::new(&format!("{topic}-{partition}")));
                let log = &self.logs[&(topic.to_string(), partition.0)];
                let answer = log.answer(&path, question);
                self.server.answer(id, answer, &self.catalog, self.now, &mut self.out);
            }
        }
    }

    /// Sends a request and gives the whole frame that answers it, once the owners have answered.
    fn ask(&mut self, key: ApiKey, version: i16, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        self.receive(CLIENT, &request(key, version, body));
        self.answer();
        let frame = self.reply();
        self.sent(CLIENT);
        frame
    }

    /// The reply among the effects: the only one besides those about watching.
    fn reply(&mut self) -> Vec<u8> {
        let effects = self.take();
        let mut replies = effects.iter().filter_map(|effect| match effect {
            Effect::Reply { pieces, .. } => Some(bytes_of(pieces)),
            Effect::Watch { .. } | Effect::Unwatch { .. } => None,
            other => panic!("{other:?} where a reply is expected"),
        });
        let reply = replies.next().expect("a reply");
        assert_eq!(replies.next(), None);
        reply
    }

    /// Why the only connection that was closed was closed.
    fn close_reason(&mut self) -> String {
        match self.take().pop() {
            Some(Effect::Close { reason, .. }) => reason,
            other => panic!("{other:?} where a connection should be closed"),
        }
    }
}

fn peer(connection: ConnId) -> SocketAddr {
    let port = 1_024 + u16::try_from(connection.0 % 60_000).unwrap();
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn request(key: ApiKey, version: i16, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    frame_request(key, version, CORRELATION, Some("tester"), body)
}

/// A reply as it arrives: bytes of files are the position in their file, one byte of it.
fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(skeleton) => bytes.extend_from_slice(skeleton),
            Piece::File(file) => {
                let positions = file.position..file.position + file.length;
                bytes.extend(positions.map(|position| (position % 251) as u8));
            }
        }
    }
    bytes
}

/// The body of a reply, after its size and header were checked.
fn body(frame: &[u8], key: ApiKey, version: i16) -> Reader<'_> {
    let announced = i32::from_be_bytes(frame[..SIZE_BYTES].try_into().unwrap());
    assert_eq!(usize::try_from(announced).unwrap(), frame.len() - SIZE_BYTES);
    let mut reader = Reader::new(&frame[SIZE_BYTES..]);
    assert_eq!(read_response_header(&mut reader, key, version), Ok(CORRELATION));
    reader
}
