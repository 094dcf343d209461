//! The kernel's ring behind a safe face: a request goes in with its memory, and comes out with it.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode};

use super::error::RingError;
use super::flight::{Event, Purpose, Request, Target};
use super::provided::{GROUP, Provided};
use super::slots::Slots;
use super::sys;
use super::{FeatureUse, RingOptions};

/// How long a ring that is dropped waits for the kernel to let go of what is in flight.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// Under this name come the completions that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// A request in flight and whom it is for.
struct Flight {
    request: Request,
    purpose: Purpose,
}

/// A request to be handed to the kernel, and the one that may start when it has succeeded.
struct Start {
    first: u64,
    then: Option<u64>,
}

/// How long to wait for a completion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

pub(super) struct Kernel {
    ring: IoUring,
    /// `None` only while it is dropped. Boxed so that it can be leaked.
    flights: Option<Box<Slots<Flight>>>,
    queue: VecDeque<Start>,
    /// Requests to be ended early.
    cancels: Vec<u64>,
    /// Present where the kernel receives again and again on one request (Linux 6.0).
    provided: Option<Box<Provided>>,
    has_file_table: bool,
}

impl Kernel {
    pub(super) fn new(options: &RingOptions) -> Result<Self, RingError> {
        let ring = build(options)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(|e| RingError::setup(&e))?;
        // IORING_OP_SOCKET came with 5.19, as did accepting again and again; it stands for both.
        if !probe.is_supported(opcode::Socket::CODE) || !ring.params().is_feature_ext_arg() {
            return Err(RingError::new(
                "this kernel's io_uring is too old; farspan needs Linux 5.19 or newer",
            ));
        }
        // Refused only by kernels that have no such cap, and then there is nothing to do about it.
        let mut workers = [options.workers_max, options.workers_max];
        let _ = ring.submitter().register_iowq_max_workers(&mut workers);
        // IORING_OP_SEND_ZC came with 6.0, as did receiving again and again.
        let many = options.features == FeatureUse::Probed
            && probe.is_supported(opcode::SendZc::CODE)
            && options.stream_buffers > 0;
        let entries = options.stream_buffers.next_power_of_two().min(1 << 15);
        let provided = many
            .then(|| Provided::register(&ring.submitter(), entries, options.stream_buffer_bytes))
            .and_then(|registered| {
                registered
                    .inspect_err(|e| tracing::warn!("no shared receive buffers: {e}"))
                    .ok()
                    .map(Box::new)
            });
        let flights = Some(Box::new(Slots::new()));
        let (queue, cancels) = (VecDeque::new(), Vec::new());
        Ok(Self { ring, flights, queue, cancels, provided, has_file_table: false })
    }

    /// Whether [`Request::ReceiveMany`] can be used.
    pub(super) fn receives_many(&self) -> bool {
        self.provided.is_some()
    }

    /// Queues a request; the next `enter` hands it to the kernel.
    pub(super) fn start(&mut self, request: Request, purpose: Purpose) {
        self.start_keyed(request, purpose);
    }

    /// Queues a request under a key by which it can be cancelled.
    pub(super) fn start_keyed(&mut self, request: Request, purpose: Purpose) -> u64 {
        let first = self.insert(request, purpose);
        self.queue.push_back(Start { first, then: None });
        first
    }

    /// Asks for an early end of a request, which completes all the same.
    pub(super) fn cancel(&mut self, key: u64) {
        self.cancels.push(key);
    }

    /// Queues two requests of which the second starts when the first has succeeded in full, and is
    /// cancelled otherwise. Both complete.
    pub(super) fn start_both(&mut self, first: (Request, Purpose), then: (Request, Purpose)) {
        let first = self.insert(first.0, first.1);
        let then = Some(self.insert(then.0, then.1));
        self.queue.push_back(Start { first, then });
    }

    fn insert(&mut self, request: Request, purpose: Purpose) -> u64 {
        self.flights().insert(Flight { request, purpose })
    }

    fn flights(&mut self) -> &mut Slots<Flight> {
        self.flights.as_mut().expect("there until the drop")
    }

    /// Hands what is queued to the kernel and waits for a completion. Returns early for a signal,
    /// and where the completion queue must be emptied first: the caller reaps and comes again.
    pub(super) fn enter(&mut self, wait: Wait) {
        loop {
            self.fill();
            let all = self.queue.is_empty() && self.cancels.is_empty();
            let (submitter, mut sq, cq) = self.ring.split();
            sq.sync();
            let idle = sq.is_empty() && !sq.taskrun() && !sq.cq_overflow();
            let result = match wait {
                _ if !cq.is_empty() && idle => return,
                Wait::No if idle => return,
                Wait::AtMost(_) | Wait::Forever if !all => submitter.submit(),
                Wait::No => submitter.submit(),
                Wait::AtMost(time) => {
                    let time = Timespec::from(time);
                    submitter.submit_with_args(1, &SubmitArgs::new().timespec(&time))
                }
                Wait::Forever => submitter.submit_and_wait(1),
            };
            drop((sq, cq));
            match result.map_err(|e| (e.raw_os_error(), e)) {
                Ok(_) if all => return,
                Ok(_) => {}
                Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => return,
                Err((_, error)) => panic!("io_uring_enter refused what we ask: {error}"),
            }
            if !self.ring.completion().is_empty() {
                return;
            }
        }
    }

