//! `farspan serve`: serves what was mirrored before.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::options::{self, LogOptions, NodeOptions, Options, Purpose, SourceOptions};
use super::run;

/// Serve the topics of a data folder to Kafka clients, without a source.
///
/// A file that `mirror` takes is taken, too: its [source] is checked and not used.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// A TOML file with the tables [node], [log] and [source]; its keys are named like the flags,
    /// and flags win over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    log: LogOptions,
}

const AFTER_HELP: &str = "\
Sizes: 1048576, 512MiB, 1.5GB. Durations: 500ms, 30s, 5m, 12h, 7d.
Exit codes: 0 stopped as asked, 1 failed, 2 mistakes in flags or file, 130 stopped by a second signal.
";

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { config, node, log } = arguments;
    let options = Options { node, log, source: SourceOptions::default() };
    run::run(&options::config(options, config.as_ref(), Purpose::Serve)?)
}
