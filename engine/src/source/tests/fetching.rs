//! Sessions: what is asked for, and when.

use std::time::Duration;

use wire::api::{ApiKey, ErrorCode};
use wire::frame::SIZE_BYTES;
use wire::ids::{LeaderEpoch, Offset};

use super::super::*;
use super::world::*;
use crate::ids::{Now, PartitionKey};

/// All three partitions of `a` are fetched and both sessions stand.
fn steady() -> World {
    let mut world = World::new(options());
    for partition in 0..3 {
        world.follow(partition, at("a", partition as i32, 10));
    }
    for broker in [1, 2] {
        let fetch = world.fetch_at(broker);
        world.answer(&fetch, &Answer { session_id: 70 + broker, ..Default::default() });
    }
    world
}

#[test]
fn a_session_begins_with_all_partitions_by_id_and_epochs() {
    let mut world = World::new(options());
    for partition in 0..3 {
        world.follow(partition, at("a", partition as i32, 10));
    }
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.version, fetch.session()), (18, (0, 0)));
    assert_eq!(fetch.wishes(), [(0, 10)], "what was wanted first went at once");
    world.answer(&fetch, &Answer { session_id: 7, ..Default::default() });
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.session(), fetch.wishes()), ((7, 1), vec![(2, 10)]));
    let topic = &fetch.request.topics[0];
    assert_eq!(topic.id, topic_id("a"));
    let wish = &topic.partitions[0];
    assert_eq!(wish.current_leader_epoch, LeaderEpoch(5));
    assert_eq!(wish.last_fetched_epoch, LeaderEpoch(1));
    let head = &fetch.request.head;
    assert_eq!((head.replica_id.0, head.isolation_level.0, head.max_wait_ms), (-1, 0, 500));
    assert_eq!(world.fetch_at(2).wishes(), [(1, 10)]);
}

#[test]
fn the_head_of_an_answer_says_whose_records_come_first_and_where() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    let partitions = vec![records(0, 0), records(2, 9_000)];
    let answer = Answer { session_id: 71, partitions, ..Default::default() };
    let frame = &answer.frame(&fetch)[SIZE_BYTES..];
    let start = frame.iter().position(|&byte| byte == b'1').expect("there are records");
    let first = |world: &mut World, peer, head| world.link.first_records(peer, head);
    let told = first(&mut world, fetch.peer, &frame[..start]);
    assert_eq!(told, Some((PartitionKey(2), start..start + 9_000)));
    assert_eq!(first(&mut world, fetch.peer, &frame[..start - 1]), None);
    let other = world.fetch_at(2).peer;
    assert_eq!(first(&mut world, PeerKey(99), frame), None, "nobody");
    world.cut(2);
    assert_eq!(first(&mut world, other, frame), None, "it is gone");
    // Nothing was taken from it: it can still be heard.
    world.answer(&fetch, &answer);
    assert_eq!(world.brought().len(), 2);
}

#[test]
fn only_what_changed_is_named_and_the_next_fetch_waits_for_resume() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    assert_eq!(fetch.session(), (71, 1));
    let partitions = vec![records(0, 5), records(2, 7)];
    world.answer(&fetch, &Answer { session_id: 71, partitions, ..Default::default() });
    let fetched = &world.fetched[0];
    let [first, second] = &fetched.partitions[..] else { panic!("two were brought") };
    assert_eq!((first.key, second.key), (PartitionKey(0), PartitionKey(2)));
    assert_eq!(&fetched.frame[first.records.clone()], b"00000");
    assert_eq!(&fetched.frame[second.records.clone()], b"1111111");
    assert_eq!((first.offset, first.leader_epoch), (Offset(10), LeaderEpoch(5)));

    world.follow(0, at("a", 0, 15));
    assert_eq!(world.fetches_waiting(), 1, "only that of the other broker");
    world.resume();
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.session(), fetch.wishes()), ((71, 2), vec![(0, 15)]));
    assert_eq!(fetch.forgets(), [2], "it brought records and was not renewed");

    // Renewed while the request is out, it is in the next one.
    world.follow(2, at("a", 2, 17));
    world.answer(&fetch, &Answer { session_id: 71, ..Default::default() });
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.wishes(), fetch.forgets()), (vec![(2, 17)], vec![]));
}

