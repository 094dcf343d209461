//! Partitions and brokers in trouble.

use wire::api::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use wire::api::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use wire::api::{ApiKey, ErrorCode};
use wire::fetch::{LeaderIdAndEpoch, NodeEndpoint};
use wire::frame::frame_response;
use wire::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex};

use super::super::*;
use super::world::*;
use crate::ids::PartitionKey;

/// Partitions 0 and 2 of `a` are fetched from broker 1, whose session stands.
fn steady() -> World {
    let mut world = World::new(options());
    world.follow(0, at("a", 0, 10));
    world.follow(2, at("a", 2, 10));
    let fetch = world.fetch_at(1);
    world.answer(&fetch, &Answer { session_id: 71, ..Default::default() });
    world
}

fn moved(world: &World) -> Vec<(u32, i32, i32)> {
    let moved = world.told.iter().filter_map(|effect| match effect {
        Effect::LeaderMoved { key, leader, epoch } => Some((key.0, leader.0, epoch.0)),
        _ => None,
    });
    moved.collect()
}

#[test]
fn a_moved_leader_is_followed_at_once_even_to_a_broker_nobody_knew() {
    for code in [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH] {
        let mut world = steady();
        let fetch = world.fetch_at(1);
        let mut told = error(0, code);
        told.0.current_leader =
            Some(LeaderIdAndEpoch { leader_id: BrokerId(3), leader_epoch: LeaderEpoch(6) });
        let endpoint =
            NodeEndpoint { node_id: BrokerId(3), host: "127.0.0.1", port: 9003, rack: None };
        let answer = Answer {
            session_id: 71,
            partitions: vec![told],
            endpoints: vec![endpoint],
            ..Default::default()
        };
        world.answer(&fetch, &answer);
        let there = world.fetch_at(3);
        assert_eq!(there.wishes(), [(0, 10)]);
        let epoch = there.request.topics[0].partitions[0].current_leader_epoch;
        assert_eq!(epoch, LeaderEpoch(6));
        assert_eq!(moved(&world), [(0, 3, 6)]);
        let here = world.fetch_at(1);
        assert_eq!((here.wishes(), here.forgets()), (vec![], vec![0]));
        assert!(world.fetched.is_empty(), "the mirror need not know");
    }
}

#[test]
fn without_a_hint_the_metadata_of_that_topic_is_asked_and_followed() {
    let mut world = steady();
    world.pass_ms(1_000);
    let before = world.metadata_requests.len();
    let fetch = world.fetch_at(1);
    world.cluster.topics.get_mut("a").unwrap().1[0] = (2, 6);
    let partitions = vec![error(0, ErrorCode::NOT_LEADER_OR_FOLLOWER)];
    world.answer(&fetch, &Answer { session_id: 71, partitions, ..Default::default() });
    let request = &world.metadata_requests[before];
    let named = request.topics.as_ref().unwrap()[0].name.as_deref();
    assert_eq!(named, Some("a"));
    assert!(!request.allow_auto_topic_creation);
    assert_eq!(moved(&world), [(0, 2, 6)]);
    assert_eq!(world.fetch_at(2).wishes(), [(0, 10)]);
}

#[test]
fn a_broker_that_lags_behind_is_tried_again_later_and_later() {
    let mut world = World::new(options());
    world.follow(0, at("a", 0, 10));
    let mut waits = Vec::new();
    for session_id in 1..6 {
        let fetch = world.fetch_at(1);
        assert_eq!(fetch.wishes(), [(0, 10)]);
        let partitions = vec![error(0, ErrorCode::UNKNOWN_LEADER_EPOCH)];
        let asked_at = world.now;
        world.answer(&fetch, &Answer { session_id, partitions, ..Default::default() });
        while world.fetches_waiting() == 0 {
            world.pass_ms(10);
        }
        waits.push(world.now.since(asked_at));
    }
    assert!(waits[4] > waits[0] * 4, "{waits:?}");
    assert!(world.fetched.is_empty());
}

#[test]
fn two_brokers_that_name_each_other_are_not_followed_for_ever() {
    let mut world = steady();
    let mut broker = 1;
    let mut moves = 0;
    while let Some(place) = world.asked.iter().position(|asked| asked.broker == broker) {
        let Request::Fetch(request) = &world.asked[place].request else { panic!("a fetch") };
        let session_id = request.head.session_id.max(71);
        let fetch = world.fetch_at(broker);
        broker = 3 - broker;
        let mut told = error(0, ErrorCode::NOT_LEADER_OR_FOLLOWER);
        told.0.current_leader =
            Some(LeaderIdAndEpoch { leader_id: BrokerId(broker), leader_epoch: LeaderEpoch(5) });
        world.answer(&fetch, &Answer { session_id, partitions: vec![told], ..Default::default() });
        // A request of broker 1 may be out that does not name the partition.
        moves += 1;
        assert!(moves < 10, "it goes round in circles");
    }
}

