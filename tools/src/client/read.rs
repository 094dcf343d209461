//! Reading partitions to their end, over changes of leaders and lost connections.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use engine::ids::TopicPartition;
use wire::api::list_offsets::{
    EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsResponse, ListOffsetsTopic,
};
use wire::api::{ApiKey, ErrorCode, Versions};
use wire::batch::{Batch, Batches};
use wire::codec::Reader;
use wire::fetch::{
    FetchPartition, FetchRequestHead, FetchRequestWriter, FetchResponse, FetchedPartition,
    IsolationLevel, TopicKey,
};
use wire::ids::{BrokerId, LeaderEpoch, Offset, TopicId};

use super::connection::Connection;
use super::{Client, ClientError, Settings};

/// How long to wait before asking again who leads.
const BACKOFF: Duration = Duration::from_millis(20);

/// Where one partition is read.
#[derive(Debug)]
struct Target {
    key: TopicPartition,
    id: TopicId,
    leader: Option<BrokerId>,
    epoch: LeaderEpoch,
    /// What comes next.
    position: Option<Offset>,
    end: Option<Offset>,
    /// At least how much to ask for: a batch may be larger than a fetch.
    bytes_max: i32,
    /// The broker saw the end of what is read and gave no records before it.
    is_hole: bool,
}

impl Target {
    fn is_done(&self) -> bool {
        matches!((self.position, self.end), (Some(position), Some(end)) if position >= end)
    }
}

/// What a round with one broker brought.
#[derive(Debug, Default)]
struct Round {
    progress: bool,
    /// Who leads has to be asked again, because of this.
    stale: Option<String>,
}