#[test]
fn watermarks_alone_do_not_end_a_partitions_stay() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    let partitions = vec![records(0, 0)];
    world.answer(&fetch, &Answer { session_id: 71, partitions, ..Default::default() });
    assert_eq!(world.brought()[0].high_watermark, Offset(100));
    world.resume();
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.wishes(), fetch.forgets()), (vec![], vec![]));
}

#[test]
fn an_answer_to_an_older_wish_is_not_handed_on() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    world.follow(0, at("a", 0, 3));
    world.tell(|link| link.unfetch(PartitionKey(2)));
    let partitions = vec![records(0, 5), records(2, 5)];
    world.answer(&fetch, &Answer { session_id: 71, partitions, ..Default::default() });
    assert!(world.fetched.is_empty());
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.wishes(), fetch.forgets()), (vec![(0, 3)], vec![2]));
}

#[test]
fn a_partition_that_comes_back_before_it_was_forgotten_is_not_forgotten() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    world.tell(|link| link.unfetch(PartitionKey(2)));
    world.follow(2, at("a", 2, 12));
    world.answer(&fetch, &Answer { session_id: 71, ..Default::default() });
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.wishes(), fetch.forgets()), (vec![(2, 12)], vec![]));
}

/// The first request of a session was out and no session stood yet, so a partition that left was not
/// noted as one to be dropped: the broker sent its records with every answer, and they were thrown away.
#[test]
fn a_partition_that_leaves_while_the_first_request_is_out_is_dropped_from_the_session() {
    let mut world = World::new(options());
    world.follow(0, at("a", 0, 10));
    let fetch = world.fetch_at(1);
    world.follow(2, at("a", 2, 10));
    world.tell(|link| link.unfetch(PartitionKey(0)));
    world.answer(&fetch, &Answer { session_id: 7, ..Default::default() });
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.wishes(), fetch.forgets()), (vec![(2, 10)], vec![0]));
}

#[test]
fn a_refused_session_begins_anew_with_all_partitions() {
    for (error, session) in [
        (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, (0, 0)),
        (ErrorCode::INVALID_FETCH_SESSION_EPOCH, (71, 0)),
        (ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR, (71, 0)),
    ] {
        let mut world = steady();
        let fetch = world.fetch_at(1);
        world.answer(&fetch, &Answer { error, ..Default::default() });
        let fetch = world.fetch_at(1);
        assert_eq!((fetch.session(), fetch.wishes()), (session, vec![(0, 10), (2, 10)]));
    }
}

#[test]
fn a_broker_that_keeps_no_session_is_asked_for_everything_each_time() {
    let mut world = steady();
    for _ in 0..2 {
        let fetch = world.fetch_at(1);
        world.answer(&fetch, &Answer::default());
    }
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.session(), fetch.wishes()), ((0, 0), vec![(0, 10), (2, 10)]));
}

#[test]
fn a_broker_of_kafka_2_1_is_fetched_from_by_name() {
    let mut world = World::asleep(options());
    world.cluster.versions = vec![
        (ApiKey::FETCH, 0, 10),
        (ApiKey::LIST_OFFSETS, 0, 4),
        (ApiKey::METADATA, 0, 7),
        (ApiKey::API_VERSIONS, 0, 2),
        (ApiKey::OFFSET_FOR_LEADER_EPOCH, 0, 2),
    ];
    world.start();
    assert!(world.link.image_now().topics["a"].id.is_zero());
    let mut first = at("a", 0, 10);
    first.source.topic_id = wire::ids::TopicId::ZERO;
    world.follow(0, first);
    world.pass_ms(200);
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.version, &*fetch.request.topics[0].name), (10, "a"));
    world.answer(
        &fetch,
        &Answer { session_id: 7, partitions: vec![records(0, 3)], ..Default::default() },
    );
    assert_eq!(world.brought()[0].records.len(), 3);
}

