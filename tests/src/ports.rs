//! Ports on loopback that stay ours between a kill and a restart.
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range the kernel hands to outgoing connections: a client's socket would otherwise
/// sometimes sit on the port of a broker that is down for a moment.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port nobody else in these tests gets while the lease lives.
#[derive(Debug)]
pub struct Lease {
    number: u16,
    /// Locked; the kernel unlocks it when the process dies, however it dies.
    _lock: File,
}

impl Lease {
    /// A free port, or a line saying why there is none.
    pub fn take() -> Result<Lease, String> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let folder = std::env::temp_dir().join("farspan-ports");
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        // Processes start their search apart, so that they rarely meet.
        let apart = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number =
                FIRST + (u32::from(apart) + u32::from(step)).rem_euclid(COUNT.into()) as u16;
            let path = folder.join(number.to_string());
            let lock = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Lease { number, _lock: lock });
            }
        }
        Err(format!("no free port from {FIRST} on, after {COUNT} tries"))
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leases_are_two_ports() {
        let (one, other) = (Lease::take().unwrap(), Lease::take().unwrap());
        assert_ne!(one.number(), other.number());
    }
}
