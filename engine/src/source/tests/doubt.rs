//! A name that may have come to stand for another topic is not fetched by.
//!
//! The story: the way to a source of Kafka 2.8 was cut while a topic was deleted and created again. The
//! fetchers were connected before the new topic id was heard of, asked by name, and records of the new
//! topic were appended to the log of the old one wherever a batch began exactly at its end.

use std::sync::Arc;
use std::time::Duration;

use wire::api::{ApiKey, ErrorCode};

use super::super::*;
use super::world::*;
use crate::ids::ShardId;

/// Partition 0 of `a` is fetched; metadata comes once a second at most, last a moment ago.
fn fetching(fetch_version: i16) -> (World, Fetch) {
    let metadata_refresh_least = Duration::from_secs(1);
    let mut world = World::asleep(LinkOptions { metadata_refresh_least, ..options() });
    let fetch = world.cluster.versions.iter_mut().find(|(api, ..)| *api == ApiKey::FETCH);
    fetch.unwrap().2 = fetch_version;
    world.start();
    world.follow(0, at("a", 0, 10));
    world.tell(|link| link.refresh(&[]));
    world.pass_ms(1_100);
    let fetch = world.fetch_at(1);
    assert_eq!((fetch.version, fetch.wishes()), (fetch_version, vec![(0, 10)]));
    (world, fetch)
}

#[test]
fn after_a_reconnect_a_name_is_fetched_by_when_the_source_has_told_it_again() {
    let (mut world, _) = fetching(12);
    let asked = world.metadata_requests.len();
    world.cut(1);
    world.pass_ms(500);
    assert_eq!((world.metadata_requests.len(), world.fetches_waiting()), (asked, 0));
    world.pass_ms(1_500);
    assert_eq!(world.fetch_at(1).wishes(), [(0, 10)]);
}

#[test]
fn a_name_that_became_another_topics_is_never_fetched_by() {
    let (mut world, _) = fetching(12);
    world.cluster.topics.get_mut("a").unwrap().0 = topic_id("another");
    world.cut(1);
    for _ in 0..100 {
        world.pass_ms(100);
        assert_eq!(world.fetches_waiting(), 0);
    }
    assert_eq!(world.link.image_now().topics["a"].id, topic_id("another"));
}

#[test]
fn a_topic_that_goes_by_its_id_is_fetched_at_once() {
    let (mut world, _) = fetching(13);
    let asked = world.metadata_requests.len();
    world.cut(1);
    world.pass_ms(100);
    assert_eq!(world.fetch_at(1).wishes(), [(0, 10)]);
    assert_eq!(world.metadata_requests.len(), asked);
}

#[test]
fn after_trouble_a_name_waits_for_metadata_however_long_it_has_rested() {
    for code in [ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ErrorCode::NOT_LEADER_OR_FOLLOWER] {
        let (mut world, fetch) = fetching(12);
        let asked = world.metadata_requests.len();
        let partitions = vec![error(0, code)];
        world.answer(&fetch, &Answer { session_id: 7, partitions, ..Default::default() });
        world.pass_ms(800);
        assert_eq!((world.metadata_requests.len(), world.fetches_waiting()), (asked, 0));
        world.pass_ms(1_500);
        assert_eq!(world.fetch_at(1).wishes(), [(0, 10)]);
    }
}

/// Images that were on their way when the doubt arose settle nothing.
#[test]
fn another_shard_waits_for_the_image_that_answers_its_own_refresh() {
    let mut first = World::new(options());
    let shard = ShardId(3);
    let mut world = World::asleep(LinkOptions { follows_metadata: false, shard, ..options() });
    let fetch = world.cluster.versions.iter_mut().find(|(api, ..)| *api == ApiKey::FETCH);
    fetch.unwrap().2 = 12;
    world.start();
    world.follow(0, at("a", 0, 10));
    let known = Arc::clone(first.link.image_now());
    world.call(|link, now, out| link.image(Arc::clone(&known), now, out));
    let again = Arc::new(SourceImage::clone(&known));
    world.call(|link, now, out| link.image(again, now, out));
    world.pass_ms(200);
    assert_eq!(world.fetches_waiting(), 0);
    let wanted = world.told.iter().rev().find_map(|effect| match effect {
        Effect::RefreshWanted { topics, ticket } => Some((topics.clone(), *ticket)),
        _ => None,
    });
    let (topics, ticket) = wanted.unwrap();
    assert_eq!((names(&topics), ticket.from), (vec!["a"], shard));
    first.told.clear();
    first.pass_ms(200);
    first.tell(|link| link.refresh_for(ticket, &topics));
    let [Effect::Image(answer)] = &first.told[..] else { panic!("one image, though unchanged") };
    assert_eq!(answer.topics, known.topics);
    world.call(|link, now, out| link.image(Arc::clone(answer), now, out));
    assert_eq!(world.fetch_at(1).wishes(), [(0, 10)]);
}
