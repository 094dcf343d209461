//! Answering Fetch: sessions, waiting for enough bytes, and reading within the bounds.

use wire::api::ErrorCode;
use wire::fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartition, FetchRequest, FetchResponseHead,
    FetchResponseWriter, IsolationLevel, LeaderIdAndEpoch, NodeEndpoint, PartitionData, Piece,
    TopicKey,
};
use wire::frame::RequestHeader;
use wire::ids::{BrokerId, LeaderEpoch, Offset, TopicId};

use super::chunk::Chunks;
use super::cluster::Cluster;
use super::handle::Handled;
use super::partition::Partition;
use super::session::{Answered, Context, Wish};

/// From here on topics go by their id.
const TOPIC_IDS: i16 = 13;
/// From here on brokers say who leads in their place.
const NODE_ENDPOINTS: i16 = 16;

/// A request whose answer waits.
#[derive(Clone, Debug)]
pub struct Parked {
    broker: BrokerId,
    correlation_id: i32,
    version: i16,
    isolation: IsolationLevel,
    min_bytes: usize,
    max_bytes: usize,
    deadline_ms: i64,
    context: Context,
    wishes: Vec<(Wish, FetchPartition)>,
    until_ms: i64,
    /// An answer that is held back.
    held: Option<Chunks>,
}

impl Parked {
    /// When to call [`Cluster::resume`] at the latest.
    #[must_use]
    pub const fn until_ms(&self) -> i64 {
        self.until_ms
    }
}

/// What was read for one wish.
struct Answer {
    error_code: ErrorCode,
    high_watermark: Offset,
    last_stable: Offset,
    log_start: Offset,
    aborted: Option<Vec<AbortedTransaction>>,
    diverging: Option<EpochEndOffset>,
    leader: Option<LeaderIdAndEpoch>,
    records: Chunks,
    delay_ms: i64,
    grows_at_ms: Option<i64>,
}

impl Answer {
    fn error(error_code: ErrorCode) -> Self {
        Self {
            error_code,
            high_watermark: Offset(-1),
            last_stable: Offset(-1),
            log_start: Offset(-1),
            aborted: None,
            diverging: None,
            leader: None,
            records: Chunks::default(),
            delay_ms: 0,
            grows_at_ms: None,
        }
    }

    fn is_loud(&self) -> bool {
        !self.error_code.is_none() || self.diverging.is_some()
    }

    fn answered(&self) -> Answered {
        Answered {
            record_bytes: self.records.len(),
            is_error: !self.error_code.is_none(),
            diverges: self.diverging.is_some(),
            high_watermark: self.high_watermark,
            log_start: self.log_start,
        }
    }
}

impl Cluster {
    pub(super) fn fetch(
        &mut self,
        broker: BrokerId,
        header: &RequestHeader,
        body: &[u8],
        now_ms: i64,
    ) -> Handled {
        let version = header.api_version;
        let request = match FetchRequest::read(body, version) {
            Ok(request) => request,
            Err(error) => return Handled::Close(format!("Fetch {version}: {error}")),
        };
        let correlation_id = header.correlation_id;
        let Some(sessions) = self.brokers.get_mut(&broker).map(|broker| &mut broker.sessions)
        else {
            return Handled::Close(format!("there is no broker {broker}"));
        };
        let begun = sessions.begin(&request, version >= TOPIC_IDS, &mut self.random);
        let (context, wishes) = match begun {
            Ok(begun) => begun,
            Err(error) => return Handled::Response(refuse(correlation_id, version, error)),
        };
        let bounded = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
        let deadline_ms = now_ms.saturating_add(i64::from(request.head.max_wait_ms));
        let parked = Parked {
            broker,
            correlation_id,
            version,
            isolation: request.head.isolation_level,
            min_bytes: bounded(request.head.min_bytes),
            max_bytes: bounded(request.head.max_bytes),
            deadline_ms,
            context,
            wishes,
            until_ms: deadline_ms,
            held: None,
        };
        self.resume(parked, now_ms)
    }

