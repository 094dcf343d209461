//! The synthetic cluster on real sockets: a listener for every broker, a thread for every connection.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wire::ids::BrokerId;

use super::chunk::{Chunk, Chunks};
use super::cluster::Cluster;
use super::handle::{Connection, Handled};

/// The largest request that is read (`socket.request.max.bytes`).
const REQUEST_BYTES_MAX: usize = 100 << 20;
/// Pieces of one vectored write: what Linux takes (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

/// A cluster that serves. It stops when this is dropped.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    addresses: BTreeMap<BrokerId, SocketAddr>,
    listeners: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    cluster: Mutex<Cluster>,
    /// Something has changed that parked requests may wait for.
    changed: Condvar,
    stopping: AtomicBool,
    clock: Clock,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    made: u64,
    open: BTreeMap<u64, (BrokerId, TcpStream)>,
    threads: Vec<JoinHandle<()>>,
}

/// Milliseconds since 1970 that never go back.
#[derive(Debug)]
struct Clock {
    start: Instant,
    start_ms: i64,
}

impl Clock {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ms = i64::try_from(since.as_millis()).unwrap_or(0);
        Self { start: Instant::now(), start_ms }
    }

    fn now_ms(&self) -> i64 {
        let elapsed = self.start.elapsed().as_millis();
        self.start_ms.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX))
    }
}

/// Serves on free ports of the loopback interface.
pub fn serve(cluster: Cluster) -> io::Result<Running> {
    serve_at(cluster, SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// Serves at an address: the first broker at its port, the others at the ports after it; all on free
/// ports where the port is 0.
pub fn serve_at(mut cluster: Cluster, address: SocketAddr) -> io::Result<Running> {
    let mut bound = Vec::new();
    for (place, id) in (0..).zip(cluster.broker_ids().collect::<Vec<_>>()) {
        let mut address = address;
        if address.port() != 0 {
            address.set_port(address.port().saturating_add(place));
        }
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        cluster.set_address(id, &address.ip().to_string(), address.port());
        bound.push((id, address, listener));
    }
    let shared = Arc::new(Shared {
        cluster: Mutex::new(cluster),
        changed: Condvar::new(),
        stopping: AtomicBool::new(false),
        clock: Clock::new(),
        connections: Mutex::default(),
    });
    let addresses = bound.iter().map(|(id, address, _)| (*id, *address)).collect();
    let listeners = bound
        .into_iter()
        .map(|(id, _, listener)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&shared, id, &listener))
        })
        .collect();
    Ok(Running { shared, addresses, listeners })
}

