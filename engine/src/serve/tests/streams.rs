//! Connections as streams of bytes: order, faults, silence, and whatever a stranger may send.

use proptest::prelude::*;
use wire::api::metadata::MetadataRequest;
use wire::fetch::{FetchPartition, FetchRequest, FetchRequestHead, FetchTopic};

use super::*;
use crate::limits;

fn metadata() -> Vec<u8> {
    request(ApiKey::METADATA, 1, |writer| MetadataRequest::default().write(writer, 1))
}

fn fetch_now(partition: i32) -> Vec<u8> {
    let asked = FetchRequest {
        head: FetchRequestHead { session_epoch: 0, ..FetchRequestHead::default() },
        topics: vec![FetchTopic {
            name: "orders".to_owned(),
            id: topic_id("orders"),
            partitions: vec![FetchPartition::new(PartitionIndex(partition), Offset(0), 100)],
        }],
        forgotten_topics: vec![],
    };
    request(ApiKey::FETCH, 12, |writer| asked.write(writer, 12))
}

fn replies(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Reply { .. })).count()
}

#[test]
fn requests_are_answered_one_by_one_in_their_order() {
    let mut world = World::new();
    world.receive(CLIENT, &[fetch_now(0), metadata(), fetch_now(1)].concat());
    assert!(matches!(world.out[..], [Effect::Ask { .. }]), "the first one is worked on alone");
    world.answer();
    assert_eq!(replies(&world.take()), 1);
    world.sent(CLIENT);
    assert_eq!(replies(&world.take()), 1);
    world.sent(CLIENT);
    world.answer();
    assert_eq!(replies(&world.take()), 1);
    world.sent(CLIENT);
    world.sent(CLIENT);
    assert_eq!(world.take(), []);
}

#[test]
fn a_client_with_many_requests_in_flight_is_not_read_from_for_a_while() {
    let mut world = World::new();
    let flood: Vec<u8> = (0..=limits::REQUESTS_IN_FLIGHT_MAX).flat_map(|_| metadata()).collect();
    world.receive(CLIENT, &flood);
    let effects = world.take();
    assert_eq!(effects.last(), Some(&Effect::Pause { connection: CLIENT }));
    let mut resumed_after = None;
    for answered in 1..=limits::REQUESTS_IN_FLIGHT_MAX {
        world.sent(CLIENT);
        let effects = world.take();
        assert_eq!(replies(&effects), 1);
        if effects.contains(&Effect::Resume { connection: CLIENT }) {
            resumed_after = Some(answered);
        }
    }
    assert_eq!(resumed_after, Some(limits::REQUESTS_IN_FLIGHT_MAX / 2 + 1));
}

#[test]
fn what_is_wrong_with_a_frame_is_said_with_peer_size_and_limit() {
    let large = i32::try_from(limits::REQUEST_BYTES_MAX + 1).unwrap().to_be_bytes();
    for (bytes, said) in [
        (vec![0xff; 4], "10.0.0.1:1025 announced a request of -1 bytes".to_owned()),
        (
            large.to_vec(),
            "10.0.0.1:1025 announced a request of 8388609 bytes, above the limit of 8388608"
                .to_owned(),
        ),
        (
            request(ApiKey::JOIN_GROUP, 5, |_| ()),
            "10.0.0.1:1025 sent JoinGroup version 5 as client \"tester\", but JoinGroup is not served"
                .to_owned(),
        ),
        (
            request(ApiKey::FETCH, 3, |_| ()),
            "10.0.0.1:1025 sent Fetch version 3 as client \"tester\", but Fetch is served in \
             versions 4-18"
                .to_owned(),
        ),
        (
            request(ApiKey(999), 0, |_| ()),
            "10.0.0.1:1025 sent api 999 version 0 as client \"tester\", but api 999 is not served"
                .to_owned(),
        ),
        (
            request(ApiKey::METADATA, 1, |writer| writer.raw(&[0, 0, 0, 9, 0])),
            "10.0.0.1:1025 sent Metadata version 1 as client \"tester\" that cannot be read: \
             9 elements announced, 1 bytes left at byte 16"
                .to_owned(),
        ),
        (
            request(ApiKey::FETCH, 12, |writer| writer.raw(&[0])),
            "10.0.0.1:1025 sent Fetch version 12 as client \"tester\" that cannot be read: \
             4 bytes announced, 1 left at byte 17"
                .to_owned(),
        ),
        (
            vec![0, 0, 0, 3, 0, 3, 0],
            "10.0.0.1:1025 sent a request whose header cannot be read: \
             2 bytes announced, 1 left at byte 2"
                .to_owned(),
        ),
    ] {
        let mut world = World::new();
        world.receive(CLIENT, &[metadata(), bytes].concat());
        assert_eq!(replies(&world.take()), 1 , "what came before is answered first");
        world.sent(CLIENT);
        assert_eq!(world.close_reason(), said);
        assert_eq!(world.server.connection_count(), 0);
    }
}

