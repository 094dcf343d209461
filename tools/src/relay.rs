//! A TCP relay on the loopback interface that makes a short way long: delay, rate, stalls and cuts on
//! command, each direction for itself.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes under way in one direction of a connection; the sender waits when there are more.
const BYTES_UNDER_WAY_MAX: usize = 64 << 20;
const READ_BYTES: usize = 64 << 10;

/// What one direction does to bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// How long a byte is under way.
    pub delay: Duration,
    /// How many bytes come out in a second, for each connection; none means no limit.
    pub bytes_per_second: Option<u64>,
    /// Nothing comes out, and connections stay.
    pub is_stalled: bool,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From those who connect to the relay.
    ToTarget,
    FromTarget,
}

/// A relay that runs. It stops when this is dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A way, a queue or the relay itself has changed.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    ways: [Way; 2],
    refuses: bool,
    stopping: bool,
    made: u64,
    connections: BTreeMap<u64, [TcpStream; 2]>,
    queues: BTreeMap<(u64, usize), Queue>,
    bytes: [u64; 2],
    threads: Vec<JoinHandle<()>>,
}

/// What is under way in one direction of one connection.
#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// Nothing more is put in.
    ended: bool,
    /// When the rate lets the next byte out.
    free_at: Option<Instant>,
}

impl Relay {
    /// Starts a relay to `target` on a free port.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let state = State {
            target,
            ways: [Way::default(); 2],
            refuses: false,
            stopping: false,
            made: 0,
            connections: BTreeMap::new(),
            queues: BTreeMap::new(),
            bytes: [0; 2],
            threads: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        let listener = Some(thread::spawn(move || accept(&accepting, &listener)));
        Ok(Self { shared, address, listener })
    }

    /// Where to connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes one direction, of connections that exist as well.
    pub fn set(&self, direction: Direction, way: Way) {
        self.shared.state().ways[direction as usize] = way;
        self.shared.changed.notify_all();
    }

    /// Changes both directions alike.
    pub fn set_both(&self, way: Way) {
        self.set(Direction::ToTarget, way);
        self.set(Direction::FromTarget, way);
    }

    /// Connects to another target from the next connection on.
    pub fn set_target(&self, target: SocketAddr) {
        self.shared.state().target = target;
    }

    /// Cuts all connections; what is under way is lost.
    pub fn cut(&self) {
        self.shared.cut(&mut self.shared.state());
    }

    /// Ends new connections at once, or no longer.
    pub fn refuse(&self, refuses: bool) {
        self.shared.state().refuses = refuses;
    }

    /// How many connections there are.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.state().connections.len()
    }

    /// How many bytes came out of a direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.shared.state().bytes[direction as usize]
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopping = true;
        self.shared.cut(&mut state);
        drop(state);
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        // Connections that were accepted meanwhile.
        self.shared.cut(&mut self.shared.state());
        let threads = std::mem::take(&mut self.shared.state().threads);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(
        &self,
        state: MutexGuard<'s, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'s, State> {
        match until {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let wait = until.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    fn cut(&self, state: &mut State) {
        for [near, far] in std::mem::take(&mut state.connections).into_values() {
            // They may be gone already.
            let _ = near.shutdown(Shutdown::Both);
            let _ = far.shutdown(Shutdown::Both);
        }
        state.queues.clear();
        self.changed.notify_all();
    }

    /// Ends one connection.
    fn end(&self, number: u64) {
        let mut state = self.state();
        if let Some([near, far]) = state.connections.remove(&number) {
            let _ = near.shutdown(Shutdown::Both);
            let _ = far.shutdown(Shutdown::Both);
        }
        state.queues.remove(&(number, 0));
        state.queues.remove(&(number, 1));
        self.changed.notify_all();
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for near in listener.incoming() {
        let (target, refuses) = {
            let state = shared.state();
            if state.stopping {
                return;
            }
            (state.target, state.refuses)
        };
        let Ok(near) = near else { continue };
        if refuses {
            continue;
        }
        if let Err(error) = TcpStream::connect(target).and_then(|far| join(shared, near, far)) {
            tracing::debug!(%target, %error, "relay cannot connect");
        }
    }
}

fn join(shared: &Arc<Shared>, near: TcpStream, far: TcpStream) -> io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ends = [(near.try_clone()?, far.try_clone()?), (far.try_clone()?, near.try_clone()?)];
    let mut state = shared.state();
    state.made += 1;
    let number = state.made;
    state.connections.insert(number, [near, far]);
    state.threads.retain(|thread| !thread.is_finished());
    for (direction, (from, to)) in ends.into_iter().enumerate() {
        state.queues.insert((number, direction), Queue::default());
        let key = (number, direction);
        let (taking, giving) = (Arc::clone(shared), Arc::clone(shared));
        state.threads.push(thread::spawn(move || take_in(&taking, key, from)));
        state.threads.push(thread::spawn(move || give_out(&giving, key, to)));
    }
    Ok(())
}

/// Reads from one end and puts what comes under way.
fn take_in(shared: &Shared, key: (u64, usize), mut from: TcpStream) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        let mut state = shared.state();
        loop {
            let Some(queue) = state.queues.get_mut(&key) else { return };
            if queue.bytes < BYTES_UNDER_WAY_MAX {
                if read == 0 {
                    queue.ended = true;
                } else {
                    queue.bytes += read;
                    queue.pieces.push_back((Instant::now(), buffer[..read].to_vec()));
                }
                break;
            }
            state = shared.wait(state, None);
        }
        shared.changed.notify_all();
        if read == 0 {
            return;
        }
    }
}