#[test]
fn an_error_that_the_mirror_must_decide_on_is_handed_on_and_ends_the_fetch_of_that_partition() {
    for code in [
        ErrorCode::OFFSET_OUT_OF_RANGE,
        ErrorCode::CORRUPT_MESSAGE,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        ErrorCode::KAFKA_STORAGE_ERROR,
        ErrorCode::UNKNOWN_SERVER_ERROR,
        ErrorCode(999),
    ] {
        let mut world = steady();
        let fetch = world.fetch_at(1);
        let partitions = vec![error(0, code), records(2, 4)];
        world.answer(&fetch, &Answer { session_id: 71, partitions, ..Default::default() });
        let brought = world.brought();
        assert_eq!((brought[0].key, brought[0].error), (PartitionKey(0), code));
        assert_eq!((brought[1].key, brought[1].records.len()), (PartitionKey(2), 4));
        world.follow(2, at("a", 2, 14));
        world.resume();
        let fetch = world.fetch_at(1);
        assert_eq!((fetch.wishes(), fetch.forgets()), (vec![(2, 14)], vec![0]));
    }
}

#[test]
fn a_divergence_is_handed_on() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    let mut told = records(0, 0);
    let (epoch, end_offset) = (LeaderEpoch(4), Offset(8));
    told.0.diverging_epoch = Some(wire::fetch::EpochEndOffset { epoch, end_offset });
    let answer = Answer { session_id: 71, partitions: vec![told], ..Default::default() };
    world.answer(&fetch, &answer);
    assert_eq!(world.brought()[0].diverging, Some((epoch, end_offset)));
    world.resume();
    assert_eq!(world.fetch_at(1).forgets(), [0]);
}

#[test]
fn a_broken_frame_ends_that_connection_with_broker_api_version_and_place() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    let answer = Answer { session_id: 71, partitions: vec![records(0, 9)], ..Default::default() };
    let whole = answer.frame(&fetch);
    world.deliver(fetch.peer, &whole[..whole.len() - 3]);
    let reason = world.closed.pop().unwrap();
    let begin = "broker 1 (127.0.0.1:9001) answered Fetch version 18 with bytes that are none: ";
    assert!(reason.starts_with(begin) && reason.contains(" at byte "), "{reason}");
    assert!(world.fetched.is_empty());
    assert!(matches!(&world.told[..], [Effect::Image(_), Effect::Unreachable { .. }]));
    assert_eq!(world.link.unreachable(), 1);
    world.pass_ms(60);
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.session(), fetch.wishes()), ((0, 0), vec![(0, 10), (2, 10)]));
    world.answer(&fetch, &Answer { session_id: 72, ..Default::default() });
    assert!(matches!(world.told.last(), Some(Effect::Recovered { .. })));
    assert_eq!(world.link.unreachable(), 0);
}

#[test]
fn partitions_of_a_broker_that_is_gone_wait_for_another_leader() {
    let mut world = steady();
    world.cluster.down.insert(9001);
    // Metadata must come from the other one.
    world.cut(1);
    world.pass_ms(3_000);
    assert_eq!(world.fetches_waiting(), 0);
    assert!(!world.link.is_lost(), "the other one gives metadata");
    world.cluster.topics.get_mut("a").unwrap().1 = vec![(2, 6), (2, 5), (2, 6)];
    world.cluster.brokers.remove(&1);
    world.pass_ms(6_000);
    assert_eq!(world.fetch_at(2).wishes(), [(0, 10), (2, 10)]);
    assert_eq!(moved(&world), [(0, 2, 6), (2, 2, 6)]);
    let unreachable =
        world.told.iter().filter(|effect| matches!(effect, Effect::Unreachable { .. })).count();
    assert_eq!(unreachable, 2, "the broker and the bootstrap server, once each");
    assert_eq!(world.link.unreachable(), 0, "one is gone, the other is not needed any more");
}

#[test]
fn what_is_with_the_mirrors_survives_the_connection_and_is_not_fetched_twice() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    let answer = Answer { session_id: 71, partitions: vec![records(0, 9)], ..Default::default() };
    world.answer(&fetch, &answer);
    world.cut(1);
    world.pass_ms(60);
    let anew = world.fetch_at(1);
    assert_eq!((anew.session(), anew.wishes()), ((0, 0), vec![(2, 10)]));
    world.follow(0, at("a", 0, 19));
    world.resume();
    assert_eq!(world.fetches_waiting(), 0, "one is out on the new connection");
    world.answer(&anew, &Answer { session_id: 5, ..Default::default() });
    assert_eq!(world.fetch_at(1).wishes(), [(0, 19)]);
}

fn lookup(world: &mut World, key: u32, partition: i32, question: Question) {
    let source = source("a", partition);
    let epoch = LeaderEpoch(-1);
    world.tell(|link| link.look_up(PartitionKey(key), &source, epoch, question));
}

