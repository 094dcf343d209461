//! The kernel's side of one shard: its connections, its files, and what has completed for it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::ids::{ConnId, FileId, Now, Token};
use engine::io::{Buffer, BufferPool, Chunk, Done, IoErrorKind};

use super::disk::NodeId;
use super::network::{Item, Owner, What, failure};
use super::space::{Event, Micros, Reached, Space};

/// How much a stream hands on at a time.
const STREAM_BYTES: usize = 16 << 10;

/// The kernel's side of one shard.
#[derive(Debug)]
pub struct ShardSide {
    pub ready: Vec<(Token, Done)>,
    /// Until when the shard sleeps.
    pub until: Option<Now>,
    /// Whether it has a turn ahead.
    pub runs: bool,
    pub is_dead: bool,
    pub rung: Arc<AtomicBool>,
    pub pool: BufferPool,
    pub accepts: Option<Token>,
    connections: BTreeMap<ConnId, Connection>,
    files: BTreeMap<FileId, Known>,
    by_path: BTreeMap<Arc<Path>, FileId>,
    writes: BTreeMap<u64, Write>,
    flushes: BTreeMap<u64, (Token, FileId)>,
    next: u64,
    pub writes_done: u64,
}

#[derive(Debug)]
struct Connection {
    link: u64,
    end: usize,
    is_paused: bool,
    receives: VecDeque<Receive>,
}

#[derive(Debug)]
enum Receive {
    Exact { token: Token, buffer: Buffer, filled: usize },
    Stream { token: Token },
}

#[derive(Debug)]
struct Known {
    path: Arc<Path>,
    node: Option<NodeId>,
    busy: u32,
    is_forgotten: bool,
    /// When the last write to it ends that was started.
    busy_until: Micros,
    /// Writes behind a flush start no sooner.
    gate: Micros,
}

#[derive(Debug)]
struct Write {
    token: Token,
    file: FileId,
    position: u64,
    bytes: Chunk,
}

