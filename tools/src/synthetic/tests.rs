//! What a consumer sees of the cluster, request by request, without a socket.

use wire::api::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use wire::api::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use wire::api::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use wire::api::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopic,
};
use wire::api::{ApiKey, ErrorCode};
use wire::batch::Batches;
use wire::codec::{Reader, Writer};
use wire::fetch::{
    FetchPartition, FetchRequest, FetchRequestHead, FetchResponse, FetchTopic, ForgottenTopic,
    IsolationLevel,
};
use wire::frame::{frame_request, read_response_header};
use wire::ids::{
    BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};
use wire::record::ControlKind;

use super::*;

const ONE: BrokerId = BrokerId(1);
const TWO: BrokerId = BrokerId(2);

fn cluster(release: Release) -> Cluster {
    Cluster::new(Settings { release, ..Settings::default() })
}

/// A cluster whose topic `t` has two partitions, led by brokers 1 and 2, the first with `batches`
/// batches of two records.
fn filled(batches: i64) -> Cluster {
    let mut cluster = cluster(Release::Kafka44);
    cluster.create_topic("t", 2);
    for n in 0..batches {
        let records = vec![Record::of(2 * n, "a"), Record::of(2 * n + 1, "b")];
        cluster.partition("t", 0).append(&NewBatch::of(records));
    }
    cluster
}

fn frame(key: ApiKey, version: i16, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    frame_request(key, version, 7, Some("test"), body)[4..].to_vec()
}

fn body_of(key: ApiKey, version: i16, response: &Chunks) -> Vec<u8> {
    let bytes = response.to_vec();
    assert_eq!(bytes.len() - 4, i32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize);
    let mut reader = Reader::new(&bytes[4..]);
    assert_eq!(read_response_header(&mut reader, key, version), Ok(7));
    bytes[4 + reader.position()..].to_vec()
}

fn ask(
    cluster: &mut Cluster,
    broker: BrokerId,
    key: ApiKey,
    version: i16,
    body: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    let request = frame(key, version, body);
    match cluster.handle(&mut Connection::to(broker), &request, 0) {
        Handled::Response(response) => body_of(key, version, &response),
        other => panic!("no response to {key} {version}: {other:?}"),
    }
}