pub(super) fn to_end(
    client: &mut Client,
    topics: Option<&[&str]>,
    mut each: impl FnMut(&TopicPartition, &Batch<'_>),
) -> Result<(), ClientError> {
    let mut targets = BTreeMap::new();
    refresh(client, topics, &mut targets)?;
    let mut last_progress = Instant::now();
    while targets.values().any(|target| !target.is_done()) {
        let round = round(client, &mut targets, &mut each)?;
        if round.progress {
            last_progress = Instant::now();
        }
        if let Some(reason) = round.stale {
            if last_progress.elapsed() > client.settings.patience {
                return Err(ClientError::Patience(reason));
            }
            thread::sleep(BACKOFF);
            match refresh(client, topics, &mut targets) {
                Err(ClientError::Connection(reason)) => tracing::debug!(reason, "no metadata"),
                refreshed => refreshed?,
            }
        }
    }
    Ok(())
}

/// Learns who leads. Partitions that were not there in the beginning are left out.
fn refresh(
    client: &mut Client,
    topics: Option<&[&str]>,
    targets: &mut BTreeMap<TopicPartition, Target>,
) -> Result<(), ClientError> {
    let is_first = targets.is_empty();
    let bytes_max = client.settings.partition_bytes_max;
    for topic in client.metadata(topics)? {
        for view in &topic.partitions {
            let key = TopicPartition { topic: topic.name.clone(), partition: view.index };
            let (leader, epoch, id) = (view.leader, view.epoch, topic.id);
            let target = if is_first {
                let (position, end) = (None, None);
                let new = Target {
                    key: key.clone(),
                    id,
                    leader,
                    epoch,
                    position,
                    end,
                    bytes_max,
                    is_hole: false,
                };
                targets.entry(key).or_insert(new)
            } else {
                let Some(target) = targets.get_mut(&key) else { continue };
                target
            };
            if target.id != id {
                let reason = "its topic was deleted and created again".into();
                return Err(ClientError::Partition(target.key.clone(), reason));
            }
            (target.leader, target.epoch) = (leader, epoch);
        }
    }
    Ok(())
}

/// One fetch from every leader of what is left.
fn round(
    client: &mut Client,
    targets: &mut BTreeMap<TopicPartition, Target>,
    each: &mut impl FnMut(&TopicPartition, &Batch<'_>),
) -> Result<Round, ClientError> {
    let mut whole = Round::default();
    let left = targets.values().filter(|target| !target.is_done());
    let mut leaders: Vec<_> = left.map(|target| target.leader).collect();
    leaders.sort_unstable();
    leaders.dedup();
    for leader in leaders {
        let Some(leader) = leader else {
            whole.stale = Some("a partition has no leader".into());
            continue;
        };
        let led = |target: &&mut Target| target.leader == Some(leader) && !target.is_done();
        let mut led: Vec<_> = targets.values_mut().filter(led).collect();
        let settings = client.settings.clone();
        let fetched = client.connection(leader).and_then(|connection| {
            place(connection, &settings, &mut led)?;
            fetch(connection, &settings, &mut led, each)
        });
        match fetched {
            Ok(round) => {
                whole.progress |= round.progress;
                whole.stale = round.stale.or(whole.stale);
            }
            Err(ClientError::Connection(reason)) => {
                client.connections.remove(&leader);
                whole.stale = Some(reason);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(whole)
}

/// Finds the start and the end of partitions that are read for the first time.
fn place(
    connection: &mut Connection,
    settings: &Settings,
    led: &mut [&mut Target],
) -> Result<(), ClientError> {
    for timestamp in [LATEST_TIMESTAMP, EARLIEST_TIMESTAMP] {
        let is_asked = |target: &Target| match timestamp {
            LATEST_TIMESTAMP => target.end.is_none(),
            _ => target.position.is_none(),
        };
        let asked = led.iter().filter(|target| is_asked(target));
        let topics: Vec<_> = asked.map(|target| question(target, timestamp)).collect();
        if topics.is_empty() {
            continue;
        }
        for (key, error, offset) in list_offsets(connection, settings, topics)? {
            let is_key = |target: &&mut &mut Target| {
                *target.key.topic == *key.0 && target.key.partition == key.1
            };
            let Some(target) = led.iter_mut().find(is_key) else { continue };
            match error {
                ErrorCode::NONE if timestamp == LATEST_TIMESTAMP => target.end = Some(offset),
                ErrorCode::NONE => target.position = Some(offset),
                error if error.retriable() => {}
                error => {
                    return Err(ClientError::Partition(target.key.clone(), error.to_string()));
                }
            }
        }
    }
    Ok(())
}

fn question(target: &Target, timestamp: i64) -> ListOffsetsTopic {
    ListOffsetsTopic {
        name: target.key.topic.to_string(),
        partitions: vec![ListOffsetsPartition {
            partition_index: target.key.partition,
            current_leader_epoch: target.epoch,
            timestamp,
        }],
    }
}

type Placed = ((String, wire::ids::PartitionIndex), ErrorCode, Offset);

fn list_offsets(
    connection: &mut Connection,
    settings: &Settings,
    topics: Vec<ListOffsetsTopic>,
) -> Result<Vec<Placed>, ClientError> {
    let key = ApiKey::LIST_OFFSETS;
    let isolation_level = settings.isolation.0;
    let request = ListOffsetsRequest { isolation_level, topics, ..ListOffsetsRequest::default() };
    let version = connection.version(key, ListOffsetsRequest::VERSIONS, i16::MAX)?;
    let body = connection.exchange(key, version, |writer| request.write(writer, version))?;
    let mut reader = Reader::new(&connection.frame()[body..]);
    let response = ListOffsetsResponse::read(&mut reader, version)
        .map_err(|error| ClientError::Bytes(format!("{key}: {error}")))?;
    let mut placed = Vec::new();
    for topic in response.topics {
        for partition in topic.partitions {
            let key = (topic.name.clone(), partition.partition_index);
            placed.push((key, partition.error_code, partition.offset));
        }
    }
    Ok(placed)
}

fn fetch(
    connection: &mut Connection,
    settings: &Settings,
    led: &mut [&mut Target],
    each: &mut impl FnMut(&TopicPartition, &Batch<'_>),
) -> Result<Round, ClientError> {
    let mut round = Round::default();
    let is_wanted = |target: &&mut &mut Target| target.position.is_some() && !target.is_done();
    let mut wanted: Vec<_> = led.iter_mut().filter(is_wanted).collect();
    if wanted.is_empty() {
        round.stale = Some("offsets are not known yet".into());
        return Ok(round);
    }
    let ours =
        Versions { least: *wire::fetch::VERSIONS.start(), most: *wire::fetch::VERSIONS.end() };
    let mut most = settings.fetch_version_max;
    if wanted.iter().any(|target| target.id.is_zero()) {
        // Before version 13 topics go by their name.
        most = most.min(12);
    }
    let version = connection.version(ApiKey::FETCH, ours, most)?;
    let body = connection.exchange(ApiKey::FETCH, version, |writer| {
        let largest = wanted.iter().map(|target| target.bytes_max).max().unwrap_or(0);
        let head = FetchRequestHead {
            max_wait_ms: 100,
            min_bytes: 1,
            max_bytes: settings.fetch_bytes_max.max(largest),
            isolation_level: settings.isolation,
            ..FetchRequestHead::default()
        };
        let mut request = FetchRequestWriter::start(writer, version, &head, wanted.len());
        for target in &wanted {
            request.topic(TopicKey { name: &target.key.topic, id: target.id }, 1);
            let position = target.position.unwrap_or_default();
            let fetch = FetchPartition::new(target.key.partition, position, target.bytes_max);
            request.partition(&FetchPartition { current_leader_epoch: target.epoch, ..fetch });
        }
        request.finish(std::iter::empty());
    })?;
    let frame = connection.frame();
    let bytes = |error: wire::WireError| ClientError::Bytes(format!("Fetch: {error}"));
    let mut response = FetchResponse::open(frame, body, version).map_err(bytes)?;
    let error = ErrorCode(response.head().error_code);
    if !error.is_none() {
        return Err(ClientError::Kafka(ApiKey::FETCH, error));
    }
    let mut record_bytes = 0;
    while let Some(topic) = response.topic(frame).map_err(bytes)? {
        while let Some(partition) = response.partition(frame).map_err(bytes)? {
            let is_it = |target: &&mut &mut &mut Target| {
                let is_topic = match topic.id {
                    TopicId::ZERO => *target.key.topic == *topic.name,
                    id => target.id == id,
                };
                is_topic && target.key.partition == partition.partition_index
            };
            let Some(target) = wanted.iter_mut().find(is_it) else { continue };
            record_bytes += partition.records.len();
            take(target, &partition, frame, settings, &mut round, each)?;
        }
    }
    // Where records came, others may have been left out because they did not fit any more.
    let are_holes = record_bytes == 0 && round.stale.is_none();
    for target in wanted.into_iter().filter(|target| are_holes && target.is_hole) {
        // Compaction has removed all that was left up to the end.
        target.position = target.end;
        round.progress = true;
    }
    Ok(round)
}

/// Hands on what came of one partition.
fn take(
    target: &mut Target,
    fetched: &FetchedPartition<'_>,
    frame: &[u8],
    settings: &Settings,
    round: &mut Round,
    each: &mut impl FnMut(&TopicPartition, &Batch<'_>),
) -> Result<(), ClientError> {
    let failed = |reason: String| ClientError::Partition(target.key.clone(), reason);
    match ErrorCode(fetched.error_code) {
        ErrorCode::NONE => {}
        ErrorCode::OFFSET_OUT_OF_RANGE => {
            // Its start may have moved; where it has not, the same error comes until patience ends.
            target.position = None;
            round.stale = Some(format!("{}: OFFSET_OUT_OF_RANGE", target.key));
            return Ok(());
        }
        error if error.retriable() => {
            round.stale = Some(format!("{}: {error}", target.key));
            return Ok(());
        }
        error => return Err(failed(error.to_string())),
    }
    let records = &frame[fetched.records.clone()];
    let visible = match settings.isolation {
        IsolationLevel::READ_COMMITTED => fetched.last_stable_offset,
        _ => fetched.high_watermark,
    };
    target.is_hole = records.is_empty() && target.end.is_some_and(|end| visible >= end);
    let mut batches = Batches::new(records);
    let mut position = target.position.unwrap_or_default();
    let before = position;
    for batch in &mut batches {
        let (_, batch) = batch.map_err(|error| failed(error.to_string()))?;
        if settings.check_crcs {
            batch.verify_crc().map_err(|fault| failed(batch.error(0, fault).to_string()))?;
        }
        let is_past = target.end.is_some_and(|end| batch.base_offset() >= end);
        if batch.next_offset() > position && !is_past {
            each(&target.key, &batch);
            position = batch.next_offset();
        }
    }
    let rest = batches.rest();
    target.position = Some(position);
    if position > before {
        round.progress = true;
    } else if let Some(size) = rest.announced {
        let size = i32::try_from(size).unwrap_or(i32::MAX);
        target.bytes_max = target.bytes_max.max(size);
    }
    Ok(())
}
