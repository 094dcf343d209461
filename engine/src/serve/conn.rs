//! One connection: the frames that arrived and were not worked on yet, and what it expects next.

use std::net::SocketAddr;

use wire::api::ApiKey;
use wire::frame::SIZE_BYTES;

use super::call::Working;
use super::{CONNECTION_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::ids::Now;
use crate::limits;

/// What a connection costs besides what it holds: its place in the tables, its deadline.
const OVERHEAD_BYTES: usize = 256;

/// Room for the first bytes; an empty inbox keeps no more than [`KEPT_BYTES_MAX`].
const FIRST_BYTES: usize = 1 << 10;
const KEPT_BYTES_MAX: usize = 16 << 10;

/// A state is named for what it waits for. TLS and SASL will add theirs in front: a connection then
/// begins at `Handshake` or `Authentication`, and its bytes go there until it expects requests.
#[derive(Debug)]
pub(super) enum Expects {
    /// The next request.
    Request,
    /// Answers of owners to the questions of the request that is worked on.
    Answers(Box<Working>),
    /// That the reply has left.
    Sent,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    pub(super) expects: Expects,
    pub(super) inbox: Inbox,
    /// We asked to stop reading.
    pub(super) paused: bool,
    /// Skeleton bytes of the reply that is on its way.
    pub(super) reply_bytes: usize,
    pub(super) last_active: Now,
    /// Since when the next request has been arriving, while it is the only thing waited for.
    pub(super) partial_since: Option<Now>,
    /// When its deadline stands in the queue: never later than the deadline itself.
    pub(super) armed: Now,
    /// What it last counted for in the sum of all.
    pub(super) counted_bytes: usize,
}

impl Connection {
    pub(super) fn new(peer: SocketAddr, now: Now, armed: Now) -> Self {
        Self {
            peer,
            expects: Expects::Request,
            inbox: Inbox::default(),
            paused: false,
            reply_bytes: 0,
            last_active: now,
            partial_since: None,
            armed,
            counted_bytes: 0,
        }
    }

    /// What it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        let work = match &self.expects {
            Expects::Answers(working) => working.memory_bytes(),
            Expects::Request | Expects::Sent => 0,
        };
        OVERHEAD_BYTES + size_of::<Self>() + self.inbox.memory_bytes() + self.reply_bytes + work
    }

    /// Whether to stop reading (or to go on not reading, with some room before reading again).
    pub(super) fn wants_pause(&self) -> bool {
        let whole_max = limits::REQUESTS_IN_FLIGHT_MAX;
        let whole_max = if self.paused { whole_max / 2 } else { whole_max };
        self.inbox.is_broken()
            || self.inbox.whole >= whole_max
            || self.inbox.waiting() >= limits::REQUEST_BYTES_MAX + SIZE_BYTES
    }
}

/// Why no more frames can be found in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    NegativeSize(i32),
    TooLarge {
        size: usize,
        limit: usize,
    },
    /// We were not heard when we asked to stop, or got more at once than we take.
    Overrun,
}

impl Broken {
    /// For the log.
    pub(super) fn reason(self, peer: SocketAddr) -> String {
        match self {
            Self::NegativeSize(size) => format!("{peer} announced a request of {size} bytes"),
            Self::TooLarge { size, limit } => {
                format!("{peer} announced a request of {size} bytes, above the limit of {limit}")
            }
            Self::Overrun => {
                format!("{peer} has more than {CONNECTION_BYTES_MAX} bytes of requests in flight")
            }
        }
    }
}

/// Bytes of a stream, cut into frames. Room is made as bytes arrive, never by an announced size.
///
/// ```text
///   | worked on | whole | whole | part ...
///               front           scanned   end of bytes
/// ```
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    front: usize,
    scanned: usize,
    /// Whole frames between `front` and `scanned`.
    whole: usize,
    broken: Option<Broken>,
}