/// A partition's part of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Got {
    partition: i32,
    error: ErrorCode,
    records: Vec<u8>,
    high_watermark: i64,
    last_stable: i64,
    aborted: Vec<(i64, i64)>,
    diverging: Option<(i32, i64)>,
    leader: Option<(i32, i32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fetched {
    error: ErrorCode,
    session_id: i32,
    partitions: Vec<Got>,
    endpoints: Vec<(i32, String)>,
}

impl Fetched {
    fn read(version: i16, response: &Chunks) -> Self {
        let body = body_of(ApiKey::FETCH, version, response);
        let mut walk = FetchResponse::open(&body, 0, version).expect("a response");
        let mut partitions = Vec::new();
        while walk.topic(&body).expect("sound").is_some() {
            while let Some(got) = walk.partition(&body).expect("sound") {
                let aborted = got.aborted_transactions;
                partitions.push(Got {
                    partition: got.partition_index.0,
                    error: ErrorCode(got.error_code),
                    records: body[got.records.clone()].to_vec(),
                    high_watermark: got.high_watermark.0,
                    last_stable: got.last_stable_offset.0,
                    aborted: aborted
                        .map(|each| (each.producer_id.0, each.first_offset.0))
                        .collect(),
                    diverging: got.diverging_epoch.map(|end| (end.epoch.0, end.end_offset.0)),
                    leader: got.current_leader.map(|it| (it.leader_id.0, it.leader_epoch.0)),
                });
            }
        }
        let tail = walk.tail(&body).expect("sound");
        let head = walk.head();
        Self {
            error: ErrorCode(head.error_code),
            session_id: head.session_id,
            partitions,
            endpoints: tail.node_endpoints.map(|it| (it.node_id.0, it.host.into())).collect(),
        }
    }

    fn only(&self) -> &Got {
        assert_eq!((self.error, self.partitions.len()), (ErrorCode::NONE, 1), "{self:?}");
        &self.partitions[0]
    }

    fn places(&self) -> Vec<i32> {
        self.partitions.iter().map(|got| got.partition).collect()
    }
}

fn wish(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition::new(PartitionIndex(partition), Offset(offset), 1 << 20)
}

fn request(cluster: &Cluster, partitions: &[FetchPartition]) -> FetchRequest {
    let id = cluster.topic("t").map_or(TopicId::ZERO, Topic::id);
    let topic = FetchTopic { name: "t".into(), id, partitions: partitions.to_vec() };
    let head = FetchRequestHead { min_bytes: 1, ..FetchRequestHead::default() };
    let topics = if partitions.is_empty() { Vec::new() } else { vec![topic] };
    FetchRequest { head, topics, forgotten_topics: Vec::new() }
}

fn send(cluster: &mut Cluster, broker: BrokerId, version: i16, request: &FetchRequest) -> Handled {
    let request = frame(ApiKey::FETCH, version, |writer| request.write(writer, version));
    cluster.handle(&mut Connection::to(broker), &request, 0)
}

fn fetch_as(
    cluster: &mut Cluster,
    broker: BrokerId,
    version: i16,
    request: &FetchRequest,
) -> Fetched {
    match send(cluster, broker, version, request) {
        Handled::Response(response) => Fetched::read(version, &response),
        other => panic!("no response: {other:?}"),
    }
}

fn fetch(cluster: &mut Cluster, partitions: &[FetchPartition]) -> Fetched {
    let request = request(cluster, partitions);
    fetch_as(cluster, ONE, 18, &request)
}

fn bases(records: &[u8]) -> Vec<i64> {
    Batches::new(records).map(|batch| batch.expect("sound").1.base_offset().0).collect()
}

#[test]
fn a_release_tells_its_versions_and_refuses_others() {
    let mut old = cluster(Release::Kafka21);
    let answer = |cluster: &mut Cluster, asked: i16, answered: i16| {
        let request = ApiVersionsRequest::default();
        let frame = frame(ApiKey::API_VERSIONS, asked, |writer| request.write(writer, asked));
        let Handled::Response(response) = cluster.handle(&mut Connection::to(ONE), &frame, 0)
        else {
            panic!("ApiVersions is always answered")
        };
        let body = body_of(ApiKey::API_VERSIONS, answered, &response);
        ApiVersionsResponse::read(&mut Reader::new(&body), answered).expect("sound")
    };
    let refused = answer(&mut old, 3, 0);
    assert_eq!(refused.error_code, ErrorCode::UNSUPPORTED_VERSION);
    let versions = answer(&mut old, 2, 2);
    assert_eq!(versions.versions(ApiKey::FETCH).map(|both| both.most), Some(10));
    let wishes = request(&old, &[]);
    assert!(matches!(send(&mut old, ONE, 11, &wishes), Handled::Close(_)));
    let new = answer(&mut cluster(Release::Kafka44), 5, 5);
    assert_eq!(new.versions(ApiKey::FETCH).map(|both| both.most), Some(18));
}

#[test]
fn metadata_tells_who_leads_and_knows_topics_by_name_and_by_id() {
    let mut cluster = filled(0);
    cluster.partition("t", 1).lose_leader();
    let id = cluster.topic("t").expect("created").id();
    let mut metadata = |topics: Option<Vec<MetadataRequestTopic>>| {
        let request = MetadataRequest { topics, ..MetadataRequest::default() };
        let key = ApiKey::METADATA;
        let body = ask(&mut cluster, TWO, key, 13, |writer| request.write(writer, 13));
        MetadataResponse::read(&mut Reader::new(&body), 13).expect("sound")
    };
    let all = metadata(None);
    assert_eq!(all.brokers.len(), 3);
    let topic = &all.topics[0];
    assert_eq!((topic.name.as_deref(), topic.topic_id), (Some("t"), id));
    assert_eq!(topic.partitions[0].leader_id, ONE);
    assert_eq!(topic.partitions[0].leader_epoch, LeaderEpoch(0));
    assert_eq!(topic.partitions[1].error_code, ErrorCode::LEADER_NOT_AVAILABLE);
    assert_eq!(topic.partitions[1].leader_id, BrokerId::NONE);
    let by_id = |topic_id| Some(vec![MetadataRequestTopic { topic_id, name: None }]);
    assert_eq!(metadata(by_id(id)).topics[0].name.as_deref(), Some("t"));
    assert_eq!(metadata(by_id(TopicId([9; 16]))).topics[0].error_code, ErrorCode::UNKNOWN_TOPIC_ID);
}

#[test]
fn every_version_reads_the_same_batches() {
    let mut cluster = filled(3);
    let wishes = request(&cluster, &[wish(0, 3)]);
    for version in 4..=18 {
        let fetched = fetch_as(&mut cluster, ONE, version, &wishes);
        let got = fetched.only();
        assert_eq!(bases(&got.records), [2, 4], "version {version}");
        assert_eq!((got.high_watermark, got.last_stable), (6, 6));
    }
}

#[test]
fn a_fetch_waits_for_records_until_its_time_is_over() {
    let mut cluster = filled(1);
    let mut wishes = request(&cluster, &[wish(0, 2)]);
    wishes.head.max_wait_ms = 500;
    let Handled::Parked(parked) = send(&mut cluster, ONE, 18, &wishes) else {
        panic!("there is nothing to read")
    };
    assert_eq!(parked.until_ms(), 500);
    let Handled::Parked(parked) = cluster.resume(parked, 499) else { panic!("too early") };
    let Handled::Response(empty) = cluster.resume(parked.clone(), 500) else { panic!("in time") };
    assert!(Fetched::read(18, &empty).only().records.is_empty());
    cluster.partition("t", 0).append(&NewBatch::of(vec![Record::of(0, "new")]));
    let Handled::Response(new) = cluster.resume(parked, 10) else { panic!("records came") };
    assert_eq!(bases(&Fetched::read(18, &new).only().records), [2]);
}

#[test]
fn a_waiting_fetch_hears_of_a_new_leader_at_once() {
    let mut cluster = filled(1);
    let mut wishes = request(&cluster, &[wish(0, 2)]);
    wishes.head.max_wait_ms = 500;
    let Handled::Parked(parked) = send(&mut cluster, ONE, 18, &wishes) else { panic!("parked") };
    assert_eq!(cluster.move_leader("t", 0, 0), Some(TWO));
    let Handled::Response(response) = cluster.resume(parked, 1) else { panic!("at once") };
    let fetched = Fetched::read(18, &response);
    assert_eq!(fetched.only().error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(fetched.only().leader, Some((2, 1)));
    assert_eq!(fetched.endpoints, [(2, "broker-2".into())]);
}

#[test]
fn epochs_are_checked_before_leadership() {
    let mut cluster = filled(1);
    cluster.move_leader("t", 0, 0);
    let mut error = |broker, epoch, version| {
        let epoch = FetchPartition { current_leader_epoch: LeaderEpoch(epoch), ..wish(0, 0) };
        let wishes = request(&cluster, &[epoch]);
        let fetched = fetch_as(&mut cluster, broker, version, &wishes);
        (fetched.only().error, fetched.only().leader)
    };
    assert_eq!(error(ONE, 0, 18), (ErrorCode::FENCED_LEADER_EPOCH, Some((2, 1))));
    assert_eq!(error(ONE, 0, 15), (ErrorCode::FENCED_LEADER_EPOCH, None));
    assert_eq!(error(ONE, 1, 18), (ErrorCode::NOT_LEADER_OR_FOLLOWER, Some((2, 1))));
    assert_eq!(error(TWO, 2, 18), (ErrorCode::UNKNOWN_LEADER_EPOCH, None));
    assert_eq!(error(TWO, 1, 18), (ErrorCode::NONE, None));
    assert_eq!(error(TWO, -1, 18), (ErrorCode::NONE, None));
}

#[test]
fn the_first_records_come_whole_and_later_ones_are_cut_to_the_bounds() {
    let mut cluster = filled(3);
    cluster.partition("t", 1).append(&NewBatch::of(vec![Record::of(0, "b")]));
    cluster.partition("t", 1).move_leader(ONE, 0);
    let size = fetch(&mut cluster, &[wish(0, 4)]).only().records.len();
    let tiny = |partition| FetchPartition { partition_max_bytes: 1, ..wish(partition, 0) };
    let fetched = fetch(&mut cluster, &[tiny(0), tiny(1)]);
    let sizes: Vec<_> = fetched.partitions.iter().map(|got| got.records.len()).collect();
    assert_eq!(sizes, [size, 0]);
    let mut wishes = request(&cluster, &[wish(0, 0), wish(1, 0)]);
    wishes.head.max_bytes = i32::try_from(2 * size + 5).unwrap();
    let fetched = fetch_as(&mut cluster, ONE, 18, &wishes);
    let sizes: Vec<_> = fetched.partitions.iter().map(|got| got.records.len()).collect();
    assert_eq!(sizes, [2 * size + 5, 0]);
}

#[test]
fn a_session_tells_only_what_is_new() {
    let mut cluster = filled(1);
    cluster.partition("t", 1).move_leader(ONE, 0);
    let mut full = request(&cluster, &[wish(0, 0), wish(1, 0)]);
    full.head.session_epoch = 0;
    let fetched = fetch_as(&mut cluster, ONE, 18, &full);
    assert_eq!(fetched.places(), [0, 1]);
    let session_id = fetched.session_id;
    assert_ne!(session_id, 0);
    let next = |cluster: &mut Cluster, epoch, partitions: &[FetchPartition]| {
        let mut next = request(cluster, partitions);
        (next.head.session_id, next.head.session_epoch) = (session_id, epoch);
        fetch_as(cluster, ONE, 18, &next)
    };
    // The consumer has taken the first records: nothing is new.
    assert!(next(&mut cluster, 1, &[wish(0, 2)]).places().is_empty());
    cluster.partition("t", 1).append(&NewBatch::of(vec![Record::of(0, "new")]));
    let fetched = next(&mut cluster, 2, &[]);
    assert_eq!((fetched.places(), fetched.session_id), (vec![1], session_id));
    // Not taken yet: told again, and the other partition is served first from now on.
    cluster.partition("t", 0).append(&NewBatch::of(vec![Record::of(0, "new")]));
    assert_eq!(next(&mut cluster, 3, &[]).places(), [0, 1]);
    // An error is told until it is over.
    let trouble = Trouble { error: Some(ErrorCode::KAFKA_STORAGE_ERROR), ..Trouble::default() };
    cluster.partition("t", 0).trouble(trouble);
    assert_eq!(next(&mut cluster, 4, &[wish(1, 1)]).places(), [0]);
    assert_eq!(next(&mut cluster, 5, &[]).places(), [0]);
    assert_eq!(next(&mut cluster, 5, &[]).error, ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    let mut forget = request(&cluster, &[]);
    (forget.head.session_id, forget.head.session_epoch) = (session_id, 6);
    let (id, name) = (full.topics[0].id, "t".to_owned());
    forget.forgotten_topics =
        vec![ForgottenTopic { name, id, partitions: vec![PartitionIndex(0)] }];
    assert!(fetch_as(&mut cluster, ONE, 18, &forget).places().is_empty());
    cluster.evict_sessions(ONE);
    assert_eq!(next(&mut cluster, 7, &[]).error, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn offsets_outside_the_log_are_refused() {
    let mut cluster = filled(3);
    cluster.partition("t", 0).delete_records_before(Offset(3), 0);
    let mut get = |offset| fetch(&mut cluster, &[wish(0, offset)]).only().clone();
    for offset in [-1, 2, 7] {
        assert_eq!(get(offset).error, ErrorCode::OFFSET_OUT_OF_RANGE);
        assert_eq!(get(offset).high_watermark, -1);
    }
    assert_eq!(bases(&get(3).records), [2, 4], "the batch around the start stays whole");
    assert_eq!(get(6).error, ErrorCode::NONE);
}

#[test]
fn a_topic_that_was_created_again_is_another_one_under_its_id_only() {
    let mut cluster = filled(3);
    let wishes = request(&cluster, &[wish(0, 0)]);
    cluster.recreate_topic("t");
    cluster.partition("t", 0).move_leader(ONE, 0);
    let got = fetch_as(&mut cluster, ONE, 13, &wishes);
    assert_eq!(got.only().error, ErrorCode::UNKNOWN_TOPIC_ID);
    let got = fetch_as(&mut cluster, ONE, 12, &wishes);
    assert_eq!((got.only().error, got.only().high_watermark), (ErrorCode::NONE, 0));
}

#[test]
fn logs_that_parted_are_told_where() {
    let mut cluster = filled(3);
    cluster.partition("t", 0).elect_unclean(ONE, Offset(4));
    cluster.partition("t", 0).append(&NewBatch::of(vec![Record::of(0, "other")]));
    let mut get = |epoch, offset| {
        let fetch_wish =
            FetchPartition { last_fetched_epoch: LeaderEpoch(epoch), ..wish(0, offset) };
        fetch(&mut cluster, &[fetch_wish]).only().clone()
    };
    assert_eq!(get(0, 6).diverging, Some((0, 4)));
    assert_eq!(get(0, 4).diverging, None);
    assert_eq!(bases(&get(0, 4).records), [4]);
    assert_eq!(get(1, 5).diverging, None);
    assert_eq!(get(2, 5).error, ErrorCode::OFFSET_OUT_OF_RANGE);

    let asked = OffsetForLeaderPartition {
        partition: PartitionIndex(0),
        leader_epoch: LeaderEpoch(0),
        ..OffsetForLeaderPartition::default()
    };
    let topics = vec![OffsetForLeaderTopic { topic: "t".into(), partitions: vec![asked] }];
    let request = OffsetForLeaderEpochRequest { topics, ..Default::default() };
    let key = ApiKey::OFFSET_FOR_LEADER_EPOCH;
    let body = ask(&mut cluster, ONE, key, 4, |writer| request.write(writer, 4));
    let response = OffsetForLeaderEpochResponse::read(&mut Reader::new(&body), 4).expect("sound");
    let end = &response.topics[0].partitions[0];
    assert_eq!((end.leader_epoch, end.end_offset), (LeaderEpoch(0), Offset(4)));
}

#[test]
fn committed_readers_stop_at_open_transactions_and_hear_of_aborted_ones() {
    let mut cluster = filled(1);
    let producer = (ProducerId(7), ProducerEpoch(0));
    let batch = NewBatch::of(vec![Record::of(0, "x")]).producer(7, 0, 0).transactional();
    cluster.partition("t", 0).append(&batch);
    let mut committed = request(&cluster, &[wish(0, 0)]);
    committed.head.isolation_level = IsolationLevel::READ_COMMITTED;
    let got = fetch_as(&mut cluster, ONE, 18, &committed).only().clone();
    assert_eq!((got.last_stable, got.high_watermark, bases(&got.records)), (2, 3, vec![0]));
    let got = fetch(&mut cluster, &[wish(0, 0)]).only().clone();
    assert_eq!(bases(&got.records), [0, 2]);
    cluster.partition("t", 0).end_transaction(producer, ControlKind::Abort, 9);
    let got = fetch_as(&mut cluster, ONE, 18, &committed).only().clone();
    assert_eq!((got.aborted, bases(&got.records)), (vec![(7, 2)], vec![0, 2, 3]));
}

#[test]
fn a_slow_partition_holds_the_response_that_carries_it() {
    let mut cluster = filled(1);
    cluster.partition("t", 0).trouble(Trouble { delay_ms: 40, ..Trouble::default() });
    let wishes = request(&cluster, &[wish(0, 0)]);
    let Handled::Parked(parked) = send(&mut cluster, ONE, 18, &wishes) else { panic!("held") };
    assert_eq!(parked.until_ms(), 40);
    let Handled::Parked(parked) = cluster.resume(parked, 39) else { panic!("held") };
    assert!(matches!(cluster.resume(parked, 40), Handled::Response(_)));
}

#[test]
fn times_and_ends_are_found() {
    let mut cluster = filled(3);
    let mut offset = |timestamp| {
        let asked = ListOffsetsPartition { timestamp, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: "t".into(), partitions: vec![asked] }];
        let request = ListOffsetsRequest { topics, ..ListOffsetsRequest::default() };
        let key = ApiKey::LIST_OFFSETS;
        let body = ask(&mut cluster, ONE, key, 11, |writer| request.write(writer, 11));
        let response = ListOffsetsResponse::read(&mut Reader::new(&body), 11).expect("sound");
        let partition = &response.topics[0].partitions[0];
        (partition.timestamp, partition.offset.0)
    };
    assert_eq!([offset(-1), offset(-2), offset(-3)], [(-1, 6), (-1, 0), (5, 5)]);
    assert_eq!([offset(3), offset(9)], [(3, 3), (-1, -1)]);
}

#[test]
fn the_same_seed_gives_the_same_answers_and_another_one_does_not() {
    let answers = |seed| {
        let mut cluster = Cluster::new(Settings { seed, ..Settings::default() });
        cluster.create_topic("t", 1);
        let mut full = request(&cluster, &[wish(0, 0)]);
        (full.head.session_epoch, full.head.min_bytes) = (0, 0);
        let Handled::Response(fetched) = send(&mut cluster, ONE, 18, &full) else { panic!("full") };
        let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
        let metadata = ask(&mut cluster, ONE, ApiKey::METADATA, 13, |out| all.write(out, 13));
        (fetched.to_vec(), metadata)
    };
    assert_eq!(answers(1), answers(1));
    assert_ne!(answers(1).0, answers(2).0);
    assert_ne!(answers(1).1, answers(2).1);
}

#[test]
fn a_broker_that_is_down_leads_nothing_and_answers_nothing() {
    let mut cluster = filled(1);
    cluster.stop_broker(ONE, 0);
    let wishes = request(&cluster, &[wish(0, 0)]);
    assert!(matches!(send(&mut cluster, ONE, 18, &wishes), Handled::Close(_)));
    assert_eq!(cluster.partition("t", 0).leader(), Some(TWO));
    cluster.stop_broker(TWO, 0);
    cluster.stop_broker(BrokerId(3), 0);
    assert_eq!(cluster.partition("t", 0).leader(), None);
    cluster.start_broker(ONE, 0);
    let epoch = cluster.partition("t", 0).epoch();
    assert_eq!((cluster.partition("t", 0).leader(), epoch), (Some(ONE), LeaderEpoch(4)));
    assert_eq!(bases(&fetch(&mut cluster, &[wish(0, 0)]).only().records), [0]);
}

#[test]
fn what_a_producer_sends_is_appended_at_the_end() {
    let mut cluster = filled(1);
    cluster.partition("t", 0).move_leader(ONE, 0);
    let sent = NewBatch::of(vec![Record::of(0, "sent")]).build(Offset(0), LeaderEpoch(-1));
    let partition = cluster.partition("t", 0);
    assert_eq!(partition.append_produced(&sent), Ok(Offset(2)));
    let mut damaged = sent;
    *damaged.last_mut().expect("bytes") ^= 1;
    assert!(partition.append_produced(&damaged).is_err());
    let read = fetch(&mut cluster, &[wish(0, 2)]);
    let records = &read.only().records;
    let (_, batch) = Batches::new(records).next().expect("one").expect("sound");
    assert_eq!((batch.base_offset(), batch.partition_leader_epoch()), (Offset(2), LeaderEpoch(1)));
    assert_eq!(batch.verify_crc(), Ok(()));
}
