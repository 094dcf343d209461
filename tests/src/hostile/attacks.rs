//! Ways to harm a server, each going on until it is told to stop.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::frames::{api_versions, fetch_many, large_produce, metadata_of_all, mutated, valid};
use crate::random::Random;

/// A slow loris sends a byte this often.
const BYTE_EVERY: Duration = Duration::from_secs(1);
/// How long an attacker waits for an answer before he goes on.
const GLANCE: Duration = Duration::from_millis(5);

/// One way to harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Requests with something wrong in them.
    Mutations,
    /// No requests at all.
    Noise,
    /// Requests that take for ever to come.
    SlowLoris,
    /// Connections on which nothing is said, ended by RST or by nothing.
    Silence,
    /// Thousands of connections at once, again and again.
    Crowds,
    /// Requests that cost much, pipelined, and the answers never read.
    Floods,
    /// Writes as large as may be, and larger.
    Produce,
}

impl Attack {
    pub const ALL: [Self; 7] = [
        Self::Mutations,
        Self::Noise,
        Self::SlowLoris,
        Self::Silence,
        Self::Crowds,
        Self::Floods,
        Self::Produce,
    ];

    /// Goes on until `stop`.
    pub fn run(self, address: SocketAddr, random: Random, stop: &AtomicBool, tally: &Tally) {
        let mut attacker = Attacker { address, random, stop, tally };
        while !attacker.is_over() {
            match self {
                Self::Mutations => attacker.mutations(),
                Self::Noise => attacker.noise(),
                Self::SlowLoris => attacker.slow_loris(),
                Self::Silence => attacker.silence(),
                Self::Crowds => attacker.crowd(),
                Self::Floods => attacker.flood(),
                Self::Produce => attacker.produce(),
            }
        }
    }
}

/// What was done to the server.
#[derive(Debug, Default)]
pub struct Tally {
    pub connections: AtomicU64,
    pub bytes: AtomicU64,
    pub frames: AtomicU64,
    /// Connections that could not be made.
    pub refused: AtomicU64,
    /// Connections that were ended from the other side.
    pub ended: AtomicU64,
}

struct Attacker<'a> {
    address: SocketAddr,
    random: Random,
    stop: &'a AtomicBool,
    tally: &'a Tally,
}