#[test]
fn a_topic_without_an_id_makes_its_session_go_by_name() {
    let mut world = steady();
    let mut nameless = at("b", 0, 0);
    nameless.source.topic_id = wire::ids::TopicId::ZERO;
    let leaders = vec![(1, 0)];
    world.cluster.topics.insert("b".to_string(), (wire::ids::TopicId::ZERO, leaders));
    let fetch = world.fetch_at(1);
    world.follow(9, nameless);
    world.tell(|link| link.refresh(&[]));
    world.pass_ms(200);
    world.answer(&fetch, &Answer { session_id: 71, ..Default::default() });
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.version, fetch.session()), (12, (71, 0)));
    assert_eq!(fetch.wishes(), [(0, 10), (2, 10), (0, 0)]);
}

#[test]
fn a_throttled_fetcher_waits_as_long_as_the_broker_says() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    let answer = Answer { session_id: 71, throttle_time_ms: 3_000, ..Default::default() };
    world.answer(&fetch, &answer);
    world.pass_ms(2_900);
    assert!(!world.asked.iter().any(|asked| asked.broker == 1));
    world.pass_ms(200);
    let fetch = world.fetch_at(1);
    let answer = Answer { session_id: 71, throttle_time_ms: i32::MAX, ..Default::default() };
    world.answer(&fetch, &answer);
    world.pass_ms(61_000);
    world.fetch_at(1);
}

/// Partitions that are named and bring nothing are nothing: a broker that named one was asked 12,000 times
/// a second.
#[test]
fn a_broker_that_answers_nothing_at_once_does_not_keep_us_busy() {
    for named in [vec![], vec![records(0, 0)]] {
        let mut world = steady();
        let begin = world.now;
        let mut answered = 0;
        while world.now < begin.plus(Duration::from_secs(10)) {
            while world.asked.iter().any(|asked| asked.broker == 1) && answered < 1_000 {
                let fetch = world.fetch_at(1);
                let partitions = named.clone();
                world.answer(&fetch, &Answer { session_id: 71, partitions, ..Default::default() });
                world.resume();
                answered += 1;
            }
            world.pass_ms(10);
        }
        assert!(answered < 60, "{answered} requests in ten seconds, {} named", named.len());
    }
}

#[test]
fn a_broker_is_not_blamed_for_a_frame_that_we_do_not_read_on() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    world.tell(|link| link.frame_waits(fetch.peer));
    world.pass_ms(300_000);
    assert!(world.peers.contains_key(&fetch.peer), "it waits for us");
    let now = world.now;
    world.tell(|link| link.frame_goes_on(fetch.peer, now));
    world.pass_ms(29_000);
    assert!(world.peers.contains_key(&fetch.peer));
    world.pass_ms(1_500);
    assert!(!world.peers.contains_key(&fetch.peer), "now it is its turn, and it says nothing");
}

#[test]
fn a_stuck_fetch_is_given_up_and_begins_anew_while_others_go_on() {
    let mut world = steady();
    let stuck = world.fetch_at(1);
    world.pass_ms(30_400);
    assert!(world.peers.contains_key(&stuck.peer));
    // The other broker answers in time.
    let fetch = world.fetch_at(2);
    world.answer(&fetch, &Answer { session_id: 72, ..Default::default() });
    world.pass_ms(200);
    assert!(!world.peers.contains_key(&stuck.peer));
    assert_eq!(world.closed, ["broker 1 (127.0.0.1:9001) did not answer in time"]);
    let fetch = world.fetch_at(1);
    assert_ne!(fetch.peer, stuck.peer);
    assert_eq!((fetch.session(), fetch.wishes()), ((0, 0), vec![(0, 10), (2, 10)]));
    assert_eq!(world.fetch_at(2).session(), (72, 2));
    // What is late on the old connection is about nobody.
    world.answer(&stuck, &Answer { partitions: vec![records(0, 5)], ..Default::default() });
    assert!(world.fetched.is_empty());
}