/// Writes to the other end what has been under way long enough.
fn give_out(shared: &Shared, key: (u64, usize), mut to: TcpStream) {
    let mut state = shared.state();
    loop {
        let way = state.ways[key.1];
        let Some(queue) = state.queues.get_mut(&key) else { return };
        let Some((taken, _)) = queue.pieces.front() else {
            if queue.ended {
                drop(state);
                let _ = to.shutdown(Shutdown::Write);
                return finish(shared, key);
            }
            state = shared.wait(state, None);
            continue;
        };
        let due = queue.free_at.map_or(*taken + way.delay, |free| free.max(*taken + way.delay));
        if way.is_stalled || due > Instant::now() {
            state = shared.wait(state, (!way.is_stalled).then_some(due));
            continue;
        }
        let Some((_, piece)) = queue.pieces.pop_front() else { continue };
        queue.bytes -= piece.len();
        queue.free_at = way
            .bytes_per_second
            .map(|rate| due + Duration::from_secs_f64(piece.len() as f64 / (rate.max(1)) as f64));
        state.bytes[key.1] += piece.len() as u64;
        shared.changed.notify_all();
        drop(state);
        if to.write_all(&piece).is_err() {
            return shared.end(key.0);
        }
        state = shared.state();
    }
}

/// Ends the connection once nothing is under way in either direction.
fn finish(shared: &Shared, key: (u64, usize)) {
    let mut state = shared.state();
    state.queues.remove(&key);
    let other = (key.0, 1 - key.1);
    let is_last = !state.queues.contains_key(&other);
    drop(state);
    if is_last {
        shared.end(key.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets, for one connection.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = stream.try_clone().expect("a handle");
                let mut writer = stream;
                thread::spawn(move || io::copy(&mut reader, &mut writer));
            }
        });
        address
    }

    fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Duration> {
        let start = Instant::now();
        stream.write_all(bytes)?;
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back)?;
        assert_eq!(back, bytes);
        Ok(start.elapsed())
    }

    #[test]
    fn bytes_come_through_and_take_as_long_as_they_shall() {
        let relay = Relay::start(echo()).expect("a relay");
        let mut stream = TcpStream::connect(relay.address()).expect("connected");
        exchange(&mut stream, b"at once").expect("an echo");
        let delay = Duration::from_millis(30);
        relay.set_both(Way { delay, ..Way::default() });
        assert!(exchange(&mut stream, b"later").expect("an echo") >= 2 * delay);
        relay.set_both(Way { bytes_per_second: Some(1 << 20), ..Way::default() });
        let took = exchange(&mut stream, &vec![7; 256 << 10]).expect("an echo");
        assert!(took >= Duration::from_millis(150), "{took:?}");
        assert_eq!(relay.bytes(Direction::ToTarget), relay.bytes(Direction::FromTarget));
    }

    #[test]
    fn a_stall_holds_bytes_and_a_cut_loses_them() {
        let relay = Relay::start(echo()).expect("a relay");
        let mut stream = TcpStream::connect(relay.address()).expect("connected");
        exchange(&mut stream, b"first").expect("an echo");
        let stalled = Way { is_stalled: true, ..Way::default() };
        relay.set(Direction::FromTarget, stalled);
        stream.write_all(b"held").expect("sent");
        stream.set_read_timeout(Some(Duration::from_millis(30))).expect("set");
        let mut back = [0; 4];
        assert!(stream.read_exact(&mut back).is_err());
        stream.set_read_timeout(None).expect("set");
        relay.set(Direction::FromTarget, Way::default());
        stream.read_exact(&mut back).expect("what was held");
        assert_eq!(&back, b"held");
        relay.cut();
        assert!(exchange(&mut stream, b"gone").is_err());
        let mut stream = TcpStream::connect(relay.address()).expect("connected");
        exchange(&mut stream, b"again").expect("an echo");
        relay.refuse(true);
        let mut refused = TcpStream::connect(relay.address()).expect("connected");
        assert!(exchange(&mut refused, b"no").is_err());
    }
}