impl Running {
    /// Where to find the cluster: every broker, as clients take it.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<_> = self.addresses.values().map(ToString::to_string).collect();
        addresses.join(",")
    }

    /// Where a broker listens, whatever it tells clients.
    ///
    /// # Panics
    /// When there is no such broker.
    #[must_use]
    pub fn address(&self, broker: BrokerId) -> SocketAddr {
        self.addresses[&broker]
    }

    /// Looks at the cluster and changes it. Requests that wait look again, and connections of
    /// brokers that are down are cut.
    pub fn with<T>(&self, command: impl FnOnce(&mut Cluster) -> T) -> T {
        let mut cluster = self.shared.cluster();
        let result = command(&mut cluster);
        let down: Vec<_> = self.addresses.keys().filter(|id| !cluster.is_up(**id)).collect();
        self.shared.changed.notify_all();
        drop(cluster);
        down.into_iter().for_each(|id| self.cut(*id));
        result
    }

    /// The time that the cluster goes by.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// Cuts all connections of a broker.
    pub fn cut(&self, broker: BrokerId) {
        let connections = self.shared.connections();
        for (_, stream) in connections.open.values().filter(|(id, _)| *id == broker) {
            // It may be gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends all connections and waits for all threads.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Under the lock, so that nobody looks at the flag before it and waits after this.
        let cluster = self.shared.cluster();
        self.shared.changed.notify_all();
        drop(cluster);
        for address in self.addresses.values() {
            // A connection wakes the listener; where none can be made it is awake.
            drop(TcpStream::connect(address));
        }
        for listener in self.listeners.drain(..) {
            let _ = listener.join();
        }
        self.addresses.keys().for_each(|id| self.cut(*id));
        let threads = std::mem::take(&mut self.shared.connections().threads);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Answers one request, waiting as long as it takes. `None` ends the connection.
    fn answer(&self, connection: &mut Connection, frame: &[u8]) -> Option<Chunks> {
        let mut cluster = self.cluster();
        let mut handled = cluster.handle(connection, frame, self.clock.now_ms());
        loop {
            let parked = match handled {
                Handled::Response(chunks) => return Some(chunks),
                Handled::Silent => return Some(Chunks::default()),
                Handled::Close(reason) => {
                    tracing::debug!(broker = connection.broker().0, reason, "connection closed");
                    return None;
                }
                Handled::Parked(parked) => parked,
            };
            if self.is_stopping() {
                return None;
            }
            let wait_ms = parked.until_ms().saturating_sub(self.clock.now_ms()).max(0);
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
            let waited = self.changed.wait_timeout(cluster, wait);
            cluster = waited.unwrap_or_else(PoisonError::into_inner).0;
            handled = cluster.resume(parked, self.clock.now_ms());
        }
    }
}

fn accept(shared: &Arc<Shared>, broker: BrokerId, listener: &TcpListener) {
    for stream in listener.incoming() {
        if shared.is_stopping() {
            return;
        }
        let Ok(stream) = stream else { continue };
        if !shared.cluster().is_up(broker) {
            continue;
        }
        let Ok(handle) = stream.try_clone() else { continue };
        let mut connections = shared.connections();
        connections.made += 1;
        let number = connections.made;
        connections.open.insert(number, (broker, handle));
        connections.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(shared);
        connections.threads.push(thread::spawn(move || {
            if let Err(error) = converse(&shared, broker, stream) {
                tracing::debug!(broker = broker.0, %error, "connection ended");
            }
            shared.connections().open.remove(&number);
        }));
    }
}

fn converse(shared: &Shared, broker: BrokerId, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection::to(broker);
    let mut frame = Vec::new();
    loop {
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if size > REQUEST_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a request of that size"));
        }
        frame.resize(size, 0);
        stream.read_exact(&mut frame)?;
        let Some(response) = shared.answer(&mut connection, &frame) else {
            // The registry holds the stream as well.
            return stream.shutdown(Shutdown::Both);
        };
        write(&mut stream, response.chunks())?;
    }
}

fn write(stream: &mut TcpStream, chunks: &[Chunk]) -> io::Result<()> {
    for group in chunks.chunks(SLICES_MAX) {
        let mut slices: Vec<_> = group.iter().map(|chunk| IoSlice::new(chunk)).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match stream.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{NewBatch, Record, Settings};
    use wire::api::ApiKey;
    use wire::fetch::{FetchPartition, FetchRequest, FetchRequestHead, FetchTopic};
    use wire::frame::frame_request;
    use wire::ids::{Offset, PartitionIndex, TopicId};

    /// A fetch from the end of the log that waits for as long as it may.
    fn wait_for_records(stream: &mut TcpStream) {
        let partitions = vec![FetchPartition::new(PartitionIndex(0), Offset(0), 1 << 20)];
        let topics = vec![FetchTopic { name: "t".into(), id: TopicId::ZERO, partitions }];
        let head =
            FetchRequestHead { max_wait_ms: i32::MAX, min_bytes: 1, ..FetchRequestHead::default() };
        let request = FetchRequest { head, topics, ..FetchRequest::default() };
        let frame = frame_request(ApiKey::FETCH, 12, 1, None, |writer| request.write(writer, 12));
        stream.write_all(&frame).expect("sent");
    }

    #[test]
    fn a_fetch_that_waits_is_woken_by_records_and_by_the_end() {
        let mut cluster = Cluster::new(Settings::default());
        cluster.create_topic("t", 1);
        let running = serve(cluster).expect("serves");
        let mut first = TcpStream::connect(running.address(BrokerId(1))).expect("connected");
        wait_for_records(&mut first);
        let batch = NewBatch::of(vec![Record::of(0, "awaited")]);
        running.with(|cluster| cluster.partition("t", 0).append(&batch));
        let mut size = [0; 4];
        first.read_exact(&mut size).expect("an answer");
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        first.read_exact(&mut answer).expect("the rest of it");
        assert!(answer.windows(7).any(|window| window == b"awaited"));

        running.with(|cluster| cluster.create_topic("t", 1));
        let leader = running.with(|cluster| cluster.partition("t", 0).leader()).expect("led");
        let mut second = TcpStream::connect(running.address(leader)).expect("connected");
        wait_for_records(&mut second);
        running.stop();
        assert!(matches!(second.read(&mut size), Ok(0) | Err(_)));
    }
}
