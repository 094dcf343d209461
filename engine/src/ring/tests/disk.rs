use proptest::prelude::*;

use super::*;
use crate::io::{BLOCK_BYTES, Chunk};
use crate::ring::WriterKind;

const WRITERS: [WriterKind; 3] = [WriterKind::Inline, WriterKind::Ring, WriterKind::Direct];

fn with(writer: WriterKind) -> World {
    World::new(RingOptions { writer, ..Default::default() })
}

/// These bytes, in memory as they will lie in their file where the pool has room for that.
fn lying(world: &World, bytes: &[u8], position: u64) -> Chunk {
    let Some(mut buffer) = world.ring.buffers().lend(bytes.len() + BLOCK_BYTES) else {
        return bytes.to_vec().into();
    };
    buffer.place(position as usize % BLOCK_BYTES, bytes.len());
    buffer.copy_from_slice(bytes);
    buffer.share()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_appends_can_be_read_back(
        lengths in prop::collection::vec(
            prop_oneof![1_usize..300, 4_000_usize..9_000, 60_000_usize..3_000_000], 1..12),
        start in 0_u64..10_000,
        at_once: bool,
        placed: bool,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        for writer in WRITERS {
            let mut world = with(writer);
            let path = folder.path().join(format!("{writer:?}.log"));
            let file = world.ring.file(&Arc::from(path.as_path()));
            let (mut expected, mut tokens) = (vec![0; start as usize], Vec::new());
            for (number, length) in lengths.iter().enumerate() {
                let (bytes, position) = (pattern(number as u64, *length), expected.len() as u64);
                expected.extend(&bytes);
                let bytes = if placed { lying(&world, &bytes, position) } else { bytes.into() };
                let token = world.submit(Op::Write { file, position, bytes, backfill: true });
                if at_once {
                    tokens.push(token);
                } else {
                    assert_written(&world.wait(token));
                    // What is written can be read at once, by anyone.
                    prop_assert!(std::fs::read(&path).expect("read") == expected);
                }
            }
            let flush = world.submit(Op::Flush { file });
            for token in tokens {
                assert_written(&world.wait(token));
            }
            let flushed = world.wait(flush);
            prop_assert!(matches!(flushed, Done::Flushed { .. }), "{:?}", flushed);
            prop_assert!(std::fs::read(&path).expect("read") == expected);
        }
    }
}

#[test]
fn two_thousand_files_are_written_with_sixty_four_open() {
    for writer in WRITERS {
        let folder = tempfile::tempdir().expect("a folder");
        let mut world =
            World::new(RingOptions { writer, files_open_max: Some(64), ..Default::default() });
        let files: Vec<_> = (0..2_000)
            .map(|number| world.ring.file(&Arc::from(folder.path().join(number.to_string()))))
            .collect();
        for round in 0..3_u64 {
            let tokens: Vec<_> = files
                .iter()
                .map(|file| {
                    let bytes = pattern(u64::from(file.0) * 3 + round, 100).into();
                    world.submit(Op::Write {
                        file: *file,
                        position: round * 100,
                        bytes,
                        backfill: true,
                    })
                })
                .collect();
            for token in tokens {
                assert_written(&world.wait(token));
            }
            // The direct writer has two for each file, the ring's writer none.
            let most = match writer {
                WriterKind::Inline => 64,
                WriterKind::Ring => 0,
                WriterKind::Direct => 128,
            };
            assert!(descriptors_in(folder.path()) <= most, "{writer:?}");
        }
        for (number, file) in files.iter().enumerate() {
            let read = std::fs::read(folder.path().join(number.to_string())).expect("read");
            let parts = (0..3).map(|round| pattern(u64::from(file.0) * 3 + round, 100));
            assert!(read == parts.collect::<Vec<_>>().concat());
        }
    }
}

fn descriptors_in(folder: &Path) -> usize {
    let ours = std::fs::read_dir("/proc/self/fd").expect("our descriptors");
    // What another test closes meanwhile is none of ours.
    let targets = ours.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(folder)).count()
}

#[test]
fn a_flush_completes_after_the_writes_before_it() {
    for writer in WRITERS {
        let folder = tempfile::tempdir().expect("a folder");
        let mut world = with(writer);
        let file = world.ring.file(&Arc::from(folder.path().join("0.log")));
        let mut order = Vec::new();
        for round in 0..20_u64 {
            let bytes = vec![round as u8; 300_000].into();
            order.push(world.submit(Op::Write {
                file,
                position: round * 300_000,
                bytes,
                backfill: true,
            }));
            if round % 5 == 4 {
                order.push(world.submit(Op::Flush { file }));
            }
        }
        world.until(|done| done.len() == 24);
        let place = |token| world.done.iter().position(|(of, _)| *of == token).expect("completed");
        // Flushes among themselves may overtake one another.
        for flush in [5, 11, 17, 23] {
            for write in (0..flush).filter(|number| number % 6 != 5) {
                assert!(place(order[write]) < place(order[flush]), "{writer:?}");
            }
        }
    }
}

