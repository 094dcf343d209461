//! What else the machine does: waited for before a run, counted during it.

use std::time::{Duration, Instant};

/// The unit of /proc's times.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processors that others may keep busy for a run to begin.
const BUSY_MOST: f64 = 0.5;
const WINDOW: Duration = Duration::from_millis(700);

/// Processor seconds that all processes together have used at their ordinary priority. Those that
/// stand back (nice) are left out of what is waited for.
fn used(with_nice: bool) -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal.
    let [user, nice, system, _, _, irq, soft, steal, ..] = ticks[..] else { return 0.0 };
    (user + system + irq + soft + steal + if with_nice { nice } else { 0.0 }) / TICKS_PER_SECOND
}

/// Waits until the machine is calm, but no longer than `patience`.
pub fn wait(patience: Duration) {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        let before = used(false);
        std::thread::sleep(WINDOW);
        if used(false) - before < BUSY_MOST * WINDOW.as_secs_f64() {
            return;
        }
    }
}

/// Counts what everybody uses from its start on.
#[derive(Clone, Copy, Debug)]
pub struct Everybody(f64);

impl Everybody {
    pub fn start() -> Self {
        Self(used(true))
    }

    pub fn cpu_seconds(self) -> f64 {
        used(true) - self.0
    }
}
