//! `farspan mirror`: mirrors topics of a source cluster, and serves them.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::options::{self, Options, Purpose};
use super::run;

/// Mirror topics of a Kafka cluster and serve them to Kafka clients.
///
/// The topics keep their names, ids, offsets and bytes. Stop it with SIGINT or SIGTERM; started again
/// on the same folder, it goes on where it was.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// A TOML file with the tables [node], [log] and [source]; its keys are named like the flags,
    /// and flags win over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
Sizes: 1048576, 512MiB, 1.5GB. Durations: 500ms, 30s, 5m, 12h, 7d.
Exit codes: 0 stopped as asked, 1 failed, 2 mistakes in flags or file, 130 stopped by a second signal.

  farspan mirror --from kafka-1:9092,kafka-2:9092 --topics 'orders|pay.*' --data /var/lib/farspan
";

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    let config = options::config(arguments.options, arguments.config.as_ref(), Purpose::Mirror)?;
    run::run(&config)
}
