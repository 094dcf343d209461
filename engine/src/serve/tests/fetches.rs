//! Fetches, from request to the bytes of the reply.

use wire::fetch::{
    FetchPartition, FetchRequest, FetchRequestHead, FetchResponse, FetchTopic, ForgottenTopic,
};

use super::*;

/// What a reply said of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fetched {
    topic: String,
    partition: i32,
    error_code: ErrorCode,
    high_watermark: i64,
    records: Vec<u8>,
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Response {
    error_code: ErrorCode,
    session_id: i32,
    partitions: Vec<Fetched>,
}

impl Response {
    /// Topic, partition and bytes of records.
    fn lengths(&self) -> Vec<(&str, i32, usize)> {
        let partitions = self.partitions.iter();
        partitions.map(|found| (&*found.topic, found.partition, found.records.len())).collect()
    }

    fn codes(&self) -> Vec<ErrorCode> {
        self.partitions.iter().map(|found| found.error_code).collect()
    }
}

/// A consumer that waits up to half a second for one byte.
fn head() -> FetchRequestHead {
    FetchRequestHead { max_wait_ms: 500, min_bytes: 1, ..FetchRequestHead::default() }
}

fn fetch(head: FetchRequestHead, wanted: &[(&str, i32, i64)]) -> FetchRequest {
    let topic = |&(name, partition, offset): &(&str, i32, i64)| FetchTopic {
        name: name.to_owned(),
        id: topic_id(name),
        partitions: vec![FetchPartition::new(PartitionIndex(partition), Offset(offset), 1 << 20)],
    };
    FetchRequest { head, topics: wanted.iter().map(topic).collect(), forgotten_topics: vec![] }
}

fn frame(version: i16, asked: &FetchRequest) -> Vec<u8> {
    request(ApiKey::FETCH, version, |writer| asked.write(writer, version))
}

fn read(frame: &[u8], version: i16) -> Response {
    let position = SIZE_BYTES + body(frame, ApiKey::FETCH, version).position();
    let mut walk = FetchResponse::open(frame, position, version).expect("our reply can be read");
    let mut response = Response {
        error_code: ErrorCode(walk.head().error_code),
        session_id: walk.head().session_id,
        partitions: Vec::new(),
    };
    while let Some(topic) = walk.topic(frame).unwrap() {
        let name = match topic.id {
            TopicId::ZERO => topic.name.to_owned(),
            TopicId(id) => String::from_utf8(id.to_vec()).unwrap().trim_matches('\0').to_owned(),
        };
        while let Some(found) = walk.partition(frame).unwrap() {
            response.partitions.push(Fetched {
                topic: name.clone(),
                partition: found.partition_index.0,
                error_code: ErrorCode(found.error_code),
                high_watermark: found.high_watermark.0,
                records: frame[found.records].to_vec(),
            });
        }
    }
    walk.tail(frame).unwrap();
    response
}

impl World {
    fn fetch(&mut self, version: i16, asked: &FetchRequest) -> Response {
        let frame = self.ask(ApiKey::FETCH, version, |writer| asked.write(writer, version));
        read(&frame, version)
    }

    /// The partitions that are watched now, and for which call.
    fn watched(&mut self) -> (CallId, Vec<Watched>) {
        match self.take().as_slice() {
            [Effect::Watch { partitions }] => (partitions[0].id.call, partitions.clone()),
            other => panic!("{other:?} where something should be watched"),
        }
    }
}

#[test]
fn records_stand_in_the_reply_as_they_stand_in_their_file() {
    for version in 4..=18 {
        let mut world = World::new();
        *world.log("orders", 1) = Log::of(&[100, 200, 300]);
        *world.log("events", 0) = Log::of(&[50]);
        let wanted = [("orders", 1, 10), ("orders", 0, 0), ("events", 0, 0)];
        let response = world.fetch(version, &fetch(head(), &wanted));
        let expected = [("orders", 1, 500), ("orders", 0, 0), ("events", 0, 50)];
        assert_eq!(response.lengths(), expected, "version {version}");
        assert_eq!(response.partitions[0].high_watermark, 30);
        let in_file: Vec<u8> = (100..600_u64).map(|position| (position % 251) as u8).collect();
        assert_eq!(response.partitions[0].records, in_file);
    }
}

