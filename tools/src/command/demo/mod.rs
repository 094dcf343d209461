//! `farspan demo`: a source cluster, a mirror and two readers in one process, to see with one's own
//! eyes that a mirror holds the same bytes.
//!
//! | file      | what it is for                                                    |
//! |-----------|-------------------------------------------------------------------|
//! | `source`  | topics of every kind, records that come in, leaders that move     |
//! | `compare` | reading both sides through the Kafka protocol, byte by byte       |

mod compare;
mod source;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use engine::config::{Config, MEMORY_BYTES_LEAST};
use engine::node::Node;
use engine::source::LinkOptions;
use engine::store::LogConfig;

pub use compare::{Compared, Comparison};
use source::Source;

use super::progress::Snapshot;
use super::quantity::{Bytes, Exactly};
use super::signals::Stopping;
use super::terminal::Terminal;
use super::{Failure, dump};

/// Show a mirror at work, with nothing but this program.
///
/// Starts a small Kafka source of three brokers in this process, with topics of every kind:
/// compressed and not, transactions that commit and abort, holes as compaction leaves them, a log
/// start that has moved. Mirrors it while more is produced, leaders move and a broker is down for a
/// while. Then reads both sides as a Kafka client does and compares every byte.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Exit codes: 0 both sides are equal, 1 they differ or something failed.")]
pub struct Arguments {
    /// Keep the mirror's data folder, and say where it is.
    #[arg(long)]
    pub keep: bool,
}

/// How long the mirror may take to catch up with what was produced.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    Terminal::stderr().take_log("error");
    let stopping = Stopping::listen().map_err(failed("signals"))?;
    let folder = tempfile::Builder::new().prefix("farspan-demo-").tempdir();
    let folder = folder.map_err(failed("a temporary folder"))?;
    let mut out = io::stdout().lock();
    let outcome = demo(folder.path(), &stopping, &mut out);
    if arguments.keep {
        let path = folder.keep();
        writeln!(out, "the mirror is in {}; look at it with: farspan dump {0}", path.display())
            .map_err(failed("standard output"))?;
    }
    match outcome?.is_equal() {
        true => Ok(()),
        false => Err(Failure::Runtime("the two sides differ".into())),
    }
}

fn failed<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Runtime(format!("{what}: {error}"))
}

/// Runs the demo with the mirror's data in `data`, and writes what it does to `out`.
///
/// # Errors
/// Where something could not be done, or `stopping` was asked for. That both sides differ is no
/// error: it is in the comparison.
pub fn demo(data: &Path, stopping: &Stopping, out: &mut dyn Write) -> Result<Comparison, Failure> {
    let mut say = |line: String| writeln!(out, "{line}").map_err(failed("output"));
    let mut source = Source::start().map_err(failed("the source"))?;
    say(format!("source    {}", source.description()))?;
    let node = Node::start(&config(data, &source)).map_err(failed("the mirror"))?;
    let mirror = Mirror { node, stopping };
    say(format!("mirror    Kafka clients are served on {}", mirror.node.address()))?;

    let (backlog, begun) = (source.bytes(), Instant::now());
    mirror.catch_up(&source)?;
    let took = begun.elapsed();
    let rate = PerSecond(backlog, took);
    say(format!("backlog   {} mirrored in {} ms, {rate}", Bytes(backlog), took.as_millis()))?;

    let live = source.live(|| mirror.check())?;
    say(format!("meanwhile {live}"))?;
    mirror.catch_up(&source)?;
    say(format!("caught up {} ms after the last record", live.last_write.elapsed().as_millis()))?;

    let begun = Instant::now();
    let ours = mirror.node.address().to_string();
    let comparison = compare::compare(&source.topics(), &source.bootstrap(), &ours)
        .map_err(failed("reading"))?;
    let (bytes, took) = (2 * comparison.bytes(), begun.elapsed());
    let rate = PerSecond(bytes, took);
    say(format!("read back {} from both sides in {} ms, {rate}", Bytes(bytes), took.as_millis()))?;
    mirror.node.stop().map_err(failed("the mirror"))?;
    let files = dump::check(data);
    say(format!("files     {files}"))?;
    say(format!("\n{comparison}"))?;
    match files.first_faults.first() {
        None => Ok(comparison),
        Some(fault) => Err(Failure::Runtime(fault.to_string())),
    }
}

/// A rate, for people.
struct PerSecond(u64, Duration);

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.1.as_secs_f64().max(1e-6);
        // Far below what a float holds exactly.
        write!(f, "{}/s", Bytes((self.0 as f64 / seconds) as u64))
    }
}

fn config(data: &Path, source: &Source) -> Config {
    let mut config = Config::new(data.into());
    config.listen = ([127, 0, 0, 1], 0).into();
    config.shards = config.shards.min(2);
    config.memory_bytes = usize::from(config.shards) * 2 * MEMORY_BYTES_LEAST;
    // Small, so that there are several segments to look at.
    let segment_bytes = 4 << 20;
    config.log = Arc::new(LogConfig { segment_bytes, ..LogConfig::clone(&config.log) });
    config.source = Some(LinkOptions {
        bootstrap: source.addresses(),
        fetch_bytes_max: 16 << 20,
        partition_fetch_bytes_max: 1 << 20,
        ..LinkOptions::default()
    });
    config
}

/// The node, and the wish to stop.
struct Mirror<'a> {
    node: Node,
    stopping: &'a Stopping,
}

impl Mirror<'_> {
    /// Whether to go on.
    fn check(&self) -> Result<(), Failure> {
        if self.stopping.is_asked() {
            return Err(Failure::Runtime("stopped by a signal".into()));
        }
        self.node.failure().map_or(Ok(()), |failure| Err(Failure::Runtime(failure)))
    }

    /// Waits until every byte of the source was written.
    fn catch_up(&self, source: &Source) -> Result<(), Failure> {
        let begun = Instant::now();
        let (bytes, partitions) = (source.bytes(), source.partition_count());
        loop {
            self.check()?;
            let now = Snapshot::of(self.node.metrics().iter().map(AsRef::as_ref));
            let is_caught_up =
                now.mirroring == partitions && now.lag_records == 0 && now.appended_bytes >= bytes;
            if is_caught_up {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::Runtime(format!(
                    "the mirror has not caught up in {} s: {} of {partitions} partitions mirroring \
                     ({} waiting, {} failed), {} records behind, {} of {} bytes written",
                    PATIENCE.as_secs(),
                    now.mirroring,
                    now.waiting,
                    now.failed,
                    now.lag_records,
                    Exactly(now.appended_bytes),
                    Exactly(bytes),
                )));
            }
            sleep(Duration::from_millis(1));
        }
    }
}