#[test]
fn fetchers_share_the_partitions_of_a_broker_and_open_only_with_some() {
    let fetchers_per_broker = 3;
    let mut world = World::asleep(LinkOptions { fetchers_per_broker, ..options() });
    world.cluster.topics.insert("a".to_string(), (topic_id("a"), vec![(1, 5); 60]));
    world.start();
    world.follow(0, at("a", 0, 0));
    assert_eq!(world.peers.len(), 2, "metadata and one fetcher");
    for partition in 1..60 {
        world.follow(partition, at("a", partition as i32, 0));
    }
    assert_eq!(world.peers.len(), 4);
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let fetch = world.fetch_at(1);
        let first = fetch.wishes().len();
        world.answer(&fetch, &Answer { session_id: 7, ..Default::default() });
        let place = world.asked.iter().position(|asked| asked.peer == fetch.peer).unwrap();
        let Request::Fetch(next) = &world.asked[place].request else { panic!("a fetch") };
        sizes.push(first + next.topics[0].partitions.len());
        world.asked.remove(place);
    }
    assert_eq!(sizes.iter().sum::<usize>(), 60);
    assert!(sizes.iter().all(|&size| size >= 10), "{sizes:?}");
}

#[test]
fn a_connection_without_partitions_ends_after_a_while() {
    let mut world = steady();
    let fetch = world.fetch_at(1);
    for key in [0, 2] {
        world.tell(|link| link.unfetch(PartitionKey(key)));
    }
    world.answer(&fetch, &Answer { session_id: 71, ..Default::default() });
    assert!(world.peers.contains_key(&fetch.peer));
    for _ in 0..14 {
        world.pass_ms(5_000);
        let fetch = world.fetch_at(2);
        world.answer(&fetch, &Answer { session_id: 72, ..Default::default() });
    }
    assert!(!world.peers.contains_key(&fetch.peer));
    assert_eq!(world.closed, ["broker 1 (127.0.0.1:9001) is not needed"]);
    world.follow(0, at("a", 0, 10));
    assert_eq!(world.fetch_at(1).session(), (0, 0));
}

#[test]
fn among_a_hundred_thousand_partitions_a_request_names_the_two_that_changed() {
    let mut world = World::asleep(options());
    let count = 100_000;
    world.cluster.topics.insert("a".to_string(), (topic_id("a"), vec![(1, 5); count as usize]));
    for partition in 0..count {
        world.link.fetch(PartitionKey(partition), &at("a", partition as i32, 0));
    }
    world.start();
    let fetch = world.fetch_at(1);
    assert_eq!(fetch.wishes().len(), count as usize);
    let partitions = vec![records(3, 5), records(99_999, 7)];
    world.answer(&fetch, &Answer { session_id: 7, partitions, ..Default::default() });
    world.follow(3, at("a", 3, 5));
    world.follow(99_999, at("a", 99_999, 7));
    world.resume();
    assert_eq!(world.fetch_at(1).wishes(), [(3, 5), (99_999, 7)]);
}

#[test]
fn nothing_is_said_before_the_start() {
    let mut world = World::asleep(options());
    world.follow(0, at("a", 0, 10));
    assert!(world.peers.is_empty());
    assert_eq!(world.link.deadline(), None::<Now>);
    world.start();
    assert_eq!(world.fetch_at(1).wishes(), [(0, 10)]);
}

/// What the fetches of one connection ask for, whose answers begin after `after`.
fn bytes_asked_for(after: Duration, count: usize) -> Vec<i32> {
    let mut world = World::new(options());
    let mut offset = 10;
    world.follow(0, at("a", 0, offset));
    let mut asked = Vec::new();
    for _ in 0..count {
        let fetch = world.fetch_at(1);
        asked.push(fetch.request.head.max_bytes >> 20);
        world.now = world.now.plus(after);
        let now = world.now;
        world.tell(|link| link.frame_begins(fetch.peer, now));
        let partitions = vec![records(0, 5)];
        world.answer(&fetch, &Answer { session_id: 71, partitions, ..Default::default() });
        offset += 5;
        world.follow(0, at("a", 0, offset));
        world.resume();
    }
    asked
}

#[test]
fn a_broker_next_door_is_asked_for_little_and_one_far_away_for_more_and_more() {
    assert_eq!(bytes_asked_for(Duration::from_micros(200), 3), [1, 1, 1]);
    assert_eq!(bytes_asked_for(Duration::from_millis(3), 4), [1, 3, 5, 5]);
    assert_eq!(bytes_asked_for(Duration::from_millis(80), 6), [1, 3, 7, 15, 31, 50]);
}