#[test]
fn readers_of_committed_records_get_what_is_decided_and_what_was_aborted() {
    let mut world = World::new();
    let aborted = vec![AbortedTransaction { producer_id: ProducerId(4), first_offset: Offset(2) }];
    *world.log("orders", 0) = Log { stable: 10, aborted, ..Log::of(&[100, 100]) };
    for (isolation_level, bytes, aborted) in
        [(IsolationLevel::READ_UNCOMMITTED, 200, 0), (IsolationLevel::READ_COMMITTED, 100, 1)]
    {
        let asked = fetch(FetchRequestHead { isolation_level, ..head() }, &[("orders", 0, 0)]);
        let frame = world.ask(ApiKey::FETCH, 12, |writer| asked.write(writer, 12));
        assert_eq!(read(&frame, 12).lengths(), [("orders", 0, bytes)]);
        let position = SIZE_BYTES + body(&frame, ApiKey::FETCH, 12).position();
        let mut walk = FetchResponse::open(&frame, position, 12).unwrap();
        walk.topic(&frame).unwrap();
        let found = walk.partition(&frame).unwrap().unwrap();
        assert_eq!(found.aborted_transactions.len(), aborted);
        assert_eq!(found.last_stable_offset, Offset(10));
    }
}

#[test]
fn the_room_goes_to_the_first_partitions_and_the_first_batch_always_fits() {
    let mut world = World::new();
    *world.log("orders", 0) = Log::of(&[100, 100]);
    *world.log("orders", 1) = Log::of(&[100, 100]);
    *world.log("orders", 2) = Log::of(&[100]);
    let wanted = [("events", 0, 0), ("orders", 0, 0), ("orders", 1, 0), ("orders", 2, 0)];
    for (max_bytes, expected) in [
        (500, [0, 200, 200, 100]),
        (350, [0, 200, 150, 0]),
        (250, [0, 200, 0, 0]),
        (150, [0, 150, 0, 0]),
        (30, [0, 100, 0, 0]),
        (0, [0, 100, 0, 0]),
        (-5, [0, 100, 0, 0]),
    ] {
        let response = world.fetch(7, &fetch(FetchRequestHead { max_bytes, ..head() }, &wanted));
        let lengths: Vec<_> = response.lengths().iter().map(|(.., length)| *length).collect();
        assert_eq!(lengths, expected, "max_bytes {max_bytes}");
    }
}

#[test]
fn no_reply_is_larger_than_the_operator_allows() {
    let mut world = World::with(ServeOptions { fetch_bytes_max: 150, ..ServeOptions::default() });
    *world.log("orders", 0) = Log::of(&[100, 100]);
    let response = world.fetch(7, &fetch(head(), &[("orders", 0, 0)]));
    assert_eq!(response.lengths(), [("orders", 0, 150)]);
}

#[test]
fn a_fetch_waits_for_records_and_is_answered_when_they_come() {
    let mut world = World::new();
    world.receive(CLIENT, &frame(11, &fetch(head(), &[("orders", 0, 0), ("orders", 1, 0)])));
    world.answer();
    let (call, watched) = world.watched();
    assert_eq!(watched.len(), 2);
    assert_eq!(watched[1].end, Offset(0));
    *world.log("orders", 1) = Log::of(&[100]);
    world.progress(call, 1);
    // Only the partition with news is asked about again.
    assert!(matches!(&world.out[..], [Effect::Ask { questions, .. }] if questions.len() == 1));
    world.answer();
    assert!(world.out.contains(&Effect::Unwatch { call }));
    assert_eq!(read(&world.reply(), 11).lengths(), [("orders", 0, 0), ("orders", 1, 100)]);
}

#[test]
fn a_fetch_waits_on_until_there_is_as_much_as_it_wants() {
    let mut world = World::new();
    let asked = fetch(FetchRequestHead { min_bytes: 150, ..head() }, &[("orders", 0, 0)]);
    world.receive(CLIENT, &frame(11, &asked));
    world.answer();
    let (call, _) = world.watched();
    *world.log("orders", 0) = Log::of(&[100]);
    world.progress(call, 0);
    world.answer();
    let (again, watched) = world.watched();
    assert_eq!((again, watched[0].end), (call, Offset(10)));
    *world.log("orders", 0) = Log::of(&[100, 100]);
    world.progress(call, 0);
    world.answer();
    assert_eq!(read(&world.reply(), 11).lengths(), [("orders", 0, 200)]);
}

#[test]
fn what_is_watched_is_the_end_of_what_the_client_may_see() {
    for (isolation_level, end) in
        [(IsolationLevel::READ_UNCOMMITTED, 30), (IsolationLevel::READ_COMMITTED, 10)]
    {
        let mut world = World::new();
        *world.log("orders", 0) = Log { stable: 10, ..Log::of(&[100, 100, 100]) };
        let head = FetchRequestHead { isolation_level, min_bytes: 1_000, ..head() };
        world.receive(CLIENT, &frame(11, &fetch(head, &[("orders", 0, 0)])));
        world.answer();
        assert_eq!(world.watched().1[0].end, Offset(end));
    }
}

