//! Connections: made, taken, listened to and ended.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use super::error::{closed, is_transient, network, os_error};
use super::flight::{Event, Purpose, Request};
use super::serve::Sending;
use super::sys::{self, SocketAddress};
use super::{Ring, RingOptions};
use crate::ids::{ConnId, Token};
use crate::io::{Buffer, Done, IoError};

/// How much a connection without shared buffers receives at a time.
const STREAM_BYTES: usize = 16 << 10;

/// An open connection, or one that is closed and waits for the kernel to let go.
pub(super) struct Connection {
    pub(super) socket: TcpStream,
    /// Requests that the kernel has; the descriptor is closed when there are none.
    pub(super) in_flight: u32,
    pub(super) closed: bool,
    /// A send failed: what follows it must not be sent.
    pub(super) broken: bool,
    /// The first one is with the kernel where `receiving` says so.
    receives: VecDeque<Receive>,
    receiving: bool,
    /// The stream is not to be read on; its request is cancelled where it has one.
    paused: bool,
    stream_request: Option<u64>,
    /// The first one is under way where `sending` says so.
    pub(super) sends: VecDeque<Sending>,
    pub(super) sending: bool,
}

enum Receive {
    /// The buffer is with the kernel while it is received into.
    Exact {
        token: Token,
        buffer: Option<Buffer>,
        from: usize,
    },
    Stream {
        token: Token,
    },
}

impl Receive {
    fn token(&self) -> Token {
        match self {
            Self::Exact { token, .. } | Self::Stream { token } => *token,
        }
    }
}

impl Connection {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket: TcpStream::from(socket),
            in_flight: 0,
            closed: false,
            broken: false,
            receives: VecDeque::new(),
            receiving: false,
            paused: false,
            stream_request: None,
            sends: VecDeque::new(),
            sending: false,
        }
    }
}

/// A listening socket and the token under which its connections are taken.
pub(super) struct Listener {
    pub(super) token: Token,
    pub(super) socket: TcpListener,
}

pub(super) fn listen_on(options: &RingOptions, socket: TcpListener) -> io::Result<TcpListener> {
    // What a listening socket has, those that it accepts inherit.
    tune(socket.as_raw_fd(), options)?;
    Ok(socket)
}

fn tune(fd: i32, options: &RingOptions) -> io::Result<()> {
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    if let Some(bytes) = options.socket_receive_bytes {
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    }
    Ok(())
}

impl Ring {
    pub(super) fn accept(&mut self, token: Token) {
        match self.listeners.iter().find(|listener| listener.token == token) {
            Some(listener) => {
                let listener = listener.socket.as_raw_fd();
                self.kernel.start(Request::AcceptMany { listener }, Purpose::Accept { token });
            }
            None => self.fail(token, closed("nothing listens under this token")),
        }
    }

    pub(super) fn on_accept(&mut self, token: Token, event: &Event) {
        if event.result >= 0 {
            let connection = Connection::new(sys::adopt(event.result));
            // Without an address the peer has gone already, and nobody has heard of it.
            if let Ok(peer) = connection.socket.peer_addr() {
                let connection = ConnId(self.connections.insert(connection));
                self.ready.push((token, Done::Accepted { connection, peer }));
            }
        }
        if event.request.is_none() {
            return;
        }
        match event.result {
            result if result >= 0 => self.accept(token),
            // The fault of one peer, which must not end the taking of others.
            result if -result == libc::ECONNABORTED => self.accept(token),
            result => self.fail(token, network("cannot accept", &os_error(result))),
        }
    }

