//! Finding the cluster and staying informed.

use std::sync::Arc;
use std::time::Duration;

use wire::ids::BrokerId;

use super::super::*;
use super::world::*;

#[test]
fn the_cluster_is_found_through_any_bootstrap_server() {
    let bootstrap = vec![
        ("nowhere".to_string(), 9001),
        ("127.0.0.1".to_string(), 9009),
        ("somewhere".to_string(), 9002),
    ];
    let mut world = World::asleep(LinkOptions { bootstrap, ..Default::default() });
    world.cluster.down.insert(9009);
    world.start();
    world.pass_ms(2_000);
    let image = Arc::clone(world.link.image_now());
    assert_eq!(image.cluster_id.as_deref(), Some("c"));
    assert_eq!(image.brokers[&BrokerId(2)].port, 9002);
    assert_eq!(image.topics["a"].partitions.len(), 3);
    assert!(world.told.iter().any(|effect| matches!(effect, Effect::Image(_))));
}

#[test]
fn metadata_is_listed_from_time_to_time_and_news_are_told_once() {
    let mut world = World::new(options());
    world.told.clear();
    world.pass(Duration::from_secs(60));
    let listings = world.metadata_requests.len();
    assert!((12..=14).contains(&listings), "{listings}");
    assert!(world.told.is_empty());
    world.cluster.topics.insert("b".to_string(), (topic_id("b"), vec![(1, 0)]));
    world.pass_ms(5_000);
    let [Effect::Image(image)] = &world.told[..] else { panic!("one image") };
    assert!(image.topics.contains_key("b"));
}

#[test]
fn a_large_listing_is_asked_for_less_often() {
    let metadata_bytes_per_second = 10;
    let mut world = World::new(LinkOptions { metadata_bytes_per_second, ..options() });
    world.pass(Duration::from_secs(60));
    assert!(world.metadata_requests.len() <= 6, "{}", world.metadata_requests.len());
}

#[test]
fn asking_for_newer_metadata_again_and_again_does_not_flood_the_source() {
    let mut world = World::new(options());
    let topics: [Arc<str>; 1] = ["a".into()];
    for _ in 0..1_000 {
        world.tell(|link| link.refresh(&topics));
        world.pass_ms(1);
    }
    let asked = world.metadata_requests.len();
    assert!((8..=13).contains(&asked), "{asked} requests in a second");
}

#[test]
fn a_broker_that_never_has_news_is_left_for_another() {
    let mut world = World::new(options());
    let peer = *world.peers.keys().next().unwrap();
    let topics: [Arc<str>; 1] = ["a".into()];
    for _ in 0..7 {
        world.tell(|link| link.refresh(&topics));
        world.pass_ms(150);
    }
    assert!(!world.peers.contains_key(&peer));
    assert_eq!(world.peers.len(), 1);
}

#[test]
fn a_deleted_topic_goes_after_it_was_asked_for_by_name() {
    let mut world = World::new(options());
    world.cluster.topics.clear();
    world.pass_ms(5_200);
    assert!(world.link.image_now().topics.is_empty());
    let named = world.metadata_requests.last().unwrap().topics.as_ref().unwrap();
    assert_eq!(named[0].name.as_deref(), Some("a"));
}

#[test]
fn another_cluster_behind_the_same_address_is_refused() {
    let cluster_id = Some("other".to_string());
    let mut world = World::asleep(LinkOptions { cluster_id, ..options() });
    world.start();
    assert!(world.link.image_now().topics.is_empty());
    assert_eq!(
        world.closed,
        ["bootstrap server 127.0.0.1:9001 answered Metadata version 13: \
          it belongs to cluster c, and what is here is a mirror of cluster other; give --from \
          brokers of that one, or another --data"]
    );
}

#[test]
fn a_broker_that_was_down_and_comes_back_as_another_cluster_s_is_told_of() {
    let cluster_id = Some("other".to_string());
    let mut world = World::asleep(LinkOptions { cluster_id, ..options() });
    let ports = [9001, 9002];
    world.cluster.down.extend(ports);
    world.start();
    world.pass_ms(3_000);
    for port in ports {
        world.cluster.down.remove(&port);
    }
    world.pass_ms(5_000);
    let told = world.told.iter().filter(|effect| match effect {
        Effect::Unreachable { reason, .. } => reason.contains("it belongs to cluster c"),
        _ => false,
    });
    assert_eq!(told.count(), 1, "once, however often it is tried");
    assert!(world.link.is_lost());
}

#[test]
fn brokers_are_reached_where_the_operator_says() {
    let rewritten_addresses = [(("127.0.0.1".into(), 9001), ("tunnel".into(), 9001))].into();
    let mut world = World::new(LinkOptions { rewritten_addresses, ..options() });
    world.follow(0, at("a", 0, 10));
    world.fetch_at(1);
    assert!(world.resolved.contains(&"tunnel".to_string()));
    assert_eq!(&*world.link.image_now().brokers[&BrokerId(1)].host, "127.0.0.1");
}

#[test]
fn other_shards_are_told_the_metadata_and_ask_for_news_through_the_first() {
    let first = World::new(options());
    let mut world = World::new(LinkOptions { follows_metadata: false, ..options() });
    assert!(world.peers.is_empty());
    world.follow(0, at("a", 0, 10));
    world.follow(7, at("unknown", 0, 10));
    let image = Arc::clone(first.link.image_now());
    world.call(|link, now, out| link.image(image, now, out));
    assert_eq!(world.fetch_at(1).wishes(), [(0, 10)]);
    let wanted: Vec<_> = world
        .told
        .iter()
        .filter_map(|effect| match effect {
            Effect::RefreshWanted { topics, .. } => Some(names(topics)),
            _ => None,
        })
        .collect();
    assert_eq!(wanted, [["a", "unknown"]]);
    assert!(world.metadata_requests.is_empty());
}
