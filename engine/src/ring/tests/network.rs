use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::ring::FeatureUse;

fn with_each_feature_set(test: impl Fn(World)) {
    for features in [FeatureUse::Probed, FeatureUse::Least] {
        test(World::new(RingOptions { features, ..RingOptions::default() }));
    }
}

#[test]
fn a_connection_that_nobody_takes_is_refused() {
    let mut world = World::plain();
    let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    let done = world.run(Op::Connect { address: free });
    assert_failed(&done, IoErrorKind::Network);
    let Done::Failed { error } = done else { unreachable!() };
    assert!(error.detail.contains(&free.to_string()), "{error}");
}

#[test]
fn twenty_megabytes_fill_a_buffer() {
    with_each_feature_set(|mut world| {
        let (here, there) = world.pair();
        let bytes = pattern(1, 20_000_000);
        let sent = world.submit(Op::Send { connection: here, bytes: bytes.clone().into() });
        let buffer = empty(bytes.len());
        match world.run(Op::ReceiveExact { connection: there, buffer, from: 0 }) {
            Done::Filled { buffer, .. } => assert!(buffer[..] == bytes[..]),
            other => panic!("not filled: {other:?}"),
        }
        assert_sent(&world.wait(sent));
    });
}

#[test]
fn receives_on_one_connection_are_filled_in_the_order_in_which_they_were_asked() {
    let mut world = World::plain();
    let (here, there) = world.pair();
    let tokens: Vec<_> = [1, 0, 3, 5_000]
        .map(|length| {
            world.submit(Op::ReceiveExact { connection: there, buffer: empty(length), from: 0 })
        })
        .into();
    let bytes = pattern(2, 5_004);
    world.submit(Op::Send { connection: here, bytes: bytes.clone().into() });
    let mut all = Vec::new();
    for token in tokens {
        match world.wait(token) {
            Done::Filled { buffer, .. } => all.extend_from_slice(&buffer),
            other => panic!("not filled: {other:?}"),
        }
    }
    assert!(all == bytes);
}

#[test]
fn a_peer_that_ends_early_fails_the_exact_receive_as_closed() {
    let mut world = World::plain();
    let (listener, address) = world.listen();
    let mut peer = TcpStream::connect(address).expect("connected");
    let connection = world.accepted(listener);
    peer.write_all(b"half").expect("sent");
    let token = world.submit(Op::ReceiveExact { connection, buffer: empty(8), from: 0 });
    drop(peer);
    assert_failed(&world.wait(token), IoErrorKind::Closed);
}

#[test]
fn streams_of_many_connections_share_few_buffers_and_lose_nothing() {
    for (features, stream_buffers) in
        [(FeatureUse::Probed, 4), (FeatureUse::Probed, 256), (FeatureUse::Least, 256)]
    {
        let options = RingOptions {
            features,
            stream_buffers,
            stream_buffer_bytes: 4_096,
            ..Default::default()
        };
        let mut world = World::new(options);
        let (listener, address) = world.listen();
        let (peers, length) = (40, 300_000);
        let senders: Vec<_> = (0..peers)
            .map(|peer| {
                thread::spawn(move || {
                    let mut socket = TcpStream::connect(address).expect("connected");
                    let port = socket.local_addr().expect("an address").port();
                    socket.write_all(&pattern(peer, length)).expect("sent");
                    (port, peer, socket)
                })
            })
            .collect();
        let mut received = Vec::new();
        for _ in 0..peers {
            let Done::Accepted { connection, peer } = world.wait(listener) else {
                panic!("not accepted");
            };
            received.push((
                world.submit(Op::ReceiveStream { connection }),
                peer.port(),
                Vec::new(),
            ));
        }
        for (token, _, all) in &mut received {
            *all = world.stream(*token, length);
        }
        for sender in senders {
            let (port, peer, socket) = sender.join().expect("it sends");
            let (token, _, all) = received.iter().find(|(_, of, _)| *of == port).expect("ours");
            assert!(*all == pattern(peer, length));
            drop(socket);
            assert_failed(&world.wait(*token), IoErrorKind::Closed);
        }
    }
}

#[test]
fn a_stream_goes_on_when_the_pool_is_used_up() {
    let mut world = World::new(RingOptions { memory_bytes: 16 << 10, ..Default::default() });
    let held: Vec<_> = std::iter::from_fn(|| world.ring.buffers().lend(8 << 10)).collect();
    assert_eq!(held.len(), 2);
    let (here, there) = world.pair();
    let token = world.submit(Op::ReceiveStream { connection: there });
    let bytes = pattern(3, 100_000);
    world.submit(Op::Send { connection: here, bytes: bytes.clone().into() });
    assert!(world.stream(token, bytes.len()) == bytes);
    assert_eq!(world.ring.buffers().bytes_left(), 0);
    drop(held);
    assert_eq!(world.ring.buffers().bytes_left(), 16 << 10);
}