impl Attacker<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn connect(&mut self) -> Option<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        let count = if stream.is_ok() { &self.tally.connections } else { &self.tally.refused };
        count.fetch_add(1, Ordering::Relaxed);
        let stream = stream.ok()?;
        stream.set_read_timeout(Some(GLANCE)).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(200))).ok()?;
        Some(stream)
    }

    /// Whether all of it was taken.
    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> bool {
        let sent = stream.write_all(bytes);
        if sent.is_ok() {
            self.tally.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.tally.frames.fetch_add(1, Ordering::Relaxed);
        } else if sent.is_err_and(|error| is_end(error.kind())) {
            self.tally.ended.fetch_add(1, Ordering::Relaxed);
        }
        sent_or_slow(stream)
    }

    /// Takes what has come; whether the connection lives.
    fn glance(&self, stream: &mut TcpStream) -> bool {
        let mut some = [0; 16 << 10];
        match stream.read(&mut some) {
            Ok(0) => {
                self.tally.ended.fetch_add(1, Ordering::Relaxed);
                false
            }
            Ok(_) => true,
            Err(error) if is_end(error.kind()) => {
                self.tally.ended.fetch_add(1, Ordering::Relaxed);
                false
            }
            Err(_) => true,
        }
    }

    fn leave(&mut self, stream: TcpStream) {
        if self.random.one_in(2) {
            reset(&stream);
        }
    }

    fn mutations(&mut self) {
        let Some(mut stream) = self.connect() else { return };
        for _ in 0..self.random.below(12) {
            let frame = valid(&mut self.random);
            let is_hurt = !self.random.one_in(4);
            let frame = if is_hurt { mutated(frame, &mut self.random) } else { frame };
            let cut = if self.random.one_in(4) { self.random.index(frame.len()) } else { 0 };
            let whole =
                self.send(&mut stream, &frame[..cut]) && self.send(&mut stream, &frame[cut..]);
            if !whole || !self.glance(&mut stream) {
                break;
            }
        }
        self.leave(stream);
    }

    fn noise(&mut self) {
        let Some(mut stream) = self.connect() else { return };
        for _ in 0..self.random.below(8) {
            let length = self.random.index(20_000);
            let mut bytes = self.random.bytes(length);
            if self.random.one_in(2) && bytes.len() > 8 {
                // A size that is believed for a while.
                bytes[0] = 0;
                bytes[1] &= 0x1f;
            }
            if !self.send(&mut stream, &bytes) || !self.glance(&mut stream) {
                break;
            }
        }
        self.leave(stream);
    }

    fn slow_loris(&mut self) {
        let mut streams = Vec::new();
        while !self.is_over() {
            while streams.len() < 100 {
                let Some(stream) = self.connect() else { break };
                let length = 50 + self.random.index(2_000);
                let frame = valid(&mut self.random);
                let rest: Vec<u8> = frame.into_iter().cycle().take(length).collect();
                streams.push((stream, rest, 0));
            }
            streams.retain_mut(|(stream, bytes, at)| {
                let byte = [bytes[*at % bytes.len()]];
                *at += 1;
                self.tally.bytes.fetch_add(1, Ordering::Relaxed);
                stream.write_all(&byte).is_ok() && self.glance(stream)
            });
            self.rest(BYTE_EVERY);
        }
    }

    /// Pacing is this attack.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn silence(&mut self) {
        let mut silent: Vec<_> = (0..300).filter_map(|_| self.connect()).collect();
        for stream in silent.iter_mut().take(100) {
            // Half a size, and no more.
            let _ = stream.write_all(&[0, 0]);
        }
        let time = Duration::from_millis(self.random.below(3_000));
        self.rest(time);
        for stream in silent {
            self.leave(stream);
        }
    }

    fn crowd(&mut self) {
        let mut crowd = Vec::new();
        for _ in 0..3_000 {
            if self.is_over() {
                return;
            }
            if let Some(mut stream) = self.connect() {
                let frame = api_versions(&mut self.random);
                self.send(&mut stream, &frame);
                crowd.push(stream);
            }
        }
        self.rest(Duration::from_millis(500));
        for stream in crowd {
            self.leave(stream);
        }
    }

    fn flood(&mut self) {
        let mut streams: Vec<_> = (0..30).filter_map(|_| self.connect()).collect();
        let kind = self.random.below(3);
        let frame = match kind {
            0 => metadata_of_all(&mut self.random),
            1 => fetch_many(10_000, &mut self.random),
            _ => fetch_many(4, &mut self.random),
        };
        let until = Instant::now() + Duration::from_millis(1_500);
        while !self.is_over() && Instant::now() < until && !streams.is_empty() {
            let _ = streams.iter().try_for_each(|stream| stream.set_nonblocking(true));
            streams.retain_mut(|stream| self.push(stream, &frame));
        }
        let time = Duration::from_millis(self.random.below(1_500));
        self.rest(time);
        for stream in streams {
            self.leave(stream);
        }
    }

    /// Sends what the socket takes; cut in the middle it is a worse request still.
    fn push(&self, stream: &mut TcpStream, frame: &[u8]) -> bool {
        match stream.write(frame) {
            Ok(count) => {
                self.tally.bytes.fetch_add(count as u64, Ordering::Relaxed);
                self.tally.frames.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(error) => !is_end(error.kind()),
        }
    }

    fn produce(&mut self) {
        let Some(mut stream) = self.connect() else { return };
        for _ in 0..4 {
            let bytes = match self.random.below(4) {
                0 => (8 << 20) - 200,
                1 => 9 << 20,
                2 => 1 << 20,
                _ => self.random.index(8 << 20),
            };
            let frame = large_produce(bytes, &mut self.random);
            let end =
                if self.random.one_in(3) { self.random.index(frame.len()) } else { frame.len() };
            if !self.send(&mut stream, &frame[..end]) || !self.glance(&mut stream) {
                break;
            }
        }
        self.leave(stream);
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// Whether the socket has no error: one that took nothing is only slow.
fn sent_or_slow(stream: &TcpStream) -> bool {
    matches!(stream.take_error(), Ok(None))
}

/// Makes the close a RST.
fn reset(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option is a `linger` that lives for the call, of the length that is told.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        );
    }
}

/// Lets this process have as many descriptors as it may; how many that is.
pub fn allow_many_descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives for both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    limit.rlim_cur
}