impl Inbox {
    /// Takes what arrived. A fault is told by [`Inbox::fault`] once the whole frames before it are
    /// taken; what follows it is not kept.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if self.is_broken() {
            return;
        }
        if self.waiting() + piece.len() > CONNECTION_BYTES_MAX {
            self.broken = Some(Broken::Overrun);
            return;
        }
        self.make_room(piece.len());
        self.bytes.extend_from_slice(piece);
        while self.broken.is_none() {
            match size_at(&self.bytes[self.scanned..]) {
                Ok(Some(size)) if self.scanned + SIZE_BYTES + size <= self.bytes.len() => {
                    self.scanned += SIZE_BYTES + size;
                    self.whole += 1;
                }
                Ok(_) => break,
                Err(broken) => {
                    self.broken = Some(broken);
                    self.bytes.truncate(self.scanned);
                }
            }
        }
    }

    /// Doubles the room, up to what a connection may hold.
    fn make_room(&mut self, more: usize) {
        if self.bytes.len() + more <= self.bytes.capacity() {
            return;
        }
        self.compact();
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let doubled = (2 * self.bytes.capacity()).clamp(FIRST_BYTES, CONNECTION_BYTES_MAX);
            self.bytes.reserve_exact(needed.max(doubled) - self.bytes.len());
        }
    }

    /// The first whole frame, without its size.
    pub(super) fn frame(&self) -> Option<&[u8]> {
        if self.whole == 0 {
            return None;
        }
        let size = size_at(&self.bytes[self.front..]).ok().flatten()?;
        let start = self.front + SIZE_BYTES;
        Some(&self.bytes[start..start + size])
    }

    /// Lets go of the first whole frame.
    pub(super) fn pop(&mut self) {
        let Some(size) = self.frame().map(<[u8]>::len) else { return };
        self.front += SIZE_BYTES + size;
        self.whole -= 1;
        // What a large request took is given back, in halves so that the copying does not add up.
        let is_much = self.bytes.capacity() > KEPT_BYTES_MAX;
        if self.waiting() == 0 || (is_much && self.waiting() < self.bytes.capacity() / 4) {
            self.compact();
            self.bytes.shrink_to(KEPT_BYTES_MAX.max(2 * self.bytes.len()));
        }
    }

    fn compact(&mut self) {
        self.bytes.drain(..self.front);
        self.scanned -= self.front;
        self.front = 0;
    }

    /// What ended the stream, once no whole frame is left before it.
    pub(super) fn fault(&self) -> Option<Broken> {
        self.broken.filter(|_| self.whole == 0)
    }

    fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Bytes that were not worked on.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() - self.front
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// The size of the frame that starts at `bytes`; `None` while it cannot be told yet.
fn size_at(bytes: &[u8]) -> Result<Option<usize>, Broken> {
    let Some((&announced, rest)) = bytes.split_first_chunk::<SIZE_BYTES>() else { return Ok(None) };
    let announced = i32::from_be_bytes(announced);
    let Ok(size) = usize::try_from(announced) else {
        return Err(Broken::NegativeSize(announced));
    };
    if size > limits::REQUEST_BYTES_MAX {
        return Err(Broken::TooLarge { size, limit: limits::REQUEST_BYTES_MAX });
    }
    if size > REQUEST_BYTES_MAX {
        match rest.first_chunk::<2>() {
            Some(key) if i16::from_be_bytes(*key) == ApiKey::PRODUCE.0 => {}
            Some(_) => return Err(Broken::TooLarge { size, limit: REQUEST_BYTES_MAX }),
            None => return Ok(None),
        }
    }
    Ok(Some(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> Vec<u8> {
        let size = i32::try_from(bytes.len()).unwrap();
        [&size.to_be_bytes()[..], bytes].concat()
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_were_cut() {
        let stream = [frame(b"one"), frame(b""), frame(b"three")].concat();
        for cut in 0..=stream.len() {
            let mut inbox = Inbox::default();
            inbox.push(&stream[..cut]);
            inbox.push(&stream[cut..]);
            let mut found = Vec::new();
            while let Some(frame) = inbox.frame() {
                found.push(frame.to_vec());
                inbox.pop();
            }
            assert_eq!(found, [&b"one"[..], b"", b"three"], "cut at {cut}");
            assert_eq!(inbox.waiting(), 0);
        }
    }

    #[test]
    fn an_announced_size_takes_no_room_before_its_bytes_arrive() {
        let mut inbox = Inbox::default();
        inbox.push(&(i32::try_from(limits::REQUEST_BYTES_MAX).unwrap()).to_be_bytes());
        inbox.push(&[0, 0]);
        assert_eq!(inbox.fault(), None);
        assert!(inbox.memory_bytes() <= FIRST_BYTES);
        for _ in 0..100 {
            inbox.push(&[0; 1000]);
        }
        assert!(inbox.memory_bytes() <= 2 * 100_006);
    }

    #[test]
    fn a_fault_waits_for_the_frames_before_it() {
        let mut inbox = Inbox::default();
        inbox.push(&[frame(b"good"), vec![0xff; 8], frame(b"never seen")].concat());
        assert_eq!(inbox.fault(), None);
        assert_eq!(inbox.frame(), Some(&b"good"[..]));
        inbox.pop();
        assert_eq!(inbox.fault(), Some(Broken::NegativeSize(-1)));
        assert_eq!(inbox.frame(), None);
    }

    #[test]
    fn only_a_produce_may_be_large() {
        let size = REQUEST_BYTES_MAX + 1;
        let head = |key: i16| {
            let announced = i32::try_from(size).unwrap().to_be_bytes();
            [&announced[..], &key.to_be_bytes()].concat()
        };
        assert_eq!(size_at(&head(0)), Ok(Some(size)));
        assert_eq!(size_at(&head(0)[..5]), Ok(None));
        assert_eq!(size_at(&head(3)), Err(Broken::TooLarge { size, limit: REQUEST_BYTES_MAX }));
    }

    #[test]
    fn a_connection_holds_no_more_than_it_may() {
        let mut inbox = Inbox::default();
        let whole = frame(&vec![0; limits::REQUEST_BYTES_MAX]);
        for piece in whole.chunks(1 << 20) {
            inbox.push(piece);
        }
        for _ in 0..10 {
            inbox.push(&vec![0; 1 << 19]);
            assert!(inbox.memory_bytes() <= CONNECTION_BYTES_MAX);
        }
        inbox.pop();
        while inbox.frame().is_some() {
            inbox.pop();
        }
        assert_eq!(inbox.fault(), Some(Broken::Overrun));
    }
}
