//! A ring against itself and against ordinary threads, over loopback and real files.

mod disk;
mod network;
mod serving;
mod waking;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Ring, RingOptions};
use crate::ids::{ConnId, Token};
use crate::io::{Buffer, Done, Io, IoErrorKind, Op};

/// Longer than any wait that ends well.
const PATIENCE: Duration = Duration::from_secs(60);

/// A ring, and what has completed that no test step asked for yet.
struct World {
    ring: Ring,
    done: Vec<(Token, Done)>,
    next: u64,
}

impl World {
    fn new(options: RingOptions) -> Self {
        let ring = Ring::new(options).expect("this kernel has io_uring");
        Self { ring, done: Vec::new(), next: 1 }
    }

    fn plain() -> Self {
        Self::new(RingOptions::default())
    }

    fn token(&mut self) -> Token {
        self.next += 1;
        Token(self.next)
    }

    fn submit(&mut self, op: Op) -> Token {
        let token = self.token();
        self.ring.submit(token, op);
        token
    }

    /// The next completion under a token; others are kept.
    fn wait(&mut self, token: Token) -> Done {
        let until = self.ring.now().plus(PATIENCE);
        loop {
            if let Some(place) = self.done.iter().position(|(of, _)| *of == token) {
                return self.done.remove(place).1;
            }
            assert!(self.ring.now() < until, "{token:?} does not complete: {:?}", self.done);
            self.ring.turn(Some(until), &mut self.done);
        }
    }

    fn run(&mut self, op: Op) -> Done {
        let token = self.submit(op);
        self.wait(token)
    }

    /// Turns until a condition holds of what has completed.
    fn until(&mut self, mut holds: impl FnMut(&[(Token, Done)]) -> bool) {
        let until = self.ring.now().plus(PATIENCE);
        while !holds(&self.done) {
            assert!(self.ring.now() < until, "it does not come to that: {:?}", self.done);
            self.ring.turn(Some(until), &mut self.done);
        }
    }

    fn listen(&mut self) -> (Token, SocketAddr) {
        let token = self.token();
        let address = self.ring.listen(token, ([127, 0, 0, 1], 0).into()).expect("it listens");
        self.ring.submit(token, Op::Accept);
        (token, address)
    }

    fn accepted(&mut self, listener: Token) -> ConnId {
        match self.wait(listener) {
            Done::Accepted { connection, .. } => connection,
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Two ends of one connection, both ours.
    fn pair(&mut self) -> (ConnId, ConnId) {
        let (listener, address) = self.listen();
        let Done::Connected { connection } = self.run(Op::Connect { address }) else {
            panic!("not connected");
        };
        (connection, self.accepted(listener))
    }

    /// Waits for a part of a stream until `length` bytes are there.
    fn stream(&mut self, token: Token, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            match self.wait(token) {
                Done::Received { bytes, .. } => all.extend_from_slice(&bytes),
                other => panic!("no bytes: {other:?}"),
            }
        }
        all
    }

    /// A file of the given bytes.
    fn file_of(&mut self, path: &Path, bytes: &[u8]) -> crate::ids::FileId {
        std::fs::write(path, bytes).expect("written");
        self.ring.file(&Arc::from(path))
    }
}

/// Bytes of which each position can be told from its neighbours.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

fn empty(length: usize) -> Buffer {
    Buffer::of(vec![0; length])
}

#[track_caller]
fn assert_failed(done: &Done, kind: IoErrorKind) {
    match done {
        Done::Failed { error } if error.kind == kind => {}
        other => panic!("not {kind:?}: {other:?}"),
    }
}

#[track_caller]
fn assert_sent(done: &Done) {
    assert!(matches!(done, Done::Sent { .. }), "not sent: {done:?}");
}

#[track_caller]
fn assert_written(done: &Done) {
    assert!(matches!(done, Done::Written { .. }), "not written: {done:?}");
}