    /// Hands what is queued to the kernel at once.
    pub(super) fn hand_over(&mut self) {
        if !self.queue.is_empty() {
            self.enter(Wait::No);
        }
    }

    /// Moves queued requests into the kernel's queue while there is room.
    fn fill(&mut self) {
        let flights = self.flights.as_mut().expect("there until the drop");
        let mut sq = self.ring.submission();
        while let Some(start) = self.queue.front() {
            if sq.capacity() - sq.len() < 2 {
                break;
            }
            let mut entry = entry_of(&mut flights.get_mut(start.first).expect("queued").request);
            if start.then.is_some() {
                entry = entry.flags(Flags::IO_LINK);
            }
            let first = entry.user_data(start.first);
            // SAFETY: everything that the entry points to is owned by the flight under this key, in
            // heap memory that does not move with it. The flight stays in `flights`, unreachable by
            // anyone, until `reap` removes it on its last completion; `Drop` waits for that or
            // leaks. There is room for two.
            unsafe { sq.push(&first).expect("there is room") };
            if let Some(key) = start.then {
                let entry = entry_of(&mut flights.get_mut(key).expect("queued").request);
                // SAFETY: as above.
                unsafe { sq.push(&entry.user_data(key)).expect("there is room") };
            }
            self.queue.pop_front();
        }
        // After what is queued, so that a request is known by the time that it is cancelled.
        while self.queue.is_empty() && sq.len() < sq.capacity() {
            let Some(key) = self.cancels.pop() else { return };
            let cancel = opcode::AsyncCancel::new(key).build().user_data(NOBODY);
            // SAFETY: the entry points to nothing. There is room.
            unsafe { sq.push(&cancel).expect("there is room") };
        }
    }

    /// The next completion, if there is one already.
    pub(super) fn reap(&mut self) -> Option<Event> {
        loop {
            let completion = self.ring.completion().next()?;
            let (key, result, flags) =
                (completion.user_data(), completion.result(), completion.flags());
            if cqueue::more(flags) {
                if let Some(flight) = self.flights().get_mut(key) {
                    let purpose = flight.purpose.clone();
                    return Some(Event { purpose, request: None, result, flags });
                }
            } else if let Some(flight) = self.flights().remove(key) {
                let Flight { request, purpose } = flight;
                return Some(Event { purpose, request: Some(request), result, flags });
            }
            debug_assert_eq!(key, NOBODY, "a completion belongs to a flight");
        }
    }

    /// Copies what a completion of [`Request::ReceiveMany`] brought and recycles its buffer.
    pub(super) fn take_provided(&mut self, flags: u32, into: &mut [u8]) {
        let buffer = cqueue::buffer_select(flags).expect("a completion with bytes has a buffer");
        self.provided.as_mut().expect("it was used").take(buffer, into);
    }

    /// Recycles the buffer of a completion whose bytes nobody wants any more.
    pub(super) fn discard_provided(&mut self, flags: u32) {
        if let (Some(buffer), Some(provided)) =
            (cqueue::buffer_select(flags), self.provided.as_mut())
        {
            provided.give(buffer);
        }
    }

    /// Makes the ring's own table of files.
    pub(super) fn make_file_table(&mut self, slots: u32) -> io::Result<()> {
        self.ring.submitter().register_files_sparse(slots)?;
        self.has_file_table = true;
        Ok(())
    }

    /// Puts a file into a place of the table, or with -1 empties the place. The table holds the
    /// file open by itself.
    pub(super) fn set_file(&mut self, slot: u32, fd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_files_update(slot, &[fd]).map(drop)
    }
}

impl Drop for Kernel {
    /// Cancels everything and waits until the kernel has let go of our memory; what it does not let
    /// go of in time is leaked, since it may still be written to.
    fn drop(&mut self) {
        let deadline = Instant::now() + DRAIN_TIME_MAX;
        while let Some(start) = self.queue.pop_front() {
            self.flights().remove(start.first);
            start.then.map(|key| self.flights().remove(key));
        }
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build().user_data(NOBODY);
        // SAFETY: the entry points to nothing.
        let mut asked = unsafe { self.ring.submission().push(&cancel) }.is_ok();
        while self.flights().len() > 0 && Instant::now() < deadline {
            self.enter(Wait::AtMost(Duration::from_millis(100)));
            while let Some(event) = self.reap() {
                // A connection that nobody will hear of any more.
                if matches!(event.purpose, Purpose::Accept { .. }) && event.result >= 0 {
                    drop(sys::adopt(event.result));
                }
            }
            if !asked {
                // SAFETY: as above.
                asked = unsafe { self.ring.submission().push(&cancel) }.is_ok();
            }
        }
        // A table that goes down with its ring does so behind our back, and holds up whoever wants
        // to remove the files' folder meanwhile.
        if self.has_file_table {
            let _ = self.ring.submitter().unregister_files();
        }
        if self.flights().len() > 0 {
            tracing::error!(
                "{} operations did not end; their memory is lost",
                self.flights().len()
            );
            self.flights.take().map(Box::leak);
            self.provided.take().map(Box::leak);
        } else if self.provided.is_some() {
            let _ = self.ring.submitter().unregister_buf_ring(GROUP);
        }
    }
}

