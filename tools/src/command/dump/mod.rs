//! `farspan dump`: shows what the files of a log hold, and checks that they fit together.
//!
//! | file        | what it knows                                                     |
//! |-------------|-------------------------------------------------------------------|
//! | `find`      | which of the paths is a data folder, a partition, a file          |
//! | `partition` | the segments of one partition, in order                           |
//! | `segment`   | one segment: its batches, and its indexes beside them             |
//! | `log`       | batches of a file, one at a time                                  |
//! | `index`     | entries of offset, time and transaction index                     |
//! | `records`   | records of a batch                                                |
//! | `small`     | the small files: snapshots, epochs, ids, checkpoints              |
//! | `item`      | everything that is shown, as text and as JSON                     |
//! | `report`    | where it is shown; faults and sums                                |
//!
//! Memory is bounded by the largest batch and the largest index, however large the files are.

mod find;
mod index;
mod item;
mod log;
mod partition;
mod records;
mod report;
mod segment;
mod small;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;

pub use report::{Fault, Summary};

use super::Failure;
use report::Report;

/// Show what segment files and their indexes hold, and check them.
///
/// Checked are: the CRC of every batch; that offsets and leader epochs rise; that each entry of an
/// index points where its offset, time or marker is; with --records that every record decodes. Takes
/// folders and files of Kafka brokers, too. In the folder of a node that runs, the last batch may be
/// seen half written.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Exit codes: 0 all is well, 1 something is wrong, 2 mistakes in flags.")]
pub struct Arguments {
    /// Data folders, partition folders, or single files of a log.
    #[arg(required = true, value_name = "DIR_OR_FILE")]
    pub paths: Vec<PathBuf>,
    /// Show the records of each batch, decompressed.
    #[arg(long)]
    pub records: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Only faults and sums.
    #[arg(long, short)]
    pub quiet: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    for path in &arguments.paths {
        let wrong = match std::fs::metadata(path) {
            Ok(found) if found.is_file() || found.is_dir() => continue,
            Ok(_) => "it is neither a file nor a folder".to_string(),
            Err(error) => error.to_string(),
        };
        return Err(Failure::Usage(format!("{}: {wrong}", path.display())));
    }
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    match dump(arguments, &mut out).and_then(|summary| out.flush().map(|()| summary)) {
        Ok(summary) if summary.faults == 0 => Ok(()),
        Ok(_) => Err(Failure::Told),
        // Whoever read has seen enough (`| head`).
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Runtime(error.to_string())),
    }
}

/// Writes what the arguments ask for, and gives the sums.
///
/// # Errors
/// Where `out` cannot be written to. What is wrong with the files is in the sums.
pub fn dump(arguments: &Arguments, out: &mut dyn Write) -> io::Result<Summary> {
    let mut report = Report::new(out, arguments.json, arguments.quiet);
    for path in &arguments.paths {
        find::dump(path, arguments.records, &mut report)?;
    }
    report.finish()
}

/// Checks the files at a path with every record in them, for tests and measurements. The faults are
/// in the sums, the first of them with their places.
#[must_use]
pub fn check(path: &Path) -> Summary {
    let mut nowhere = io::sink();
    let mut report = Report::new(&mut nowhere, false, true);
    find::dump(path, true, &mut report)
        .and_then(|()| report.finish())
        .expect("nothing refuses no bytes")
}

#[cfg(test)]
mod tests;