#[test]
fn a_request_that_does_not_arrive_ends_its_connection() {
    let mut world = World::new();
    world.receive(CLIENT, &metadata()[..7]);
    world.pass(Duration::from_secs(29));
    world.receive(CLIENT, &[0]);
    assert_eq!(world.take(), []);
    world.pass(Duration::from_secs(1));
    let reason = world.close_reason();
    assert_eq!(reason, "10.0.0.1:1025 sent 8 bytes of a request and not the rest within 30s");
}

#[test]
fn a_request_that_waits_for_its_turn_is_not_late() {
    let mut world = World::new();
    world.receive(CLIENT, &[&metadata()[..], &metadata()[..5]].concat());
    world.take();
    world.pass(Duration::from_secs(60));
    assert_eq!(world.take(), [], "the reply has not left yet");
    world.sent(CLIENT);
    world.pass(Duration::from_secs(29));
    assert_eq!(world.take(), []);
    world.pass(Duration::from_secs(1));
    assert!(world.close_reason().contains("5 bytes of a request"));
}

#[test]
fn a_silent_connection_ends_and_a_busy_one_does_not() {
    let mut world = World::new();
    world.connect(ConnId(2));
    for _ in 0..3 {
        world.pass(Duration::from_secs(299));
        world.receive(ConnId(2), &metadata());
        world.sent(ConnId(2));
    }
    let effects = world.take();
    let closed: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Close { connection, reason, .. } => Some((*connection, reason.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(closed, [(CLIENT, "10.0.0.1:1025 was silent for 600s")]);
    // A client that does not take its reply is silent too, unless pieces of it leave.
    world.receive(ConnId(2), &metadata());
    world.pass(Duration::from_secs(599));
    world.server.sent_some(ConnId(2), world.now);
    world.pass(Duration::from_secs(599));
    assert_eq!(replies(&world.take()), 1);
    world.pass(Duration::from_secs(2));
    assert!(world.close_reason().contains("was silent"));
    assert_eq!(world.server.deadline(), None);
}

#[test]
fn one_client_too_many_is_closed_and_the_others_are_not() {
    let mut world = World::with(ServeOptions { connections_max: 2, ..ServeOptions::default() });
    world.connect(ConnId(2));
    world.connect(ConnId(3));
    assert!(world.close_reason().contains("the limit of 2 clients"));
    assert_eq!(world.server.connection_count(), 2);
}

/// A few requests of every kind, the seeds of what strangers send.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![metadata(), fetch_now(0), fetch_now(9)];
    for served in super::super::route::SERVED {
        for version in served.versions.least..=served.versions.most {
            // Not what the API asks for, mostly.
            seeds.push(request(served.api_key, version, |writer| writer.raw(&[0; 40])));
            seeds.push(request(served.api_key, version, |writer| {
                writer.raw(&[0, 0, 0, 1, 0, 6]);
                writer.raw(b"orders");
                writer.raw(&[0, 0, 0, 1, 0, 0, 0, 1]);
                writer.raw(&[0xff; 12]);
            }));
        }
    }
    seeds
}

/// What the server asks for when the stream comes in these pieces. Owners answer and replies leave
/// at once, or only after the whole stream has come.
fn effects(stream: &[u8], cuts: &[usize], at_once: bool) -> Vec<Effect> {
    let mut world = World::new();
    *world.log("orders", 0) = Log::of(&[100]);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    let mut all = Vec::new();
    let keep = |all: &mut Vec<Effect>, effects: Vec<Effect>| {
        // When reading stops depends on what has come by then.
        let of_reading =
            |effect: &Effect| matches!(effect, Effect::Pause { .. } | Effect::Resume { .. });
        all.extend(effects.into_iter().filter(|effect| !of_reading(effect)));
    };
    for piece in cuts.windows(2) {
        world.receive(CLIENT, &stream[piece[0]..piece[1]]);
        while at_once && !world.out.is_empty() {
            keep(&mut all, world.out.clone());
            world.answer();
            keep(&mut all, world.take());
            world.sent(CLIENT);
        }
        keep(&mut all, world.take());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_of_a_stream_has_the_same_effects(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        at_once: bool,
    ) {
        let seeds = seeds();
        let stream: Vec<u8> = picks.iter().flat_map(|pick| pick.get(&seeds).clone()).collect();
        prop_assert_eq!(effects(&stream, &cuts, at_once), effects(&stream, &[], at_once));
    }

    #[test]
    fn nothing_a_stranger_sends_is_the_end_of_us(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        let seeds = seeds();
        let mut stream: Vec<u8> = picks.iter().flat_map(|pick| pick.get(&seeds).clone()).collect();
        for (place, byte) in changes {
            let place = place.index(stream.len());
            stream[place] = byte;
        }
        prop_assert_eq!(effects(&stream, &cuts, true), effects(&stream, &[], true));
    }

    #[test]
    fn noise_in_a_frame_is_refused_or_answered(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        for key in [0, 1, 2, 3, 18, 22, 23, 32, 60, 75] {
            for version in [0, 4, 9, 12, 13] {
                let stream = request(ApiKey(key), version, |writer| writer.raw(&noise));
                effects(&stream, &[], true);
            }
        }
    }
}
