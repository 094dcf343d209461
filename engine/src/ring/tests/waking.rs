use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use super::*;

#[test]
fn no_wake_is_lost() {
    let mut world = World::plain();
    let waker = world.ring.waker();
    let said = Arc::new(AtomicU64::new(0));
    let (heard, ear) = mpsc::sync_channel::<u64>(0);
    let speaker = {
        let said = Arc::clone(&said);
        thread::spawn(move || {
            for word in 1..=20_000 {
                said.store(word, Ordering::SeqCst);
                waker.wake();
                // Waits until the shard has seen it: a lost wake stops both for good.
                assert_eq!(ear.recv(), Ok(word));
            }
        })
    };
    let mut last = 0;
    let patience = world.ring.now().plus(PATIENCE);
    while last < 20_000 {
        world.ring.turn(Some(patience), &mut world.done);
        assert!(world.ring.now() < patience, "a wake was lost after {last}");
        let word = said.load(Ordering::SeqCst);
        if word > last {
            last = word;
            heard.send(word).expect("the speaker waits");
        }
    }
    speaker.join().expect("it speaks");
}

#[test]
fn a_wake_before_the_wait_is_remembered_and_many_are_one() {
    let mut world = World::plain();
    let waker = world.ring.waker();
    for _ in 0..1_000 {
        waker.wake();
    }
    world.ring.turn(None, &mut world.done);
    assert!(world.done.is_empty());
    let soon = world.ring.now().plus(Duration::from_millis(20));
    world.ring.turn(Some(soon), &mut world.done);
    assert!(world.ring.now() >= soon, "nobody woke it a second time");
    drop(world);
    waker.wake();
}

#[test]
fn a_turn_waits_until_its_time_has_come_and_the_moment_stands_still_meanwhile() {
    let mut world = World::plain();
    let start = world.ring.now();
    let until = start.plus(Duration::from_millis(30));
    assert_eq!(world.ring.now(), start);
    world.ring.turn(Some(until), &mut world.done);
    assert!(world.ring.now() >= until);
    assert!(world.ring.wall_clock_ms() > 1_600_000_000_000);
    assert_ne!(world.ring.random(), world.ring.random());
}