#[test]
fn a_fetch_ends_at_its_deadline_with_what_there_is() {
    let mut world = World::new();
    *world.log("orders", 0) = Log::of(&[100]);
    let asked = fetch(FetchRequestHead { min_bytes: 150, ..head() }, &[("orders", 0, 0)]);
    world.receive(CLIENT, &frame(11, &asked));
    world.answer();
    let (call, _) = world.watched();
    assert_eq!(world.server.deadline(), Some(world.now.plus(Duration::from_millis(500))));
    world.pass(Duration::from_millis(499));
    assert_eq!(world.out, []);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.out[0], Effect::Unwatch { call });
    assert_eq!(read(&world.reply(), 11).lengths(), [("orders", 0, 100)]);
    world.progress(call, 0);
    assert_eq!(world.out, [], "what comes too late is of no account");
}

#[test]
fn a_deadline_waits_for_answers_that_are_on_their_way() {
    let mut world = World::new();
    world.receive(CLIENT, &frame(11, &fetch(head(), &[("orders", 0, 0)])));
    world.answer();
    let (call, _) = world.watched();
    world.progress(call, 0);
    let ask = world.take();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.out, []);
    world.out = ask;
    world.answer();
    assert_eq!(read(&world.reply(), 11).lengths(), [("orders", 0, 0)]);
}