    /// Tries again to answer a request that was parked: after commands, and when its time has come.
    pub fn resume(&mut self, mut parked: Parked, now_ms: i64) -> Handled {
        if !self.is_up(parked.broker) {
            return Handled::Close(format!("broker {} is down", parked.broker));
        }
        if let Some(held) = parked.held.take_if(|_| now_ms >= parked.until_ms) {
            return Handled::Response(held);
        }
        if parked.held.is_some() {
            return Handled::Parked(parked);
        }
        let answers = self.read(&parked, now_ms);
        let bytes: usize = answers.iter().map(|answer| answer.records.len()).sum();
        let is_due = now_ms >= parked.deadline_ms || bytes >= parked.min_bytes;
        if !is_due && !answers.is_empty() && !answers.iter().any(Answer::is_loud) {
            let grows = answers.iter().filter_map(|answer| answer.grows_at_ms).min();
            parked.until_ms = grows.map_or(parked.deadline_ms, |at| at.min(parked.deadline_ms));
            return Handled::Parked(parked);
        }
        let carries = |answer: &&Answer| !answer.records.is_empty();
        let delay_ms = answers.iter().filter(carries).map(|answer| answer.delay_ms).max();
        let response = self.write(&parked, answers);
        match delay_ms {
            Some(delay_ms @ 1..) => {
                parked.until_ms = now_ms.saturating_add(delay_ms);
                parked.held = Some(response);
                Handled::Parked(parked)
            }
            _ => Handled::Response(response),
        }
    }

    /// One answer for each wish, all of them within the bounds of the request.
    fn read(&self, parked: &Parked, now_ms: i64) -> Vec<Answer> {
        let mut left = parked.max_bytes;
        let mut whole = true;
        let mut answers = Vec::with_capacity(parked.wishes.len());
        for (wish, fetch) in &parked.wishes {
            let most = left.min(usize::try_from(fetch.partition_max_bytes).unwrap_or(0));
            let answer = match self.find(wish) {
                Ok(partition) => read_partition(partition, parked, fetch, most, whole, now_ms),
                Err(error) => Answer::error(error),
            };
            left = left.saturating_sub(answer.records.len());
            whole &= answer.records.is_empty();
            answers.push(answer);
        }
        answers
    }

    fn find(&self, wish: &Wish) -> Result<&Partition, ErrorCode> {
        let name = match wish.id {
            TopicId::ZERO => &wish.name,
            id => self.names.get(&id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?,
        };
        let topic = self.topics.get(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let index = usize::try_from(wish.partition.0).ok();
        let partition = index.and_then(|index| topic.partitions.get(index));
        partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }

    fn write(&mut self, parked: &Parked, answers: Vec<Answer>) -> Chunks {
        let Parked { version, correlation_id, context, .. } = *parked;
        let wishes = parked.wishes.iter().map(|(wish, _)| wish.clone());
        let answered: Vec<_> = wishes.zip(answers.iter().map(Answer::answered)).collect();
        let broker = self.brokers.get_mut(&parked.broker).expect("the broker is up");
        let tells = match broker.sessions.select(context, &answered) {
            Ok(tells) => tells,
            Err(error) => return refuse(correlation_id, version, error),
        };
        let told: Vec<_> = answered
            .into_iter()
            .map(|(wish, _)| wish)
            .zip(answers)
            .zip(tells)
            .filter_map(|(told, tells)| tells.then_some(told))
            .collect();
        let groups: Vec<_> =
            told.chunk_by(|a, b| (a.0.id, &a.0.name) == (b.0.id, &b.0.name)).collect();
        let head = FetchResponseHead { session_id: context.session_id(), ..Default::default() };
        let mut writer = FetchResponseWriter::start(correlation_id, version, &head, groups.len());
        for group in groups {
            let wish = &group[0].0;
            writer.topic(TopicKey { name: &wish.name, id: wish.id }, group.len());
            for (wish, answer) in group {
                writer.partition(&partition_data(wish, answer), answer.records.len());
            }
        }
        let frame = writer.finish(&self.endpoints(&told));
        let mut response = Chunks::default();
        let mut records: Vec<_> =
            told.into_iter().map(|(_, answer)| Some(answer.records)).collect();
        for piece in frame.pieces {
            match piece {
                Piece::Bytes(range) => response.push(&frame.bytes[range]),
                Piece::Records { index, .. } => {
                    response.append(records[index].take().unwrap_or_default());
                }
            }
        }
        response
    }

    fn endpoints(&self, told: &[(Wish, Answer)]) -> Vec<NodeEndpoint<'_>> {
        let mut leaders: Vec<_> =
            told.iter().filter_map(|(_, answer)| Some(answer.leader?.leader_id)).collect();
        leaders.sort_unstable();
        leaders.dedup();
        let endpoint = |node_id| {
            let broker = self.brokers.get(&node_id)?;
            let (host, port) = (broker.host.as_str(), i32::from(broker.port));
            Some(NodeEndpoint { node_id, host, port, rack: broker.rack.as_deref() })
        };
        leaders.into_iter().filter_map(endpoint).collect()
    }
}

fn partition_data<'a>(wish: &Wish, answer: &'a Answer) -> PartitionData<'a> {
    PartitionData {
        high_watermark: answer.high_watermark,
        last_stable_offset: answer.last_stable,
        log_start_offset: answer.log_start,
        aborted_transactions: answer.aborted.as_deref(),
        diverging_epoch: answer.diverging,
        current_leader: answer.leader,
        ..PartitionData::error(wish.partition, answer.error_code.0)
    }
}

