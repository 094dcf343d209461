//! What the system says, sorted by who must act.

use std::fmt;
use std::io;
use std::path::Path;

use crate::io::{IoError, IoErrorKind};

/// Why a ring could not be made: one line that says what is missing and what to do about it.
#[derive(Debug)]
pub struct RingError {
    message: String,
}

impl RingError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    /// The line for an `io_uring_setup` that failed.
    pub(super) fn setup(error: &io::Error) -> Self {
        let advice = match error.raw_os_error() {
            Some(libc::ENOSYS) => {
                "io_uring is not available: this kernel was built without it or a container \
                 profile hides it; farspan needs Linux 5.19 or newer with CONFIG_IO_URING, and a \
                 seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register"
            }
            Some(libc::EPERM) => {
                "io_uring is forbidden: either `sysctl kernel.io_uring_disabled` is not 0 (set it \
                 to 0, or to 1 with kernel.io_uring_group naming our group), or the container's \
                 seccomp profile refuses io_uring_setup (Docker: --security-opt seccomp=PROFILE \
                 that allows io_uring_setup, io_uring_enter and io_uring_register)"
            }
            Some(libc::ENOMEM) => {
                "no memory for an io_uring: raise the limit on locked memory (`ulimit -l`, \
                 systemd: LimitMEMLOCK=) or ask for fewer entries"
            }
            Some(libc::EMFILE | libc::ENFILE) => {
                "no descriptor left for an io_uring: raise `ulimit -n` (systemd: LimitNOFILE=)"
            }
            _ => "cannot set up an io_uring; farspan needs Linux 5.19 or newer",
        };
        Self::new(format!("{advice} ({error})"))
    }
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RingError {}

/// The error behind a negative result of the kernel.
pub(super) fn os_error(result: i32) -> io::Error {
    io::Error::from_raw_os_error(-result)
}

/// Whether a result says nothing but "ask again".
pub(super) fn is_transient(result: i32) -> bool {
    matches!(-result, libc::EINTR | libc::EAGAIN)
}

pub(super) fn closed(what: &str) -> IoError {
    IoError { kind: IoErrorKind::Closed, detail: what.to_owned() }
}

/// A failure on a connection.
pub(super) fn network(what: &str, error: &io::Error) -> IoError {
    let kind = match error.raw_os_error() {
        Some(libc::EPIPE | libc::ECANCELED | libc::ENOTCONN | libc::ESHUTDOWN) => {
            IoErrorKind::Closed
        }
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => IoErrorKind::Exhausted,
        _ => IoErrorKind::Network,
    };
    IoError { kind, detail: format!("{what}: {error}") }
}

/// A failure on a file.
pub(super) fn disk(operation: &str, path: &Path, error: &io::Error) -> IoError {
    let detail = format!("cannot {operation} {}: {error}", path.display());
    IoError { kind: disk_kind(error), detail }
}

/// Who must act on what a disk said.
pub(super) fn disk_kind(error: &io::Error) -> IoErrorKind {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => IoErrorKind::DiskFull,
        Some(libc::ENOENT) => IoErrorKind::NotFound,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => IoErrorKind::Exhausted,
        _ => match error.kind() {
            io::ErrorKind::NotFound => IoErrorKind::NotFound,
            io::ErrorKind::UnexpectedEof => IoErrorKind::Short,
            _ => IoErrorKind::Disk,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_cannot_be_made_says_what_to_do_in_one_line() {
        for (errno, word) in [
            (libc::ENOSYS, "5.19"),
            (libc::EPERM, "kernel.io_uring_disabled"),
            (libc::ENOMEM, "ulimit -l"),
            (libc::EMFILE, "ulimit -n"),
        ] {
            let line = RingError::setup(&io::Error::from_raw_os_error(errno)).to_string();
            assert!(line.contains(word), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        let kind = |errno| disk_kind(&io::Error::from_raw_os_error(errno));
        assert_eq!(kind(libc::ENOSPC), IoErrorKind::DiskFull);
        assert_eq!(kind(libc::EDQUOT), IoErrorKind::DiskFull);
        assert_eq!(kind(libc::EIO), IoErrorKind::Disk);
        assert_eq!(kind(libc::ENOENT), IoErrorKind::NotFound);
    }
}