/// The best ring that this kernel makes.
fn build(options: &RingOptions) -> Result<IoUring, RingError> {
    let completions = options.entries.saturating_mul(4);
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for level in 0..3 {
        if level < 2 && options.features == FeatureUse::Least {
            continue;
        }
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(completions).setup_submit_all();
        match level {
            // 6.1: completions are worked on when we wait for them, not whenever they come.
            0 => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            1 => builder.setup_coop_taskrun().setup_taskrun_flag(),
            _ => &mut builder,
        };
        match builder.dontfork().build(options.entries) {
            Ok(ring) => return Ok(ring),
            // Only an unknown flag is worth another try.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(RingError::setup(&error)),
        }
    }
    Err(RingError::setup(&refused))
}

/// Builds an entry for whichever kind of file the target is; the two kinds share no nameable trait.
macro_rules! on_target {
    ($target:expr, $file:ident => $entry:expr) => {
        match $target {
            Target::Fd(fd) => {
                let $file = Fd(*fd);
                $entry.build()
            }
            Target::Slot(slot) => {
                let $file = Fixed(*slot);
                $entry.build()
            }
        }
    };
}

/// Describes a request to the kernel. The pointers are made here, from the request in its final
/// place, and used by nobody but the kernel.
fn entry_of(request: &mut Request) -> Entry {
    let send_flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
    match request {
        Request::AcceptMany { listener } => opcode::AcceptMulti::new(Fd(*listener))
            .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
            .build(),
        Request::Connect { socket, address } => {
            let (address, length) = address.as_parts();
            opcode::Connect::new(Fd(socket.as_raw_fd()), address, length).build()
        }
        Request::Receive { socket, buffer, from, whole } => {
            let into = &mut buffer[*from..];
            let (pointer, length) = (into.as_mut_ptr(), length_of(into.len()));
            let flags = if *whole { libc::MSG_WAITALL } else { 0 };
            opcode::Recv::new(Fd(*socket), pointer, length).flags(flags).build()
        }
        Request::ReceiveMany { socket } => opcode::RecvMulti::new(Fd(*socket), GROUP).build(),
        Request::Send { socket, bytes, from, more } => {
            let bytes = &bytes[*from..];
            let flags = if *more { send_flags | libc::MSG_MORE } else { send_flags };
            opcode::Send::new(Fd(*socket), bytes.as_ptr(), length_of(bytes.len()))
                .flags(flags)
                .build()
        }
        Request::Read { file, position, buffer } => {
            let (pointer, length) = (buffer.as_mut_ptr(), length_of(buffer.len()));
            on_target!(file, f => opcode::Read::new(f, pointer, length).offset(*position))
        }
        Request::WillNeed { file, position, length } => {
            let length = libc::off_t::from(*length);
            on_target!(file, f => {
                opcode::Fadvise::new(f, length, libc::POSIX_FADV_WILLNEED).offset(*position)
            })
        }
        Request::Write { file, position, bytes, from } => {
            let bytes = &bytes[*from..];
            let (pointer, length) = (bytes.as_ptr(), length_of(bytes.len()));
            on_target!(file, f => opcode::Write::new(f, pointer, length).offset(*position))
        }
        Request::Sync { file } => {
            on_target!(file, f => opcode::Fsync::new(f).flags(FsyncFlags::DATASYNC))
        }
        Request::SpliceIn { file, position, pipe, length } => {
            let (position, pipe) = (*position as i64, Fd(*pipe));
            on_target!(file, f => opcode::Splice::new(f, position, pipe, -1, *length))
        }
        Request::SpliceOut { pipe, socket, length, more } => {
            let flags = if *more { libc::SPLICE_F_MORE } else { 0 };
            opcode::Splice::new(Fd(*pipe), -1, Fd(*socket), -1, *length).flags(flags).build()
        }
        Request::Writable { socket } => {
            opcode::PollAdd::new(Fd(*socket), libc::POLLOUT as u32).build()
        }
        Request::Bell { fd, count } => {
            opcode::Read::new(Fd(*fd), count.as_mut_ptr(), count.len() as u32).build()
        }
    }
}

fn length_of(bytes: usize) -> u32 {
    // The kernel moves less than 2 GiB at a time; what is left is continued.
    bytes.min(1 << 30) as u32
}
