//! A node as a process of its own, for tests that kill it. What people run is `farspan` in `tools`.
//!
//!     node --data FOLDER --listen ADDRESS --http ADDRESS [--from HOST:PORT] [--shards N]
//!          [--memory-bytes N] [--segment-bytes N]
//!
//! Runs until SIGTERM, which stops it in order, or SIGKILL. Exit code 1: a shard ended by itself.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use engine::config::Config;
use engine::node::Node;
use engine::source::LinkOptions;
use engine::store::LogConfig;

/// How often the shards are looked after.
const LOOK: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    // Before any thread is made, so that all of them inherit it.
    let signals = blocked_sigterm();
    let level = tracing_subscriber::EnvFilter::new("info");
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(level).init();
    let run = config(std::env::args().skip(1)).and_then(|config| run(&config, &signals));
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: &Config, signals: &libc::sigset_t) -> Result<(), String> {
    let node = Node::start(config).map_err(|error| error.to_string())?;
    while !terminated(signals) {
        if let Some(failure) = node.failure() {
            return Err(failure);
        }
    }
    node.stop().map_err(|error| error.to_string())
}

fn config(mut arguments: impl Iterator<Item = String>) -> Result<Config, String> {
    let mut given = BTreeMap::new();
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        given.insert(name, value);
    }
    let data = given.remove("--data").ok_or("--data is missing")?;
    let mut config = Config::new(data.into());
    let mut log = LogConfig { retention_ms: -1, ..LogConfig::default() };
    // Often, so that kills hit checkpoints too.
    config.checkpoint_interval = Duration::from_millis(500);
    for (name, value) in given {
        let bad = |error: &dyn std::fmt::Display| format!("{name} {value}: {error}");
        match name.as_str() {
            "--listen" => config.listen = value.parse().map_err(|e| bad(&e))?,
            "--http" => config.http = Some(value.parse().map_err(|e| bad(&e))?),
            "--shards" => config.shards = value.parse().map_err(|e| bad(&e))?,
            "--memory-bytes" => config.memory_bytes = value.parse().map_err(|e| bad(&e))?,
            "--segment-bytes" => log.segment_bytes = value.parse().map_err(|e| bad(&e))?,
            "--from" => {
                let (host, port) = value.rsplit_once(':').ok_or_else(|| bad(&"no port"))?;
                let port = port.parse().map_err(|e| bad(&e))?;
                let bootstrap = vec![(host.to_owned(), port)];
                config.source = Some(LinkOptions { bootstrap, ..LinkOptions::default() });
            }
            _ => return Err(bad(&"not known")),
        }
    }
    config.log = Arc::new(log);
    Ok(config)
}

fn blocked_sigterm() -> libc::sigset_t {
    // SAFETY: the set is made by sigemptyset before it is read, and the calls only write to it and to
    // this thread's mask.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Waits a little for SIGTERM.
fn terminated(signals: &libc::sigset_t) -> bool {
    let wait = libc::timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as libc::c_long };
    // SAFETY: both are read only, and nobody wants to know more about the signal.
    let signal = unsafe { libc::sigtimedwait(signals, std::ptr::null_mut(), &raw const wait) };
    signal == libc::SIGTERM
}