fn read_partition(
    partition: &Partition,
    parked: &Parked,
    fetch: &FetchPartition,
    bytes_max: usize,
    whole: bool,
    now_ms: i64,
) -> Answer {
    if let Err(error) = partition.check(parked.broker, fetch.current_leader_epoch) {
        let tells =
            matches!(error, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH)
                && parked.version >= NODE_ENDPOINTS;
        let leader = tells.then(|| LeaderIdAndEpoch {
            leader_id: partition.leader.unwrap_or(BrokerId::NONE),
            leader_epoch: partition.epoch,
        });
        return Answer { leader, ..Answer::error(error) };
    }
    if let Some(error) = partition.trouble.error {
        return Answer::error(error);
    }
    let log = partition.log();
    let (start, end, from) = (log.start(), log.end(now_ms), fetch.fetch_offset);
    let mut answer = Answer {
        high_watermark: log.high_watermark(now_ms),
        last_stable: log.last_stable_offset(now_ms),
        log_start: start,
        delay_ms: partition.trouble.delay_ms,
        grows_at_ms: log.grows_at_ms(now_ms),
        ..Answer::error(ErrorCode::NONE)
    };
    if fetch.last_fetched_epoch != LeaderEpoch::UNKNOWN {
        match partition.epochs().end_of(fetch.last_fetched_epoch, end) {
            None => return Answer::error(ErrorCode::OFFSET_OUT_OF_RANGE),
            Some((epoch, end_offset)) if epoch < fetch.last_fetched_epoch || end_offset < from => {
                answer.diverging = Some(EpochEndOffset { epoch, end_offset });
                return answer;
            }
            Some(_) => {}
        }
    }
    if from < start || from > end {
        return Answer::error(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    let upper = log.upper(parked.isolation, now_ms);
    if parked.isolation == IsolationLevel::READ_COMMITTED {
        answer.aborted = Some(log.aborted(from, upper));
    }
    if from < upper {
        answer.records = partition.read(from, upper, bytes_max, whole);
    }
    answer
}

/// A response that only says why the session cannot go on.
fn refuse(correlation_id: i32, version: i16, error: ErrorCode) -> Chunks {
    let head = FetchResponseHead { error_code: error.0, ..Default::default() };
    let frame = FetchResponseWriter::start(correlation_id, version, &head, 0).finish(&[]);
    Chunks::from(frame.bytes)
}