impl ShardSide {
    /// A shard that has done nothing yet.
    #[must_use]
    pub fn new(pool: BufferPool) -> Self {
        Self {
            ready: Vec::new(),
            until: None,
            runs: false,
            is_dead: false,
            rung: Arc::default(),
            pool,
            accepts: None,
            connections: BTreeMap::new(),
            files: BTreeMap::new(),
            by_path: BTreeMap::new(),
            writes: BTreeMap::new(),
            flushes: BTreeMap::new(),
            next: 0,
            writes_done: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The file of a path, the same until it is forgotten.
    pub fn file(&mut self, path: &Arc<Path>) -> FileId {
        if let Some(file) = self.by_path.get(path) {
            return *file;
        }
        let file = FileId(u32::try_from(self.number()).expect("few files"));
        let known = Known {
            path: Arc::clone(path),
            node: None,
            busy: 0,
            is_forgotten: false,
            busy_until: 0,
            gate: 0,
        };
        self.files.insert(file, known);
        self.by_path.insert(Arc::clone(path), file);
        file
    }

    /// Lets go of a file once nothing is under way for it.
    pub fn forget(&mut self, file: FileId) {
        let Some(known) = self.files.get_mut(&file) else { return };
        known.is_forgotten = true;
        if self.by_path.get(&known.path) == Some(&file) {
            self.by_path.remove(&known.path);
        }
        self.rest(file, 0);
    }

    fn rest(&mut self, file: FileId, ended: u32) {
        if let Some(known) = self.files.get_mut(&file) {
            known.busy -= ended;
            if known.is_forgotten && known.busy == 0 {
                self.files.remove(&file);
            }
        }
    }
}

impl Space {
    /// Something that a shard asked for has ended.
    pub fn complete(&mut self, shard: usize, token: Token, done: Done) {
        if !self.shards[shard].is_dead {
            self.shards[shard].ready.push((token, done));
            self.run_soon(shard);
        }
    }

    /// A link is open, of which the shard has the end `end`.
    pub fn adopt(&mut self, shard: usize, link: u64, end: usize) -> ConnId {
        let side = &mut self.shards[shard];
        let connection = ConnId(side.number());
        let open = Connection { link, end, is_paused: false, receives: VecDeque::new() };
        side.connections.insert(connection, open);
        let known = self.network.links.get_mut(&link).expect("it was just made");
        known.owners[end] = Owner::Shard { shard, connection };
        connection
    }

    /// Begins to connect.
    pub fn connect(&mut self, shard: usize, token: Token, address: SocketAddr) {
        let (refusals, silences) = (self.network.refusals, self.network.silences);
        let outcome = match self.random.below(1_000) {
            luck if luck < refusals => Reached::Refused,
            luck if luck < refusals + silences => Reached::Silent,
            _ => Reached::Answered,
        };
        let after = match outcome {
            Reached::Silent => 10_000_000,
            _ => self.latency() + self.latency(),
        };
        let (life, token, port) = (self.life, token.0, address.port());
        self.schedule(after, Event::Connect { shard, life, token, port, outcome });
    }

    /// Takes a receive, exact or of a stream.
    pub fn receive(
        &mut self,
        shard: usize,
        token: Token,
        at: ConnId,
        into: Option<(Buffer, usize)>,
    ) {
        let receive = match into {
            Some((buffer, filled)) => Receive::Exact { token, buffer, filled },
            None => Receive::Stream { token },
        };
        match self.shards[shard].connections.get_mut(&at) {
            Some(open) => {
                open.receives.push_back(receive);
                self.feed(shard, at);
            }
            None => self.complete(shard, token, failure(IoErrorKind::Closed, "closed")),
        }
    }

    /// Hands what has arrived to those who wait for it.
    pub fn feed(&mut self, shard: usize, connection: ConnId) {
        loop {
            let side = &mut self.shards[shard];
            let Some(open) = side.connections.get_mut(&connection) else { return };
            let (link, end, is_paused) = (open.link, open.end, open.is_paused);
            let Some(receive) = open.receives.front_mut() else { return };
            if matches!(receive, Receive::Exact { buffer, filled, .. } if *filled == buffer.len()) {
                // Nothing is to be waited for.
                self.hand_over(shard, connection, &[]);
                continue;
            }
            let pipe = self.network.links.get(&link).map(|link| &link.pipes[1 - end]);
            let has_ended = pipe.is_none_or(|pipe| pipe.has_ended);
            let arrived = pipe.map_or(0, |pipe| pipe.arrived.len());
            if arrived == 0 && has_ended {
                let (Receive::Exact { token, .. } | Receive::Stream { token }) = *receive;
                open.receives.pop_front();
                self.complete(shard, token, failure(IoErrorKind::Closed, "the peer ended it"));
                continue;
            }
            if arrived == 0 || is_paused && matches!(receive, Receive::Stream { .. }) {
                return;
            }
            let most = match receive {
                Receive::Exact { buffer, filled, .. } => buffer.len() - *filled,
                Receive::Stream { .. } => STREAM_BYTES,
            };
            let bytes = self.take(link, end, most);
            self.hand_over(shard, connection, &bytes);
        }
    }

    fn hand_over(&mut self, shard: usize, connection: ConnId, bytes: &[u8]) {
        let side = &mut self.shards[shard];
        let pool = side.pool.clone();
        let Some(open) = side.connections.get_mut(&connection) else { return };
        let Some(receive) = open.receives.pop_front() else { return };
        match receive {
            Receive::Exact { token, mut buffer, filled } => {
                let next = filled + bytes.len();
                buffer[filled..next].copy_from_slice(bytes);
                if next < buffer.len() {
                    open.receives.push_front(Receive::Exact { token, buffer, filled: next });
                } else {
                    self.complete(shard, token, Done::Filled { connection, buffer });
                }
            }
            Receive::Stream { token } => {
                open.receives.push_front(Receive::Stream { token });
                let outside = || Buffer::of(vec![0; bytes.len()]);
                let mut buffer = pool.lend(bytes.len()).unwrap_or_else(outside);
                buffer.copy_from_slice(bytes);
                self.complete(shard, token, Done::Received { connection, bytes: buffer });
            }
        }
    }

    /// Stops reading a stream, or goes on.
    pub fn pause(&mut self, shard: usize, connection: ConnId, is_paused: bool) {
        if let Some(open) = self.shards[shard].connections.get_mut(&connection) {
            open.is_paused = is_paused;
            self.feed(shard, connection);
        }
    }

    /// Sends bytes or a part of a file.
    pub fn send_from(&mut self, shard: usize, token: Token, connection: ConnId, what: What) {
        if let What::File { file, .. } = what
            && let Some(known) = self.shards[shard].files.get_mut(&file)
        {
            known.busy += 1;
        }
        match self.shards[shard].connections.get(&connection) {
            Some(open) => {
                let (link, end) = (open.link, open.end);
                if self.network.links.contains_key(&link) {
                    return self.send(link, end, Item { token: Some(token), what });
                }
                self.complete(shard, token, failure(IoErrorKind::Network, "reset"));
            }
            None => self.complete(shard, token, failure(IoErrorKind::Closed, "closed")),
        }
    }

    /// A shard ends a connection.
    pub fn close_from(&mut self, shard: usize, connection: ConnId) {
        let Some(open) = self.shards[shard].connections.remove(&connection) else { return };
        for receive in open.receives {
            let (Receive::Exact { token, .. } | Receive::Stream { token }) = receive;
            self.complete(shard, token, failure(IoErrorKind::Closed, "closed by us"));
        }
        self.close(open.link, open.end);
    }

    /// Reads what is to be sent, at the moment when its turn has come.
    pub fn read_to_send(
        &mut self,
        owner: Owner,
        file: FileId,
        position: u64,
        length: u64,
    ) -> Result<Vec<u8>, Done> {
        let Owner::Shard { shard, .. } = owner else { return Ok(Vec::new()) };
        let node = self.node_of(shard, file, false);
        self.shards[shard].rest(file, 1);
        let node = node.map_err(|kind| failure(kind, "cannot open the file to send from"))?;
        let bytes = self.drive.bytes(node);
        let (start, end) = (position as usize, (position + length) as usize);
        let part = bytes.get(start..end).map(<[u8]>::to_vec);
        part.ok_or_else(|| failure(IoErrorKind::Short, "the file is shorter"))
    }

    /// The open file; opened by its path where it is not, or was closed to make room.
    fn node_of(&mut self, shard: usize, file: FileId, create: bool) -> Result<NodeId, IoErrorKind> {
        let was_closed = self.random.chance(30);
        let known = self.shards[shard].files.get_mut(&file).ok_or(IoErrorKind::NotFound)?;
        if was_closed && known.busy <= 1 {
            known.node = None;
        }
        if let Some(node) = known.node {
            return Ok(node);
        }
        let node = match create {
            true => self.drive.open(&known.path).map_err(|error| error.kind)?,
            false => self.drive.find(&known.path).ok_or(IoErrorKind::NotFound)?,
        };
        known.node = Some(node);
        Ok(node)
    }

    fn disk_time(&mut self) -> Micros {
        let most = self.disk_slowness;
        let slow = self.random.chance(5);
        if slow { most * 50 } else { 10 + self.random.below(most) }
    }

    /// Takes a write.
    pub fn write(&mut self, shard: usize, token: Token, file: FileId, at: (u64, Chunk)) {
        let time = self.disk_time();
        let (now, life) = (self.now, self.life);
        let side = &mut self.shards[shard];
        let ticket = side.number();
        let Some(known) = side.files.get_mut(&file) else {
            return self.complete(shard, token, failure(IoErrorKind::NotFound, "forgotten"));
        };
        let end = now.max(known.gate) + time;
        known.busy += 1;
        known.busy_until = known.busy_until.max(end);
        let (position, bytes) = at;
        side.writes.insert(ticket, Write { token, file, position, bytes });
        self.schedule_at(end, Event::Written { shard, life, ticket });
    }

    /// A write reaches the file.
    pub fn written(&mut self, shard: usize, ticket: u64) {
        let Some(write) = self.shards[shard].writes.remove(&ticket) else { return };
        let Write { token, file, position, bytes } = write;
        let path = self.shards[shard].files.get(&file).map(|known| Arc::clone(&known.path));
        let struck = path.and_then(|path| self.drive.strike(&path, false));
        let done = match struck.map_or_else(|| self.node_of(shard, file, true), Err) {
            Ok(node) => {
                self.drive.write_node(node, position, &bytes);
                self.shards[shard].writes_done += 1;
                Done::Written { file }
            }
            Err(kind) => {
                self.write_part(shard, file, position, &bytes);
                failure(kind, "the write failed")
            }
        };
        self.shards[shard].rest(file, 1);
        self.complete(shard, token, done);
    }

    /// Some of the bytes of a write that did not end reach the file.
    fn write_part(&mut self, shard: usize, file: FileId, position: u64, bytes: &[u8]) {
        let count = match self.random.below(3) {
            0 => 0,
            1 => bytes.len(),
            _ => self.random.size(0, bytes.len()),
        };
        if count > 0
            && let Ok(node) = self.node_of(shard, file, true)
        {
            self.drive.write_node(node, position, &bytes[..count]);
        }
    }

    /// Takes a flush, which waits for the writes before it.
    pub fn flush(&mut self, shard: usize, token: Token, file: FileId) {
        let time = self.disk_time() * 2;
        let (now, life) = (self.now, self.life);
        let side = &mut self.shards[shard];
        let ticket = side.number();
        let Some(known) = side.files.get_mut(&file) else {
            return self.complete(shard, token, failure(IoErrorKind::NotFound, "forgotten"));
        };
        known.busy += 1;
        known.gate = now.max(known.busy_until);
        let end = known.gate + time;
        side.flushes.insert(ticket, (token, file));
        self.schedule_at(end, Event::Flushed { shard, life, ticket });
    }

    /// A flush reaches the disk.
    pub fn flushed(&mut self, shard: usize, ticket: u64) {
        let Some((token, file)) = self.shards[shard].flushes.remove(&ticket) else { return };
        let path = self.shards[shard].files.get(&file).map(|known| Arc::clone(&known.path));
        let struck = path.and_then(|path| self.drive.strike(&path, true));
        let done = match self.node_of(shard, file, false) {
            Ok(node) => {
                self.drive.sync_node(node, struck.is_some());
                let flushed = Done::Flushed { file };
                struck.map_or(flushed, |kind| failure(kind, "the flush failed"))
            }
            Err(kind) => failure(kind, "cannot open the file to flush it"),
        };
        self.shards[shard].rest(file, 1);
        self.complete(shard, token, done);
    }

    /// The process dies: its connections break, of what is being written any part is.
    pub fn kill(&mut self) {
        self.life += 1;
        for shard in 0..self.shards.len() {
            self.shards[shard].is_dead = true;
            let writes = std::mem::take(&mut self.shards[shard].writes);
            for Write { file, position, bytes, .. } in writes.into_values() {
                self.write_part(shard, file, position, &bytes);
            }
            self.shards[shard].ready.clear();
            let connections = std::mem::take(&mut self.shards[shard].connections);
            for open in connections.into_values() {
                self.close(open.link, open.end);
            }
        }
        self.shards.clear();
        self.forget(|event| {
            matches!(
                event,
                Event::Connect { .. }
                    | Event::Written { .. }
                    | Event::Flushed { .. }
                    | Event::Run { .. }
                    | Event::Timer { .. }
                    | Event::Desk { .. }
            )
        });
    }
}
