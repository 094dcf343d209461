//! The few system calls that neither the ring nor the standard library has, each behind a safe face.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A zero or positive result, or what `errno` says.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes ownership of a descriptor that the kernel has just given us.
pub(super) fn adopt(fd: RawFd) -> OwnedFd {
    assert!(fd >= 0, "the kernel gives descriptors that are not negative");
    // SAFETY: the callers in `sockets` pass each accepted descriptor once, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A TCP socket that is not connected yet.
pub(super) fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes three numbers and touches no memory of ours.
    checked(unsafe { libc::socket(family, kind, 0) }).map(adopt)
}

/// Sets an option whose value is a number.
pub(super) fn set_option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer and the size describe `value`, which lives until the call returns.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size) };
    checked(result).map(drop)
}

/// An address as connect(2) wants it.
pub(super) struct SocketAddress {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl SocketAddress {
    pub(super) fn new(address: &SocketAddr) -> Self {
        // SAFETY: `sockaddr_storage` is plain numbers, for which all zeroes is a value.
        let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
        let length = match address {
            SocketAddr::V4(v4) => {
                let inner = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: `sockaddr_storage` is as large and as aligned as any socket address.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(inner) };
                mem::size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let inner = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(inner) };
                mem::size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, length: length as libc::socklen_t }
    }

    pub(super) fn as_parts(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        ((&raw const self.storage).cast(), self.length)
    }
}

/// Sends part of a file; never waits for the peer, may wait for the disk.
pub(super) fn sendfile(
    socket: &TcpStream,
    file: &File,
    position: u64,
    length: usize,
) -> io::Result<usize> {
    let mut offset = position as libc::off_t;
    // SAFETY: `offset` lives until the call returns; both descriptors are borrowed from owners.
    let sent =
        unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, length) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Where the page cache is asked whether it has some bytes: more often than backfill leaves the
/// blocks in it that two appends share, and nothing between them.
const PROBE_EVERY: usize = 64 << 10;

/// Whether the page cache has some bytes of a file, by samples and the last of them. What lies
/// between may still be missing; the answer keeps nearly all reads of a cold file off the shard's
/// thread.
pub(super) fn is_resident(file: &File, position: u64, length: usize) -> bool {
    let last = position + (length as u64).saturating_sub(1);
    (position..=last).step_by(PROBE_EVERY).all(|probe| has_byte(file, probe))
        && (last / 4_096 == position / 4_096 || has_byte(file, last))
}

fn has_byte(file: &File, position: u64) -> bool {
    let mut byte = 0_u8;
    let into = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let (fd, position) = (file.as_raw_fd(), position as libc::off_t);
    // SAFETY: the vector describes `byte`; both live until the call returns.
    let read = unsafe { libc::preadv2(fd, &raw const into, 1, position, libc::RWF_NOWAIT) };
    // Behind the end of the file nothing has to be fetched, and who cannot tell must try.
    read >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
}

/// Reserves room for bytes that are about to be written; the file grows only when they are. Without
/// it they are written all the same: a file system that cannot, or has no room, says so then.
pub(super) fn reserve(file: &File, position: u64, length: usize) {
    let (position, length) = (position as libc::off_t, length as libc::off_t);
    // SAFETY: fallocate(2) takes numbers and touches no memory of ours.
    unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, position, length) };
}

/// Drops a file's clean pages from the page cache.
#[cfg(test)]
pub(super) fn drop_cached(file: &File) {
    // SAFETY: posix_fadvise(2) takes numbers and touches no memory of ours.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Asks for a pipe that holds `bytes` and says what it holds now.
pub(super) fn set_pipe_bytes(pipe: RawFd, bytes: u32) -> io::Result<u32> {
    // SAFETY: fcntl(2) with these two commands takes numbers and touches no memory of ours.
    let set = unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, bytes as libc::c_int) };
    if set > 0 {
        return Ok(set as u32);
    }
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(pipe, libc::F_GETPIPE_SZ) }).map(|bytes| bytes as u32)
}

/// A counter that a poll can wait for.
pub(super) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: eventfd(2) takes two numbers and touches no memory of ours.
    checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(adopt)
}

/// Raises the limit on open descriptors as far as this process may and says how far that is.
pub(super) fn raise_open_files() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives until the call returns and has the shape that it fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 1_024;
    }
    let system_max = std::fs::read_to_string("/proc/sys/fs/nr_open")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(limit.rlim_max);
    // First what only the privileged may, then what everybody may.
    for wanted in [limit.rlim_max.max(system_max), limit.rlim_max] {
        let raised = libc::rlimit { rlim_cur: wanted, rlim_max: wanted.max(limit.rlim_max) };
        // SAFETY: `raised` lives until the call returns and is only read.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            return usize::try_from(wanted).unwrap_or(usize::MAX);
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Keeps the calling thread on one processor.
pub(super) fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a `cpu_set_t` is plain numbers; `cpu` lies within it; the set lives through the call.
    checked(unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &raw const set)
    })
    .map(drop)
}
