//! What strangers can make us hold.

use wire::fetch::{FetchPartition, FetchRequest, FetchRequestHead, FetchTopic};

use super::*;
use crate::limits;

/// A budget that a few hostile clients would break.
fn tight() -> (World, usize) {
    let options = ServeOptions {
        request_memory_bytes: 20 << 20,
        sessions_max: 10,
        session_partitions_max: 1_000,
        ..ServeOptions::default()
    };
    let bound = options.request_memory_bytes
        + options.sessions_max * session::SESSION_BYTES
        + options.session_partitions_max * session::SESSION_PARTITION_BYTES;
    (World::with(options), bound)
}

fn closed(effects: &[Effect]) -> Vec<ConnId> {
    let closed = effects.iter().filter_map(|effect| match effect {
        Effect::Close { connection, .. } => Some(*connection),
        _ => None,
    });
    closed.collect()
}

#[test]
fn those_who_hold_the_most_are_closed_and_the_others_are_not() {
    let (mut world, bound) = tight();
    let announced = i32::try_from(limits::REQUEST_BYTES_MAX).unwrap().to_be_bytes();
    for id in 2..10 {
        world.connect(ConnId(id));
        world.receive(ConnId(id), &[&announced[..], &[0, 0]].concat());
    }
    for _ in 0..7 {
        for id in 2..10 {
            world.receive(ConnId(id), &vec![0; 1 << 20]);
            assert!(world.server.memory_bytes() <= bound);
        }
    }
    let effects = world.take();
    let Some(Effect::Close { reason, .. }) = effects.first() else { panic!("nobody was closed") };
    assert!(reason.contains("the most of all"), "{reason}");
    assert!(!closed(&effects).contains(&CLIENT), "it holds next to nothing");
    let frame = world.ask(ApiKey::API_VERSIONS, 0, |_| ());
    assert!(frame.len() > 10);
}

#[test]
fn replies_that_nobody_takes_count_as_well() {
    let (mut world, bound) = tight();
    world.topic("wide", 100_000, BTreeMap::new());
    for id in 2..20 {
        world.connect(ConnId(id));
        world.receive(ConnId(id), &request(ApiKey::METADATA, 1, |writer| writer.i32(-1)));
        assert!(world.server.memory_bytes() <= bound);
    }
    assert!(!closed(&world.take()).is_empty());
}

#[test]
fn a_fetch_of_very_many_partitions_counts_for_what_it_takes() {
    let (mut world, bound) = tight();
    world.topic("wide", 50_000, BTreeMap::new());
    let want = |index| FetchPartition::new(PartitionIndex(index), Offset(0), 1);
    let asked = FetchRequest {
        head: FetchRequestHead {
            session_epoch: 0,
            max_wait_ms: i32::MAX,
            min_bytes: 1,
            ..FetchRequestHead::default()
        },
        topics: vec![FetchTopic {
            name: "wide".to_owned(),
            id: topic_id("wide"),
            partitions: (0..50_000).map(want).collect(),
        }],
        forgotten_topics: vec![],
    };
    let frame = request(ApiKey::FETCH, 12, |writer| asked.write(writer, 12));
    for id in 2..8 {
        world.connect(ConnId(id));
        for piece in frame.chunks(1 << 20) {
            world.receive(ConnId(id), piece);
        }
        assert!(world.server.memory_bytes() <= bound);
        world.answer();
        assert!(world.server.memory_bytes() <= bound);
    }
    assert!(!closed(&world.take()).is_empty());
}

#[test]
fn sessions_hold_no_more_than_they_may() {
    let (mut world, bound) = tight();
    for round in 0..200 {
        let name = format!("{round:0>249}");
        let asked = FetchRequest {
            head: FetchRequestHead { session_epoch: 0, ..FetchRequestHead::default() },
            topics: vec![FetchTopic {
                name,
                id: TopicId::ZERO,
                partitions: (0..40)
                    .map(|index| FetchPartition::new(PartitionIndex(index), Offset(0), 1))
                    .collect(),
            }],
            forgotten_topics: vec![],
        };
        world.ask(ApiKey::FETCH, 12, |writer| asked.write(writer, 12));
        assert!(world.server.memory_bytes() <= bound);
        world.now = world.now.plus(Duration::from_secs(30));
    }
    assert_eq!(world.server.session_count(), 10);
}

#[test]
fn a_request_that_names_too_much_is_refused() {
    let mut world = World::new();
    let frame = request(ApiKey::METADATA, 1, |writer| {
        writer.i32(200_000);
        for _ in 0..200_000 {
            writer.str("x", false);
        }
    });
    world.receive(CLIENT, &frame);
    let reason = world.close_reason();
    assert!(reason.contains("it names 200000 things, above the limit of 100000"), "{reason}");
}

#[test]
fn a_produce_of_nothing_but_topics_is_refused_before_they_are_read() {
    let mut world = World::new();
    let frame = request(ApiKey::PRODUCE, 9, |writer| {
        writer.raw(&[0, 0, 1, 0, 0, 0, 0]);
        writer.unsigned_varint(1_000_001);
        writer.raw(&[1, 1, 0].repeat(1_000_000));
    });
    for piece in frame.chunks(1 << 20) {
        world.receive(CLIENT, piece);
    }
    assert!(world.close_reason().contains("it names 1000000 things"));
}

#[test]
fn memory_goes_back_to_where_it_was() {
    let mut world = World::new();
    let before = world.server.memory_bytes();
    let large = request(ApiKey::PRODUCE, 9, |writer| {
        writer.raw(&[0, 0, 1, 0, 0, 0, 0, 1]);
        writer.raw(&vec![0; 4 << 20]);
    });
    for piece in large.chunks(1 << 20) {
        world.receive(CLIENT, piece);
    }
    world.sent(CLIENT);
    assert!(world.server.memory_bytes() <= before + (17 << 10), "{}", world.server.memory_bytes());
    world.server.closed(CLIENT, &mut world.out);
    assert_eq!(world.server.memory_bytes(), 0);
}
