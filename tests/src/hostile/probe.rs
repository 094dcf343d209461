//! A sound client between the hostile ones: are its answers right, and how long does it wait?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use wire::api::ApiKey;
use wire::batch::Batches;
use wire::codec::Reader;
use wire::fetch::FetchResponse;
use wire::frame::read_response_header;

use super::frames::fetch_one;
use crate::random::Random;

/// A sound client gives up after this.
const PATIENCE: Duration = Duration::from_secs(30);
const FETCH_BYTES: i32 = 64 << 10;
const FETCH_VERSION: i16 = 12;

/// Sends a whole frame and receives one, without its size.
pub fn exchange(stream: &mut TcpStream, frame: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(frame)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(i32::from_be_bytes(size)).map_err(io::Error::other)?;
    let mut answer = vec![0; size];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// How long answers took, each a fetch.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// The one that this share of all does not exceed.
    pub fn at(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let place = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(place).copied().unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Fetches from random places of a topic and looks at what comes.
#[derive(Debug)]
pub struct Probe {
    address: SocketAddr,
    topic: String,
    /// By partition, the offset after the last.
    ends: Vec<i64>,
    random: Random,
    stream: Option<TcpStream>,
    latencies: Latencies,
}

impl Probe {
    pub fn new(address: SocketAddr, topic: &str, ends: Vec<i64>, random: Random) -> Self {
        let latencies = Latencies::default();
        Self { address, topic: topic.to_owned(), ends, random, stream: None, latencies }
    }

    /// One fetch; now and then on a new connection. An error says what a sound client suffered.
    pub fn fetch(&mut self) -> Result<(), String> {
        let index = self.random.index(self.ends.len());
        let offset =
            i64::try_from(self.random.below(self.ends[index].unsigned_abs())).expect("i64");
        let partition = i32::try_from(index).expect("few");
        let frame = fetch_one(&self.topic, partition, offset, FETCH_BYTES, &mut self.random);
        if self.random.one_in(20) {
            self.stream = None;
        }
        let started = Instant::now();
        let answer = self.ask(&frame).map_err(|e| format!("a sound fetch: {e}"))?;
        self.latencies.0.push(started.elapsed());
        check(&answer, offset)
    }

    fn ask(&mut self, frame: &[u8]) -> io::Result<Vec<u8>> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                none.insert(stream)
            }
        };
        exchange(stream, frame)
    }

    pub fn finish(self) -> Latencies {
        self.latencies
    }
}

/// The first batch has the offset, and the CRC of every whole one is right.
fn check(answer: &[u8], offset: i64) -> Result<(), String> {
    let wire = |error: wire::WireError| error.to_string();
    let mut reader = Reader::new(answer);
    read_response_header(&mut reader, ApiKey::FETCH, FETCH_VERSION).map_err(wire)?;
    let mut walk = FetchResponse::open(answer, reader.position(), FETCH_VERSION).map_err(wire)?;
    walk.topic(answer).map_err(wire)?.ok_or("no topic")?;
    let partition = walk.partition(answer).map_err(wire)?.ok_or("no partition")?;
    if partition.error_code != 0 {
        return Err(format!("error {}", partition.error_code));
    }
    let mut is_first = true;
    for batch in Batches::new(&answer[partition.records.clone()]) {
        let (_, batch) = batch.map_err(|error| error.to_string())?;
        batch.verify_crc().map_err(|fault| fault.to_string())?;
        let has_it = batch.base_offset().0 <= offset && offset <= batch.last_offset().0;
        if is_first && !has_it {
            return Err(format!("offset {offset} is not in the first batch"));
        }
        is_first = false;
    }
    if is_first { Err(format!("no batch for offset {offset}")) } else { Ok(()) }
}
