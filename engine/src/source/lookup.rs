//! Questions that are asked once: where an epoch ended, where a log begins and ends. They travel on a
//! connection of their own, many in one request, so that no waiting fetch holds them up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::api::list_offsets::{
    EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsResponse, ListOffsetsTopic,
};
use wire::api::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopic,
};
use wire::api::{ApiKey, ErrorCode};
use wire::codec::Reader;
use wire::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex};

use super::backoff::delay;
use super::conn::{About, Conn, Refusal};
use super::line::{Line, LineKey};
use super::link::{Link, Timer};
use super::{Effect, EndOfEpoch, OffsetAt, SourcePartition};
use crate::ids::{Now, PartitionKey};

/// Questions in one request.
const LOOKUPS_IN_REQUEST_MAX: usize = 5_000;

/// What can be asked about a partition at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Where this epoch ends, or the greatest one before it.
    EndOfEpoch(LeaderEpoch),
    /// Where the log begins.
    Earliest,
    /// The high watermark.
    Latest,
    /// The first record that is not older than this, in milliseconds since 1970.
    AtTime(i64),
}

impl Question {
    const fn api(self) -> ApiKey {
        match self {
            Self::EndOfEpoch(_) => ApiKey::OFFSET_FOR_LEADER_EPOCH,
            Self::Earliest | Self::Latest | Self::AtTime(_) => ApiKey::LIST_OFFSETS,
        }
    }

    const fn timestamp(self) -> i64 {
        match self {
            Self::Earliest => EARLIEST_TIMESTAMP,
            Self::Latest | Self::EndOfEpoch(_) => LATEST_TIMESTAMP,
            Self::AtTime(timestamp) => timestamp,
        }
    }
}

/// A question and whom it is about.
pub(super) type AskedFor = (PartitionKey, Question);

/// All questions that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    open: BTreeMap<AskedFor, Lookup>,
    /// Ready to be asked, by broker.
    queues: BTreeMap<BrokerId, BTreeSet<AskedFor>>,
    /// Without a broker to ask.
    homeless: BTreeSet<AskedFor>,
    /// Brokers whose queue wants to be looked at.
    awake: BTreeSet<BrokerId>,
}

#[derive(Debug)]
struct Lookup {
    source: SourcePartition,
    leader_epoch: LeaderEpoch,
    failures: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In the queue of this broker, or without one.
    Queued(Option<BrokerId>),
    Asked,
    Rests,
}

impl Lookups {
    pub(super) fn is_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    pub(super) fn wake(&mut self, broker: BrokerId) {
        self.awake.insert(broker);
    }

    pub(super) fn take_awake(&mut self) -> BTreeSet<BrokerId> {
        std::mem::take(&mut self.awake)
    }

    pub(super) fn is_wanted(&self, broker: BrokerId) -> bool {
        self.queues.contains_key(&broker)
    }

    fn enqueue(&mut self, asked: AskedFor, broker: Option<BrokerId>) {
        let Some(lookup) = self.open.get_mut(&asked) else { return };
        lookup.stage = Stage::Queued(broker);
        match broker {
            Some(broker) => {
                self.queues.entry(broker).or_default().insert(asked);
                self.awake.insert(broker);
            }
            None => {
                self.homeless.insert(asked);
            }
        }
    }

    fn dequeue(&mut self, asked: AskedFor) {
        let Some(lookup) = self.open.get(&asked) else { return };
        match lookup.stage {
            Stage::Queued(Some(broker)) => {
                if let Some(queue) = self.queues.get_mut(&broker) {
                    queue.remove(&asked);
                    if queue.is_empty() {
                        self.queues.remove(&broker);
                    }
                }
            }
            Stage::Queued(None) => {
                self.homeless.remove(&asked);
            }
            Stage::Asked | Stage::Rests => {}
        }
    }

    /// The next questions for a broker: of one API, and one of each partition, as brokers want it.
    fn take(&mut self, broker: BrokerId) -> Vec<AskedFor> {
        let Some(queue) = self.queues.get(&broker) else { return Vec::new() };
        let Some(api) = queue.first().map(|(_, question)| question.api()) else {
            return Vec::new();
        };
        let mut taken: Vec<AskedFor> = Vec::new();
        for &asked in queue {
            let again = taken.last().is_some_and(|last| last.0 == asked.0);
            if asked.1.api() == api && !again {
                taken.push(asked);
            }
            if taken.len() == LOOKUPS_IN_REQUEST_MAX {
                break;
            }
        }
        for &asked in &taken {
            self.dequeue(asked);
            self.open.get_mut(&asked).expect("what is queued is open").stage = Stage::Asked;
        }
        taken
    }

