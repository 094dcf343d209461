use std::fs::File;
use std::net::TcpStream;
use std::thread;

use super::network::read_in_small_parts;
use super::*;
use crate::ring::{ServeBy, WriterKind, sys};

fn with_each_way(test: impl Fn(&mut World)) {
    with_each_way_of(|options| options, test);
}

fn with_each_way_of(change: impl Fn(RingOptions) -> RingOptions, test: impl Fn(&mut World)) {
    for (serve_by, writer) in [
        (ServeBy::Copy, WriterKind::Inline),
        (ServeBy::Splice, WriterKind::Inline),
        (ServeBy::Sendfile, WriterKind::Inline),
        (ServeBy::Copy, WriterKind::Ring),
        (ServeBy::Splice, WriterKind::Ring),
        (ServeBy::Sendfile, WriterKind::Ring),
        (ServeBy::Splice, WriterKind::Direct),
    ] {
        let options = RingOptions { serve_by, writer, ..Default::default() };
        test(&mut World::new(change(options)));
    }
}

#[test]
fn parts_of_files_leave_between_bytes_from_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = pattern(1, 5_000_000);
    with_each_way(|world| {
        let file = world.file_of(&folder.path().join("0.log"), &contents);
        let (here, there) = world.pair();
        let (mut expected, mut tokens) = (Vec::new(), Vec::new());
        for (position, length) in
            [(0, 5_000_000), (1, 100), (4_095, 1 << 20), (17, 3_000_001), (0, 0), (4_999_999, 1)]
        {
            let head = pattern(position as u64, 61);
            tokens.push(world.submit(Op::Send { connection: here, bytes: head.clone().into() }));
            expected.extend(head);
            let (position, length) = (position as u64, length as u64);
            tokens.push(world.submit(Op::SendFile { connection: here, file, position, length }));
            expected.extend(&contents[position as usize..(position + length) as usize]);
        }
        let buffer = empty(expected.len());
        match world.run(Op::ReceiveExact { connection: there, buffer, from: 0 }) {
            Done::Filled { buffer, .. } => assert!(buffer[..] == expected[..]),
            other => panic!("not filled: {other:?}"),
        }
        for token in tokens {
            assert_sent(&world.wait(token));
        }
    });
}

#[test]
fn bytes_that_only_the_disk_has_are_served_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, contents) = (folder.path().join("0.log"), pattern(6, 5_000_000));
    with_each_way(|world| {
        let file = world.file_of(&path, &contents);
        let on_disk = File::open(&path).expect("opened");
        on_disk.sync_all().expect("synced");
        sys::drop_cached(&on_disk);
        let (here, there) = world.pair();
        let length = contents.len() as u64;
        let sent = world.submit(Op::SendFile { connection: here, file, position: 0, length });
        match world.run(Op::ReceiveExact {
            connection: there,
            buffer: empty(contents.len()),
            from: 0,
        }) {
            Done::Filled { buffer, .. } => assert!(buffer[..] == contents[..]),
            other => panic!("not filled: {other:?}"),
        }
        assert_sent(&world.wait(sent));
    });
}

#[test]
fn a_file_that_is_not_in_memory_is_sent_whole_where_the_pool_has_nothing_to_lend() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, contents) = (folder.path().join("0.log"), pattern(7, 5_000_000));
    let mut world = World::new(RingOptions { memory_bytes: 0, ..Default::default() });
    let file = world.file_of(&path, &contents);
    let on_disk = File::open(&path).expect("opened");
    on_disk.sync_all().expect("synced");
    // Some of it is there, some is not.
    for round in 0..4 {
        sys::drop_cached(&on_disk);
        let (listener, address) = world.listen();
        let peer = TcpStream::connect(address).expect("connected");
        let connection = world.accepted(listener);
        let position = round * 1_000_001;
        let length = contents.len() as u64 - position;
        let sent = world.submit(Op::SendFile { connection, file, position, length });
        let reader = thread::spawn(move || read_in_small_parts(peer, length as usize));
        assert_sent(&world.wait(sent));
        assert!(reader.join().expect("it reads") == contents[position as usize..]);
    }
}

