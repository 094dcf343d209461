//! Whatever happens, in whatever order: no panic, never two fetches out on one fetcher, and brokers'
//! sessions hold what is wanted and nothing else.

use std::collections::BTreeMap;

use wire::api::ErrorCode;
use wire::fetch::{LeaderIdAndEpoch, NodeEndpoint};
use wire::ids::{BrokerId, LeaderEpoch};

use super::super::backoff::Random;
use super::super::*;
use super::world::*;
use crate::ids::PartitionKey;

const PARTITIONS: u64 = 8;

fn below(random: &mut Random, bound: u64) -> u64 {
    random.next() % bound
}

/// One thing that happens. What it was, for comparing runs.
fn happen(world: &mut World, random: &mut Random) -> String {
    let key = below(random, PARTITIONS);
    let partition = key as i32;
    match below(random, 16) {
        0 | 1 => {
            world.follow(key as u32, at("a", partition, below(random, 100) as i64));
            format!("fetch {key}")
        }
        2 => {
            world.orders.remove(&(key as u32));
            world.tell(|link| link.unfetch(PartitionKey(key as u32)));
            format!("unfetch {key}")
        }
        3 => {
            let question =
                [Question::Latest, Question::EndOfEpoch(LeaderEpoch(3))][below(random, 2) as usize];
            let source = source("a", partition);
            let epoch = LeaderEpoch(0);
            world.tell(|link| link.look_up(PartitionKey(key as u32), &source, epoch, question));
            format!("look up {key}")
        }
        4 => {
            let broker = 1 + below(random, 3) as i32;
            world.cut(broker);
            format!("cut {broker}")
        }
        5 => {
            let port = 9001 + below(random, 3) as u16;
            if !world.cluster.down.remove(&port) {
                world.cluster.down.insert(port);
            }
            format!("toggle {port}")
        }
        6 => {
            let leader = (below(random, 4) as i32, below(random, 20) as i32);
            world.cluster.topics.get_mut("a").unwrap().1[key as usize] = leader;
            format!("leader {leader:?}")
        }
        7 => {
            let ms = below(random, 40_000);
            world.pass_ms(ms);
            format!("pass {ms}")
        }
        8 => {
            world.pass_ms(below(random, 300));
            "pass".to_string()
        }
        9 => {
            world.resume();
            "resume".to_string()
        }
        10 => garble(world, random),
        11 => answer_lookup(world, random),
        _ => answer(world, random),
    }
}

/// A broker answers its fetch, with whatever.
fn answer(world: &mut World, random: &mut Random) -> String {
    let Some(fetch) = take_fetch(world, random) else { return "nothing to answer".to_string() };
    let codes = [0, 0, 0, 1, 3, 6, 6, 56, 74, 75, 100, 103, 999];
    let count = below(random, 4);
    let mut partitions = Vec::new();
    for _ in 0..count {
        let code = codes[below(random, codes.len() as u64) as usize];
        let mut told = error(below(random, PARTITIONS + 1) as i32, ErrorCode(code));
        told.1 = if code == 0 { below(random, 3) as usize * 10 } else { 0 };
        let leader_id = BrokerId(below(random, 5) as i32 - 1);
        let leader_epoch = LeaderEpoch(below(random, 20) as i32);
        told.0.current_leader = (code != 0 && below(random, 2) == 0)
            .then_some(LeaderIdAndEpoch { leader_id, leader_epoch });
        partitions.push(told);
    }
    let error = [0, 0, 0, 0, 0, 0, 70, 71, 106, 35][below(random, 10) as usize];
    let port = 9001 + below(random, 3) as i32;
    let endpoints =
        vec![NodeEndpoint { node_id: BrokerId(port - 9000), host: "127.0.0.1", port, rack: None }];
    let session_id = below(random, 3) as i32;
    let error = ErrorCode(error);
    let answer = Answer { session_id, error, throttle_time_ms: 0, partitions, endpoints };
    world.answer(&fetch, &answer);
    format!("answer {:?} {error:?} {count}", fetch.peer)
}

/// A broker answers with bytes that are broken somewhere.
fn garble(world: &mut World, random: &mut Random) -> String {
    let Some(fetch) = take_fetch(world, random) else { return "nothing to garble".to_string() };
    let partitions = vec![records(0, 3), records(1, 3)];
    let mut frame = Answer { partitions, ..Default::default() }.frame(&fetch);
    let place = 4 + below(random, frame.len() as u64 - 4) as usize;
    if below(random, 2) == 0 {
        frame.truncate(place);
    } else {
        frame[place] ^= 1 << below(random, 8);
    }
    world.deliver(fetch.peer, &frame);
    format!("garble {place}")
}