#[test]
fn ends_of_epochs_are_asked_of_the_leader_and_again_where_it_moved() {
    let mut world = World::asleep(options());
    lookup(&mut world, 0, 0, Question::EndOfEpoch(LeaderEpoch(4)));
    lookup(&mut world, 2, 2, Question::EndOfEpoch(LeaderEpoch(3)));
    world.start();
    let answer = |world: &mut World, errors: &[(i32, ErrorCode)]| {
        let asked = world.asked.pop_front().unwrap();
        let Request::Epochs(request) = &asked.request else { panic!("epochs are asked") };
        assert_eq!(request.replica_id, BrokerId(-1));
        let partitions = errors.iter().map(|&(partition, error_code)| EpochEndOffset {
            error_code,
            partition: PartitionIndex(partition),
            leader_epoch: LeaderEpoch(4),
            end_offset: Offset(40),
        });
        let topic = "a".to_string();
        let topics = vec![OffsetForLeaderTopicResult { topic, partitions: partitions.collect() }];
        let response = OffsetForLeaderEpochResponse { topics, ..Default::default() };
        let api = ApiKey::OFFSET_FOR_LEADER_EPOCH;
        let frame = frame_response(api, asked.version, asked.correlation_id, |writer| {
            response.write(writer, asked.version);
        });
        let asked_for = request.topics[0].partitions.clone();
        world.deliver(asked.peer, &frame);
        (asked.broker, asked_for)
    };
    world.pass_ms(200);
    world.cluster.topics.get_mut("a").unwrap().1[0] = (2, 6);
    let moved = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    let (broker, asked) = answer(&mut world, &[(0, moved), (2, ErrorCode::NONE)]);
    assert_eq!(broker, 1);
    let asked: Vec<_> = asked.iter().map(|asked| (asked.partition.0, asked.leader_epoch)).collect();
    assert_eq!(asked, [(0, LeaderEpoch(4)), (2, LeaderEpoch(3))], "both in one request");
    let end_of_2 = world.told.iter().find_map(|effect| match effect {
        Effect::EndOfEpoch { key: PartitionKey(2), asked, answer } => Some((*asked, *answer)),
        _ => None,
    });
    let Some((asked, Ok(end))) = end_of_2 else { panic!("one is answered") };
    assert_eq!(asked, LeaderEpoch(3));
    assert_eq!(end, EndOfEpoch { epoch: LeaderEpoch(4), end_offset: Offset(40) });

    world.pass_ms(200);
    let (broker, asked) = answer(&mut world, &[(0, ErrorCode::TOPIC_AUTHORIZATION_FAILED)]);
    assert_eq!((broker, asked[0].current_leader_epoch), (2, LeaderEpoch(6)));
    let refused = world.told.pop();
    let Some(Effect::EndOfEpoch { answer: Err(error), .. }) = refused else { panic!("refused") };
    assert_eq!(error, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
}

#[test]
fn a_request_for_offsets_names_each_partition_once() {
    let mut world = World::asleep(options());
    for question in [Question::Earliest, Question::Latest] {
        for partition in [0, 2] {
            lookup(&mut world, partition as u32, partition, question);
        }
    }
    lookup(&mut world, 5, 1, Question::Latest);
    world.tell(|link| link.forget(PartitionKey(5)));
    world.start();
    for (question, timestamp) in [(Question::Earliest, -2), (Question::Latest, -1)] {
        assert_eq!(world.asked.len(), 1, "the next request waits for the answer");
        let asked = world.asked.pop_front().unwrap();
        let Request::Offsets(request) = &asked.request else { panic!("offsets are asked") };
        let partitions = &request.topics[0].partitions;
        let named: Vec<_> =
            partitions.iter().map(|named| (named.partition_index.0, named.timestamp)).collect();
        assert_eq!(named, [(0, timestamp), (2, timestamp)]);
        let told = partitions.iter().map(|named| ListOffsetsPartitionResponse {
            partition_index: named.partition_index,
            offset: Offset(7),
            leader_epoch: LeaderEpoch(2),
            ..Default::default()
        });
        let (name, partitions) = ("a".to_string(), told.collect());
        let topics = vec![ListOffsetsTopicResponse { name, partitions }];
        let response = ListOffsetsResponse { topics, ..Default::default() };
        let api = ApiKey::LIST_OFFSETS;
        let frame = frame_response(api, asked.version, asked.correlation_id, |writer| {
            response.write(writer, asked.version);
        });
        world.deliver(asked.peer, &frame);
        let Some(Effect::OffsetAt { key, question: answered, answer }) = world.told.pop() else {
            panic!("it is answered")
        };
        assert_eq!((key, answered), (PartitionKey(2), question));
        let (offset, leader_epoch) = (Offset(7), LeaderEpoch(2));
        assert_eq!(answer, Ok(OffsetAt { offset, leader_epoch, timestamp: -1 }));
    }
    assert!(world.asked.is_empty());
}