#[test]
fn what_must_be_told_is_told_at_once() {
    let told = |change: &dyn Fn(&mut FetchPartition)| {
        let mut asked = fetch(head(), &[("orders", 0, 0), ("orders", 1, 0)]);
        change(&mut asked.topics[0].partitions[0]);
        World::new().fetch(16, &asked).codes()[0]
    };
    let epoch = |epoch| move |wanted: &mut FetchPartition| wanted.current_leader_epoch = epoch;
    assert_eq!(told(&|wanted| wanted.fetch_offset = Offset(9)), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(told(&epoch(LeaderEpoch(4))), ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(told(&epoch(LeaderEpoch(6))), ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(told(&|wanted| wanted.last_fetched_epoch = LeaderEpoch(8)), ErrorCode::NONE);
}

#[test]
fn a_fenced_client_is_told_the_leader() {
    let mut asked = fetch(head(), &[("orders", 0, 0)]);
    asked.topics[0].partitions[0].current_leader_epoch = LeaderEpoch(4);
    for (version, told) in [(15, false), (16, true)] {
        let mut world = World::new();
        let frame = world.ask(ApiKey::FETCH, version, |writer| asked.write(writer, version));
        let position = SIZE_BYTES + body(&frame, ApiKey::FETCH, version).position();
        let mut walk = FetchResponse::open(&frame, position, version).unwrap();
        walk.topic(&frame).unwrap();
        let leader = walk.partition(&frame).unwrap().unwrap().current_leader;
        assert_eq!(leader.map(|leader| leader.leader_epoch), told.then_some(LeaderEpoch(5)));
        let mut endpoints = walk.tail(&frame).unwrap().node_endpoints;
        assert_eq!(endpoints.next().map(|node| node.host), told.then_some("mirror.example"));
    }
}

#[test]
fn what_is_not_here_does_not_keep_the_rest_from_waiting() {
    let mut world = World::new();
    let wanted = [("gone", 0, 0), ("orders", 9, 0), ("orders", 0, 0), ("a/b", 0, 0)];
    world.receive(CLIENT, &frame(12, &fetch(head(), &wanted)));
    world.answer();
    assert_eq!(world.watched().1.len(), 1);
    world.pass(Duration::from_secs(1));
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let codes = read(&world.reply(), 12).codes();
    assert_eq!(codes, [unknown, unknown, ErrorCode::NONE, ErrorCode::INVALID_TOPIC_EXCEPTION]);

    let response = World::new().fetch(13, &fetch(head(), &[("gone", 0, 0), ("orders", 9, 0)]));
    assert_eq!(response.codes(), [ErrorCode::UNKNOWN_TOPIC_ID, unknown]);
    assert!(World::new().fetch(13, &fetch(head(), &[])).partitions.is_empty());
}

#[test]
fn replicas_and_unknown_isolation_are_refused() {
    for version in [4, 12, 15, 18] {
        let replica = FetchRequestHead { replica_id: BrokerId(3), ..head() };
        let response = World::new().fetch(version, &fetch(replica, &[("orders", 0, 0)]));
        assert_eq!(response.codes(), [ErrorCode::TOPIC_AUTHORIZATION_FAILED]);
        let isolation = FetchRequestHead { isolation_level: IsolationLevel(7), ..head() };
        let response = World::new().fetch(version, &fetch(isolation, &[("orders", 0, 0)]));
        assert_eq!(response.codes(), [ErrorCode::INVALID_REQUEST]);
    }
}

#[test]
fn a_session_asks_only_for_changes_and_hears_only_news() {
    for version in [7, 12, 13, 18] {
        let mut world = World::new();
        *world.log("orders", 0) = Log::of(&[100]);
        let session = |session_id, session_epoch| FetchRequestHead {
            session_id,
            session_epoch,
            max_wait_ms: 0,
            ..head()
        };
        let wanted = [("orders", 0, 0), ("orders", 1, 0), ("events", 0, 0)];
        let first = world.fetch(version, &fetch(session(0, 0), &wanted));
        assert_eq!(first.lengths(), [("orders", 0, 100), ("orders", 1, 0), ("events", 0, 0)]);
        let id = first.session_id;
        assert_ne!(id, 0);

        let second = world.fetch(version, &fetch(session(id, 1), &[("orders", 0, 10)]));
        assert_eq!((second.session_id, second.partitions.len()), (id, 0), "nothing is new");

        *world.log("events", 0) = Log::of(&[70]);
        let third = world.fetch(version, &fetch(session(id, 2), &[]));
        assert_eq!(third.lengths(), [("events", 0, 70)]);

        let mut forgetful = fetch(session(id, 3), &[("orders", 2, 0)]);
        forgetful.forgotten_topics = vec![ForgottenTopic {
            name: "events".to_owned(),
            id: topic_id("events"),
            partitions: vec![PartitionIndex(0)],
        }];
        let fourth = world.fetch(version, &forgetful);
        assert_eq!(fourth.lengths(), [("orders", 2, 0)], "it is new in the session");

        let wrong = world.fetch(version, &fetch(session(id, 3), &[]));
        assert_eq!(wrong.error_code, ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        let unknown = world.fetch(version, &fetch(session(id + 1, 3), &[]));
        assert_eq!(unknown.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        let last = world.fetch(version, &fetch(session(id, -1), &[("orders", 0, 0)]));
        assert_eq!((last.session_id, last.lengths()), (0, vec![("orders", 0, 100)]));
        assert_eq!(world.server.session_count(), 0);
    }
}

#[test]
fn a_session_does_not_change_its_way_of_naming_topics() {
    let mut world = World::new();
    let begin = FetchRequestHead { session_epoch: 0, max_wait_ms: 0, ..head() };
    let id = world.fetch(12, &fetch(begin, &[("orders", 0, 0)])).session_id;
    let go_on = FetchRequestHead { session_id: id, session_epoch: 1, ..head() };
    let response = world.fetch(13, &fetch(go_on, &[]));
    assert_eq!(response.error_code, ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
}

#[test]
fn a_reply_to_a_session_that_went_on_elsewhere_says_so() {
    let mut world = World::new();
    let begin = FetchRequestHead { session_epoch: 0, max_wait_ms: 0, ..head() };
    let id = world.fetch(12, &fetch(begin, &[("orders", 0, 0)])).session_id;
    let within = |session_epoch| FetchRequestHead { session_id: id, session_epoch, ..head() };
    world.receive(CLIENT, &frame(12, &fetch(within(1), &[])));
    world.answer();
    world.watched();
    world.connect(ConnId(2));
    world.receive(ConnId(2), &frame(12, &fetch(within(2), &[])));
    world.take();
    world.pass(Duration::from_secs(1));
    let response = read(&world.reply(), 12);
    assert_eq!(response.error_code, ErrorCode::INVALID_FETCH_SESSION_EPOCH);
}

#[test]
fn nobody_is_watched_for_a_client_that_left() {
    let mut world = World::new();
    world.receive(CLIENT, &frame(11, &fetch(head(), &[("orders", 0, 0)])));
    world.answer();
    let (call, _) = world.watched();
    world.server.closed(CLIENT, &mut world.out);
    assert_eq!(world.take(), [Effect::Unwatch { call }]);
    world.progress(call, 0);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.out, []);
    assert_eq!((world.server.deadline(), world.server.memory_bytes()), (None, 0));
}