/// A broker answers questions with nothing, or with bytes that mean nothing.
fn answer_lookup(world: &mut World, random: &mut Random) -> String {
    let lookup = |asked: &Asked| !matches!(asked.request, Request::Fetch(_));
    let Some(place) = world.asked.iter().position(lookup) else {
        return "nothing was asked".to_string();
    };
    let asked = world.asked.remove(place).unwrap();
    let mut frame = vec![0; 4];
    frame.extend(asked.correlation_id.to_be_bytes());
    // No tags, no throttle time, no topics, no tags.
    frame.extend([0, 0, 0, 0, 0, 1, 0]);
    if below(random, 2) == 0 {
        frame.extend((0..below(random, 20)).map(|_| random.next() as u8));
    }
    world.deliver(asked.peer, &frame);
    format!("lookup {}", frame.len())
}

fn take_fetch(world: &mut World, random: &mut Random) -> Option<Fetch> {
    let brokers: Vec<i32> = world
        .asked
        .iter()
        .filter(|asked| matches!(asked.request, Request::Fetch(_)))
        .map(|asked| asked.broker)
        .collect();
    let place = below(random, brokers.len().max(1) as u64) as usize;
    brokers.get(place).map(|&broker| world.fetch_at(broker))
}

fn run(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let fetchers_per_broker = 1 + below(&mut random, 2) as u32;
    let mut world = World::asleep(LinkOptions { fetchers_per_broker, ..options() });
    world.cluster.brokers.insert(3);
    if seed.is_multiple_of(3) {
        // By name.
        world.cluster.versions[0].2 = 12;
    }
    let leaders = vec![(1, 5), (2, 5), (3, 5), (1, 5), (2, 5), (3, 5), (1, 5), (2, 5)];
    world.cluster.topics.insert("a".to_string(), (topic_id("a"), leaders));
    world.start();
    world.corrupt = Some(Random::new(seed));
    world.check_sessions = true;
    let mut story = Vec::new();
    for _ in 0..300 {
        story.push(happen(&mut world, &mut random));
        let mut out = BTreeMap::new();
        for asked in &world.asked {
            if matches!(asked.request, Request::Fetch(_)) {
                *out.entry(asked.peer).or_insert(0) += 1;
            }
        }
        assert!(out.values().all(|&count| count == 1), "seed {seed}: {story:?}");
        let with_mirrors = world.fetched.iter().filter(|fetched| out.contains_key(&fetched.peer));
        assert_eq!(with_mirrors.count(), 0, "seed {seed}: asked before resume: {story:?}");
    }
    story.push(format!("{:?}", world.closed));
    story.push(format!("{:?}", world.told));
    recover(&mut world, seed);
    story
}

/// When all is well again, everything that is wanted is fetched.
fn recover(world: &mut World, seed: u64) {
    world.corrupt = None;
    world.cluster.down.clear();
    let leaders: Vec<_> = (0..PARTITIONS as i32).map(|index| (1 + index % 3, 1_000)).collect();
    world.cluster.topics.insert("a".to_string(), (topic_id("a"), leaders));
    for key in 0..PARTITIONS {
        world.orders.remove(&(key as u32));
        world.tell(|link| link.forget(PartitionKey(key as u32)));
        world.follow(key as u32, at("a", key as i32, 500));
    }
    world.resume();
    let mut brought = std::collections::BTreeSet::new();
    for _ in 0..200 {
        while let Some(fetch) = take_fetch(world, &mut Random::new(0)) {
            let wishes = fetch.wishes();
            let partitions: Vec<_> =
                wishes.iter().map(|&(partition, _)| records(partition, 4)).collect();
            let session_id = fetch.session().0.max(1);
            world.answer(&fetch, &Answer { session_id, partitions, ..Default::default() });
        }
        for fetched in &world.fetched {
            brought.extend(fetched.partitions.iter().map(|partition| partition.key.0));
        }
        world.resume();
        world.pass_ms(500);
    }
    assert_eq!(brought.len() as u64, PARTITIONS, "seed {seed}: {brought:?}");
}

#[test]
fn any_order_of_events_is_survived_with_one_fetch_out_on_each_fetcher() {
    for seed in 0..300 {
        run(seed);
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    assert_eq!(run(42), run(42));
}