#[test]
fn sends_on_one_connection_leave_in_order_while_the_peer_reads_slowly() {
    let mut world = World::plain();
    let (listener, address) = world.listen();
    let peer = TcpStream::connect(address).expect("connected");
    let connection = world.accepted(listener);
    let parts: Vec<_> = (0..50).map(|part| pattern(part, 200_000)).collect();
    let tokens: Vec<_> = parts
        .iter()
        .map(|part| world.submit(Op::Send { connection, bytes: part.clone().into() }))
        .collect();
    let reader = thread::spawn(move || read_in_small_parts(peer, 10_000_000));
    for token in tokens {
        assert_sent(&world.wait(token));
    }
    assert!(reader.join().expect("it reads") == parts.concat());
}

/// Reads by a few bytes at a time, so that the sender's side is full for most of the time.
pub(super) fn read_in_small_parts(mut peer: TcpStream, length: usize) -> Vec<u8> {
    let (mut all, mut part) = (Vec::new(), [0; 3_001]);
    while all.len() < length {
        match peer.read(&mut part).expect("read") {
            0 => break,
            count => all.extend_from_slice(&part[..count]),
        }
        thread::yield_now();
    }
    all
}

#[test]
fn closing_fails_what_is_in_flight_and_what_comes_later() {
    with_each_feature_set(|mut world| {
        let (listener, address) = world.listen();
        let peer = TcpStream::connect(address).expect("connected");
        let connection = world.accepted(listener);
        // More than the sockets hold, to a peer that does not read.
        let sends: Vec<_> = (0..3)
            .map(|_| world.submit(Op::Send { connection, bytes: vec![7; 20_000_000].into() }))
            .collect();
        let stream = world.submit(Op::ReceiveStream { connection });
        let behind = world.submit(Op::ReceiveExact { connection, buffer: empty(10), from: 0 });
        let now = world.ring.now();
        world.ring.turn(Some(now), &mut world.done);
        world.ring.close(connection);
        world.ring.close(connection);
        for token in sends.into_iter().chain([stream, behind]) {
            assert_failed(&world.wait(token), IoErrorKind::Closed);
        }
        let late = world.run(Op::Send { connection, bytes: vec![1].into() });
        assert_failed(&late, IoErrorKind::Closed);
        let late = world.run(Op::ReceiveExact { connection, buffer: empty(1), from: 0 });
        assert_failed(&late, IoErrorKind::Closed);
        drop(peer);
        let (again, _) = world.pair();
        assert_ne!(again, connection, "ids are not used twice");
    });
}

#[test]
fn a_send_to_a_peer_that_is_gone_fails_and_takes_the_ones_behind_it_along() {
    let mut world = World::plain();
    let (listener, address) = world.listen();
    let peer = TcpStream::connect(address).expect("connected");
    let connection = world.accepted(listener);
    let first = world.submit(Op::Send { connection, bytes: vec![7; 20_000_000].into() });
    let second = world.submit(Op::Send { connection, bytes: vec![8; 10].into() });
    let now = world.ring.now();
    world.ring.turn(Some(now), &mut world.done);
    drop(peer);
    assert!(matches!(world.wait(first), Done::Failed { .. }));
    assert_failed(&world.wait(second), IoErrorKind::Closed);
}

#[test]
fn a_pool_gets_its_buffers_back_from_failed_operations() {
    let mut world = World::plain();
    let (_, there) = world.pair();
    let buffer = world.ring.buffers().lend(1 << 20).expect("the pool is empty");
    let token = world.submit(Op::ReceiveExact { connection: there, buffer, from: 0 });
    let now = world.ring.now();
    world.ring.turn(Some(now), &mut world.done);
    // One huge page.
    assert_eq!(world.ring.buffers().bytes_lent(), 2 << 20);
    world.ring.close(there);
    assert_failed(&world.wait(token), IoErrorKind::Closed);
    assert_eq!(world.ring.buffers().bytes_lent(), 0);
}

#[test]
fn a_ring_that_is_dropped_lets_go_of_everything_in_flight() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = {
        let mut world = World::plain();
        let (here, there) = world.pair();
        let (quiet, _) = world.pair();
        world.submit(Op::ReceiveStream { connection: there });
        let buffer = world.ring.buffers().lend(1 << 20).expect("the pool is empty");
        world.submit(Op::ReceiveExact { connection: quiet, buffer, from: 0 });
        world.submit(Op::Send { connection: here, bytes: vec![7; 30_000_000].into() });
        let file = world.file_of(&folder.path().join("f"), &vec![1; 10_000_000]);
        world.submit(Op::SendFile { connection: quiet, file, position: 0, length: 10_000_000 });
        world.submit(Op::Connect { address: ([127, 0, 0, 1], 1).into() });
        let now = world.ring.now();
        world.ring.turn(Some(now), &mut world.done);
        let buffer = world.ring.buffers().lend(1 << 20).expect("within the budget");
        world.submit(Op::ReceiveExact { connection: here, buffer, from: 0 });
        world.ring.buffers().clone()
    };
    assert_eq!(pool.bytes_lent(), 0);
}