    pub(super) fn connect(&mut self, token: Token, address: SocketAddr) {
        let user_timeout = i32::try_from(self.options.connect_time_max.as_millis());
        let prepared = sys::tcp_socket(&address).and_then(|socket| {
            let fd = socket.as_raw_fd();
            tune(fd, &self.options)?;
            // Bounds how long the kernel repeats its first packet; lifted when it is answered.
            let timeout = user_timeout.unwrap_or(i32::MAX);
            sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, timeout)?;
            Ok(socket)
        });
        match prepared {
            Ok(socket) => {
                let name = Box::new(SocketAddress::new(&address));
                let request = Request::Connect { socket, address: name };
                self.kernel.start(request, Purpose::Connect { token, address });
            }
            Err(error) => {
                self.fail(token, network(&format!("cannot connect to {address}"), &error))
            }
        }
    }

    pub(super) fn on_connect(&mut self, token: Token, address: SocketAddr, event: Event) {
        let Some(Request::Connect { socket, .. }) = event.request else { return };
        if event.result < 0 {
            let error = network(&format!("cannot connect to {address}"), &os_error(event.result));
            return self.fail(token, error);
        }
        // Only a convenience: where it stays, a peer that is silent for so long is given up.
        let _ = sys::set_option(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 0);
        let connection = ConnId(self.connections.insert(Connection::new(socket)));
        self.ready.push((token, Done::Connected { connection }));
    }

    pub(super) fn receive_exact(
        &mut self,
        token: Token,
        connection: ConnId,
        buffer: Buffer,
        from: usize,
    ) {
        self.receive(connection, Receive::Exact { token, buffer: Some(buffer), from });
    }

    pub(super) fn receive_stream(&mut self, token: Token, connection: ConnId) {
        self.receive(connection, Receive::Stream { token });
    }

    fn receive(&mut self, connection: ConnId, receive: Receive) {
        match self.connections.get_mut(connection.0) {
            Some(open) if !open.closed => {
                open.receives.push_back(receive);
                self.drive_receives(connection);
            }
            _ => self.fail(receive.token(), closed("the connection is closed")),
        }
    }

    /// Starts the first receive of a connection where none is under way.
    fn drive_receives(&mut self, connection: ConnId) {
        let Some(open) = self.connections.get_mut(connection.0) else { return };
        let socket = open.socket.as_raw_fd();
        while !open.receiving && !open.closed {
            let (request, purpose) = match open.receives.front_mut() {
                None => return,
                Some(Receive::Exact { token, buffer, from }) => {
                    let buffer = buffer.take().expect("not under way");
                    if *from >= buffer.len() {
                        self.ready.push((*token, Done::Filled { connection, buffer }));
                        open.receives.pop_front();
                        continue;
                    }
                    let request = Request::Receive { socket, buffer, from: *from, whole: true };
                    (request, Purpose::Receive { connection })
                }
                Some(Receive::Stream { .. }) if open.paused => return,
                Some(Receive::Stream { .. }) => {
                    let request = if self.kernel.receives_many() {
                        Request::ReceiveMany { socket }
                    } else {
                        let buffer = small_buffer(&self.pool, STREAM_BYTES);
                        Request::Receive { socket, buffer, from: 0, whole: false }
                    };
                    (request, Purpose::Stream { connection })
                }
            };
            open.receiving = true;
            open.in_flight += 1;
            let is_stream = matches!(purpose, Purpose::Stream { .. });
            let key = self.kernel.start_keyed(request, purpose);
            open.stream_request = is_stream.then_some(key);
        }
    }

    /// Part or all of an exact receive came, or its end.
    pub(super) fn on_receive(&mut self, connection: ConnId, event: Event) {
        let Some(Request::Receive { socket, buffer, from, .. }) = event.request else { return };
        let Some(open) = self.landed(connection) else { return };
        if event.result <= 0 && !is_transient(event.result) {
            let error = ended(event.result);
            return self.fail_receive(connection, error);
        }
        let from = from + event.result.max(0) as usize;
        if from < buffer.len() {
            open.in_flight += 1;
            let request = Request::Receive { socket, buffer, from, whole: true };
            return self.kernel.start(request, Purpose::Receive { connection });
        }
        open.receiving = false;
        if let Some(receive) = open.receives.pop_front() {
            self.ready.push((receive.token(), Done::Filled { connection, buffer }));
        }
        self.drive_receives(connection);
    }

    /// A stream brought something, or its end.
    pub(super) fn on_stream(&mut self, connection: ConnId, event: Event) {
        let more = event.request.is_none();
        let Event { request, result, flags, .. } = event;
        let count = usize::try_from(result).unwrap_or(0);
        let token = match self.connections.get_mut(connection.0) {
            Some(open) if !open.closed => open.receives.front().map(Receive::token),
            _ => None,
        };
        let bytes = match request {
            Some(Request::Receive { mut buffer, .. }) => {
                buffer.truncate(count);
                Some(buffer)
            }
            _ if count == 0 || token.is_none() => {
                self.kernel.discard_provided(flags);
                None
            }
            _ => {
                let mut buffer = small_buffer(&self.pool, count);
                self.kernel.take_provided(flags, &mut buffer);
                Some(buffer)
            }
        };
        if let (Some(token), Some(bytes)) = (token, bytes.filter(|bytes| !bytes.is_empty())) {
            self.ready.push((token, Done::Received { connection, bytes }));
        }
        if more {
            return;
        }
        let Some(open) = self.landed(connection) else { return };
        // Without a free buffer the kernel stops receiving. All buffers of this round are given
        // back before it is asked again, so it neither spins nor waits for a buffer that never comes.
        open.stream_request = None;
        let was_paused = -result == libc::ECANCELED;
        if result > 0 || -result == libc::ENOBUFS || is_transient(result) || was_paused {
            open.receiving = false;
            self.rearm.push(connection);
        } else {
            self.fail_receive(connection, ended(result));
        }
    }

    /// Goes on with streams that ended for want of buffers.
    pub(super) fn rearm_streams(&mut self) {
        for connection in std::mem::take(&mut self.rearm) {
            self.drive_receives(connection);
        }
    }

    /// Stops reading a stream, or goes on with it.
    pub(super) fn pause_stream(&mut self, connection: ConnId, paused: bool) {
        let Some(open) = self.connections.get_mut(connection.0) else { return };
        open.paused = paused;
        match open.stream_request {
            Some(request) if paused => self.kernel.cancel(request),
            _ => self.drive_receives(connection),
        }
    }

    fn fail_receive(&mut self, connection: ConnId, error: IoError) {
        let Some(open) = self.connections.get_mut(connection.0) else { return };
        open.receiving = false;
        if let Some(receive) = open.receives.pop_front() {
            self.fail(receive.token(), error);
        }
        self.drive_receives(connection);
    }

    /// Counts a request of a connection as back. `None` where the connection is closed; with its
    /// last request it then ends.
    pub(super) fn landed(&mut self, connection: ConnId) -> Option<&mut Connection> {
        let open = self.connections.get_mut(connection.0)?;
        open.in_flight -= 1;
        if open.closed {
            self.end_if_idle(connection);
            return None;
        }
        self.connections.get_mut(connection.0)
    }

    pub(super) fn close_connection(&mut self, connection: ConnId) {
        let Some(open) = self.connections.get_mut(connection.0) else { return };
        if open.closed {
            return;
        }
        open.closed = true;
        // Everything that waits in the kernel on this socket ends by this, receives and sends and
        // polls alike, so there is nothing to cancel. It fails where the peer was faster.
        let _ = open.socket.shutdown(Shutdown::Both);
        self.end_if_idle(connection);
    }

    fn end_if_idle(&mut self, connection: ConnId) {
        let Some(open) = self.connections.get_mut(connection.0) else { return };
        if open.in_flight > 0 {
            return;
        }
        let Some(open) = self.connections.remove(connection.0) else { return };
        let receives = open.receives.iter().map(Receive::token);
        let sends = open.sends.iter().map(|sending| sending.token);
        for token in receives.chain(sends).collect::<Vec<_>>() {
            self.fail(token, closed("the connection was closed by us"));
        }
    }

    pub(super) fn fail(&mut self, token: Token, error: IoError) {
        self.ready.push((token, Done::Failed { error }));
    }
}

/// A buffer from the pool, or from outside of it where the budget is used up: what has arrived must
/// be put somewhere, and it is little.
pub(super) fn small_buffer(pool: &crate::io::BufferPool, bytes: usize) -> Buffer {
    pool.lend(bytes).unwrap_or_else(|| Buffer::of(vec![0; bytes]))
}

fn ended(result: i32) -> IoError {
    match result {
        0 => closed("the peer ended the connection"),
        result => network("cannot receive", &os_error(result)),
    }
}
