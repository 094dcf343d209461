//! What can be said on the command line, and what a scenario is told.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

/// Measures farspan beside its peers.
#[derive(Debug, Parser)]
#[command(name = "perf")]
pub struct Arguments {
    /// A scenario, `all`, or `list`.
    pub name: String,
    /// Less data and fewer rounds: to see that it works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Rounds that count; one more goes before them and does not.
    #[arg(long)]
    rounds: Option<usize>,
    /// Bytes that each round moves.
    #[arg(long)]
    bytes: Option<u64>,
    /// Seconds that a run waits for a calm machine, at most.
    #[arg(long)]
    patience: Option<u64>,
    /// Where the numbers go, in place of perf/runs/SCENARIO.json (not written by --quick).
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where data lies while it is measured; the disk matters.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// A program `farspan` to measure, in place of the library in a process of this one.
    #[arg(long)]
    farspan: Option<PathBuf>,
    /// Another farspan in the same rounds, with these flags: `NAME=--fetch-bytes-max=8388608,...`.
    #[arg(long, value_name = "NAME=FLAGS")]
    also: Vec<String>,
    /// Only subjects whose name begins with one of these.
    #[arg(long)]
    only: Vec<String>,
}

/// What a scenario is told.
#[derive(Clone, Debug)]
pub struct Options {
    pub quick: bool,
    pub rounds: usize,
    pub bytes: u64,
    /// How long a run waits for a calm machine.
    pub patience: Duration,
    pub farspan: Option<PathBuf>,
    pub variants: Vec<Variant>,
    only: Vec<String>,
    folder: PathBuf,
    json: Option<PathBuf>,
}

/// A farspan that is measured.
#[derive(Clone, Debug)]
pub struct Variant {
    pub name: String,
    pub flags: Vec<String>,
}

const ROUNDS: usize = 9;
const ROUNDS_QUICK: usize = 2;
const BYTES: u64 = 3_000_000_000;
const BYTES_QUICK: u64 = 600_000_000;

impl Options {
    pub fn of(arguments: &Arguments) -> Result<Self, String> {
        let quick = arguments.quick;
        let mut variants = vec![Variant { name: "farspan".into(), flags: Vec::new() }];
        for also in &arguments.also {
            let (name, flags) = also.split_once('=').ok_or("--also wants NAME=FLAGS")?;
            let flags = flags.split(',').map(str::to_owned).collect();
            variants.push(Variant { name: format!("farspan {name}"), flags });
        }
        Ok(Self {
            quick,
            rounds: arguments.rounds.unwrap_or(if quick { ROUNDS_QUICK } else { ROUNDS }).max(1),
            bytes: arguments.bytes.unwrap_or(if quick { BYTES_QUICK } else { BYTES }),
            patience: Duration::from_secs(arguments.patience.unwrap_or(if quick { 0 } else { 20 })),
            farspan: arguments.farspan.clone(),
            variants,
            only: arguments.only.clone(),
            folder: arguments.folder.clone().unwrap_or_else(std::env::temp_dir),
            json: arguments.json.clone(),
        })
    }

    /// Whether a subject takes part.
    pub fn wants(&self, subject: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| subject.starts_with(only.as_str()))
    }

    /// A folder that is gone when it is dropped.
    pub fn folder(&self) -> Result<tempfile::TempDir, String> {
        tempfile::Builder::new()
            .prefix("farspan-perf-")
            .tempdir_in(&self.folder)
            .map_err(|error| format!("{}: {error}", self.folder.display()))
    }

    pub fn json_path(&self, scenario: &str) -> PathBuf {
        match &self.json {
            Some(path) => path.clone(),
            None if self.quick => self.folder.join(format!("farspan-perf-{scenario}.json")),
            None => {
                let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("runs");
                runs.join(format!("{scenario}.json"))
            }
        }
    }
}