#[test]
fn a_file_that_is_too_short_fails_the_send_and_those_behind_it() {
    let folder = tempfile::tempdir().expect("a folder");
    with_each_way(|world| {
        let file = world.file_of(&folder.path().join("0.log"), &vec![1; 300_000]);
        for (position, length) in [(299_000, 2_000), (0, 400_000), (300_000, 1), (400_000, 100_000)]
        {
            let (here, there) = world.pair();
            world.submit(Op::ReceiveStream { connection: there });
            let short = world.submit(Op::SendFile { connection: here, file, position, length });
            let behind = world.submit(Op::Send { connection: here, bytes: vec![1].into() });
            assert_failed(&world.wait(short), IoErrorKind::Short);
            assert_failed(&world.wait(behind), IoErrorKind::Closed);
            world.ring.close(here);
            world.done.clear();
        }
        let (here, _) = world.pair();
        let missing = world.ring.file(&Arc::from(folder.path().join("missing")));
        let op = Op::SendFile { connection: here, file: missing, position: 0, length: 1 };
        assert_failed(&world.run(op), IoErrorKind::NotFound);
    });
}

#[test]
fn a_peer_that_reads_slowly_gets_every_byte_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = pattern(2, 12_000_000);
    with_each_way(|world| {
        let file = world.file_of(&folder.path().join("0.log"), &contents);
        let (listener, address) = world.listen();
        let peer = TcpStream::connect(address).expect("connected");
        let connection = world.accepted(listener);
        let length = contents.len() as u64;
        let sent = world.submit(Op::SendFile { connection, file, position: 0, length });
        let now = world.ring.now();
        world.ring.turn(Some(now.plus(Duration::from_millis(1))), &mut world.done);
        let reader = thread::spawn(move || read_in_small_parts(peer, length as usize));
        assert_sent(&world.wait(sent));
        assert!(reader.join().expect("it reads") == contents);
    });
}

#[test]
fn peers_that_do_not_read_keep_neither_pipes_nor_files_from_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = pattern(3, 8_000_000);
    with_each_way_of(
        |options| RingOptions { pipes_max: 2, files_open_max: Some(2), ..options },
        |world| quick_among_stalled(world, folder.path(), &contents),
    );
}

fn quick_among_stalled(world: &mut World, folder: &Path, contents: &[u8]) {
    let (listener, address) = world.listen();
    let mut stalled = Vec::new();
    for number in 0..12 {
        let file = world.file_of(&folder.join(number.to_string()), contents);
        let peer = TcpStream::connect(address).expect("connected");
        let connection = world.accepted(listener);
        let op = Op::SendFile { connection, file, position: number, length: 7_000_000 };
        stalled.push((number as usize, peer, world.submit(op)));
    }
    // A peer that reads comes after all of them, and gets its bytes before any of them reads.
    let (here, there) = world.pair();
    let file = world.file_of(&folder.join("quick"), contents);
    let sent =
        world.submit(Op::SendFile { connection: here, file, position: 0, length: 8_000_000 });
    let buffer = empty(contents.len());
    match world.run(Op::ReceiveExact { connection: there, buffer, from: 0 }) {
        Done::Filled { buffer, .. } => assert!(buffer[..] == contents[..]),
        other => panic!("not filled: {other:?}"),
    }
    assert_sent(&world.wait(sent));
    let readers: Vec<_> = stalled
        .into_iter()
        .map(|(number, peer, token)| {
            let reader = thread::spawn(move || read_in_small_parts(peer, 7_000_000));
            (number, reader, token)
        })
        .collect();
    for (number, reader, token) in readers {
        assert_sent(&world.wait(token));
        let read = reader.join().expect("it reads");
        assert!(read == contents[number..number + 7_000_000]);
    }
}

#[test]
fn a_peer_that_goes_away_in_the_middle_of_a_file_spoils_no_pipe_for_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = pattern(4, 8_000_000);
    let mut world =
        World::new(RingOptions { pipes_max: 1, serve_by: ServeBy::Splice, ..Default::default() });
    let file = world.file_of(&folder.path().join("0.log"), &contents);
    let (listener, address) = world.listen();
    for round in 0..6 {
        let peer = TcpStream::connect(address).expect("connected");
        let connection = world.accepted(listener);
        let op = Op::SendFile { connection, file, position: 0, length: 8_000_000 };
        let token = world.submit(op);
        let now = world.ring.now();
        world.ring.turn(Some(now.plus(Duration::from_millis(round))), &mut world.done);
        if round % 2 == 0 {
            drop(peer);
            assert!(matches!(world.wait(token), Done::Failed { .. }));
            world.ring.close(connection);
        } else {
            world.ring.close(connection);
            assert_failed(&world.wait(token), IoErrorKind::Closed);
        }
    }
    let (here, there) = world.pair();
    world.submit(Op::SendFile { connection: here, file, position: 5, length: 4_000_000 });
    match world.run(Op::ReceiveExact { connection: there, buffer: empty(4_000_000), from: 0 }) {
        Done::Filled { buffer, .. } => assert!(buffer[..] == contents[5..4_000_005]),
        other => panic!("not filled: {other:?}"),
    }
}
