//! A node from its start to its clean end: progress while it runs, signals, failures of shards.

use std::time::{Duration, Instant};

use engine::config::Config;
use engine::node::Node;

use super::Failure;
use super::progress::{Progress, Snapshot};
use super::signals::Stopping;
use super::terminal::Terminal;

/// How often signals and failures are looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often the numbers are read.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// How often a log says them where nobody looks at a terminal and something moves.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// The same where nothing moves.
const IDLE_LOG_INTERVAL: Duration = Duration::from_mins(5);

/// Runs a node until a signal or until it fails; tells on standard error how it goes.
///
/// # Errors
/// Where the node cannot start, fails, or cannot be closed cleanly.
pub fn run(config: &Config) -> Result<(), Failure> {
    let terminal = Terminal::stderr();
    terminal.take_log("info");
    let stopping = Stopping::listen()
        .map_err(|error| Failure::Runtime(format!("signals cannot be listened for: {error}")))?;
    warn_of_open_door(config);
    let node = Node::start(config).map_err(|error| Failure::Runtime(error.to_string()))?;
    tell_start(config, &node);
    let ended = watch(&node, config.source.is_some(), &terminal, &stopping);
    terminal.clear();
    if ended.is_ok() {
        tracing::info!("stopping; a second signal ends at once");
    }
    let stopped = node.stop().map_err(|error| Failure::Runtime(error.to_string()));
    ended?;
    stopped?;
    tracing::info!("stopped, all logs are closed");
    Ok(())
}

/// Says loudly that everybody is let in, where anybody but this host can come.
fn warn_of_open_door(config: &Config) {
    if config.listen.ip().is_loopback() {
        return;
    }
    tracing::warn!(
        "OPEN TO THE NETWORK: whoever reaches {} reads every topic, and nothing is encrypted. There \
         is no TLS and no SASL yet: let only trusted hosts reach this address, or listen on \
         127.0.0.1 and put a tunnel in front",
        config.listen
    );
}

fn tell_start(config: &Config, node: &Node) {
    tracing::info!("data in {}, cluster id {}", config.data.display(), node.cluster_id());
    let shards = config.shards;
    tracing::info!("Kafka clients are served on {} by {shards} shard(s)", node.address());
    if let Some(address) = node.http_address() {
        tracing::info!("metrics are shown on http://{address}/metrics");
        if !address.ip().is_loopback() {
            tracing::warn!("OPEN TO THE NETWORK: whoever reaches {address} reads the metrics");
        }
    }
    if let Some(source) = &config.source {
        let brokers: Vec<_> =
            source.bootstrap.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        tracing::info!("mirroring from {}", brokers.join(", "));
    }
}

/// Waits for the end, showing how it goes.
fn watch(
    node: &Node,
    mirrors: bool,
    terminal: &Terminal,
    stopping: &Stopping,
) -> Result<(), Failure> {
    let mut teller = Teller::new(mirrors, terminal.clone());
    loop {
        if stopping.is_asked() {
            return Ok(());
        }
        if let Some(failure) = node.failure() {
            return Err(Failure::Runtime(failure));
        }
        let shards = || node.metrics().iter().map(AsRef::as_ref);
        teller.tell(Instant::now(), || Snapshot::of(shards()));
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Reads the numbers each second and tells them: as a line that is rewritten, or as log lines now
/// and then.
struct Teller {
    progress: Progress,
    terminal: Terminal,
    read_at: Option<Instant>,
    told_at: Option<Instant>,
    told: Snapshot,
}

impl Teller {
    fn new(mirrors: bool, terminal: Terminal) -> Self {
        let told = Snapshot::default();
        Self { progress: Progress::new(mirrors), terminal, read_at: None, told_at: None, told }
    }

    fn tell(&mut self, now: Instant, read: impl FnOnce() -> Snapshot) {
        let elapsed = self.read_at.map(|at| now.duration_since(at));
        if elapsed.is_some_and(|elapsed| elapsed < READ_INTERVAL) {
            return;
        }
        let snapshot = read();
        self.progress.observe(snapshot, elapsed.unwrap_or_default());
        self.read_at = Some(now);
        if self.terminal.is_terminal() {
            self.terminal.show(&self.progress.line());
        } else if self.is_due(&snapshot, now) {
            tracing::info!("{}", self.progress.line());
            (self.told_at, self.told) = (Some(now), snapshot);
        }
    }

    fn is_due(&self, snapshot: &Snapshot, now: Instant) -> bool {
        let Some(at) = self.told_at else { return true };
        let waited = now.duration_since(at);
        let moved = |s: &Snapshot| (s.appended_bytes, s.served_bytes, s.lag_records);
        snapshot.differs_in_state(&self.told)
            || waited >= LOG_INTERVAL && moved(snapshot) != moved(&self.told)
            || waited >= IDLE_LOG_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_told_of_changes_at_once_of_movement_now_and_then_and_of_nothing_rarely() {
        let terminal = Terminal::new(Box::new(std::io::sink()), false);
        let mut teller = Teller::new(true, terminal);
        let start = Instant::now();
        let quiet = Snapshot { partitions: 2, mirroring: 2, ..Snapshot::default() };
        let moving = Snapshot { appended_bytes: 5, ..quiet };
        assert!(teller.is_due(&quiet, start), "the first time");
        (teller.told_at, teller.told) = (Some(start), quiet);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!teller.is_due(&moving, after(9)));
        assert!(teller.is_due(&moving, after(10)));
        assert!(!teller.is_due(&quiet, after(10)));
        assert!(teller.is_due(&quiet, after(300)));
        assert!(teller.is_due(&Snapshot { failed: 1, mirroring: 1, ..quiet }, after(1)));
    }
}