    /// Questions in groups of one topic, as requests name them.
    fn by_topic<P>(
        &self,
        asked: &[AskedFor],
        partition: impl Fn(&Lookup, Question) -> P,
    ) -> Vec<(String, Vec<P>)> {
        let mut topics: Vec<(String, Vec<P>)> = Vec::new();
        for &(key, question) in asked {
            let lookup = &self.open[&(key, question)];
            let each = partition(lookup, question);
            match topics.last_mut() {
                Some((name, partitions)) if **name == *lookup.source.topic => partitions.push(each),
                _ => topics.push((lookup.source.topic.to_string(), vec![each])),
            }
        }
        topics
    }

    fn request(&self, conn: &mut Conn, asked: Vec<AskedFor>) -> Vec<u8> {
        let api = asked[0].1.api();
        if api == ApiKey::OFFSET_FOR_LEADER_EPOCH {
            let version = conn.spoken().offset_for_leader_epoch;
            let topics = self.by_topic(&asked, |lookup, question| OffsetForLeaderPartition {
                partition: lookup.source.partition,
                current_leader_epoch: lookup.leader_epoch,
                leader_epoch: match question {
                    Question::EndOfEpoch(epoch) => epoch,
                    _ => LeaderEpoch::UNKNOWN,
                },
            });
            let topic = |(topic, partitions)| OffsetForLeaderTopic { topic, partitions };
            let topics = topics.into_iter().map(topic).collect();
            let request = OffsetForLeaderEpochRequest { replica_id: BrokerId::NONE, topics };
            return conn.ask(api, version, About::Lookups(asked), |writer| {
                request.write(writer, version);
            });
        }
        let version = conn.spoken().list_offsets;
        let topics = self.by_topic(&asked, |lookup, question| ListOffsetsPartition {
            partition_index: lookup.source.partition,
            current_leader_epoch: lookup.leader_epoch,
            timestamp: question.timestamp(),
        });
        let topic = |(name, partitions)| ListOffsetsTopic { name, partitions };
        let topics = topics.into_iter().map(topic).collect();
        let request = ListOffsetsRequest { topics, ..Default::default() };
        conn.ask(api, version, About::Lookups(asked), |writer| request.write(writer, version))
    }
}

/// What a broker said to one question.
struct Told {
    error: ErrorCode,
    offset: Offset,
    epoch: LeaderEpoch,
    timestamp: i64,
}

/// What a broker said, by topic and partition.
type Answers = BTreeMap<(String, PartitionIndex), Told>;

fn read_answers(api: ApiKey, body: Reader<'_>, version: i16) -> Result<Answers, Refusal> {
    let bytes = |error| Refusal::Bytes { api, version, error };
    let mut reader = body;
    let mut answers = Answers::new();
    if api == ApiKey::OFFSET_FOR_LEADER_EPOCH {
        let read = OffsetForLeaderEpochResponse::read(&mut reader, version).map_err(bytes)?;
        for topic in read.topics {
            for told in topic.partitions {
                let (error, offset) = (told.error_code, told.end_offset);
                let epoch = told.leader_epoch;
                let at = (topic.topic.clone(), told.partition);
                answers.insert(at, Told { error, offset, epoch, timestamp: -1 });
            }
        }
    } else {
        let read = ListOffsetsResponse::read(&mut reader, version).map_err(bytes)?;
        for topic in read.topics {
            for told in topic.partitions {
                let (error, offset) = (told.error_code, told.offset);
                let (epoch, timestamp) = (told.leader_epoch, told.timestamp);
                let at = (topic.name.clone(), told.partition_index);
                answers.insert(at, Told { error, offset, epoch, timestamp });
            }
        }
    }
    reader.finish().map_err(bytes)?;
    Ok(answers)
}

impl Link {
    /// Asks the leader of a partition something, again and again until it is answered or `forget`
    /// is called. `leader_epoch` is the one that the mirror knows of. The answer is an effect.
    pub fn look_up(
        &mut self,
        key: PartitionKey,
        source: &SourcePartition,
        leader_epoch: LeaderEpoch,
        question: Question,
    ) {
        self.touched = true;
        let asked = (key, question);
        self.cancel(asked);
        let stage = Stage::Queued(None);
        let lookup = Lookup { source: source.clone(), leader_epoch, failures: 0, stage };
        self.lookups.open.insert(asked, lookup);
        self.route(asked);
    }

    /// Stops fetching a partition and asking about it.
    pub fn forget(&mut self, key: PartitionKey) {
        self.unfetch(key);
        let least = (key, Question::EndOfEpoch(LeaderEpoch(i32::MIN)));
        let open = self.lookups.open.range(least..).map(|(&asked, _)| asked);
        let asked: Vec<AskedFor> = open.take_while(|asked| asked.0 == key).collect();
        for asked in asked {
            self.cancel(asked);
        }
    }

    fn cancel(&mut self, asked: AskedFor) {
        self.lookups.dequeue(asked);
        self.lookups.open.remove(&asked);
        self.timers.clear(Timer::Lookup(asked.0, asked.1));
    }