#[test]
fn more_operations_than_the_kernel_takes_at_once_are_all_carried_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = RingOptions { entries: 4, writer: WriterKind::Ring, ..Default::default() };
    let mut world = World::new(options);
    let mut tokens = Vec::new();
    for number in 0..600 {
        let file = world.ring.file(&Arc::from(folder.path().join(number.to_string())));
        let bytes = vec![number as u8; 1_000].into();
        tokens.push(world.submit(Op::Write { file, position: 0, bytes, backfill: true }));
    }
    for (number, token) in tokens.into_iter().enumerate() {
        assert_written(&world.wait(token));
        let read = std::fs::read(folder.path().join(number.to_string())).expect("read");
        assert_eq!(read, vec![number as u8; 1_000]);
    }
}

#[test]
fn a_full_disk_is_reported_as_such() {
    // A device that has no room ever. The direct and the ring's writer open it as any file.
    for writer in WRITERS {
        let mut world = with(writer);
        let file = world.ring.file(&Arc::from(Path::new("/dev/full")));
        let done = world.run(Op::Write {
            file,
            position: 0,
            bytes: vec![1; 200_000].into(),
            backfill: true,
        });
        assert_failed(&done, IoErrorKind::DiskFull);
    }
}

#[test]
fn writes_behind_one_that_failed_are_not_carried_out() {
    let mut world = with(WriterKind::Ring);
    let file = world.ring.file(&Arc::from(Path::new("/dev/full")));
    let write = |position| {
        let bytes = vec![1; 1_000].into();
        Op::Write { file, position, bytes, backfill: false }
    };
    let tokens: Vec<_> = (0..20).map(|number| world.submit(write(number * 1_000))).collect();
    let failures: Vec<_> = tokens.into_iter().map(|token| world.wait(token)).collect();
    let behind = "a write before this one failed";
    let is_behind = |done: &Done| {
        let Done::Failed { error } = done else { panic!("it is full: {done:?}") };
        error.detail.contains(behind)
    };
    assert_failed(&failures[0], IoErrorKind::DiskFull);
    assert!(is_behind(&failures[19]));
    // A write that comes after them is tried again.
    assert_failed(&world.run(write(20_000)), IoErrorKind::DiskFull);
}

#[test]
fn what_cannot_be_opened_says_what_and_why() {
    let folder = tempfile::tempdir().expect("a folder");
    for writer in WRITERS {
        let mut world = with(writer);
        let path = folder.path().join("no/such/folder/0.log");
        let file = world.ring.file(&Arc::from(path.as_path()));
        let done =
            world.run(Op::Write { file, position: 0, bytes: vec![1].into(), backfill: true });
        assert_failed(&done, IoErrorKind::NotFound);
        let Done::Failed { error } = done else { unreachable!() };
        assert!(error.detail.contains("no/such/folder/0.log"), "{error}");
        assert_failed(&world.run(Op::Flush { file }), IoErrorKind::NotFound);
    }
}

#[test]
fn a_forgotten_file_is_finished_and_its_path_gets_a_new_name() {
    for writer in WRITERS {
        let folder = tempfile::tempdir().expect("a folder");
        let mut world = with(writer);
        let path: Arc<Path> = Arc::from(folder.path().join("0.log"));
        let file = world.ring.file(&path);
        assert_eq!(world.ring.file(&path), file);
        let written = world.submit(Op::Write {
            file,
            position: 0,
            bytes: vec![1; 500_000].into(),
            backfill: true,
        });
        let flushed = world.submit(Op::Flush { file });
        world.ring.forget(file);
        let other = world.ring.file(&path);
        assert_ne!(other, file);
        assert_written(&world.wait(written));
        assert!(matches!(world.wait(flushed), Done::Flushed { .. }));
        let late =
            world.run(Op::Write { file, position: 0, bytes: vec![2].into(), backfill: true });
        assert_failed(&late, IoErrorKind::NotFound);
        std::fs::remove_file(&path).expect("removed");
        assert_written(&world.run(Op::Write {
            file: other,
            position: 0,
            bytes: vec![3].into(),
            backfill: true,
        }));
        assert_eq!(std::fs::read(&path).expect("read"), [3]);
    }
}

#[test]
fn what_was_to_be_sent_before_a_write_is_sent_before_it() {
    // A source's next request once waited in our queue until the bytes of its last answer were
    // written, and the source was idle meanwhile.
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::plain();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let Done::Connected { connection } = world.run(Op::Connect { address }) else {
        panic!("not connected");
    };
    let (mut peer, _) = listener.accept().expect("accepted");
    peer.set_read_timeout(Some(PATIENCE)).expect("a time to wait");
    let file = world.ring.file(&Arc::from(folder.path().join("0.log")));
    let sent = world.submit(Op::Send { connection, bytes: b"next".to_vec().into() });
    let written = world.submit(Op::Write {
        file,
        position: 0,
        bytes: pattern(1, 100).into(),
        backfill: true,
    });
    // No turn has come in between.
    let mut heard = [0; 4];
    std::io::Read::read_exact(&mut peer, &mut heard).expect("it was sent");
    assert_eq!(&heard, b"next");
    assert_sent(&world.wait(sent));
    assert_written(&world.wait(written));
}
