//! The wish to stop, as signals tell it: the first asks, the second ends the process at once.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::{exit, pipe};

/// How a process ends that was signalled while it was already stopping (128 + SIGINT).
pub const SECOND_SIGNAL_CODE: i32 = 130;

/// Whether somebody wants the process to stop.
#[derive(Clone, Debug, Default)]
pub struct Stopping(Arc<AtomicBool>);

impl Stopping {
    /// Listens for SIGINT, SIGTERM and, as where a terminal was closed, SIGHUP. A file that may not grow
    /// any more (SIGXFSZ) is a write that fails, not the end of the process.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn listen() -> io::Result<Self> {
        let stopping = Self::default();
        flag::register(SIGXFSZ, Arc::default())?;
        // Signals may reach two threads at the same moment: a byte for each of them is counted by one.
        let (mut signals, signalled) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, stopping.0.clone())?;
            pipe::register(signal, signalled.try_clone()?)?;
        }
        // Both a shell and the kernel send it when a terminal is closed: it never counts as the second.
        // Whoever was started by nohup ignores it.
        if !is_ignored(SIGHUP) {
            flag::register(SIGHUP, stopping.0.clone())?;
        }
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            if signals.read_exact(&mut [0; 2]).is_ok() {
                exit(SECOND_SIGNAL_CODE);
            }
        })?;
        Ok(stopping)
    }

    /// Asks to stop, as a signal does.
    pub fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Whether this process was started to ignore a signal (proc(5), SigIgn).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