    /// Puts a question into the queue of the partition's leader, as far as it is known.
    fn route(&mut self, asked: AskedFor) {
        let Some(lookup) = self.lookups.open.get_mut(&asked) else { return };
        let SourcePartition { topic, topic_id, partition } = &lookup.source;
        let told = self.survey.image.leadership(topic, *topic_id, *partition);
        let mut leader = None;
        if let Some(told) = told {
            lookup.leader_epoch = lookup.leader_epoch.max(told.epoch);
            leader = Some(told.leader).filter(|leader| self.brokers.contains_key(leader));
        }
        if leader.is_none() {
            self.survey.want([Arc::clone(topic)]);
        }
        self.lookups.enqueue(asked, leader);
    }

    /// The metadata changed: questions that wait go to the leaders of now.
    pub(super) fn route_lookups(&mut self) {
        let waiting = |lookup: &Lookup| matches!(lookup.stage, Stage::Queued(_));
        let open = self.lookups.open.iter().filter(|(_, lookup)| waiting(lookup));
        let asked: Vec<AskedFor> = open.map(|(&asked, _)| asked).collect();
        for asked in asked {
            self.lookups.dequeue(asked);
            self.route(asked);
        }
    }

    /// Asks a broker the next questions, where its connection is free.
    pub(super) fn ask_lookups(&mut self, broker: BrokerId, now: Now, out: &mut Vec<Effect>) {
        if !self.lookups.is_wanted(broker) {
            return;
        }
        let line = LineKey::Lookups(broker);
        let timeout = self.options.request_timeout;
        if self.ready_line(line, now, out).is_none_or(|(_, conn)| conn.is_waiting()) {
            return;
        }
        let asked = self.lookups.take(broker);
        let open = self.lines.get_mut(&line).and_then(Line::ready);
        let (peer, conn) = open.expect("it was ready a moment ago");
        let bytes = self.lookups.request(conn, asked);
        out.push(Effect::Send { peer, bytes });
        self.timers.set(Timer::Line(line), now.plus(timeout));
    }

    /// A broker has answered questions.
    pub(super) fn lookups_answered(
        &mut self,
        broker: BrokerId,
        asked: &[AskedFor],
        (body, version): (Reader<'_>, i16),
        now: Now,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let Some(api) = asked.first().map(|(_, question)| question.api()) else { return Ok(()) };
        let answers = match read_answers(api, body, version) {
            Ok(answers) => answers,
            Err(refusal) => {
                self.ask_again(asked);
                return Err(refusal);
            }
        };
        for &asked in asked {
            let Some(lookup) = self.lookups.open.get(&asked) else { continue };
            if lookup.stage != Stage::Asked {
                continue;
            }
            let at = (lookup.source.topic.to_string(), lookup.source.partition);
            match answers.get(&at) {
                Some(told) if !told.error.retriable() => {
                    self.cancel(asked);
                    out.push(answer(asked, told));
                }
                _ => self.rest_lookup(asked, now),
            }
        }
        self.lookups.awake.insert(broker);
        Ok(())
    }

    /// What was asked on a connection that is gone is asked again.
    pub(super) fn ask_again(&mut self, asked: &[AskedFor]) {
        for &asked in asked {
            if self.lookups.open.get(&asked).is_some_and(|lookup| lookup.stage == Stage::Asked) {
                self.route(asked);
            }
        }
    }

    fn rest_lookup(&mut self, asked: AskedFor, now: Now) {
        let Some(lookup) = self.lookups.open.get_mut(&asked) else { return };
        lookup.stage = Stage::Rests;
        lookup.failures = lookup.failures.saturating_add(1);
        self.survey.want([Arc::clone(&lookup.source.topic)]);
        let (least, most) = (self.options.retry_backoff_least, self.options.retry_backoff_most);
        let wait = delay(least, most, lookup.failures, &mut self.random);
        self.timers.set(Timer::Lookup(asked.0, asked.1), now.plus(wait));
    }

    /// A question has rested long enough.
    pub(super) fn lookup_rested(&mut self, asked: AskedFor) {
        self.route(asked);
    }
}

fn answer((key, question): AskedFor, told: &Told) -> Effect {
    let sound = if told.error.is_none() { Ok(()) } else { Err(told.error) };
    match question {
        Question::EndOfEpoch(asked) => Effect::EndOfEpoch {
            key,
            asked,
            answer: sound.map(|()| EndOfEpoch { epoch: told.epoch, end_offset: told.offset }),
        },
        Question::Earliest | Question::Latest | Question::AtTime(_) => Effect::OffsetAt {
            key,
            question,
            answer: sound.map(|()| OffsetAt {
                offset: told.offset,
                leader_epoch: told.epoch,
                timestamp: told.timestamp,
            }),
        },
    }
}
